"""The body of an element-wise op, run on a machine that writes code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.backends.cpu.fused.program import FusedExpr, FusedOp
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand


def rounded_to(machine: LlvmScalar, x: Num, dtype: dt.dtype) -> Num:
    return x if dtype.compute is dtype else machine.rounded(x, dtype)


def apply_point(e: FusedOp, machine: LlvmScalar, get: Callable[[FusedExpr], Num]) -> Num:
    """Run the body of an element-wise op."""
    operands: list[Any] = []
    for a, kind, common in zip(e.args, e.types, e.rounded, strict=True):
        if not isinstance(a, FusedExpr):
            operands.append(a)
            continue
        x = machine.to(get(a), kind)
        if common is not None and a.dtype is not common:
            x = machine.rounded(x, common)
        operands.append(Operand(machine, x))
    names = [p.name for p in e.op.params if p.keyword_only]
    count = len(e.op.params) - len(names)
    result = e.op.body(*operands[:count], **dict(zip(names, operands[count:], strict=True)))
    return machine.to(result.raw if type(result) is Operand else result, e.dtype.compute)
