"""Input sources: where an input of a captured graph comes from, and how to read it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.capture.effects.stores import tensor_in
from lucerne._src.capture.trace.recorder import cover_of
from lucerne._src.tensor.random.api import new_key

ARGUMENT, HELD, GRADIENT, COVER, SLOT, CONSTANT, TANGENT, NUMBER, KEY, INNER = (
    "argument", "held", "gradient", "cover", "slot", "constant", "tangent", "number", "key",
    "inner",
)  # fmt: skip


@dataclass
class InputSource:
    """Where an input of the graph comes from at each call."""

    kind: str
    index: int = 0
    """Of ARGUMENT: which leaf of the arguments; of TANGENT: which output; of SLOT: which leaf of
    what it holds."""
    thing: Any = None
    """HELD, CONSTANT: the tensor. GRADIENT: whose gradient. NUMBER: a GivenFloat. COVER: the
    source of a tensor; it is all of the memory that one lies in. SLOT: the slot. INNER: the
    source of a tensor that wraps others. KEY: the device (None: the host)."""
    name: str = ""
    """Of INNER: which of them."""


def tensor_of(source: InputSource, leaves: Sequence[Any]) -> Any:
    """The tensor that a source names in this call."""
    if source.kind == ARGUMENT:
        return leaves[source.index]
    if source.kind == GRADIENT:
        return tensor_of(source.thing, leaves).grad
    if source.kind == SLOT:
        return tensor_in(source.thing, source.index)
    if source.kind == INNER:
        return getattr(tensor_of(source.thing, leaves), source.name)
    if source.kind == COVER:
        return cover_of(tensor_of(source.thing, leaves))
    if source.kind == KEY:
        return new_key(source.thing)
    return source.thing


def reads_gradient(source: Any) -> bool:
    """Whether it is found by way of somebody's `.grad`, which a call may set."""
    while type(source) is InputSource:
        if source.kind == GRADIENT:
            return True
        source = source.thing
    return False
