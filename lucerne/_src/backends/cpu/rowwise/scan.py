"""Running folds along a dimension: every element becomes the fold of all up to it.

ACROSS: lanes are neighbouring columns and the loop walks down the dimension. ALONG (sums and
products where the dimension lies element by element in memory): lanes are consecutive elements, a
prefix is made within the vector, and what came before is added to it. Sums and products of floats
run in float64, so that their error does not grow with the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt
from lucerne._src.ir.meta import TensorMeta

ALONG, ACROSS, ALONE = "along", "across", "alone"
POSITIONS = ("argmax", "argmin")
_CHUNK_ELEMENTS = 16384
_MOST_CHUNKS = 64
_LANES_ALONG = 8


@dataclass
class ScanLoop:
    size: int
    steps: list[int]


class ScanPlan:
    """One kind of scan over operands (result first): the loops around it, and its words."""

    def __init__(self, mode: str, dim: int, reverse: bool, metas: list[TensorMeta]) -> None:
        self.mode, self.reverse, self.metas = mode, reverse, metas
        self.dtypes = [m.dtype for m in metas]
        self.compute = _accumulator(mode, metas)
        steps = [m.byte_strides for m in metas]
        self.length = metas[0].shape[dim] if metas[0].ndim else 1
        self.along = [s[dim] if s else 0 for s in steps]
        self.kept = self._kept(dim, steps)
        self.way = self._way()
        self.lanes = {ALONG: _LANES_ALONG, ALONE: 1}.get(
            self.way, VECTOR_BYTES // max(4, self.compute.to_real().itemsize)
        )
        self.lead = self.kept[:-1] if self.way == ACROSS else self.kept
        width = self.kept[-1].size if self.way == ACROSS else 1
        self.strips = -(-width // self.lanes) if self.way == ACROSS else 1
        self.units = prod(x.size for x in self.lead) * self.strips
        per_unit = max(1, self.length * (self.lanes if self.way == ACROSS else 1))
        least = max(1, _CHUNK_ELEMENTS // per_unit)
        self.chunk = max(least, -(-self.units // _MOST_CHUNKS))
        self.chunks = -(-self.units // self.chunk)

    def _kept(self, dim: int, steps: list[tuple[int, ...]]) -> list[ScanLoop]:
        """The other dimensions in the memory order of the last operand, merged; outermost first."""
        shape = self.metas[0].shape
        dims = [d for d in range(len(shape)) if d != dim and shape[d] != 1]
        dims.sort(key=lambda d: abs(steps[-1][d]), reverse=True)
        loops: list[ScanLoop] = []
        for d in dims:
            loop = ScanLoop(shape[d], [s[d] for s in steps])
            if loops and all(
                o == i * loop.size for o, i in zip(loops[-1].steps, loop.steps, strict=True)
            ):
                loops[-1] = ScanLoop(loops[-1].size * loop.size, loop.steps)
            else:
                loops.append(loop)
        return loops

    def _way(self) -> str:
        unit = all(s == d.itemsize for s, d in zip(self.along, self.dtypes, strict=True))
        folds = self.mode in ("add", "mul") and self.dtypes[0].category != dt.COMPLEX
        if unit and folds and self.compute is not dt.bool_ and self.length >= _LANES_ALONG:
            return ALONG
        # Positions cost a comparison an element: less than to collect lanes from many rows.
        together = self.kept and not (unit and self.mode in POSITIONS)
        return ACROSS if together else ALONE

    @property
    def classes(self) -> tuple[str, ...]:
        """How each operand moves from lane to lane."""
        if self.way != ACROSS:
            return ("",) * len(self.metas)
        return tuple(
            "1" if s == d.itemsize else "0" if s == 0 else "s"
            for s, d in zip(self.kept[-1].steps, self.dtypes, strict=True)
        )

    @property
    def key(self) -> tuple[object, ...]:
        names = tuple(d.name for d in self.dtypes)
        return (
            "scan", self.mode, self.reverse, names, self.compute.name, self.way, self.lanes,
            self.classes, len(self.kept),
        )  # fmt: skip

    @property
    def words(self) -> list[int]:
        found = [self.length, self.units, self.chunk, self.chunks, self.strips, *self.along]
        for loop in self.kept:
            found += [loop.size, *loop.steps]
        return found


def _accumulator(mode: str, metas: list[TensorMeta]) -> dt.dtype:
    """The dtype a scan runs in."""
    if mode in POSITIONS:
        return metas[1].dtype.compute
    compute = metas[0].dtype.compute
    if mode in ("add", "mul") and compute is dt.float32:
        return dt.float64
    return compute


class _Writer:
    """Writes one scan kernel."""

    def __init__(self, m: Module, plan: ScanPlan) -> None:
        self.m, self.plan = m, plan
        self.count = len(plan.metas)

    def write(self) -> None:
        first = self.count + 1
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self.f = f
            self.wide, self.one = LlvmScalar(f, self.plan.lanes), LlvmScalar(f, 1)
            block, chunk, _ = f.args
            words = [f.word(block, first + k) for k in range(5 + self.count + self._loop_words())]
            self.length, units, size, _, self.strips = words[:5]
            self.along = words[5 : 5 + self.count]
            rest = words[5 + self.count :]
            self.loops = [rest[k : k + 1 + self.count] for k in range(0, len(rest), 1 + self.count)]
            self.bases = [f.word(block, k, PTR) for k in range(self.count)]
            start = chunk * size
            with f.loop(start, f.minimum(start + size, units)) as loop:
                self._unit(loop.index)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            chunks = f.word(block, first + 3)
            with f.if_(chunks > 1) as several:
                f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
            with several.else_():
                f.call("task", VOID, [block, 0, 0])
            f.ret(0)

    def _loop_words(self) -> int:
        return len(self.plan.kept) * (1 + self.count)

    def _unit(self, number: LLVMValue) -> None:
        f, plan = self.f, self.plan
        rest, mask = number, None
        pointers = list(self.bases)
        if plan.way == ACROSS:
            column = (number % self.strips) * plan.lanes
            rest = number // self.strips
            mask = f.low_mask(self.loops[-1][0] - column, plan.lanes)
            pointers = self._moved(pointers, self.loops[-1], column)
        for n in reversed(range(len(plan.lead))):
            index = rest
            if n:
                index, rest = rest % self.loops[n][0], rest // self.loops[n][0]
            pointers = self._moved(pointers, self.loops[n], index)
        if plan.way == ALONG:
            self._prefixes(pointers)
        else:
            self._walk(pointers, mask)

    def _moved(
        self, pointers: list[LLVMValue], loop: list[LLVMValue], index: LLVMValue
    ) -> list[LLVMValue]:
        return [self.f.at(p, index * step) for p, step in zip(pointers, loop[1:], strict=True)]

    # ---- across ----------------------------------------------------------------------------------

    def _load(self, k: int, pointer: LLVMValue, mask: LLVMValue | None) -> Num:
        dtype, way = self.plan.dtypes[k], self.plan.classes[k]
        if way == "0":
            return self.wide.load_splat(dtype, pointer)
        if way == "s":
            return self.wide.load_strided(dtype, pointer, self.loops[-1][1 + k], mask)
        return self.wide.load(dtype, pointer, mask)

    def _store(self, x: Num, pointer: LLVMValue, mask: LLVMValue | None) -> None:
        dtype = self.plan.dtypes[0]
        if self.plan.classes[0] == "s":
            self.wide.store_strided(x, dtype, pointer, self.loops[-1][1], mask)
        else:
            self.wide.store(x, dtype, pointer, mask)

    def _walk(self, pointers: list[LLVMValue], mask: LLVMValue | None) -> None:
        """Down the dimension, all lanes in step."""
        f = self.f
        begin = self._start()
        flat = [v for num in begin for v in (num.re, num.im) if v is not None]
        with f.loop(0, self.length, 1, flat) as loop:
            index = self.length - 1 - loop.index if self.plan.reverse else loop.index
            feed = iter(loop.carried)
            state = [Num(n.dtype, next(feed), None if n.im is None else next(feed)) for n in begin]
            here = [f.at(p, index * s) for p, s in zip(pointers, self.along, strict=True)]
            state, result = self._step(state, here, index, mask)
            self._store(result, here[0], mask)
            loop.next(*[v for num in state for v in (num.re, num.im) if v is not None])

    def _start(self) -> list[Num]:
        plan, wide = self.plan, self.wide
        if plan.mode in POSITIONS:
            return [wide.to(_beaten_by_all(plan), plan.compute), wide.to(0, dt.int64)]
        if plan.mode == "linear":
            zero = wide.to(0, plan.compute)
            return [zero, zero] if plan.reverse else [zero]
        if plan.mode == "logaddexp":
            return [wide.to(float("-inf"), plan.compute), wide.to(0, dt.float64)]
        return [wide.to({"add": 0, "mul": 1}[plan.mode], plan.compute)]

    def _step(
        self, state: list[Num], here: list[LLVMValue], index: LLVMValue, mask: LLVMValue | None
    ) -> tuple[list[Num], Num]:
        """(the state after this element, the result for it)."""
        plan, wide = self.plan, self.wide
        x = wide.to(self._load(self.count - 1, here[-1], mask), plan.compute)
        if plan.mode in POSITIONS:
            best, at = state
            wins = (wide.ge if plan.mode == "argmax" else wide.le)(x, best)
            if plan.compute.category == dt.FLOAT:
                wins = wide.bit_or(wide.bit_and(wins, wide.eq(best, best)), wide.is_nan(x))
            if plan.way == ALONE:  # it wins seldom: a jump is guessed, a choice is waited for
                with self.f.if_(wins.re) as branch:
                    branch.give(x.re, index)
                with branch.else_():
                    branch.give(best.re, at.re)
                found, number = branch.results
                state = [Num(best.dtype, found), Num(dt.int64, number)]
                return state, state[1]
            place = wide.splat(Num(dt.int64, index))
            state = [wide.where(wins, x, best), wide.where(wins, place, at)]
            return state, state[1]
        if plan.mode == "linear":
            decay = wide.to(self._load(1, here[1], mask), plan.compute)
            if plan.reverse:  # the decay belongs to the step that leads away from this element
                total = wide.add(x, wide.mul(state[1], state[0]))
                return [total, decay], total
            total = wide.add(x, wide.mul(decay, state[0]))
            return [total], total
        if plan.mode == "logaddexp":
            return self._log_add_exp(state[0], state[1], x)
        total = {"add": wide.add, "mul": wide.mul}[plan.mode](state[0], x)
        return [total], total

    def _log_add_exp(self, level: Num, total: Num, x: Num) -> tuple[list[Num], Num]:
        """The state is a level, and the sum so far of `exp(x - level)` in float64. The level
        follows the largest element, but not each small step: that would round the sum again."""
        wide, compute = self.wide, self.plan.compute
        rises = wide.gt(x, wide.add(level, 1.0))
        gap = wide.where(rises, wide.sub(level, x), wide.sub(x, level))
        gap = wide.where(wide.eq(x, level), wide.to(0, compute), gap)  # not inf - inf
        term = wide.to(wide.exp(gap), dt.float64)
        shrunk = wide.add(wide.mul(total, term), wide.to(1, dt.float64))
        total = wide.where(rises, shrunk, wide.add(total, term))
        level = wide.where(rises, x, level)
        return [level, total], wide.add(level, wide.log(wide.to(total, compute)))

    # ---- along -----------------------------------------------------------------------------------

    def _prefixes(self, pointers: list[LLVMValue]) -> None:
        """Consecutive elements: a prefix within the vector, then what came before."""
        f, plan = self.f, self.plan
        lanes = plan.lanes
        first = self.wide.to({"add": 0, "mul": 1}[plan.mode], plan.compute).re
        whole = self.length & -lanes
        left = self.length - whole
        carry = first
        if plan.reverse:
            with f.if_(left > 0) as part:
                part.give(self._vector(pointers, whole, first, left))
            with part.else_():
                part.give(first)
            carry = part.results[0]
        with f.loop(0, whole, lanes, [carry]) as loop:
            index = whole - lanes - loop.index if plan.reverse else loop.index
            loop.next(self._vector(pointers, index, loop.carried[0], None))
        if not plan.reverse:
            with f.if_(left > 0):
                self._vector(pointers, whole, loop.results[0], left)

    def _vector(
        self, pointers: list[LLVMValue], index: LLVMValue, before: LLVMValue, left: LLVMValue | None
    ) -> LLVMValue:
        """One vector; returns what all elements so far fold to, in every lane."""
        f, plan, wide = self.f, self.plan, self.wide
        mask = None if left is None else f.low_mask(left, plan.lanes)
        place = [f.at(p, index * s) for p, s in zip(pointers, self.along, strict=True)]
        x = wide.to(wide.load(plan.dtypes[1], place[1], mask), plan.compute).re
        neutral = wide.to({"add": 0, "mul": 1}[plan.mode], plan.compute).re
        if mask is not None:
            x = f.select(mask, x, neutral)
        step = 1
        while step < plan.lanes:
            moved = self._shifted(x, neutral, step)
            x = f.arithmetic(plan.mode, moved, x)
            step *= 2
        total = f.arithmetic(plan.mode, before, x)
        wide.store(Num(plan.compute, total), plan.dtypes[0], place[0], mask)
        last = 0 if plan.reverse else plan.lanes - 1
        return f.arithmetic(plan.mode, before, f.shuffle(x, None, [last] * plan.lanes))

    def _shifted(self, x: LLVMValue, neutral: LLVMValue, step: int) -> LLVMValue:
        """Each lane's neighbour `step` places before it (behind it, when reversed)."""
        lanes = self.plan.lanes
        sign = 1 if self.plan.reverse else -1
        picked = [k + sign * step for k in range(lanes)]
        return self.f.shuffle(x, neutral, [k if 0 <= k < lanes else lanes for k in picked])


def _beaten_by_all(plan: ScanPlan) -> float | int:
    """What the first element always replaces (it wins ties)."""
    low = plan.mode == "argmax"
    if plan.compute.category == dt.FLOAT:
        return float("-inf") if low else float("inf")
    if plan.compute is dt.bool_:
        return 0 if low else 1
    bits = 8 * plan.compute.itemsize
    if plan.compute.is_signed:
        return -(1 << (bits - 1)) if low else (1 << (bits - 1)) - 1
    return 0 if low else (1 << bits) - 1


def write_scan(m: Module, plan: ScanPlan) -> None:
    _Writer(m, plan).write()
