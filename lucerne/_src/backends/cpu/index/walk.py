"""Walks: loops over the elements of an indexing, planned from the shapes alone.

A walk has dimensions with a size and a byte stride for each operand. Operand 0 is the target that
is written, operand 1 the source that is read, the others are index tensors. Where the values of an
index tensor lead (`reach`) is a property of the whole walk: so many bytes for each unit.

Dimensions are `free` when every element along them has a place of its own in the target: only these
may be split among threads. Those along which places may repeat are walked in order by one thread,
so results never depend on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from lucerne._src.ir.symbolic.numbers import if_at_least, is_symbolic, least, most

GRAIN = 1 << 14
"""Elements worth a chunk of work for a thread."""

_NARROWEST_PIECE = 256
"""Bytes of the target below which a row isn't cut into pieces for several threads."""


@dataclass(frozen=True)
class IndexDim:
    """One loop: its size, the byte stride of every operand, and whether it may be split."""

    size: int
    strides: tuple[int, ...]
    free: bool = True


@dataclass(frozen=True)
class IndexWalk:
    """Loops, outermost first, and how they are cut into chunks: (row range) x (piece of a row)."""

    dims: tuple[IndexDim, ...]
    chunk_rows: int
    pieces: int
    piece: int

    @property
    def inner(self) -> IndexDim:
        return self.dims[-1]

    @property
    def rows(self) -> int:
        return prod(d.size for d in self.dims[:-1]) if self.inner.size else 0

    @property
    def numel(self) -> int:
        return prod(d.size for d in self.dims)

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk_rows) * self.pieces

    def words(self) -> list[int]:
        """What the kernel reads: the cut, then size and strides of each loop."""
        head = [self.rows, self.inner.size, self.chunk_rows, self.pieces, self.piece, self.chunks]
        return head + [w for d in self.dims for w in (d.size, *d.strides)]


def plan_walk(dims: Sequence[IndexDim], item: int) -> IndexWalk:
    """The walk over `dims`, given in the order that repeated places must be visited in.

    `item` is the size in bytes of a target element.
    """
    operands = len(dims[0].strides) if dims else 2
    kept = [d for d in dims if d.size != 1]
    if not kept:
        kept = [IndexDim(1, (0,) * operands, bool(all(d.free for d in dims)))]
    kept = _merge(_order(kept))
    return _cut(tuple(kept), item)


def _order(dims: list[IndexDim]) -> list[IndexDim]:
    """Free loops outside by decreasing stride, then the others as they are.

    The free loop that runs along memory comes last if it is the closest one.
    """
    free = [d for d in dims if d.free]
    bound = [d for d in dims if not d.free]
    free.sort(key=lambda d: [-abs(s) for s in d.strides[:2]])
    if not bound:
        return free
    if free and abs(free[-1].strides[1]) < max(1, abs(bound[-1].strides[1])):
        return [*free[:-1], *bound, free[-1]]
    return [*free, *bound]


def _merge(dims: list[IndexDim]) -> list[IndexDim]:
    """Neighbours that every operand walks in one stride become one loop."""
    merged = [dims[0]]
    for d in dims[1:]:
        last = merged[-1]
        joins = all(a == b * d.size for a, b in zip(last.strides, d.strides, strict=True))
        if joins and last.free == d.free:
            merged[-1] = replace(d, size=last.size * d.size)
        else:
            merged.append(d)
    return merged


def _cut(dims: tuple[IndexDim, ...], item: int) -> IndexWalk:
    """Chunks of about GRAIN elements, cut along free loops only."""
    n = dims[-1].size
    outer = dims[:-1]
    together = 1
    """Rows that one thread must walk in order."""
    for k, d in enumerate(outer):
        if not d.free:
            together = most(1, prod(x.size for x in outer[k:]))
            break
    unit = together * most(n, 1)
    if is_symbolic((n, unit)):
        return _cut_later(dims, item, together, unit)
    if unit <= GRAIN or not dims[-1].free:
        return IndexWalk(dims, together * max(1, GRAIN // max(unit, 1)), 1, max(n, 1))
    widest = max(1, n * item // _NARROWEST_PIECE)
    pieces = min(-(-unit // GRAIN), widest)
    line = max(1, 64 // item)
    piece = -(-n // (pieces * line)) * line
    return IndexWalk(dims, together, -(-n // piece), piece)


def _cut_later(dims: tuple[IndexDim, ...], item: int, together: Any, unit: Any) -> IndexWalk:
    """The same for sizes that are not known yet: both cuts, and which of them it will be."""
    n = dims[-1].size
    whole = together * most(1, GRAIN // unit), 1, most(n, 1)
    if not dims[-1].free:
        return IndexWalk(dims, *whole)
    pieces = least(-(-unit // GRAIN), most(1, n * item // _NARROWEST_PIECE))
    line = max(1, 64 // item)
    piece = -(-n // (pieces * line)) * line
    cut = together, -(-n // piece), piece
    found = [if_at_least(unit, GRAIN + 1, a, b) for a, b in zip(cut, whole, strict=True)]
    return IndexWalk(dims, *found)


def plan_rows(outer: Sequence[IndexDim], row: IndexDim, grain: int = GRAIN) -> IndexWalk:
    """A walk whose rows are worked on as a whole: `row` stays the innermost loop, uncut."""
    kept = [d for d in outer if d.size != 1]
    kept.sort(key=lambda d: [-abs(s) for s in d.strides])
    dims = (*(_merge(kept) if kept else ()), row)
    return IndexWalk(dims, max(1, grain // max(1, row.size)), 1, max(1, row.size))
