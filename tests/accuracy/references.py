"""Functions in float64 (in part in extended precision), stable where the naive formula is not.

They are held to mpmath at some points of every range (`measure.mend`): none is trusted unseen.
Operands are float32 values, so what float64 loses counts little as long as nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special as sp

Array = np.ndarray[Any, Any]
Long = np.longdouble


def extended(fn: Any) -> Any:
    """A function of extended precision, rounded to float64 at the end."""
    return lambda *xs: np.asarray(fn(*[x.astype(Long) for x in xs])).astype(np.float64)


def power_series(x: Array, weights: list[float]) -> Array:
    total = np.zeros_like(x)
    for w in reversed(weights):
        total = total * x + w
    return total


def sine_of_turns(x: Array) -> Array:
    """sin(pi x): the whole turns are taken off exactly."""
    whole = np.rint(x)
    return np.where(whole % 2 == 0, 1.0, -1.0) * np.sin(np.pi * (x - whole))


def sinc(x: Array) -> Array:
    return np.where(x == 0, 1.0, sine_of_turns(x) / (np.pi * x))


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: Array) -> Array:
    """tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)."""
    e = np.exp(np.minimum(x, 40.0))
    return np.where(x > 40, x, x * (e * (e + 2) / (e * (e + 2) + 2)))


def tanhshrink(x: Array) -> Array:
    square = x * x
    weights = [1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925, -21844 / 6081075,
               929569 / 638512875, -6404582 / 10854718875]  # fmt: skip
    near = x * square * power_series(np.minimum(square, 0.01), weights)
    return np.where(np.abs(x) < 0.1, near, x - np.tanh(x))


def times(x: Array, share: Array) -> Array:
    """`x * share`, and zero where the share is, even at infinity."""
    return np.where(share == 0, np.copysign(0.0, x), x * share)


def gelu(x: Array) -> Array:
    return times(x, sp.ndtr(x))


def gelu_tanh(x: Array) -> Array:
    cubed = np.clip(x, -1e3, 1e3) ** 3
    return times(x, sigmoid(2 * np.sqrt(2 / np.pi) * (np.clip(x, -1e3, 1e3) + 0.044715 * cubed)))


def logit(x: Array) -> Array:
    middle = np.log1p((2 * x - 1) / (1 - x))
    return np.where(x < 0.25, np.log(x) - np.log1p(-x), middle)


def elu(x: Array, alpha: float = 1.0, scale: float = 1.0) -> Array:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def celu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def trigamma(x: Array) -> Array:
    """Reflected on the left: SciPy's sum would take as many terms as x is large."""
    right = sp.zeta(2.0, np.where(x < 0.5, 1 - x, x))
    turned = np.pi / sine_of_turns(x)
    return np.where(x < 0.5, turned * turned - right, right)


def remainder(a: Array, b: Array) -> Array:
    left = np.fmod(a, b)
    return np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


def logaddexp(a: Array, b: Array) -> Array:
    return np.maximum(a, b) + np.log1p(np.exp(-np.abs(a - b)))


def logaddexp2(a: Array, b: Array) -> Array:
    return np.maximum(a, b) + np.log1p(np.exp2(-np.abs(a - b))) / np.log(Long(2))


def zeta(power: Array, q: Array) -> Array:
    """SciPy's; the largest term alone is all there is for large powers, where SciPy has nan."""
    return np.where(power > 1e5, q**-power, sp.zeta(np.minimum(power, 1e5), q))


def gamma_shares(a: Array, x: Array) -> tuple[Array, Array]:
    """The lower and the upper incomplete gamma function. SciPy's to 1e5; beyond, where it is wrong
    by more than half from 1e9 on, two terms of Temme's expansion in extended precision."""
    long_a, long_x = np.maximum(a, 1e5).astype(Long), x.astype(Long)
    m = np.clip((long_x - long_a) / long_a, -0.5, 0.5)
    series = [Long((-1.0) ** k) / (k + 2) for k in range(12)]
    half = np.where(np.abs(m) < 0.02, m * m * power_series(m, series), m - np.log1p(m))
    eta = np.sign(m) * np.sqrt(2 * half)
    first = power_series(eta, [-1 / Long(3), 1 / Long(12), -2 / Long(135), 1 / Long(864)])
    second = power_series(eta, [-1 / Long(540), -1 / Long(288)])
    rest = np.exp(-long_a * half) / np.sqrt(2 * _PI * long_a) * (first + second / long_a)
    side = (eta * np.sqrt(long_a / 2)).astype(np.float64)
    rest = rest.astype(np.float64)
    far = sp.erfc(-side) / 2 - rest, sp.erfc(side) / 2 + rest
    near = sp.gammainc(a, x), sp.gammaincc(a, x)
    return np.where(a > 1e5, far[0], near[0]), np.where(a > 1e5, far[1], near[1])


def airy(x: Array) -> Array:
    """Ai: SciPy's, from 200 on its zero; far to the left, where SciPy has nan, the first terms of
    the wave. (Its angle is lost there: float32 numbers are many turns apart.)"""
    size = np.maximum(-x, 1e4).astype(Long)
    angle = size * np.sqrt(size) * 2 / 3
    wave = np.sin(angle + _PI / 4) - np.cos(angle + _PI / 4) * 5 / (72 * angle)
    far = wave / np.sqrt(_PI * np.sqrt(size))
    return np.where(x < -1e4, far.astype(np.float64), sp.airy(np.clip(x, -1e4, 200.0))[0])


_PI = Long("3.14159265358979323846264338327950288")

# ---- Bessel's waves -----------------------------------------------------------------------------


def _waves(order: int, x: Any) -> tuple[Any, Any]:
    """J and Y for x > 100 by Hankel's expansion; the angle through sin and cos of x itself, since
    x less a multiple of pi / 4 would lose it."""
    mu, term, p, q = 4.0 * order * order, np.ones_like(x), np.ones_like(x), np.zeros_like(x)
    for k in range(1, 12):
        term = term * (mu - (2 * k - 1) ** 2) / (k * 8 * x)
        if k % 2:
            q = q + term * (-1) ** (k // 2)
        else:
            p = p + term * (-1) ** (k // 2)
    root = np.sqrt(Long(0.5))
    sin, cos = np.sin(x), np.cos(x)
    cos_at, sin_at = (cos + sin) * root, (sin - cos) * root
    if order:
        cos_at, sin_at = (sin - cos) * root, -(sin + cos) * root
    size = np.sqrt(2 / (_PI * x))
    return size * (p * cos_at - q * sin_at), size * (p * sin_at + q * cos_at)


def bessel(kind: int, order: int) -> Any:
    """J (kind 0) and Y (kind 1): SciPy's near zero, Hankel's waves far away."""
    near = ((sp.j0, sp.j1), (sp.y0, sp.y1))[kind][order]

    def function(x: Array) -> Array:
        size = np.where(np.isfinite(x), np.abs(x), 100.0).astype(Long)
        far = _waves(order, np.maximum(size, 100))[kind].astype(np.float64)
        if order and not kind:
            far = np.copysign(1.0, x) * far
        return np.where(np.abs(x) <= 100, near(np.clip(x, -100, 100)), far)

    return function
