"""Which dtype an op computes in and which it returns: torch's rules over metas and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import NumberMeta, TensorMeta


def result_type(operands: Sequence[Any]) -> dt.dtype:
    """The common dtype: tensors with dimensions win over 0-dim tensors, those over Python numbers.

    A lower class decides only when it is of a higher category (int < float < complex).
    """
    dims = zeros = numbers = None
    for o in operands:
        if isinstance(o, TensorMeta):
            if o.ndim:
                dims = o.dtype if dims is None else dt.promote_types(dims, o.dtype)
            else:
                zeros = o.dtype if zeros is None else dt.promote_types(zeros, o.dtype)
        elif isinstance(o, NumberMeta):
            kind = defaults.dtype_of_number_type(o.kind)
            numbers = kind if numbers is None else dt.promote_types(numbers, kind)
    found = _combine(dims, _combine(zeros, numbers))
    if found is None:
        raise RuntimeError("result_type: no operand has a dtype")
    return found


def _combine(higher: dt.dtype | None, lower: dt.dtype | None) -> dt.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if lower.category > higher.category:
        if lower.category == dt.COMPLEX and higher.category == dt.FLOAT:
            return higher.to_complex()  # float64 with 1j keeps its precision: complex128
        return lower
    return higher


def common_type(rule: str, operands: Sequence[Any]) -> dt.dtype:
    """The dtype operands are brought to under a promotion rule, before any widening to compute."""
    counted = operands[1:] if rule == "where" else operands
    common = result_type(counted)
    if rule in ("float", "float_real") and common.category < dt.FLOAT:
        return defaults.get_default_dtype()
    if rule == "int64" and common.category < dt.FLOAT:
        return dt.int64
    return common


def rounding(op: op_.Op, place: int, common: dt.dtype, operand: Any) -> dt.dtype | None:
    """What the operand at `place` (its meta, or a number) is rounded to before the op computes in a
    wider dtype than the `common` one; None: it is taken whole.

    As torch has it: operands are brought to the common type first, whatever their shape, and the
    op then computes in float32. Products and quotients read a second operand of one element (a
    number, a 0-dim tensor, one of shape [1]) whole: see `whole` of an entry (`ir/define.py`).
    """
    if common.compute is common or (op.promote == "where" and place == 0):
        return None
    if op.kinds[place] == op_.SCALAR:
        return common if op.whole == "none" else None
    if op.whole == "second" and place == 1 and _is_one(operand):
        return None
    return common


def _is_one(operand: Any) -> bool:
    return not isinstance(operand, TensorMeta) or all(n == 1 for n in operand.shape)


def compute_and_result(rule: str, operands: Sequence[Any]) -> tuple[dt.dtype, dt.dtype]:
    """(dtype the body sees, dtype of the result) under a promotion rule.

    `default`: the common type; `float`: integers become the default float; `bool`: result is bool;
    `real`: complex results become real (abs); `float_real`: both; `complex`: real operands make a
    complex result; `int64`: bool and integers become int64; `int32`: result is int32; `where`: the
    first operand is a condition, which stays bool and does not count.
    """
    common = common_type(rule, operands)
    result = common
    if rule == "bool":
        result = dt.bool_
    elif rule in ("real", "float_real"):
        result = common.to_real()
    elif rule == "int32":
        result = dt.int32
    elif rule == "complex":
        result = common.to_complex()
    return common.compute, result


def operand_types(rule: str, operands: Sequence[Any]) -> list[dt.dtype]:
    """The dtype in which each operand reaches the body."""
    compute = common_type(rule, operands).compute
    types = [compute] * len(operands)
    if rule == "where":
        types[0] = dt.bool_
    return types
