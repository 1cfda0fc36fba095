"""What a weight that is not finite has spoiled.

Positions outside the source count as zero, and an infinite weight times zero is not zero. Engines
multiply them all the same; while they pack the weights they raise the flag of the context when one
is not finite (see `launch`), and then this kernel computes anew the results that are no number and
have read a position that is not there.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.conv.generic import (
    CONV,
    INPUT,
    ConvNumber,
    Element,
    GenericConvWriter,
    Step,
    described,
)
from lucerne._src.backends.cpu.conv.launch import Phase, make_kernel, task_code
from lucerne._src.backends.cpu.conv.problem import SPATIAL, Array, ConvSetting
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel


def plan_mend(
    op: str, x: Array, w: Array, y: Array, s: ConvSetting, bias_step: int | None, holes: bool
) -> NativeKernel:
    """`holes`: the engine has put zeros between the elements of the source as well."""
    bias = bias_step is not None
    key = ("conv.mend", op, x.dtype.name, bias, holes)
    task = task_code(key, lambda m: _Mender(m, op, ConvNumber(x.dtype), bias, holes).write())
    chunks = math.prod((y if op == CONV else x).shape[:2])
    table = described(x, w, y, s, bias_step or 0)
    return make_kernel([Phase(task, chunks)], table, 0, 2 + bias, work=0.0)


class _Mender(GenericConvWriter):
    """Writes `task`: the results of one image and channel that are no number, once more."""

    def __init__(self, m: Module, op: str, number: ConvNumber, bias: bool, holes: bool) -> None:
        super().__init__(m, op, number, bias)
        self.holes = holes

    def _settle(self, at: list[LLVMValue], element: Element, index: LLVMValue) -> None:
        f = self.f
        [v] = self.number.load(f, self.c.out, index)
        wrong = f.compare("uno", v, v)
        if not self.holes:
            wrong = wrong & self._beyond(at)
        with f.if_(wrong):
            self._put(element(at), index)

    def _channels(self, count: LLVMValue, add: Step, start: list[LLVMValue]) -> list[LLVMValue]:
        """Nothing changes a sum that is no number."""

        def unless(channel: LLVMValue, total: list[LLVMValue]) -> list[LLVMValue]:
            number = self.f.compare("ord", total[0], total[0])
            return self._when(number, lambda: add(channel, total), total)

        return self._loop(count, unless, start)

    def _beyond(self, at: list[LLVMValue]) -> LLVMValue:
        """Whether a tap of this element reads outside the source."""
        found = None
        for d in range(SPATIAL):
            reach = (self._word("TAPS", d) - 1) * self._word("STEP", d)
            if self.op == INPUT:
                last = at[d] + self._word("PAD", d)
                first, last = last - reach, last // self._word("STRIDE", d)
                size = self._word("OUT", d)
            else:
                first = at[d] * self._word("STRIDE", d) - self._word("PAD", d)
                last, size = first + reach, self._word("IN", d)
            out = (first < 0) | (last >= size)
            found = out if found is None else found | out
        assert found is not None
        return found
