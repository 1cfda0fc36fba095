"""Type promotion, over every pair of dtypes and every kind of operand."""

import functools
from typing import Any

from tests.conformance.own_cases.tools import DTYPES, Row, Rows, attempt

ALL_DTYPES = (*DTYPES, "complex32", "uint16", "uint32", "uint64")
SCALARS = {"bool": True, "int": 2, "float": 1.5, "complex": 1 + 1j}

OPS: dict[str, Any] = {
    "add": lambda t, a, b: t.add(a, b),
    "mul": lambda t, a, b: t.mul(a, b),
    "div": lambda t, a, b: t.div(a, b),
    "sub": lambda t, a, b: t.sub(a, b),
    "pow": lambda t, a, b: t.pow(a, b),
    "floor_divide": lambda t, a, b: t.floor_divide(a, b),
    "remainder": lambda t, a, b: t.remainder(a, b),
    "where": lambda t, a, b: t.where(t.tensor([True, False]), a, b),
    "eq": lambda t, a, b: t.eq(a, b),
    "maximum": lambda t, a, b: t.maximum(a, b),
    "atan2": lambda t, a, b: t.atan2(a, b),
    "bitwise_and": lambda t, a, b: t.bitwise_and(a, b),
}
SCALAR_OPS = ("add", "mul", "div", "sub", "pow", "floor_divide", "remainder", "where", "eq")
REDUCTIONS = ("sum", "mean", "prod", "cumsum", "amax", "std", "norm", "all", "logsumexp")


def _vector(t: Any, dtype: str) -> Any:
    return t.tensor([1, 2]).to(getattr(t, dtype))


def _point(t: Any, dtype: str) -> Any:
    return t.tensor(2).to(getattr(t, dtype))


def _pairs(op: Any, left: Any, right: Any) -> Row:
    """Every pair of dtypes: the result, or the kind of refusal."""

    def row(t: Any) -> Any:
        made = {}
        for a in DTYPES:
            for b in DTYPES:
                call = functools.partial(op, t, left(t, a), right(t, b))
                made[f"{a} {b}"] = attempt(call)
        return made

    return row


def _with_scalars(op: Any, left: Any, *, reverse: bool = False) -> Row:
    """Every dtype with every kind of Python number."""

    def row(t: Any) -> Any:
        made = {}
        for a in DTYPES:
            for kind, number in SCALARS.items():
                operands = (number, left(t, a)) if reverse else (left(t, a), number)
                made[f"{a} {kind}"] = attempt(functools.partial(op, t, *operands))
        return made

    return row


def _inplace(name: str) -> Row:
    """Whether the result may be stored in the left operand."""

    def row(t: Any) -> Any:
        made = {}
        for a in DTYPES:
            for b in DTYPES:
                target = _vector(t, a)
                made[f"{a} {b}"] = attempt(functools.partial(getattr(target, name), _vector(t, b)))
        return made

    return row


def result_types(t: Any) -> Any:
    made = {}
    for a in DTYPES:
        for b in DTYPES:
            tensors = t.result_type(_vector(t, a), _vector(t, b))
            mixed = t.result_type(_vector(t, a), _point(t, b))
            made[f"{a} {b}"] = [str(tensors), str(mixed)]
        for kind, number in SCALARS.items():
            made[f"{a} {kind}"] = [str(t.result_type(_vector(t, a), number))]
    made["numbers"] = [str(t.result_type(1, 2.0)), str(t.result_type(True, 1))]
    return made


def promote_types(t: Any) -> Any:
    return {
        f"{a} {b}": str(attempt(functools.partial(t.promote_types, getattr(t, a), getattr(t, b))))
        for a in ALL_DTYPES
        for b in ALL_DTYPES
    }


def can_cast(t: Any) -> Any:
    return {
        f"{a} {b}": t.can_cast(getattr(t, a), getattr(t, b)) for a in ALL_DTYPES for b in ALL_DTYPES
    }


def cat(t: Any) -> Any:
    made = {}
    for a in DTYPES:
        for b in DTYPES:
            made[f"{a} {b}"] = t.cat([_vector(t, a), _vector(t, b)])
            made[f"stack {a} {b}"] = attempt(
                functools.partial(t.stack, [_point(t, a), _point(t, b)])
            )
    return made


def reductions(t: Any) -> Any:
    return {
        f"{name} {dtype}": attempt(functools.partial(getattr(t, name), _vector(t, dtype), 0))
        for name in REDUCTIONS
        for dtype in DTYPES
    }


def unary(t: Any) -> Any:
    names = ("abs", "neg", "sqrt", "exp", "sin", "floor", "reciprocal", "sigmoid", "sign", "square")
    return {
        f"{name} {dtype}": attempt(functools.partial(getattr(t, name), _vector(t, dtype)))
        for name in names
        for dtype in DTYPES
    }


def matmuls(t: Any) -> Any:
    made = {}
    for a in DTYPES:
        for b in ("float32", a):
            left, right = _vector(t, a).reshape(1, 2), _vector(t, b).reshape(2, 1)
            made[f"{a} {b}"] = attempt(functools.partial(t.matmul, left, right))
    return made


def _tables() -> Rows:
    rows: Rows = {}
    for name, op in OPS.items():
        rows[f"{name} of tensors"] = _pairs(op, _vector, _vector)
        rows[f"{name} of tensor and 0-dim"] = _pairs(op, _vector, _point)
        rows[f"{name} of 0-dim and tensor"] = _pairs(op, _point, _vector)
    for name in SCALAR_OPS:
        rows[f"{name} of tensor and number"] = _with_scalars(OPS[name], _vector)
        rows[f"{name} of 0-dim and number"] = _with_scalars(OPS[name], _point)
    for name in ("pow", "where"):
        rows[f"{name} of number and tensor"] = _with_scalars(OPS[name], _vector, reverse=True)
    for name in ("add_", "mul_", "div_", "pow_", "copy_", "floor_divide_"):
        rows[f"{name} of tensors"] = _inplace(name)
    return rows


ROWS: Rows = {
    **_tables(),
    "result_type": result_types,
    "promote_types": promote_types,
    "can_cast": can_cast,
    "cat and stack": cat,
    "reductions": reductions,
    "unary": unary,
    "matmul": matmuls,
}
