"""Lanes of a tensor to and from memory, by the way a loop moves through it (see `space`).

Stored lanes are the raw form of a dtype: one vector, or two (real and imaginary) when complex.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.elementwise.space import BACKWARD, BROADCAST, UNIT
from lucerne._src.backends.cpu.emit.builder import I1, I32, I64, PTR, VOID, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.math.storage import deinterleave, interleave

Parts = tuple[LLVMValue, ...]


@dataclass(frozen=True)
class Element:
    """How one element lies in memory: `parts` numbers of an LLVM type, one after the other."""

    type: Type
    parts: int = 1

    @property
    def size(self) -> int:
        return self.type.size * self.parts


def moving_cost(*elements: Element) -> float:
    """Cost per element of work that is bound by memory, against that of moving four bytes."""
    return min(4.0, max(0.25, max(e.size for e in elements) / 4))


@dataclass
class Lane:
    """One operand inside a loop: where its element 0 is and how it goes on from there."""

    element: Element
    way: str
    pointer: LLVMValue
    stride: LLVMValue | None = None
    """Bytes from lane to lane, when the way is STRIDED."""
    still: Parts | None = None
    """The lanes of a BROADCAST operand, loaded before the loop."""


def hold_still(f: LLVMFunction, lane: Lane, lanes: int) -> None:
    """Load a BROADCAST operand once, before the loop."""
    if lane.way == BROADCAST:
        e = lane.element
        lane.still = tuple(
            f.splat(f.load(e.type, f.at(lane.pointer, k * e.type.size)), lanes)
            for k in range(e.parts)
        )


def load_lanes(
    f: LLVMFunction, lane: Lane, index: LLVMValue, lanes: int, mask: LLVMValue | None
) -> Parts:
    """Elements `index`, `index + 1`, ...; lanes that the mask turns off read nothing."""
    if lane.still is not None:
        return lane.still
    e = lane.element
    if lane.way == UNIT:
        place = f.at(lane.pointer, index * e.parts, e.type)
        wide = e.type.vector(lanes * e.parts)
        if mask is None:
            got = f.load(wide, place)
        else:
            got = f.masked_load(wide, place, _for_parts(f, mask, e.parts))
        return (got,) if e.parts == 1 else deinterleave(f, got)
    if lane.way == BACKWARD:
        return _load_backward(f, lane, index, lanes, mask)
    return tuple(_gather(f, e, p, lanes, mask) for p in _places(f, lane, index, lanes))


def store_lanes(
    f: LLVMFunction,
    lane: Lane,
    index: LLVMValue,
    parts: Parts,
    mask: LLVMValue | None,
    *,
    stream: bool = False,
) -> None:
    """Write elements `index`, `index + 1`, ... where the mask is on."""
    e = lane.element
    lanes = max(1, parts[0].type.lanes)
    if lane.way == UNIT:
        place = f.at(lane.pointer, index * e.parts, e.type)
        v = parts[0] if e.parts == 1 else interleave(f, *parts)
        if mask is not None:
            f.masked_store(v, place, _for_parts(f, mask, e.parts))
        elif stream:
            f.store(v, place, align=v.type.nbytes, stream=True)
        else:
            f.store(v, place)
        return
    for v, p in zip(parts, _places(f, lane, index, lanes), strict=True):
        _scatter(f, e, v, p, mask)


def _load_backward(
    f: LLVMFunction, lane: Lane, index: LLVMValue, lanes: int, mask: LLVMValue | None
) -> Parts:
    """The lanes that end at element `-index`, turned around."""
    e = lane.element
    place = f.at(lane.pointer, (0 - index - (lanes - 1)) * e.parts, e.type)
    wide = e.type.vector(lanes * e.parts)
    if mask is None:
        got = f.load(wide, place)
    else:
        around = f.shuffle(mask, None, range(lanes - 1, -1, -1))
        got = f.masked_load(wide, place, _for_parts(f, around, e.parts))
    parts = (got,) if e.parts == 1 else deinterleave(f, got)
    return tuple(f.shuffle(v, None, range(lanes - 1, -1, -1)) for v in parts)


def _for_parts(f: LLVMFunction, mask: LLVMValue, parts: int) -> LLVMValue:
    """A mask of elements as a mask of their numbers in memory."""
    if parts == 1:
        return mask
    return f.shuffle(mask, None, [k // parts for k in range(mask.type.lanes * parts)])


def _places(f: LLVMFunction, lane: Lane, index: LLVMValue, lanes: int) -> list[LLVMValue]:
    """Vectors of addresses, one for each part of an element."""
    assert lane.stride is not None, "a strided operand needs its stride"
    wide = I64.vector(lanes)
    steps = f.lanes(wide) * f.splat(lane.stride, lanes)
    start = f.at(lane.pointer, index * lane.stride)
    return [
        f.value(
            PTR.vector(lanes),
            f"getelementptr i8, ptr {f.at(start, k * lane.element.type.size).text}, "
            f"{wide.text} {steps.text}",
        )
        for k in range(lane.element.parts)
    ]


def _gather(
    f: LLVMFunction, e: Element, places: LLVMValue, lanes: int, mask: LLVMValue | None
) -> LLVMValue:
    wide = e.type.vector(lanes)
    on = f.constant(1, I1.vector(lanes)) if mask is None else mask
    return f.call(
        f"llvm.masked.gather.{wide.suffix}.v{lanes}p0",
        wide,
        [places, f.constant(e.type.size, I32), on, f.zero(wide)],
    )


def _scatter(
    f: LLVMFunction, e: Element, v: LLVMValue, places: LLVMValue, mask: LLVMValue | None
) -> None:
    lanes = v.type.lanes
    on = f.constant(1, I1.vector(lanes)) if mask is None else mask
    f.call(
        f"llvm.masked.scatter.{v.type.suffix}.v{lanes}p0",
        VOID,
        [v, places, f.constant(e.type.size, I32), on],
    )
