"""Random words for the elements of vectors side by side, two for each counter (`counted_word`)."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand
from lucerne._src.ops.random.counted import halves, threefry


def two_vectors(f: LLVMFunction, machine: LlvmScalar, at: Num, keys: list[Num]) -> tuple[Num, Num]:
    """The words of two vectors of elements, the first of which has the (even) number `at`."""
    lanes = machine.lanes
    first = f.splat(at.re >> 1, lanes)
    index = Num(at.dtype, first + f.lanes(first.type))
    key: Any = tuple(Operand(machine, k) for k in keys)
    a, b = (w.raw.re for w in threefry(halves(Operand(machine, index)), key))
    order = [x for k in range(lanes) for x in (k, lanes + k)]
    return (
        Num(dt.uint32, f.shuffle(a, b, order[:lanes])),
        Num(dt.uint32, f.shuffle(a, b, order[lanes:])),
    )
