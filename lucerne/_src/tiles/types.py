"""Which dtype an instruction computes in, and which instructions there are."""

from __future__ import annotations

from collections.abc import Iterable

from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import COMPARISONS, ROUNDING

QUESTIONS = frozenset(("is_nan", "is_inf"))
BITS = frozenset(("bit_and", "bit_or", "bit_xor", "bit_not"))
ARITHMETIC = frozenset(("add", "sub", "mul", "neg", "abs", "minimum", "maximum"))
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "tanh", "sinh", "cosh", "asin", "acos", "atan", "erf", "sigmoid", "reciprocal",
)  # fmt: skip
"""Instructions on one floating number."""
CHEAP = frozenset((
    "div", "where", "sqrt", "reciprocal", *ARITHMETIC, *ROUNDING, *COMPARISONS, *QUESTIONS, *BITS,
))  # fmt: skip
"""What is rather computed twice than kept in memory."""


def widest(dtypes: Iterable[tuple[dt.dtype, bool]]) -> dt.dtype:
    """The common dtype of operands (dtype, is it a Python number): a float wins over integers,
    the wider one over the narrower; Python numbers only count when they are of a higher kind."""
    given = list(dtypes)
    strong = [d for d, weak in given if not weak] or [d for d, _ in given]
    kind = max(d.category for d, _ in given)
    found = [d for d in strong if d.category == max(s.category for s in strong)]
    best = max(found, key=lambda d: (d.itemsize, not d.is_signed))
    if best.category >= kind:
        return best
    return dt.float32 if kind == dt.FLOAT else dt.int64


def as_float(dtype: dt.dtype) -> dt.dtype:
    return dtype if dtype.category == dt.FLOAT else dt.float32


def computes_in(name: str, dtypes: list[tuple[dt.dtype, bool]]) -> tuple[dt.dtype, dt.dtype]:
    """(dtype of the operands, dtype of the result) of an instruction."""
    if name == "where":
        found = widest(dtypes[1:])
        return found, found
    common = widest(dtypes)
    if name in COMPARISONS:
        return common, dt.bool_
    if name in QUESTIONS:
        return as_float(common), dt.bool_
    if name in BITS or name in ROUNDING:
        return common, common
    if name in ARITHMETIC:
        if common is dt.bool_ and name not in ("minimum", "maximum"):
            common = dt.int32
        return common, common
    return as_float(common), as_float(common)
