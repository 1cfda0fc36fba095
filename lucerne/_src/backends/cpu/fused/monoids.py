"""Monoids: how values are folded, lane by lane and then across lanes, in a fixed order.

The state of a fold is a list of LLVM values (a sum of complex numbers has two, an argmax the best
value and its position). Folding is the same in registers, across lanes and between the partial
results of different blocks: `merge` of two states, where the first one comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I1,
    I8,
    I32,
    I64,
    LLVMFunction,
    LLVMValue,
    Type,
)
from lucerne._src.backends.cpu.math import complexes
from lucerne._src.backends.cpu.math.number import Num, cast
from lucerne._src.backends.cpu.math.storage import COMPUTED
from lucerne._src.base import dtype as dt

State = list[LLVMValue]
LONG = {"add": 1 << 16, "mul": 1 << 7}
"""Folds of so many float32 numbers end in float64: sums block by block, products (whose roundings
all add up, and which float64 makes no slower) from the beginning."""


class Monoid:
    """A fold in the compute dtype `dtype`."""

    def __init__(self, dtype: dt.dtype) -> None:
        self.dtype = dtype
        self.type = COMPUTED[dtype]

    @property
    def types(self) -> list[Type]:
        """The element types of a state."""
        return [self.type] * (2 if self.dtype.category == dt.COMPLEX else 1)

    def start(self, f: LLVMFunction, lanes: int) -> State:
        """The state of nothing."""
        raise NotImplementedError

    def lift(self, f: LLVMFunction, x: Num, position: LLVMValue | None) -> State:
        """The state of one value (per lane)."""
        x = cast(f, x, self.dtype)
        return [x.re] if x.im is None else [x.re, x.im]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        raise NotImplementedError

    def value(self, f: LLVMFunction, state: State) -> Num:
        return Num(self.dtype, *state)

    def across(self, f: LLVMFunction, state: State) -> State:
        """All lanes in one: the upper half is merged into the lower until one is left."""
        while state[0].type.lanes > 1:
            half = state[0].type.lanes // 2
            if half == 1:
                state = self.merge(
                    f, [f.extract(v, 0) for v in state], [f.extract(v, 1) for v in state]
                )
                break
            low = [f.shuffle(v, None, range(half)) for v in state]
            high = [f.shuffle(v, None, range(half, 2 * half)) for v in state]
            state = self.merge(f, low, high)
        return state


class Sum(Monoid):
    def start(self, f: LLVMFunction, lanes: int) -> State:
        return [f.constant(0, t.vector(lanes)) for t in self.types]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        return [x + y for x, y in zip(a, b, strict=True)]


class ProductFold(Monoid):
    def start(self, f: LLVMFunction, lanes: int) -> State:
        return [f.constant(1 - k, t.vector(lanes)) for k, t in enumerate(self.types)]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        if len(a) == 2:
            return list(complexes.multiply(f, (a[0], a[1]), (b[0], b[1])))
        return [a[0] * b[0]]


class LongFold(Monoid):
    """A sum or product of very many float32 numbers: each block of them in float32, all blocks in
    float64. A state is the block so far, and what came before it. (Rounding a product near 1 is
    coarser above it than below, so that errors add up: products are all in float64.)"""

    def __init__(self, dtype: dt.dtype, how: str) -> None:
        super().__init__(dtype)
        self.how, self.neutral = how, int(how == "mul")

    @property
    def types(self) -> list[Type]:
        return [self.type, F64]

    def start(self, f: LLVMFunction, lanes: int) -> State:
        return [f.constant(self.neutral, t.vector(lanes)) for t in self.types]

    def lift(self, f: LLVMFunction, x: Num, position: LLVMValue | None) -> State:
        block = cast(f, x, self.dtype).re
        return [block, f.constant(self.neutral, F64.vector(block.type.lanes or 1))]

    def later(self, f: LLVMFunction, a: State, b: State) -> State:
        """One more number of a block."""
        if self.how == "add":
            return [a[0] + b[0], a[1]]
        return [a[0], a[1] * self._blocks(f, b)[1]]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        whole = [*self._blocks(f, a), *self._blocks(f, b)]
        first, *rest = whole
        for x in rest:
            first = f.arithmetic(self.how, first, x)
        return [f.constant(self.neutral, a[0].type), first]

    def _blocks(self, f: LLVMFunction, state: State) -> list[LLVMValue]:
        return [state[1], cast(f, Num(self.dtype, state[0]), dt.float64).re]

    def value(self, f: LLVMFunction, state: State) -> Num:
        before, block = self._blocks(f, state)
        total = f.arithmetic(self.how, before, block)
        return cast(f, Num(dt.float64, total), self.dtype)


class Truth(Monoid):
    """`or` and `and` over what is not zero; the states are masks."""

    def __init__(self, dtype: dt.dtype, how: str) -> None:
        super().__init__(dtype)
        self.how = how

    @property
    def types(self) -> list[Type]:
        return [I1]

    def start(self, f: LLVMFunction, lanes: int) -> State:
        return [f.constant(int(self.how == "and"), I1.vector(lanes))]

    def lift(self, f: LLVMFunction, x: Num, position: LLVMValue | None) -> State:
        return [cast(f, x, dt.bool_).re]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        return [f.bits(self.how, a[0], b[0])]

    def value(self, f: LLVMFunction, state: State) -> Num:
        return Num(dt.bool_, state[0])

    def across(self, f: LLVMFunction, state: State) -> State:
        return [f.fold(self.how, state[0])] if state[0].type.lanes else state


def _wins(f: LLVMFunction, dtype: dt.dtype, how: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Whether `a` beats `b` ("max": is greater). Nan never wins here."""
    word = "gt" if how == "max" else "lt"
    if dtype.category == dt.FLOAT:
        return f.compare(word, a, b)
    return f.compare(("s" if dtype.is_signed else "u") + word, a, b)


def _worst(f: LLVMFunction, dtype: dt.dtype, how: str, type: Type) -> LLVMValue:
    """What every other value beats (or equals)."""
    if dtype.category == dt.FLOAT:
        return f.constant(float("-inf") if how == "max" else float("inf"), type)
    bits = type.bits
    if dtype.is_signed:
        return f.constant(-(1 << (bits - 1)) if how == "max" else (1 << (bits - 1)) - 1, type)
    return f.constant(0 if how == "max" else -1, type)


class Extreme(Monoid):
    """The largest or smallest value; nan, once met, stays."""

    def __init__(self, dtype: dt.dtype, how: str) -> None:
        super().__init__(dtype)
        self.how = how

    def start(self, f: LLVMFunction, lanes: int) -> State:
        return [_worst(f, self.dtype, self.how, self.type.vector(lanes))]

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        best, new = a[0], b[0]
        if self.dtype is dt.bool_:
            return [best | new if self.how == "max" else best & new]
        found = f.select(_wins(f, self.dtype, self.how, new, best), new, best)
        if self.dtype.category == dt.FLOAT:
            found = f.select(f.compare("uno", new, new), new, found)
        return [found]


class PositionFold(Monoid):
    """Where the extreme is: the first one when several tie, a nan before all others."""

    def __init__(self, dtype: dt.dtype, how: str, index: Type) -> None:
        super().__init__(dtype)
        self.how, self.index = how, index

    @property
    def types(self) -> list[Type]:
        return [self.type, self.index]

    def start(self, f: LLVMFunction, lanes: int) -> State:
        worst = _worst(f, self.dtype, self.how, self.type.vector(lanes))
        return [worst, f.constant(0, self.index.vector(lanes))]

    def lift(self, f: LLVMFunction, x: Num, position: LLVMValue | None) -> State:
        assert position is not None
        return [cast(f, x, self.dtype).re, position]

    def later(self, f: LLVMFunction, a: State, b: State) -> State:
        """Merge where every position of `b` is behind those of `a`: ties need no look."""
        take = self._beats(f, b[0], a[0])
        return [f.select(take, y, x) for x, y in zip(a, b, strict=True)]

    def _beats(self, f: LLVMFunction, new: LLVMValue, best: LLVMValue) -> LLVMValue:
        if self.dtype is dt.bool_:
            return new & ~best if self.how == "max" else best & ~new
        if self.dtype.category != dt.FLOAT:
            return _wins(f, self.dtype, self.how, new, best)
        # True too where one is nan: then only the first nan counts.
        wins = f.compare("ult" if self.how == "max" else "ugt", best, new)
        return wins & f.compare("ord", best, best)

    def merge(self, f: LLVMFunction, a: State, b: State) -> State:
        beats = self._beats(f, b[0], a[0])
        same = f.compare("ueq" if self.dtype.category == dt.FLOAT else "eq", a[0], b[0])
        if self.dtype.category == dt.FLOAT:  # equal, or both nan
            same = same & f.compare("eq", *(self._nan(f, v) for v in (a[0], b[0])))
        take = beats | (same & f.compare("lt", b[1], a[1]))
        return [f.select(take, y, x) for x, y in zip(a, b, strict=True)]

    def _nan(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        return f.compare("uno", v, v)

    def value(self, f: LLVMFunction, state: State) -> Num:
        dtype = dt.int32 if self.index is I32 else dt.int64
        return Num(dtype, state[1])


def monoid(how: str, dtype: dt.dtype, count: int) -> Monoid:
    """The monoid an op names, folding in `dtype`; `count`: how many values one fold may have."""
    if how == "add":
        return Truth(dtype, "or") if dtype is dt.bool_ else Sum(dtype)
    if how == "mul":
        return Truth(dtype, "and") if dtype is dt.bool_ else ProductFold(dtype)
    if how in ("or", "and"):
        return Truth(dtype, how)
    if how in ("max", "min"):
        return Extreme(dtype, how)
    return PositionFold(dtype, how.removeprefix("arg"), I32 if count < 1 << 31 else I64)


def in_blocks(how: str, dtype: dt.dtype, count: int) -> Monoid:
    """The same for loops that fold in blocks."""
    if dtype is dt.float32 and count >= LONG.get(how, math.inf):
        return LongFold(dtype, how)
    return monoid(how, dtype, count)


def advance(f: LLVMFunction, m: Monoid, state: State, new: State) -> State:
    """One step of a running fold: `new` comes after everything in `state`."""
    return (
        m.later(f, state, new)
        if isinstance(m, (LongFold, PositionFold))
        else m.merge(f, state, new)
    )


def chosen(f: LLVMFunction, mask: LLVMValue, state: State, otherwise: State) -> State:
    """`state` in the lanes of a mask, `otherwise` in the rest."""
    return [f.select(mask, s, o) for s, o in zip(state, otherwise, strict=True)]


def save(f: LLVMFunction, state: Sequence[LLVMValue], pointers: Sequence[LLVMValue]) -> None:
    """Write a state to memory; masks as bytes."""
    for v, p in zip(state, pointers, strict=True):
        f.store(f.convert("zext", v, I8) if v.type.element is I1 else v, p)


def restore(f: LLVMFunction, m: Monoid, lanes: int, pointers: Sequence[LLVMValue]) -> State:
    found = []
    for t, p in zip(m.types, pointers, strict=True):
        v = f.load((I8 if t is I1 else t).vector(lanes), p)
        found.append(f.compare("ne", v, f.zero(v.type)) if t is I1 else v)
    return found
