"""Operators on each element."""

from __future__ import annotations

import functools
import math
from typing import Any

from lucerne import linalg
from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne.export.onnx.reading.step import Step
from lucerne.export.onnx.reading.table import operator
from lucerne.nn import functional as F

_SAME = {
    "Add": lu.add, "Sub": lu.sub, "Mul": lu.mul, "MatMul": lu.matmul, "Sqrt": lu.sqrt,
    "Tanh": lu.tanh, "Relu": lu.relu, "Sigmoid": lu.sigmoid, "Exp": lu.exp, "Log": lu.log,
    "Neg": lu.neg, "Abs": lu.abs, "Reciprocal": lu.reciprocal, "Not": lu.logical_not,
    "And": lu.logical_and, "Or": lu.logical_or, "Xor": lu.logical_xor, "Equal": lu.eq,
    "Greater": lu.gt, "Less": lu.lt, "GreaterOrEqual": lu.ge, "LessOrEqual": lu.le,
    "Where": lu.where, "Sin": lu.sin, "Cos": lu.cos, "Tan": lu.tan, "Asin": lu.asin,
    "Acos": lu.acos, "Atan": lu.atan, "Sinh": lu.sinh, "Cosh": lu.cosh, "Asinh": lu.asinh,
    "Acosh": lu.acosh, "Atanh": lu.atanh, "Erf": lu.erf, "Floor": lu.floor, "Ceil": lu.ceil,
    "Round": lu.round, "Sign": lu.sign, "IsNaN": lu.isnan, "Softsign": F.softsign,
    "BitwiseAnd": lu.bitwise_and, "BitwiseOr": lu.bitwise_or, "BitwiseXor": lu.bitwise_xor,
    "BitwiseNot": lu.bitwise_not, "HardSwish": F.hardswish, "Mish": F.mish, "Det": linalg.det,
}  # fmt: skip
"""Operators that are a function of ours."""


def _enter(name: str, fn: Any) -> None:
    @operator(name)
    def run(n: Step, *inputs: Any) -> Any:
        return fn(*inputs)


for _name, _fn in _SAME.items():
    _enter(_name, _fn)


@operator("Identity")
def identity(n: Step, x: Any) -> Any:
    return x


@operator("Div")
def div(n: Step, a: Any, b: Any) -> Any:
    return lu.div(a, b) if a.is_floating_point() else lu.div(a, b, rounding_mode="trunc")


@operator("Mod")
def mod(n: Step, a: Any, b: Any, *, fmod: int = 0) -> Any:
    return lu.fmod(a, b) if fmod else lu.remainder(a, b)


@operator("Pow")
def power(n: Step, a: Any, b: Any) -> Any:
    if b.is_floating_point() and not a.is_floating_point():
        return lu.pow(a.to(b.dtype), b).to(a.dtype)
    return lu.pow(a, b.to(a.dtype) if not b.is_floating_point() else b).to(a.dtype)


@operator("Max")
def greatest(n: Step, *xs: Any) -> Any:
    return functools.reduce(lu.maximum, xs)


@operator("Min")
def least(n: Step, *xs: Any) -> Any:
    return functools.reduce(lu.minimum, xs)


@operator("Sum")
def total(n: Step, *xs: Any) -> Any:
    return functools.reduce(lu.add, xs)


@operator("Mean")
def average(n: Step, *xs: Any) -> Any:
    return functools.reduce(lu.add, xs) / len(xs)


@operator("BitShift")
def bit_shift(n: Step, a: Any, b: Any, *, direction: str) -> Any:
    wide = a.to(lu.int64), b.to(lu.int64)
    if a.dtype is dt.uint64:  # the highest bit is a sign in int64
        return lu.bitwise_left_shift(a, b) if direction == "LEFT" else lu.bitwise_right_shift(a, b)
    shift = lu.bitwise_left_shift if direction == "LEFT" else lu.bitwise_right_shift
    return shift(*wide).to(a.dtype)


@operator("Clip")
def clip(n: Step, x: Any, low: Any = None, high: Any = None, **old: Any) -> Any:
    low = old.get("min") if low is None else low
    high = old.get("max") if high is None else high
    if low is not None:
        x = lu.maximum(x, lu.as_tensor(low).to(x.dtype))
    return x if high is None else lu.minimum(x, lu.as_tensor(high).to(x.dtype))


@operator("IsInf")
def is_inf(n: Step, x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = lu.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


# ---- activations -----------------------------------------------------------------------------


@operator("Gelu")
def gelu(n: Step, x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@operator("LeakyRelu")
def leaky_relu(n: Step, x: Any, *, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@operator("Elu")
def elu(n: Step, x: Any, *, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@operator("Celu")
def celu(n: Step, x: Any, *, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator("Selu")
def selu(n: Step, x: Any, *, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875) -> Any:  # fmt: skip
    return gamma * lu.where(x > 0, x, alpha * lu.expm1(x))


@operator("PRelu")
def prelu(n: Step, x: Any, slope: Any) -> Any:
    return lu.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(n: Step, x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return lu.clamp(x * alpha + beta, 0, 1)


@operator("ThresholdedRelu")
def thresholded_relu(n: Step, x: Any, *, alpha: float = 1.0) -> Any:
    return lu.where(x > alpha, x, lu.zeros_like(x))


@operator("Softplus")
def softplus(n: Step, x: Any) -> Any:
    return F.softplus(x)


@operator("Swish")
def swish(n: Step, x: Any, *, alpha: float = 1.0) -> Any:
    return x * lu.sigmoid(alpha * x)


@operator("Shrink")
def shrink(n: Step, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = lu.zeros_like(x)
    moved = lu.where(x < -lambd, (x + bias).to(x.dtype), zero)
    return lu.where(x > lambd, (x - bias).to(x.dtype), moved)


@operator("Softmax", "LogSoftmax")
def softmax(n: Step, x: Any, *, axis: int | None = None) -> Any:
    fn = lu.softmax if n.kind == "Softmax" else lu.log_softmax
    if n.opset >= 13:
        return fn(x, -1 if axis is None else axis)
    d = (1 if axis is None else axis) % max(1, x.ndim)
    flat = x.reshape(math.prod(x.shape[:d]), -1)
    return fn(flat, 1).reshape(x.shape)


@operator("Hardmax")
def hardmax(n: Step, x: Any, *, axis: int = -1) -> Any:
    at = lu.argmax(x, axis, keepdim=True)
    return lu.zeros_like(x).scatter(axis, at, 1)


@operator("Dropout", numbers=(1, 2))
def dropout(n: Step, x: Any, ratio: Any = None, training: Any = None, **old: Any) -> Any:
    share = 0.5 if ratio is None else float(n.number(ratio))
    if training is not None and bool(n.number(training)) and share:
        kept = lu.rand(x.shape) >= share
        return lu.where(kept, x / (1 - share), lu.zeros_like(x)), kept
    return x, lu.ones(x.shape, dtype=lu.bool)
