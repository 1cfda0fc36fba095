"""Convolution of any type by plain loops: integers, complex numbers, and empty sums.

The three ops share one geometry: input position = stride * output position + dilation * tap -
padding. Each op walks over the elements of its own result and sums what belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.conv.launch import (
    TASK,
    ConvContext,
    ConvTable,
    Phase,
    make_kernel,
    task_code,
)
from lucerne._src.backends.cpu.conv.problem import SPATIAL, Array, ConvSetting
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.math import storage
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt

CONV, INPUT, WEIGHT = "conv", "conv_input", "conv_weight"
Element = Callable[[list[LLVMValue]], list[LLVMValue]]
Step = Callable[[LLVMValue, Any], list[LLVMValue]]
_DIMS = "DHW"
NAMES = (
    "N GROUPS CHANNELS OUTPUTS B_STEP "  # channels and outputs of one group
    + " ".join(f"{a}_{d}" for a in "XWY" for d in ("0", "1", *_DIMS))  # strides
    + " "
    + " ".join(
        f"{what}_{d}" for what in ("IN", "TAPS", "OUT", "STRIDE", "PAD", "STEP") for d in _DIMS
    )
).split()


@dataclass(frozen=True)
class ConvNumber:
    """A number of some dtype as its parts: one, or real and imaginary."""

    dtype: dt.dtype

    @property
    def compute(self) -> Type:
        return storage.COMPUTED[self.dtype.compute]

    @property
    def parts(self) -> int:
        return 2 if self.dtype.is_complex else 1

    def zero(self, f: LLVMFunction) -> list[LLVMValue]:
        return [f.zero(self.compute)] * self.parts

    def _place(self, f: LLVMFunction, base: LLVMValue, index: LLVMValue, part: int) -> LLVMValue:
        return f.at(base, index * self.parts + part, self._stored)

    @property
    def _stored(self) -> Type:
        return storage.STORED[self.dtype]

    def load(self, f: LLVMFunction, base: LLVMValue, index: LLVMValue) -> list[LLVMValue]:
        return [
            storage.unpack(f, self.dtype, f.load(self._stored, self._place(f, base, index, k)))
            for k in range(self.parts)
        ]

    def store(
        self, f: LLVMFunction, v: Sequence[LLVMValue], base: LLVMValue, index: LLVMValue
    ) -> None:
        for k, part in enumerate(v):
            packed = storage.pack(f, self.dtype, part)
            f.store(packed, self._place(f, base, index, k))

    def add_product(
        self, a: Sequence[LLVMValue], b: Sequence[LLVMValue], total: Sequence[LLVMValue]
    ) -> list[LLVMValue]:
        if self.parts == 1:
            return [total[0] + a[0] * b[0]]
        (ar, ai), (br, bi) = a, b
        return [total[0] + (ar * br - ai * bi), total[1] + (ar * bi + ai * br)]


def plan_generic(
    op: str, x: Array, w: Array, y: Array, s: ConvSetting, bias_step: int | None = None
) -> NativeKernel | None:
    """A kernel by plain loops, or None for types that are not numbers."""
    if x.dtype.compute not in storage.COMPUTED:
        return None
    bias = bias_step is not None
    key = ("conv.generic", op, x.dtype.name, bias)
    task = task_code(key, lambda m: GenericConvWriter(m, op, ConvNumber(x.dtype), bias).write())
    table = described(x, w, y, s, bias_step or 0)
    result = {CONV: y, INPUT: x, WEIGHT: w}[op]
    chunks = result.shape[0] * result.shape[1]
    return make_kernel([Phase(task, chunks)], table, 0, 2 + bias, work=0.0)


def described(x: Array, w: Array, y: Array, s: ConvSetting, bias_step: int) -> ConvTable:
    """The three arrays in a table."""
    table = ConvTable(NAMES)
    table.set(N=x.shape[0], GROUPS=s.groups, CHANNELS=w.shape[1], OUTPUTS=w.shape[0] // s.groups)
    table.set(B_STEP=bias_step)
    for letter, a in zip("XWY", (x, w, y), strict=True):
        words = zip(("0", "1", *_DIMS), a.strides, strict=True)
        table.set(**{f"{letter}_{d}": stride for d, stride in words})
    for i, d in enumerate(_DIMS):
        table.set(**{f"IN_{d}": x.space[i], f"TAPS_{d}": w.space[i], f"OUT_{d}": y.space[i]})
        table.set(**{f"STRIDE_{d}": s.stride[i], f"PAD_{d}": s.padding[i]})
        table.set(**{f"STEP_{d}": s.dilation[i]})
    return table


class GenericConvWriter:
    """Writes `task`: all positions of the result at (chunk / channels, chunk % channels)."""

    def __init__(self, m: Module, op: str, number: ConvNumber, bias: bool) -> None:
        self.m, self.op, self.number, self.bias = m, op, number, bias

    def write(self) -> None:
        with self.m.function("task", TASK) as f:
            place, chunk, _ = f.args
            self.f, self.c = f, ConvContext(f, place, NAMES)
            {CONV: self._conv, INPUT: self._input, WEIGHT: self._weight}[self.op](chunk)

    # ---- the three ops -----------------------------------------------------------------------

    def _conv(self, chunk: LLVMValue) -> None:
        c = self.c
        channels = c.GROUPS * c.OUTPUTS
        n, o = chunk // channels, chunk % channels
        first = o // c.OUTPUTS * c.CHANNELS

        def element(at: list[LLVMValue]) -> list[LLVMValue]:
            def add(channel: LLVMValue, total: list[LLVMValue]) -> list[LLVMValue]:
                def tap(k: list[LLVMValue], total: list[LLVMValue]) -> list[LLVMValue]:
                    position = [self._input_at(d, at[d], k[d]) for d in range(SPATIAL)]

                    def product() -> list[LLVMValue]:
                        x = self._index("X", n, first + channel, position)
                        w = self._index("W", o, channel, k)
                        return self._add(c.first, x, c.second, w, total)

                    return self._when(self._within("IN", position), product, total)

                return self._sum_over("TAPS", tap, total)

            return self._channels(c.CHANNELS, add, self._start(o))

        self._each("OUT", lambda at: self._settle(at, element, self._index("Y", n, o, at)))

    def _input(self, chunk: LLVMValue) -> None:
        c = self.c
        channels = c.GROUPS * c.CHANNELS
        n, channel = chunk // channels, chunk % channels
        group, within = channel // c.CHANNELS, channel % c.CHANNELS
        first = group * c.OUTPUTS

        def element(at: list[LLVMValue]) -> list[LLVMValue]:
            def add(o: LLVMValue, total: list[LLVMValue]) -> list[LLVMValue]:
                def tap(k: list[LLVMValue], total: list[LLVMValue]) -> list[LLVMValue]:
                    inside, position = self._output_at(at, k)

                    def product() -> list[LLVMValue]:
                        y = self._index("Y", n, first + o, position)
                        w = self._index("W", first + o, within, k)
                        return self._add(c.first, y, c.second, w, total)

                    return self._when(inside, product, total)

                return self._sum_over("TAPS", tap, total)

            return self._channels(c.OUTPUTS, add, self._start(channel))

        self._each("IN", lambda at: self._settle(at, element, self._index("X", n, channel, at)))

    def _weight(self, chunk: LLVMValue) -> None:
        c = self.c
        o, channel = chunk // c.CHANNELS, chunk % c.CHANNELS
        from_x = o // c.OUTPUTS * c.CHANNELS + channel

        def element(k: list[LLVMValue]) -> list[LLVMValue]:
            def add(n: LLVMValue, total: list[LLVMValue]) -> list[LLVMValue]:
                def one(at: list[LLVMValue], total: list[LLVMValue]) -> list[LLVMValue]:
                    position = [self._input_at(d, at[d], k[d]) for d in range(SPATIAL)]

                    def product() -> list[LLVMValue]:
                        y = self._index("Y", n, o, at)
                        x = self._index("X", n, from_x, position)
                        return self._add(c.first, y, c.second, x, total)

                    return self._when(self._within("IN", position), product, total)

                return self._sum_over("OUT", one, total)

            return self._loop(c.N, add, self.number.zero(self.f))

        self._each("TAPS", lambda k: self._put(element(k), self._index("W", o, channel, k)))

    # ---- positions ---------------------------------------------------------------------------

    def _word(self, name: str, d: int) -> LLVMValue:
        return getattr(self.c, f"{name}_{_DIMS[d]}")

    def _input_at(self, d: int, at: LLVMValue, k: LLVMValue) -> LLVMValue:
        return at * self._word("STRIDE", d) + k * self._word("STEP", d) - self._word("PAD", d)

    def _output_at(
        self, at: list[LLVMValue], k: list[LLVMValue]
    ) -> tuple[LLVMValue, list[LLVMValue]]:
        """The output position that reads input `at` through tap `k`, and whether there is one."""
        f, position = self.f, []
        inside: LLVMValue | None = None
        for d in range(SPATIAL):
            far = at[d] + self._word("PAD", d) - k[d] * self._word("STEP", d)
            stride = self._word("STRIDE", d)
            position.append(far // stride)
            good = (far >= 0) & f.compare("eq", far % stride, 0)
            good = good & (position[d] < self._word("OUT", d))
            inside = good if inside is None else inside & good
        assert inside is not None
        return inside, position

    def _within(self, name: str, position: list[LLVMValue]) -> LLVMValue:
        inside: LLVMValue | None = None
        for d, at in enumerate(position):
            good = (at >= 0) & (at < self._word(name, d))
            inside = good if inside is None else inside & good
        assert inside is not None
        return inside

    def _index(
        self, letter: str, first: LLVMValue, second: LLVMValue, at: list[LLVMValue]
    ) -> LLVMValue:
        c = self.c
        index: LLVMValue = first * getattr(c, f"{letter}_0") + second * getattr(c, f"{letter}_1")
        for d, position in enumerate(at):
            index = index + position * self._word(letter, d)
        return index

    # ---- sums --------------------------------------------------------------------------------

    def _start(self, channel: LLVMValue) -> list[LLVMValue]:
        if not self.bias:
            return self.number.zero(self.f)
        return self.number.load(self.f, self.c.third, channel * self.c.B_STEP)

    def _add(
        self, a: LLVMValue, a_at: LLVMValue, b: LLVMValue, b_at: LLVMValue, total: list[LLVMValue]
    ) -> list[LLVMValue]:
        number, f = self.number, self.f
        return number.add_product(number.load(f, a, a_at), number.load(f, b, b_at), total)

    def _put(self, total: list[LLVMValue], at: LLVMValue) -> None:
        self.number.store(self.f, total, self.c.out, at)

    def _settle(self, at: list[LLVMValue], element: Element, index: LLVMValue) -> None:
        """The element of the result at a position."""
        self._put(element(at), index)

    def _channels(self, count: LLVMValue, add: Step, start: list[LLVMValue]) -> list[LLVMValue]:
        """`add` for every channel that is summed."""
        return self._loop(count, add, start)

    def _when(
        self, condition: LLVMValue, make: Callable[[], list[LLVMValue]], other: list[LLVMValue]
    ) -> list[LLVMValue]:
        with self.f.if_(condition) as branch:
            branch.give(*make())
        with branch.else_():
            branch.give(*other)
        return branch.results

    def _loop(self, count: LLVMValue, step: Step, total: list[LLVMValue]) -> list[LLVMValue]:
        with self.f.loop(0, count, 1, total) as loop:
            loop.next(*step(loop.index, loop.carried))
        return loop.results

    def _sum_over(
        self,
        name: str,
        step: Callable[[list[LLVMValue], list[LLVMValue]], list[LLVMValue]],
        total: list[LLVMValue],
        at: tuple[LLVMValue, ...] = (),
    ) -> list[LLVMValue]:
        """`step` for every position of a space of three dimensions, carrying the sum."""
        if len(at) == SPATIAL:
            return step(list(at), total)

        def inner(i: LLVMValue, total: list[LLVMValue]) -> list[LLVMValue]:
            return self._sum_over(name, step, total, (*at, i))

        return self._loop(self._word(name, len(at)), inner, total)

    def _each(
        self, name: str, act: Callable[[list[LLVMValue]], None], at: tuple[LLVMValue, ...] = ()
    ) -> None:
        if len(at) == SPATIAL:
            act(list(at))
            return
        with self.f.loop(0, self._word(name, len(at))) as loop:
            self._each(name, act, (*at, loop.index))
