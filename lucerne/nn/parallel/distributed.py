"""DistributedDataParallel: named here, built with `lucerne.distributed`."""

from __future__ import annotations

from typing import Any

from lucerne.nn.modules.module import Module


class DistributedDataParallel(Module):
    """A module trained by several processes; needs process groups, which this version lacks."""

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "DistributedDataParallel needs lucerne.distributed, which is not part of this version "
            "yet. One process trains the module itself: use it without the wrapper."
        )
