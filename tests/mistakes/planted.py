"""Where numbers that are not finite are born: 60 places, in forward and in backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn

INF = float("inf")
# what is computed of x, the values of x, what is born, a part of the op's name
FORWARD: list[tuple[Callable[[Any], Any], list[float], str, str]] = [
    (lambda x: torch.log(x), [0.0, 1.0], "inf", "log"),
    (lambda x: torch.log(x), [-1.0, 1.0], "nan", "log"),
    (lambda x: torch.sqrt(x), [-1.0, 4.0], "nan", "sqrt"),
    (lambda x: torch.rsqrt(x), [0.0, 4.0], "inf", "rsqrt"),
    (lambda x: torch.exp(x), [100.0, 1.0], "inf", "exp"),
    (lambda x: x / (x - x), [0.0, 0.0], "nan", "div"),
    (lambda x: 1 / x, [0.0, 2.0], "inf", ""),
    (lambda x: x**-1.0, [0.0, 2.0], "inf", "pow"),
    (lambda x: x**0.5, [-1.0, 2.0], "nan", "pow"),
    (lambda x: torch.acos(x), [2.0, 0.0], "nan", "acos"),
    (lambda x: torch.log1p(x), [-1.0, 0.0], "inf", "log1p"),
    (lambda x: torch.atanh(x), [1.0, 0.0], "inf", "atanh"),
    (lambda x: x * 1e30 * 1e30, [1.0, 2.0], "inf", "mul"),
    (lambda x: torch.softmax(x.masked_fill(x > 0, -INF), 0), [1.0, 2.0], "nan", "softmax"),
    (lambda x: x.cumsum(0) * 3e38, [1.0, 2.0], "inf", "mul"),
    (lambda x: (x * 3e38).sum(), [1.0, 1.0], "inf", "sum"),
    (lambda x: x.std(), [1.0], "nan", "deviation"),
    (lambda x: torch.log2(x), [0.0, 1.0], "inf", "log2"),
    (lambda x: torch.log10(x), [-2.0, 1.0], "nan", "log10"),
    (lambda x: torch.exp2(x), [200.0, 1.0], "inf", "exp2"),
    (lambda x: torch.expm1(x), [90.0, 1.0], "inf", "expm1"),
    (lambda x: torch.sinh(x), [95.0, 1.0], "inf", "sinh"),
    (lambda x: torch.cosh(x), [-95.0, 1.0], "inf", "cosh"),
    (lambda x: torch.tan(x) / (x - x), [1.0, 2.0], "inf", "div"),
    (lambda x: torch.asin(x), [1.5, 0.0], "nan", "asin"),
    (lambda x: torch.acosh(x), [0.5, 2.0], "nan", "acosh"),
    (lambda x: torch.reciprocal(x), [0.0, 2.0], "inf", "reciprocal"),
    (lambda x: torch.square(x), [1e30, 2.0], "inf", ""),
    (lambda x: torch.lgamma(x), [0.0, 2.0], "inf", "lgamma"),
    (lambda x: x.prod() * x.prod(), [1e20, 1e10], "inf", "mul"),
    (lambda x: (x[:, None] * 1e25) @ (x[None] * 1e25), [1.0, 2.0], "inf", "matmul"),
    (lambda x: nn.functional.linear(x, torch.full((2, 2), 2e38)), [1.0, 1.0], "inf", "linear"),
    (lambda x: x.mean() / (x.sum() - 3), [1.0, 2.0], "inf", "div"),
    (lambda x: torch.logit(x), [1.0, 0.5], "inf", "logit"),
    (lambda x: torch.softmax(x * 1e20 * 1e20, 0), [1.0, 2.0], "inf", "mul"),
]  # fmt: skip
BACKWARD: list[tuple[Callable[[Any], Any], list[float], str, str]] = [
    (lambda x: torch.sqrt(x), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: x**0.5, [0.0, 1.0], "inf", "PowBackward0"),
    (lambda x: torch.acos(x), [1.0, 0.0], "inf", "AcosBackward0"),
    (lambda x: torch.asin(x), [1.0, 0.0], "inf", "AsinBackward0"),
    (lambda x: torch.acosh(x), [1.0, 2.0], "inf", "AcoshBackward0"),
    (lambda x: torch.log(x) * 1e20, [1e-30, 1.0], "inf", "LogBackward0"),
    (lambda x: torch.asin(x), [-1.0, 0.0], "inf", "AsinBackward0"),
    (lambda x: 1e-30 / x, [1e-30, 1.0], "inf", ""),
    (lambda x: x * 1e-30 * 1e-30 * 1e30 * 1e30, [1.0, 1.0], "inf", "MulBackward0"),
    (lambda x: x.rsqrt() * 1e-10, [1e-30, 1.0], "inf", "RsqrtBackward0"),
    (lambda x: x.prod().sqrt(), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.where(x > 0, x.sqrt(), x), [0.0, 1.0], "nan", "SqrtBackward0"),
    (lambda x: x.norm().sqrt(), [0.0, 0.0], "inf", "SqrtBackward0"),
    (lambda x: x.abs().sqrt(), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: x**0.25, [0.0, 1.0], "inf", "PowBackward0"),
    (lambda x: torch.sqrt(x).mean(), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.sqrt(x.cumsum(0)), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.sqrt(x * x), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.acos(x.clamp(-1, 1)), [1.0, 0.5], "inf", "AcosBackward0"),
    (lambda x: torch.sqrt(x) * 2, [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.sqrt(torch.tanh(x)), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: (x - x.mean()).abs().sqrt(), [1.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.sqrt(x[:1]), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.sqrt(torch.sin(x)), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: x.pow(2).sum().sqrt(), [0.0, 0.0], "inf", "SqrtBackward0"),
]
