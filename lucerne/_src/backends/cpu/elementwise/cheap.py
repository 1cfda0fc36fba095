"""Which element-wise ops cost next to nothing."""

from __future__ import annotations

CHEAP = frozenset((
    "add2", "sub2", "mul", "neg", "abs", "choose", "where", "lt", "le", "gt", "ge", "eq", "ne",
    "add_scaled", "sub_scaled", "relu", "relu_op", "square", "masked_fill", "maximum", "minimum",
    "clamp_between", "logical_not", "logical_and", "logical_or", "isnan", "reciprocal",
    "true_divide", "clamp_min", "clamp_max",
))  # fmt: skip
"""Ops that cost less than storing a value and reading it again."""
