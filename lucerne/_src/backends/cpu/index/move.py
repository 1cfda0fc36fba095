"""The kernel of a walk: move (or fold) elements between places that index tensors name.

The same code reads through indices (gather, x[i]) and writes through them (scatter, index_put): the
offset that the indices make is added to the source or to the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I16, Type
from lucerne._src.backends.cpu.index.rows import RowCode
from lucerne._src.backends.cpu.index.walk import IndexWalk
from lucerne._src.backends.cpu.math.storage import STORED, pack, unpack
from lucerne._src.base import dtype as dt

_RAW: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}
UNROLL = 4

READ, WRITE = "read", "write"


@dataclass(frozen=True)
class MoveForm:
    """Everything about a walk that changes its code."""

    rank: int
    steps: str
    """Of the innermost loop, for target and source: u(nit), s(trided), 0."""
    indices: tuple[int, ...]
    """Bytes of an element of each index tensor."""
    inner: bool
    """Whether the innermost loop moves through an index tensor."""
    packed: tuple[bool, ...]
    """Of each index tensor: whether the innermost loop takes its elements one by one."""
    near: tuple[bool, ...]
    """Of each index tensor: whether its positions lead to neighbouring elements."""
    wrap: bool
    """Whether negative positions count from the end."""
    through: str
    """READ or WRITE: on which side the indices lead."""
    fold: str
    target: str
    source: str
    """Names of the dtypes in memory; both "" when bits are moved, of `item` bytes."""
    item: int

    @property
    def target_type(self) -> Type:
        return _element(self.target, self.item)

    @property
    def source_type(self) -> Type:
        return _element(self.source, self.item)


def _element(name: str, item: int) -> Type:
    return STORED[dt.by_name(name)] if name else _RAW[item]


@dataclass(frozen=True)
class IndexPlaces:
    """In which words of the block a walk finds its operands and its numbers."""

    target: int
    source: int
    indices: tuple[int, ...]
    numbers: int
    """First word of the walk's numbers."""
    reach: int
    """First of the pairs (size of the indexed dimension, bytes per step), one for each index."""
    flag: int
    """The word that is set when an index is out of bounds."""


def form_of(
    walk: IndexWalk,
    indices: Sequence[int],
    reach: Sequence[tuple[int, int]] = (),
    *,
    wrap: bool,
    through: str,
    fold: str = "set",
    target: str = "",
    source: str = "",
    item: int = 0,
) -> MoveForm:
    inner = walk.inner.strides
    sizes = [_element(name, item).size for name in (target, source)]
    steps = "".join(
        "u" if s == size else "0" if s == 0 else "s"
        for s, size in zip(inner[:2], sizes, strict=True)
    )
    indexed = sizes[1] if through == READ else sizes[0]
    return MoveForm(
        len(walk.dims),
        steps,
        tuple(indices),
        any(inner[2:]),
        tuple(s == size for s, size in zip(inner[2:], indices, strict=True)),
        tuple(step == indexed for _, step in reach),
        wrap,
        through,
        fold,
        target,
        source,
        item,
    )


class WalkCode(RowCode):
    """Writes the walk of one form."""

    def __init__(self, m: Module, name: str, form: MoveForm, at: IndexPlaces) -> None:
        super().__init__(m, name, form.rank, 2 + len(form.indices), at.numbers)
        self.form, self.at = form, at

    def rows(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        first: LLVMValue,
        last: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        form = self.form
        places = (self.at.target, self.at.source, *self.at.indices)
        bases = [f.word(block, w, PTR) for w in places]
        dims = self.loops(f, block)
        inner = dims[-1][1]
        limits = [
            (f.word(block, self.at.reach + 2 * k), f.word(block, self.at.reach + 2 * k + 1))
            for k in range(len(form.indices))
        ]
        with f.loop(first, last, carry=[f.constant(0, I1)]) as row:
            offsets = self.offsets(f, row.index, dims[:-1], len(bases))
            ends = [f.at(b, o) for b, o in zip(bases, offsets, strict=True)]
            bad = row.carried[0]
            if form.inner:
                bad = self._line_of_indices(f, ends, inner, limits, start, stop, bad)
            else:
                lead, bad = self._lead(f, ends[2:], None, inner[2:], limits, bad)
                side = 1 if form.through == READ else 0
                ends[side] = f.at(ends[side], lead)
                self._line(f, ends, inner, start, stop)
            row.next(bad)
        if form.indices:
            with f.if_(row.results[0]):
                f.atomic_store(f.constant(1), f.at(block, self.at.flag * 8), "monotonic")

    def _lead(
        self,
        f: LLVMFunction,
        ends: list[LLVMValue],
        j: LLVMValue | None,
        steps: list[LLVMValue],
        limits: list[tuple[LLVMValue, LLVMValue]],
        bad: LLVMValue,
    ) -> tuple[LLVMValue, LLVMValue]:
        """Where the indices lead, in bytes; an index out of bounds leads to the first place."""
        lead = f.constant(0)
        for k, size in enumerate(self.form.indices):
            step = f.constant(size) if self.form.packed[k] else steps[k]
            place = ends[k] if j is None else f.at(ends[k], j * step)
            at = f.convert("sext", f.load(_RAW[size], place), I64)
            limit, reach = limits[k]
            if self.form.near[k]:
                reach = f.constant(self._indexed_type.size)
            if self.form.wrap:
                at = at + ((at >> 63) & limit)
            outside = f.compare("uge", at, limit)
            bad = f.value(I1, f"or i1 {bad.text}, {outside.text}")
            lead = lead + f.select(outside, 0, at) * reach
        return lead, bad

    @property
    def _indexed_type(self) -> Type:
        """Of the elements that the indices lead to."""
        return self.form.source_type if self.form.through == READ else self.form.target_type

    # ---- innermost loops ---------------------------------------------------------------------

    def _line_of_indices(
        self,
        f: LLVMFunction,
        ends: list[LLVMValue],
        steps: list[LLVMValue],
        limits: list[tuple[LLVMValue, LLVMValue]],
        start: LLVMValue,
        stop: LLVMValue,
        bad: LLVMValue,
    ) -> LLVMValue:
        """One element at a time, each where its own indices lead."""

        def one(j: LLVMValue, bad: LLVMValue) -> LLVMValue:
            lead, bad = self._lead(f, ends[2:], j, steps[2:], limits, bad)
            moved = [
                f.at(e, self._step(j, s, how, t))
                for e, s, how, t in zip(
                    ends[:2], steps[:2], self.form.steps,
                    (self.form.target_type, self.form.source_type), strict=True,
                )
            ]  # fmt: skip
            side = 1 if self.form.through == READ else 0
            moved[side] = f.at(moved[side], lead)
            self._one(f, moved[0], moved[1])
            return bad

        whole = start + ((stop - start) & -UNROLL)
        with f.loop(start, whole, UNROLL, carry=[bad]) as loop:
            bad = loop.carried[0]
            for k in range(UNROLL):
                bad = one(loop.index + k, bad)
            loop.next(bad)
        with f.loop(whole, stop, carry=loop.results) as rest:
            rest.next(one(rest.index, rest.carried[0]))
        return rest.results[0]

    @staticmethod
    def _step(j: LLVMValue, stride: LLVMValue, how: str, type: Type) -> LLVMValue:
        return j * (type.size if how == "u" else stride) if how != "0" else j.f.constant(0)

    def _line(
        self,
        f: LLVMFunction,
        ends: list[LLVMValue],
        steps: list[LLVMValue],
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        """A row that the indices lead to as a whole: vectors when it lies together in memory."""
        form = self.form
        if form.steps in ("uu", "u0"):
            lanes = VECTOR_BYTES // max(form.target_type.size, self._value_size())
            several = start + ((stop - start) // (lanes * UNROLL)) * (lanes * UNROLL)
            whole = start + ((stop - start) // lanes) * lanes
            with f.loop(start, several, lanes * UNROLL) as loop:
                for k in range(UNROLL):
                    self._vector(f, ends, loop.index + k * lanes, lanes, None)
            with f.loop(several, whole, lanes) as loop:
                self._vector(f, ends, loop.index, lanes, None)
            left = stop - whole
            with f.if_(left > 0):
                self._vector(f, ends, whole, lanes, f.low_mask(left, lanes))
            return
        with f.loop(start, stop) as loop:
            moved = [
                f.at(e, self._step(loop.index, s, how, t))
                for e, s, how, t in zip(
                    ends[:2], steps[:2], form.steps, (form.target_type, form.source_type),
                    strict=True,
                )
            ]  # fmt: skip
            self._one(f, moved[0], moved[1])

    def _value_size(self) -> int:
        """Bytes of a value while it is computed with."""
        form = self.form
        if not form.target:
            return form.item
        return max(form.target_type.size, form.source_type.size)

    def _vector(
        self,
        f: LLVMFunction,
        ends: list[LLVMValue],
        j: LLVMValue,
        lanes: int,
        mask: LLVMValue | None,
    ) -> None:
        form = self.form
        wide, source = form.target_type.vector(lanes), form.source_type
        to = f.at(ends[0], j, form.target_type)
        if form.steps[1] == "0":
            v = f.splat(f.load(source, ends[1]), lanes)
        else:
            place = f.at(ends[1], j, source)
            v = (
                f.load(source.vector(lanes), place)
                if mask is None
                else f.masked_load(source.vector(lanes), place, mask)
            )
        v = self._converted(f, v)
        if form.fold != "set":
            old = f.load(wide, to) if mask is None else f.masked_load(wide, to, mask)
            v = self._folded(f, old, v)
        if mask is None:
            f.store(v, to)
        else:
            f.masked_store(v, to, mask)

    def _one(self, f: LLVMFunction, to: LLVMValue, source: LLVMValue) -> None:
        form = self.form
        v = self._converted(f, f.load(form.source_type, source))
        if form.fold != "set":
            v = self._folded(f, f.load(form.target_type, to), v)
        f.store(v, to)

    # ---- values ------------------------------------------------------------------------------

    def _converted(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """The value as the target stores it: narrow floats and float32 in either direction."""
        form = self.form
        if form.source == form.target:
            return v
        if form.target == "float32":
            return unpack(f, dt.by_name(form.source), v)
        return pack(f, dt.by_name(form.target), v)

    def _folded(self, f: LLVMFunction, old: LLVMValue, new: LLVMValue) -> LLVMValue:
        form = self.form
        dtype = dt.by_name(form.target)
        if dtype is dt.bool_:
            return old | new if form.fold in ("add", "max") else old & new
        if form.fold == "add":
            return old + new
        if form.fold == "mul":
            return old * new
        sign = "" if dtype.is_signed or dtype.category == dt.FLOAT else "u"
        better = f.compare(sign + ("gt" if form.fold == "max" else "lt"), new, old)
        if dtype.category == dt.FLOAT:
            better = better | f.compare("uno", new, new)
            kept = f.compare("uno", old, old)
            return f.select(kept, old, f.select(better, new, old))
        return f.select(better, new, old)

    # ---- indices out of bounds ---------------------------------------------------------------

    def write_extremes(self, k: int) -> None:
        """`i64 name_worst_k(ptr block)`: the index to complain about, the flag set if there is one.

        That is the smallest of index tensor `k` if it is too small, else the largest.
        """
        form = self.form
        with self.m.function(f"{self.name}_worst_{k}", [("block", PTR)], I64, internal=True) as f:
            (block,) = f.args
            base = f.word(block, self.at.indices[k], PTR)
            dims = self.loops(f, block)
            mine = [(size, [strides[2 + k]]) for size, strides in dims]
            rows, n = self.number(f, block, 0), self.number(f, block, 1)
            low, high = f.constant((1 << 63) - 1), f.constant(-(1 << 63))
            with f.loop(0, rows, carry=[low, high]) as row:
                (offset,) = self.offsets(f, row.index, mine[:-1], 1)
                start = f.at(base, offset)
                with f.loop(0, n, carry=row.carried) as loop:
                    place = f.at(start, loop.index * mine[-1][1][0])
                    at = f.convert("sext", f.load(_RAW[form.indices[k]], place), I64)
                    low, high = loop.carried
                    loop.next(f.minimum(at, low), f.maximum(at, high))
                row.next(*loop.results)
            low, high = row.results
            size = f.word(block, self.at.reach + 2 * k)
            least = 0 - size if form.wrap else f.constant(0)
            too_low = low < least
            outside = too_low | (high >= size)
            flag = f.at(block, self.at.flag * 8)
            f.store(f.convert("zext", outside, I64), flag)
            f.ret(f.select(too_low, low, high))


def write_failure(
    f: LLVMFunction, block: LLVMValue, code: WalkCode, *, check: bool = False
) -> None:
    """Return 1 + k with the culprit in word 0 if some index of tensor `k` is out of bounds.

    Only looked for when the flag is set, or always (`check`).
    """
    flag = f.at(block, code.at.flag * 8)
    found = f.constant(True, I1) if check else f.compare("ne", f.load(I64, flag), 0)
    with f.if_(found):
        for k in range(len(code.form.indices)):
            worst = f.call(f"{code.name}_worst_{k}", I64, [block])
            with f.if_(f.compare("ne", f.load(I64, flag), 0)):
                f.store(worst, block)
                f.ret(1 + k)


__all__ = ["READ", "WRITE", "IndexPlaces", "MoveForm", "WalkCode", "form_of", "write_failure"]
