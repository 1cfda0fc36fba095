"""The road of a captured call, by what `compile` was told."""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.loops.stages import Stages
from lucerne._src.pipeline.road import Road, Saw, nobody


def road_of(
    options: Any, stages: Stages | None = None, *, backend: str = "", saw: Saw = nobody
) -> Road:
    """`backend`: whose programs are made, if it is not the one of the options. Where somebody else
    makes what runs (`options.maker`), the road ends with its graphs."""
    found = None if options.maker is not None else backends.get(backend or options.backend)
    return Road(
        found,
        mode=options.mode,
        disable=options.disable,
        stages=stages,
        body=options.whole.graph_of,
        saw=saw,
    )
