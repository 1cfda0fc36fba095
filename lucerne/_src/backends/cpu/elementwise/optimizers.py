"""Optimizer steps over lists of tensors in one kernel.

The block holds the pointers of all tensors of each list. A table in the extra words gives for each
chunk the tensor it belongs to and its first and last element: [tensor] [start] [stop].

Averages of gradients that have become zero (a unit that no longer fires) get smaller at each step,
down to numbers below 2^-126, for which the processor needs a hundred times as long. Here such
numbers count as zero: no parameter is another for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.backends.cpu.math.vector import quick_quotient, quick_root
from lucerne._src.base import dtype as dt

_UNROLL = 2
_TINY_RESULTS, _TINY_OPERANDS = 0x8000, 0x0040
"""Bits of the control word of x86: tiny numbers are zero as results, as operands."""


@dataclass(frozen=True)
class OptimizerKind:
    """`op` and its flags; how many tensors the lists have; dtype of each list, results first."""

    op: str
    flags: tuple[bool, ...]
    count: int
    results: tuple[str, ...]
    lists: tuple[str, ...]
    steps: str
    numbers: int


class OptimizerStep:
    """Inside a chunk: the numbers of the step, and vectors of the lists."""

    def __init__(self, writer: _Writer, numbers: list[LLVMValue], step: LLVMValue | None) -> None:
        self.w, self.f, self.numbers, self.step = writer, writer.f, numbers, step

    def splat(self, x: LLVMValue) -> LLVMValue:
        """A double as a vector of the computing type."""
        return self.w.wide.splat(self.w.one.to(Num(dt.float64, x), self.w.compute)).re


Update = Callable[[LLVMFunction, list[LLVMValue]], list[LLVMValue]]


@contextmanager
def tiny_as_zero(f: LLVMFunction) -> Iterator[None]:
    """Code in which numbers below the smallest normal one count as zero, where the processor would
    be slow with them."""
    if not HOST.is_x86:
        yield
        return
    before, within = f.stack(8, 8), f.stack(8, 8)
    f.call("llvm.x86.sse.stmxcsr", VOID, [before])
    mode = f.bits("or", f.load(I32, before), _TINY_RESULTS | _TINY_OPERANDS)
    f.store(mode, within)
    f.call("llvm.x86.sse.ldmxcsr", VOID, [within])
    yield
    f.call("llvm.x86.sse.ldmxcsr", VOID, [before])


class _Writer:
    def __init__(self, m: Module, kind: OptimizerKind) -> None:
        self.m, self.kind = m, kind
        self.results = [dt.by_name(d) for d in kind.results]
        self.lists = [dt.by_name(d) for d in kind.lists]
        self.compute = self.lists[0].compute
        self.lanes = VECTOR_BYTES // self.compute.itemsize
        tensors = kind.count * (len(self.results) + len(self.lists) + bool(kind.steps))
        self.first_number = tensors + 1
        self.table = self.first_number + 2 * kind.numbers

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self.f = f
            self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.lanes)
            block = f.args[0]
            record = f.at(block, f.args[1] * 24 + (self.table + 1) * 8)
            tensor, start, stop = (f.load(I64, f.at(record, 8 * k)) for k in range(3))
            numbers = [
                f.word(block, self.first_number + 2 * k, F64) for k in range(self.kind.numbers)
            ]
            places = [
                f.load(PTR, f.at(f.at(block, tensor * 8), 8 * k * self.kind.count))
                for k in range(len(self.results) + len(self.lists) + bool(self.kind.steps))
            ]
            step = None
            if self.kind.steps:
                found = self.one.load(dt.by_name(self.kind.steps), places[-1])
                step = self.one.to(found, dt.float64).re
            update = _UPDATES[self.kind.op](OptimizerStep(self, numbers, step), *self.kind.flags)
            with tiny_as_zero(f):
                self._loop(places, start, stop, update)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            chunks = f.word(f.args[0], self.table)
            with f.if_(chunks > 1) as several:
                f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], chunks])
            with several.else_():
                f.call("task", VOID, [f.args[0], 0, 0])
            f.ret(0)

    def _loop(
        self, places: list[LLVMValue], start: LLVMValue, stop: LLVMValue, update: Update
    ) -> None:
        f, lanes = self.f, self.lanes
        step = lanes * _UNROLL
        whole = start + ((stop - start) & -step)
        with f.loop(start, whole, step) as loop:
            for u in range(_UNROLL):
                self._visit(places, loop.index + u * lanes, None, update)
        with f.loop(whole, stop, lanes) as loop:
            mask = f.low_mask(stop - loop.index, lanes)
            self._visit(places, loop.index, mask, update)

    def _visit(
        self, places: list[LLVMValue], index: LLVMValue, mask: LLVMValue | None, update: Update
    ) -> None:
        f, count = self.f, len(self.results)
        loaded = []
        for dtype, place in zip(self.lists, places[count:], strict=False):
            x = self.wide.load(dtype, f.at(place, index * dtype.itemsize), mask)
            loaded.append(self.wide.to(x, self.compute).re)
        for dtype, place, v in zip(self.results, places, update(f, loaded), strict=False):
            x = Num(self.compute, v)
            self.wide.store(x, dtype, f.at(place, index * dtype.itemsize), mask)


def adam_factors(f: LLVMFunction, numbers: list[LLVMValue], step: LLVMValue) -> list[LLVMValue]:
    """What Adam needs of lr, the betas, the weight decay, eps and the count of steps: doubles."""
    lr, beta1, beta2, weight_decay, eps = numbers
    rest1, rest2 = (1.0 - f.call("pow", F64, [b, step]) for b in (beta1, beta2))
    size, inverse_root = lr / rest1, 1.0 / f.intrinsic("llvm.sqrt", F64, [rest2])
    keep = 1.0 - lr * weight_decay
    return [size, inverse_root, keep, weight_decay, 1.0 - beta1, beta2, 1.0 - beta2, eps]


def adam_values(
    f: LLVMFunction,
    factors: list[LLVMValue],
    loaded: list[LLVMValue],
    decoupled: bool,
    maximize: bool,
    larger: Callable[[LLVMValue, LLVMValue], LLVMValue] | None = None,
) -> list[LLVMValue]:
    """New vectors of [p, g, m, v]: p, m and v. `larger` (amsgrad): the maximum of the fifth and v,
    which then is the fourth."""
    size, inverse_root, keep, decay, new1, old2, new2, small = factors
    p, g, m, v = loaded[:4]
    g = -g if maximize else g
    if decoupled:
        p = p * keep
    else:
        g = f.mul_add(decay, p, g)
    m = f.mul_add(new1, g - m, m)
    v = f.mul_add(old2, v, new2 * g * g)
    top = v if larger is None else larger(loaded[4], v)
    below = f.mul_add(quick_root(f, top), inverse_root, small)
    p = p - size * quick_quotient(f, m, below)
    return [p, m, v] if larger is None else [p, m, v, top]


def _adam(s: OptimizerStep, decoupled: bool, amsgrad: bool, maximize: bool) -> Update:
    assert s.step is not None
    factors = [s.splat(x) for x in adam_factors(s.f, s.numbers, s.step)]
    compute = s.w.compute

    def larger(a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return s.w.wide.maximum(Num(compute, a), Num(compute, b)).re

    def update(f: LLVMFunction, loaded: list[LLVMValue]) -> list[LLVMValue]:
        return adam_values(f, factors, loaded, decoupled, maximize, larger if amsgrad else None)

    return update


def _sgd(s: OptimizerStep, nesterov: bool, maximize: bool, is_first_step: bool) -> Update:
    weight_decay, momentum, lr, dampening = s.numbers
    decay, fast, rate = s.splat(weight_decay), s.splat(momentum), s.splat(lr)
    part = s.splat(1.0 - dampening)

    def update(f: LLVMFunction, loaded: list[LLVMValue]) -> list[LLVMValue]:
        p, g = loaded[:2]
        g = f.mul_add(decay, p, -g if maximize else g)
        if len(loaded) == 2:
            return [p - rate * g]
        b = g if is_first_step else f.mul_add(fast, loaded[2], part * g)
        g = f.mul_add(fast, b, g) if nesterov else b
        return [p - rate * g, b]

    return update


def _adagrad(s: OptimizerStep, maximize: bool) -> Update:
    lr, lr_decay, weight_decay, eps = s.numbers
    assert s.step is not None
    rate = s.splat(lr / (1.0 + (s.step - 1.0) * lr_decay))
    decay, small = s.splat(weight_decay), s.splat(eps)

    def update(f: LLVMFunction, loaded: list[LLVMValue]) -> list[LLVMValue]:
        p, g, total = loaded
        g = f.mul_add(decay, p, -g if maximize else g)
        total = f.mul_add(g, g, total)
        root = f.intrinsic("llvm.sqrt", total.type, [total])
        return [p - rate * (g / (root + small)), total]

    return update


_UPDATES: dict[str, Callable[..., Update]] = {
    "adam_update": _adam,
    "sgd_update": _sgd,
    "adagrad_update": _adagrad,
}


def write_step(m: Module, kind: OptimizerKind) -> None:
    _Writer(m, kind).write()


def write_count(m: Module, dtype: str, count: int) -> None:
    """Add one to each of `count` counters; results may lie where the counters do."""
    kind = dt.by_name(dtype)
    with m.function("entry", [("block", PTR)], I64) as f:
        one = LlvmScalar(f, 1)
        with f.loop(0, count, 1) as loop:
            target = f.at(f.args[0], loop.index * 8)
            old = one.load(kind, f.load(PTR, f.at(target, 8 * count)))
            new = Num(kind, old.re + 1.0)
            one.store(new, kind, f.load(PTR, target))
        f.ret(0)
