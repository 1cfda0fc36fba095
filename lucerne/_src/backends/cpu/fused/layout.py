"""Layout: the loops that run a program, which of them is the vector loop, and how work is split.

The axes of a program are kept (they index results of folds) or folded. Each group is put in the
memory order of the largest operand and neighbours merge where every operand allows it. Lanes of a
vector lie along the innermost loop of one group:

* ALONG: a folded axis. A unit of work is one row; lanes are folded together at its end.
* ACROSS: a kept axis. A unit is a strip of neighbouring columns; every lane is a row of its own.

Where there are few units but long folds (`splits` > 1) the outermost folded loop is cut in pieces:
all pieces of all units run at once, one pass after the other, and partial results are combined in
order. All of this depends on shapes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fused.program import (
    Axis,
    Convert,
    Fold,
    FusedExpr,
    FusedNumber,
    FusedOp,
    FusedOperand,
    FusedProgram,
    Load,
)
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.symbolic.numbers import least, most, to_int

ALONG, ACROSS = "along", "across"
STILL, UNIT, STRIDED = "0", "1", "s"

_SPLIT_ELEMENTS = 16384
"""A piece of a split fold has at least so many elements."""
_MOST_SPLITS = 64
_CHUNK_WORK = 8000.0
"""Nanoseconds that one chunk should take at least."""
_MOST_CHUNKS = 64
_FEW_VECTORS = 16
SCRATCH_BYTES = 1 << 17
"""Values that a later pass needs again are kept if a unit has no more of them than this."""


@dataclass
class FusedLoop:
    """One loop: its size and the byte stride of every operand."""

    size: int
    steps: list[int]


class LoopLayout:
    """Everything about the loops of a program; `key` is what the code depends on."""

    def __init__(self, program: FusedProgram) -> None:
        self.program = program
        self.operands = self._operands()
        self.lanes = _lanes(program)
        kept, folded = self._axes()
        self.kept = self._merged(kept)
        self.folded = self._merged(folded)
        if program.folds and not self.folded:  # a fold of single elements
            self.folded.append(FusedLoop(1, [0] * len(self.operands)))
        self.fold_size = prod(loop.size for loop in self.folded)
        self.way = self._choose()
        self._place_vector_loop()
        self.unroll = self._unroll()
        self.lead = self.kept if self.way == ALONG else self.kept[:-1]
        """The loops that count units (of ACROSS: times the strips)."""
        self.width = self.lanes * self.unroll
        self.strips = 1 if self.way == ALONG else -(-self.vector.size // self.width)
        self.units = prod(loop.size for loop in self.lead) * self.strips
        self.splits, self.split_size = self._split()
        self.chunk, self.chunks = self._chunk()

    # ---- axes ----------------------------------------------------------------------------------

    def _operands(self) -> list[FusedOperand]:
        """Outputs, then inputs."""
        program = self.program
        loads = [e.memory for e in program.exprs if isinstance(e, Load)]
        return [r.memory for r in program.results] + loads

    def _axes(self) -> tuple[list[Axis], list[Axis]]:
        program = self.program
        found: dict[Axis, None] = {}
        places = [*(m.dims for m in self.operands), *(f.dims for f in program.folds)]
        for dims in places:
            for axis in dims:
                if axis is not None:
                    found.setdefault(axis.root)
        folded = program.folded
        kept = [a for a in found if a not in folded]
        self._check_results(set(kept))
        order = self._memory_order([a for a in found if a in folded])
        for fold in program.folds:
            if fold.is_position:  # positions count in the order of the dimensions
                order = [a.root for a in fold.over]
        return self._memory_order(kept), order

    def _check_results(self, kept: set[Axis]) -> None:
        """Every result is written once: it has all axes, or all that are kept."""
        for result in self.program.results:
            axes = set(result.memory.by_axis())
            if not kept <= axes or (axes - kept and not self.program.folded <= axes):
                raise NotTaken("a result without some of the axes")

    def _memory_order(self, axes: list[Axis]) -> list[Axis]:
        """Outermost first, as the operand with most axes lies in memory."""
        steps = sorted((m.by_axis() for m in reversed(self.operands)), key=len, reverse=True)

        def rank(axis: Axis) -> list[int]:
            return [abs(s.get(axis, 0)) for s in steps]

        return sorted(axes, key=rank, reverse=True)

    def _merged(self, axes: list[Axis]) -> list[FusedLoop]:
        """Loops, outermost first; an outer one is merged into the next where strides allow."""
        loops: list[FusedLoop] = []
        steps = [m.by_axis() for m in self.operands]
        for axis in axes:
            loop = FusedLoop(axis.size, [s.get(axis, 0) for s in steps])
            if loops and all(
                o == i * loop.size for o, i in zip(loops[-1].steps, loop.steps, strict=True)
            ):
                loops[-1] = FusedLoop(loops[-1].size * loop.size, loop.steps)
            else:
                loops.append(loop)
        return loops

    # ---- choices -------------------------------------------------------------------------------

    def _choose(self) -> str:
        """Along the folded loop if memory runs that way (or nothing runs across)."""
        if not self.program.folded:
            return ACROSS
        row = self.folded[-1]
        if not self.kept:
            return ALONG
        column = self.kept[-1]
        along, across = self._unit_count(row), self._unit_count(column)
        if along >= across and along:
            # Rows that fill half a vector or less: side by side they need no fold across lanes.
            short = row.size * 2 <= self.lanes and self.fold_size * 2 <= self.lanes
            return ACROSS if short and column.size >= self.lanes else ALONG
        if across:
            return ALONG if column.size < 4 and row.size >= self.lanes else ACROSS
        return ALONG if row.size * 2 >= self.lanes else ACROSS

    def _unit_count(self, loop: FusedLoop) -> int:
        """How many inputs lie element by element along a loop, weighted by what they span."""
        total = 0
        for memory, step in zip(self.operands, loop.steps, strict=True):
            if step == memory.dtype.itemsize:
                total += len(memory.by_axis())
        return total

    def _place_vector_loop(self) -> None:
        group = self.folded if self.way == ALONG else self.kept
        if not group:
            group.append(FusedLoop(1, [m.dtype.itemsize for m in self.operands]))
        self.vector = group[-1]

    def _unroll(self) -> int:
        """Vectors per round: enough to hide latencies, fewer where code is long."""
        program = self.program
        inside = _inside(program)
        heavy = any(is_heavy(e) for e in inside)
        points = sum(isinstance(e, FusedOp) for e in inside)
        if self.way == ACROSS:
            simple = 8 if program.folds and points < 2 else 4
        else:  # of a short row the folds of the vectors, at its end, count as much as the row
            vectors = self.fold_size // self.lanes
            simple = 4 if vectors > _FEW_VECTORS else 2 if vectors > _FEW_VECTORS // 4 else 1
        return min(2, simple) if heavy or points > 6 else simple

    def _split(self) -> tuple[int, int]:
        """Pieces of the outermost folded loop, and the size of one."""
        if not self.folded or not self.program.folds:
            return 1, 0
        outer = self.folded[0].size
        per_index = self.fold_size // max(outer, 1) * (1 if self.way == ALONG else self.width)
        work = self.fold_size * (1 if self.way == ALONG else self.width)
        if self.units >= 8 or work < 4 * _SPLIT_ELEMENTS:
            return 1, outer
        least = max(1, _SPLIT_ELEMENTS // max(per_index, 1))
        size = max(least, -(-outer // _MOST_SPLITS))
        if size > self.width and self.vector is self.folded[0]:
            size = -(-size // self.width) * self.width
        return max(1, -(-outer // size)), size

    @property
    def work(self) -> float:
        """About how many nanoseconds the whole takes on one core."""
        per_unit = self.fold_size * (1 if self.way == ALONG else self.width)
        cost = 0.05 * len(self.operands) + sum(
            0.5 if is_heavy(e) else 0.03
            for e in self.program.usual
            if isinstance(e, (FusedOp, Fold))
        )
        return self.units * (per_unit * cost + 20.0)

    def _chunk(self) -> tuple[int, int]:
        """Units per chunk and chunks (of a split program: pieces are the chunks)."""
        if self.splits > 1:
            return 1, self.units * self.splits
        chunks = most(1, least(_MOST_CHUNKS, to_int(self.work / _CHUNK_WORK), self.units))
        size = most(1, -(-self.units // chunks))
        return size, -(-self.units // size)

    def may_keep(self, dtypes: list[dt.dtype]) -> bool:
        """Whether a unit's values of these dtypes may be kept from one pass to the next."""
        if self.way == ALONG:  # every row of a unit begins with a vector of its own
            row = self.folded[-1].size
            elements = self.fold_size // max(row, 1) * -(-row // self.lanes) * self.lanes
        else:
            elements = self.fold_size * self.width
        need = elements * sum(d.compute.itemsize for d in dtypes)
        return self.splits == 1 and need <= SCRATCH_BYTES

    def step_class(self, k: int, loop: FusedLoop) -> str:
        """How operand `k` moves along a loop: not at all, element by element, or with a stride."""
        step = loop.steps[k]
        if step == 0 or loop.size == 1:
            return STILL if loop is not self.vector or step == 0 else UNIT
        return UNIT if step == self.operands[k].dtype.itemsize and loop is self.vector else STRIDED

    def starts_even(self, k: int) -> bool:
        """Whether the vectors of operand `k` begin at elements with even numbers."""
        size = self.operands[k].dtype.itemsize
        others = [x for x in (*self.kept, *self.folded) if x is not self.vector and x.size > 1]
        return (
            self.step_class(k, self.vector) == UNIT
            and all(loop.steps[k] // size % 2 == 0 for loop in others)
            and (self.splits == 1 or self.split_size % 2 == 0)
        )

    def classes(self) -> tuple[tuple[str, ...], ...]:
        loops = [*self.kept, *self.folded]
        return tuple(
            tuple(self.step_class(k, loop) for loop in loops) for k in range(len(self.operands))
        )


def is_heavy(e: FusedExpr) -> bool:
    """Whether an expression's own op is worth keeping the result of."""
    return isinstance(e, FusedOp) and e.op.cost != op_.CHEAP


def _lanes(program: FusedProgram) -> int:
    """Lanes of a vector: by the widest type that folds and results compute in, row by row."""
    folds = [e for e in program.usual if isinstance(e, Fold)]
    types = [f.compute for f in folds] or [r.expr.dtype.compute for r in program.results]
    floats = [
        e.dtype.compute for e in _inside(program)
        if not isinstance(e, FusedNumber) and e.dtype.category in (dt.FLOAT, dt.COMPLEX)
    ]  # fmt: skip
    floats += [f.compute for f in folds if f.compute.category in (dt.FLOAT, dt.COMPLEX)]
    size = max(t.to_real().itemsize for t in (floats or types))
    if not floats and any(f.is_position for f in folds):
        size = max(size, 4)
    return max(2, VECTOR_BYTES // size)


def _inside(program: FusedProgram) -> list[FusedExpr]:
    """What every row computes element by element."""
    return [e for e in program.usual if not program.folds or e.axes & program.folded]


__all__ = ["ACROSS", "ALONG", "Convert", "FusedLoop", "LoopLayout", "is_heavy"]
