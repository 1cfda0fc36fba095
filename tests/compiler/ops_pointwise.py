"""Rows: element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from tests.compiler.inputs import rounded
from tests.compiler.program import DTYPES, Dtype
from tests.compiler.table import (
    Live,
    Maker,
    Op,
    anything,
    arithmetic,
    fits,
    flags,
    floats,
    one,
    partner,
    three,
    two,
    whole,
    with_number,
    within,
)

F = "torch.nn.functional."


def _softplus(x: Any) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _sigmoid(x: Any) -> Any:
    return special.expit(x)


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


_SELU = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)

# Smooth functions: name, text, NumPy, where they are asked.
SMOOTH: list[tuple[str, str, Any, Any]] = [
    ("exp", "torch.exp({0})", np.exp, within(-8, 4)),
    ("expm1", "torch.expm1({0})", np.expm1, within(-8, 4)),
    ("exp2", "torch.exp2({0})", np.exp2, within(-8, 5)),
    ("log", "torch.log({0})", np.log, within(0.1, 1e3)),
    ("log1p", "torch.log1p({0})", np.log1p, within(-0.5, 1e3)),
    ("log2", "torch.log2({0})", np.log2, within(0.1, 1e3)),
    ("log10", "torch.log10({0})", np.log10, within(0.1, 1e3)),
    ("sqrt", "torch.sqrt({0})", np.sqrt, within(0.1, 1e3)),
    ("rsqrt", "torch.rsqrt({0})", lambda x: 1 / np.sqrt(x), within(0.1, 1e3)),
    ("sin", "torch.sin({0})", np.sin, within(-30, 30)),
    ("cos", "{0}.cos()", np.cos, within(-30, 30)),
    ("tan", "torch.tan({0})", np.tan, within(-1, 1)),
    ("sinh", "torch.sinh({0})", np.sinh, within(-4, 4)),
    ("cosh", "torch.cosh({0})", np.cosh, within(-4, 4)),
    ("tanh", "torch.tanh({0})", np.tanh, floats),
    ("atan", "torch.atan({0})", np.arctan, floats),
    ("asinh", "torch.asinh({0})", np.arcsinh, floats),
    ("sigmoid", "torch.sigmoid({0})", _sigmoid, floats),
    ("logsigmoid", F + "logsigmoid({0})", lambda x: -_softplus(-x), floats),
    ("silu", F + "silu({0})", lambda x: x * _sigmoid(x), floats),
    ("gelu", F + "gelu({0})", lambda x: x * special.ndtr(x), floats),
    ("gelu_tanh", F + "gelu({0}, approximate='tanh')", _gelu_tanh, floats),
    ("softplus", F + "softplus({0})", _softplus, within(-15, 15)),
    ("mish", F + "mish({0})", lambda x: x * np.tanh(_softplus(x)), within(-15, 15)),
    ("softsign", F + "softsign({0})", lambda x: x / (1 + np.abs(x)), floats),
    ("tanhshrink", F + "tanhshrink({0})", lambda x: x - np.tanh(x), floats),
    ("elu", F + "elu({0})", _elu, floats),
    ("celu", F + "celu({0})", _elu, floats),
    ("selu", "torch.selu({0})", lambda x: _SELU[0] * _elu(x, _SELU[1]), floats),
    ("erf", "torch.erf({0})", special.erf, floats),
    ("erfc", "torch.erfc({0})", special.erfc, within(-5, 3)),
    ("reciprocal", "torch.reciprocal({0})", lambda x: 1 / x, within(0.1, 1e3)),
    ("square", "torch.square({0})", np.square, within(-30, 30)),
    ("pow3", "{0} ** 3", lambda x: x**3, within(-9, 9)),
    ("pow_half", "{0} ** 0.5", lambda x: x**0.5, within(0.1, 1e3)),
    ("hardswish", F + "hardswish({0})", lambda x: x * np.clip(x + 3, 0, 6) / 6, floats),
    ("hardsigmoid", F + "hardsigmoid({0})", lambda x: np.clip(x / 6 + 0.5, 0, 1), floats),
    ("leaky_relu", F + "leaky_relu({0}, 0.1)", lambda x: np.where(x > 0, x, 0.1 * x), floats),
]

# Without rounding.
EXACT: list[tuple[str, str, Any, Any]] = [
    ("abs", "torch.abs({0})", np.abs, arithmetic),
    ("neg", "-{0}", np.negative, arithmetic),
    ("relu", "torch.relu({0})", lambda x: np.maximum(x, 0), arithmetic),
    ("relu6", F + "relu6({0})", lambda x: np.clip(x, 0, 6), floats),
    ("hardtanh", F + "hardtanh({0})", lambda x: np.clip(x, -1, 1), floats),
    ("softshrink", F + "softshrink({0})", None, floats),
    ("threshold", F + "threshold({0}, 0.5, 2.0)", lambda x: np.where(x > 0.5, x, 2.0), floats),
    ("nan_to_num", "torch.nan_to_num({0})", None, floats),
    ("positive", "+{0}", lambda x: x, arithmetic),
    ("logical_not", "torch.logical_not({0})", np.logical_not, anything),
    ("isnan", "torch.isnan({0})", np.isnan, floats),
    ("isfinite", "torch.isfinite({0})", np.isfinite, floats),
    ("bitwise_not", "~{0}", np.invert, lambda v: not v.is_float),
]

JUMPS: list[tuple[str, str, Any, Any]] = [
    ("floor", "torch.floor({0})", np.floor, floats),
    ("ceil", "torch.ceil({0})", np.ceil, floats),
    ("round", "torch.round({0})", np.round, floats),
    ("trunc", "torch.trunc({0})", np.trunc, floats),
    ("frac", "torch.frac({0})", lambda x: x - np.trunc(x), floats),
    ("sign", "torch.sign({0})", np.sign, arithmetic),
    ("hardshrink", F + "hardshrink({0})", lambda x: np.where(np.abs(x) > 0.5, x, 0), floats),
]


def _nonzero(v: Live) -> bool:
    """Far enough from nought to divide by."""
    return v.is_float and v.t.numel() > 0 and bool((v.t.detach().abs() > 0.2).all())


PAIRS: list[tuple[str, str, Any, Any]] = [
    ("add", "{0} + {1}", np.add, two(arithmetic)),
    ("torch_add", "torch.add({0}, {1})", np.add, two(anything)),
    ("sub", "{0} - {1}", np.subtract, two(arithmetic)),
    ("mul", "{0} * {1}", np.multiply, two(anything)),
    ("div", "{0} / {1}", np.divide, two(arithmetic, _nonzero)),
    ("atan2", "torch.atan2({0}, {1})", np.arctan2, two(floats, _nonzero)),
    ("hypot", "torch.hypot({0}, {1})", np.hypot, two(floats, _nonzero)),
    ("logaddexp", "torch.logaddexp({0}, {1})", np.logaddexp, two(floats)),
    ("add_alpha", "torch.add({0}, {1}, alpha=2)", lambda a, b: a + 2 * b, two(arithmetic)),
    ("rsub", "torch.rsub({0}, {1})", lambda a, b: b - a, two(arithmetic)),
    ("pow", "torch.pow({0}, {1})", np.power, two(within(0.2, 5), within(-3, 3))),
]

EXACT_PAIRS: list[tuple[str, str, Any, Any]] = [
    ("maximum", "torch.maximum({0}, {1})", np.maximum, two(anything)),
    ("minimum", "torch.minimum({0}, {1})", np.minimum, two(anything)),
    ("fmax", "torch.fmax({0}, {1})", np.fmax, two(arithmetic)),
    ("fmin", "torch.fmin({0}, {1})", np.fmin, two(arithmetic)),
    ("logical_and", "torch.logical_and({0}, {1})", np.logical_and, two(flags)),
    ("logical_or", "{0} | {1}", np.logical_or, two(flags)),
    ("logical_xor", "torch.logical_xor({0}, {1})", np.logical_xor, two(anything, flags)),
    ("bitwise_and", "{0} & {1}", np.bitwise_and, two(lambda v: not v.is_float)),
    ("bitwise_xor", "{0} ^ {1}", np.bitwise_xor, two(lambda v: not v.is_float)),
]

COMPARE: list[tuple[str, str, Any]] = [
    ("eq", "{0} == {1}", np.equal),
    ("ne", "torch.ne({0}, {1})", np.not_equal),
    ("lt", "{0} < {1}", np.less),
    ("le", "torch.le({0}, {1})", np.less_equal),
    ("gt", "{0} > {1}", np.greater),
    ("ge", "{0} >= {1}", np.greater_equal),
]


def _two_exact_same(g: Maker) -> Any:
    """Of one dtype: mixed ones round before they compare."""
    x = g.pick(exact=True)
    y = x and partner(g, x, lambda v: v.dtype == x.dtype, exact=True)
    return (x.ref, y.ref) if x and y and x.dtype == y.dtype else None


def _of_input_dtype(g: Maker) -> Any:
    """A comparison with a number keeps the number apart from the dtype's rounding."""
    x = g.pick(arithmetic, exact=True)
    return (
        None if x is None else (x.ref, g.rng.choice([0, 1, 0.5, -1] if x.is_float else [0, 1, -2]))
    )


def _where(g: Maker) -> Any:
    c = g.pick(flags)
    x = c and partner(g, c, lambda v: v.dtype != "bool")
    x = x if x is not None and not x.is_bool else c and g.fresh(c.shape, "float32")
    y = x and partner(g, x, lambda v: v.dtype == x.dtype and fits(v.shape, c.shape))
    if not (c and x and y) or not (fits(x.shape, y.shape) and fits(c.shape, y.shape)):
        return None
    return (c.ref, x.ref, y.ref)


def _where_number(g: Maker) -> Any:
    args = _where(g)
    return None if args is None else (args[0], args[1], g.rng.choice([0.0, -1.5, 2.0]))


def _clamp(g: Maker) -> Any:
    x = g.pick(arithmetic)
    return x and (x.ref, *g.rng.choice([(-1, 1), (0, 2), (-2, None), (None, 1)]))


def _np_clip(x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _cast(g: Maker) -> Any:
    x = g.pick()
    if x is None:
        return None
    to = g.rng.choice(DTYPES)
    if x.is_float and to in ("int64", "int32", "bool"):  # a jump
        x = g.pick(floats, exact=True)
    return x and (x.ref, Dtype(to))


def np_cast(x: Any, to: Dtype) -> Any:
    x = np.asarray(x)
    if to.name == "bool":
        return x != 0
    if to.name in ("int64", "int32"):
        return np.trunc(x).astype(np.int64)
    return rounded(x.astype(np.float64), to.name)


def _type_as(g: Maker) -> Any:
    x, y = g.pick(), g.pick(floats)
    return x and y and (x.ref, y.ref)


def _integer_division(g: Maker) -> Any:
    x = g.pick(whole)
    return x and (x.ref, g.rng.choice([2, 3, -2]))


def _float_remainder(g: Maker) -> Any:
    x = g.pick(arithmetic, exact=True)
    return x and (x.ref, g.rng.choice([2, 3] if not x.is_float else [0.5, 2, 4]))


def _lerp(g: Maker) -> Any:
    args = three()(g)
    return args and (*args[:2], g.rng.choice([0.25, 0.5, 0.9]))


def _addcdiv(g: Maker) -> Any:
    args = three()(g)
    z = args and g.pick(lambda v: v.name == args[2].name)
    return args if z and _nonzero(z) else None


def _addcmul(x: Any, y: Any, z: Any) -> Any:
    return x + 0.5 * y * z


def _wide_where(c: Any, x: Any, y: Any) -> Any:
    return np.where(c, x, y)


ROWS: list[Op] = [
    *(Op(n, text, one(w), f) for n, text, f, w in SMOOTH),
    *(Op(n, text, one(w), f, exact=True) for n, text, f, w in EXACT),
    *(Op(n, text, one(w, exact=True), f, exact=True, jumps=True) for n, text, f, w in JUMPS),
    *(Op(n, text, p, f, weight=2 if n in ("add", "mul", "sub", "div") else 1)
      for n, text, f, p in PAIRS),
    *(Op(n, text, p, f, exact=True) for n, text, f, p in EXACT_PAIRS),
    *(Op(n, text, _two_exact_same, f, exact=True, jumps=True) for n, text, f in COMPARE),
    *(Op(n + "_number", text, _of_input_dtype, f, exact=True, jumps=True)
      for n, text, f in COMPARE),
    Op("add_number", "{0} + {1}", with_number(), np.add, weight=2),
    Op("mul_number", "{0} * {1}", with_number(), np.multiply, weight=2),
    Op("number_sub", "{1} - {0}", with_number(), lambda x, n: n - x),
    Op("number_div", "{1} / {0}", with_number(_nonzero), lambda x, n: n / x),
    Op("div_number", "{0} / {1}", with_number(floats), np.divide),
    Op("addcmul", "torch.addcmul({0}, {1}, {2}, value=0.5)", three(), _addcmul),
    Op("addcdiv", "torch.addcdiv({0}, {1}, {2})",
       _addcdiv, lambda x, y, z: x + y / z),
    Op("lerp", "torch.lerp({0}, {1}, {2})", _lerp, lambda x, y, w: x + w * (y - x)),
    Op("where", "torch.where({0}, {1}, {2})", _where, _wide_where, exact=True, weight=2),
    Op("where_number", "torch.where({0}, {1}, {2})", _where_number, _wide_where, exact=True),
    Op("clamp", "torch.clamp({0}, {1}, {2})", _clamp, _np_clip, exact=True),
    Op("clamp_min", "{0}.clamp_min({1})", with_number(), np.maximum, exact=True),
    Op("cast", "{0}.to({1})", _cast, np_cast, exact=True, weight=5),
    Op("type_as", "{0}.type_as({1})", _type_as, None),
    Op("floor_divide", "{0} // {1}", _integer_division, np.floor_divide, exact=True),
    Op("remainder", "torch.remainder({0}, {1})", _float_remainder, np.mod, exact=True, jumps=True),
    Op("fmod", "torch.fmod({0}, {1})", _float_remainder, np.fmod, exact=True, jumps=True),
    Op("dropout_nought", F + "dropout({0}, p=0.0)", one(), lambda x: x * 1.0, exact=True),
    Op("dropout_eval", F + "dropout({0}, p=0.5, training=False)", one(), None, exact=True,
       loose=True),
]  # fmt: skip
