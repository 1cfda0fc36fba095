"""The table: functions of float32, what they are in float64 and in mpmath, and where they live.

A row names the call, a reference in float64 (NumPy, SciPy, or `references`), the same in mpmath to
hold the reference to, and its domain: ten ranges of exponents. A function of two operands says how
the second is drawn beside the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp
from scipy import special as sp

from tests.accuracy import references as ref

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, Array], Array]

# ---- domains ------------------------------------------------------------------------------------

_EXPONENTS = (
    (1.4e-45, 1.1e-38), (1.2e-38, 1e-20), (1e-20, 1e-6), (1e-6, 1e-3), (1e-3, 0.1), (0.1, 1.0),
    (1.0, 10.0), (10.0, 100.0), (100.0, 1e6), (1e6, 3.4e38),
)  # fmt: skip
_INSIDE = ((1.4e-45, 1.1e-38), (1.2e-38, 1e-20), (1e-20, 1e-6), (1e-6, 1e-3), (1e-3, 0.5))
_TO_ONE = ((0.1, 0.5), (1e-2, 0.1), (1e-4, 1e-2), (1e-6, 1e-4), (6e-8, 1e-6))
_FROM_ONE = (
    (1.2e-7, 1e-6), (1e-6, 1e-4), (1e-4, 1e-2), (1e-2, 0.1), (0.1, 1.0), (1.0, 10.0),
    (10.0, 100.0), (100.0, 1e6), (1e6, 1e20), (1e20, 3.4e38),
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Numbers `offset + direction * u`, u uniform in its logarithm."""

    low: float
    high: float
    offset: float = 0.0
    direction: float = 1.0

    @property
    def label(self) -> str:
        sign = "-" if self.direction < 0 else "+"
        return (
            f"{self.offset:g}{sign}"[: 2 * bool(self.offset)] + f"{self.low:.0e}..{self.high:.0e}"
        )

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        u = np.exp(rng.uniform(np.log(self.low), np.log(self.high), count))
        return self.offset + self.direction * u


_WIDE = tuple(Range(*r) for r in _EXPONENTS)
_BELOW_ONE = (*[Range(*r) for r in _INSIDE], *[Range(*r, 1.0, -1.0) for r in _TO_ONE])
_BEYOND_ONE = tuple(Range(*r, 1.0) for r in _FROM_ONE)


@dataclass(frozen=True)
class Domain:
    """Ten ranges, and whether their negatives belong to it."""

    ranges: tuple[Range, ...]
    signed: bool


REAL = Domain(_WIDE, True)
POSITIVE = Domain(_WIDE, False)
UNIT = Domain(_BELOW_ONE, True)
SHARE = Domain(_BELOW_ONE, False)
ABOVE_ONE = Domain(_BEYOND_ONE, False)

# ---- second operands ----------------------------------------------------------------------------


def log_uniform(low: float, high: float, signed: bool = True) -> Draw:
    def draw(rng: np.random.Generator, first: Array) -> Array:
        size = np.exp(rng.uniform(np.log(low), np.log(high), len(first)))
        return size * rng.choice((-1.0, 1.0), len(first)) if signed else size

    return draw


def beside(decades: float, signed: bool = True) -> Draw:
    """So many decades around the first operand."""

    def draw(rng: np.random.Generator, first: Array) -> Array:
        found = np.abs(first) * 10.0 ** rng.uniform(-decades, decades, len(first))
        return found * rng.choice((-1.0, 1.0), len(first)) if signed else found

    return draw


def gap(largest: float) -> Draw:
    """The first operand and a distance."""
    return lambda rng, first: first + rng.uniform(-largest, largest, len(first))


def _gamma_pair(rng: np.random.Generator, first: Array) -> Array:
    """Anywhere, and within some deviations of the order, where the shares change."""
    anywhere = first * 10.0 ** rng.uniform(-1, 1, len(first))
    small = np.exp(rng.uniform(np.log(1e-6), np.log(50.0), len(first)))
    near = np.abs(first + np.sqrt(first) * rng.uniform(-5, 5, len(first)))
    kind = rng.integers(0, 3, len(first))
    return np.where(
        kind == 0, anywhere, np.where(kind == 1, np.where(first < 10, small, near), near)
    )


# ---- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A function: see the module."""

    name: str
    truth: Callable[..., Array]
    exact: Callable[..., Any]
    domain: Domain = REAL
    call: Callable[..., Any] | None = None
    second: Draw | None = None
    around: tuple[float, ...] = ()
    """Where the function is zero or turns: a share of the values is drawn near."""
    largest: float = float("inf")
    """Operands beyond are not given to mpmath: it takes too long, or gives up."""
    digits: int = 60
    """Of mpmath."""
    source: str = "NumPy"
    """Whose the float64 reference is."""

    def run(self, package: Any, *operands: Any) -> Any:
        if self.call is not None:
            return self.call(package, *operands)
        return functools.reduce(getattr, self.name.split("."), package)(*operands)


def _activation(name: str, *settings: Any, **named: Any) -> Callable[..., Any]:
    return lambda t, x: getattr(t.nn.functional, name)(x, *settings, **named)


def _mp(name: str) -> Callable[..., Any]:
    return lambda *xs: getattr(mp, name)(*xs)


def _sinc(x: Any) -> Any:
    return mp.mpf(1) if not x else mp.sinpi(x) / (mp.pi * x)


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _normal(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _erfcx(x: Any) -> Any:
    """By the continued fraction far away, where the factors would be endless."""
    if x > 1000:
        return 1 / (x * mp.sqrt(mp.pi)) * (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6))
    return mp.exp(x * x) * mp.erfc(x) if x > -1000 else mp.inf


def _log_normal(x: Any) -> Any:
    if x < -1000:
        return mp.log(_erfcx(-x / mp.sqrt(2)) / 2) - x * x / 2
    return mp.log1p(-_normal(-x)) if x > 0 else mp.log(_normal(x))


def _quantile(p: Any) -> Any:
    """ndtri by erfinv of mpmath, or by Newton's steps on the logarithm in the tail."""
    if p == mp.mpf(1) / 2:
        return mp.mpf(0)
    if p > mp.mpf("1e-10"):
        return mp.sqrt(2) * mp.erfinv(2 * p - 1)
    x, wanted = -mp.sqrt(-2 * mp.log(p)), mp.log(p)
    for _ in range(60):
        density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) / _normal(x)
        step = (mp.log(_normal(x)) - wanted) / density
        x -= step
        if abs(step) < abs(x) * mp.mpf(10) ** -30:
            break
    return x


def _elu(x: Any, alpha: Any = 1, scale: Any = 1) -> Any:
    return scale * (x if x > 0 else alpha * mp.expm1(x))


def _lgamma(x: Any) -> Any:
    return mp.re(mp.loggamma(x))


def _trigamma(x: Any) -> Any:
    return mp.psi(1, x)


def _log_half(x: Any) -> Any:
    return mp.log(x / 2) + mp.euler


def _k0(x: Any) -> Any:
    """The first term of the series near zero, where mpmath's way is long (so with the others)."""
    return -_log_half(x) if x < _TINY else mp.besselk(0, x)


def _k1(x: Any) -> Any:
    return 1 / x if x < _TINY else mp.besselk(1, x)


def _y0(x: Any) -> Any:
    return 2 / mp.pi * _log_half(x) if x < _TINY else mp.bessely(0, x)


def _y1(x: Any) -> Any:
    return -2 / (mp.pi * x) if x < _TINY else mp.bessely(1, x)


def _fmod(a: Any, b: Any) -> Any:
    left = abs(a) - abs(b) * mp.floor(abs(a) / abs(b))
    return -left if a < 0 else left


def _lower_share(a: Any, x: Any) -> Any:
    """The lower incomplete gamma function by its series, all of whose terms are positive."""
    if abs(x - a) > 100 + 20 * mp.sqrt(a):
        raise mp.NoConvergence("a long series, and a share of nothing or all")
    term = total = mp.mpf(1)
    n = a
    while term > total * mp.eps:
        n += 1
        term *= x / n
        total += term
    return mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * total


_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)
_BIG = 1e4
_TINY = 1e-9


def _elementary() -> list[Row]:
    return [
        Row("exp", np.exp, _mp("exp")),
        Row("exp2", np.exp2, lambda x: mp.power(2, x)),
        Row("expm1", np.expm1, _mp("expm1")),
        Row("log", np.log, _mp("log"), POSITIVE, around=(1.0,)),
        Row("log2", np.log2, lambda x: mp.log(x) / mp.log(2), POSITIVE, around=(1.0,)),
        Row("log10", np.log10, _mp("log10"), POSITIVE, around=(1.0,)),
        Row("log1p", np.log1p, _mp("log1p"), POSITIVE),
        Row("log1p below 0", lambda x: np.log1p(-x), lambda x: mp.log1p(-x), SHARE,
            lambda t, x: t.log1p(-x)),
        Row("sin", np.sin, _mp("sin")),
        Row("cos", np.cos, _mp("cos")),
        Row("tan", np.tan, _mp("tan")),
        Row("asin", np.arcsin, _mp("asin"), UNIT),
        Row("acos", np.arccos, _mp("acos"), UNIT),
        Row("atan", np.arctan, _mp("atan")),
        Row("sinh", np.sinh, _mp("sinh")),
        Row("cosh", np.cosh, _mp("cosh")),
        Row("tanh", np.tanh, _mp("tanh")),
        Row("asinh", np.arcsinh, _mp("asinh")),
        Row("acosh", np.arccosh, _mp("acosh"), ABOVE_ONE),
        Row("atanh", np.arctanh, _mp("atanh"), UNIT),
        Row("sqrt", np.sqrt, _mp("sqrt"), POSITIVE),
        Row("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: 1 / mp.sqrt(x), POSITIVE),
        Row("reciprocal", np.reciprocal, lambda x: 1 / x),
        Row("square", np.square, lambda x: x * x),
        Row("deg2rad", np.deg2rad, _mp("radians")),
        Row("rad2deg", np.rad2deg, _mp("degrees")),
        Row("sinc", ref.sinc, _sinc),
    ]  # fmt: skip


def _activations() -> list[Row]:
    def near(name: str, truth: Any, exact: Any, *settings: Any, **named: Any) -> Row:
        title = name + "".join(f" {v}" for v in (*settings, *named.values()))
        call = _activation(name, *settings, **named)
        return Row(title, truth, exact, REAL, call, digits=150)  # x - tanh(x) loses 90 of them

    return [
        Row("sigmoid", ref.sigmoid, lambda x: 1 / (1 + mp.exp(-x))),
        near("silu", lambda x: ref.times(x, ref.sigmoid(x)), lambda x: x / (1 + mp.exp(-x))),
        near("gelu", ref.gelu, lambda x: x * _normal(x)),
        near("gelu", ref.gelu_tanh, _gelu_tanh, approximate="tanh"),
        near("mish", ref.mish, lambda x: x * mp.tanh(_softplus(x))),
        near("softplus", ref.softplus, _softplus),
        near("logsigmoid", lambda x: -ref.softplus(-x), lambda x: -_softplus(-x)),
        near("elu", ref.elu, _elu),
        near("selu", lambda x: ref.elu(x, *_SELU), lambda x: _elu(x, *_SELU)),
        near("celu", lambda x: ref.celu(x, 1.5), lambda x: x if x > 0 else 1.5 * mp.expm1(x / 1.5),
             1.5),
        near("tanhshrink", ref.tanhshrink, lambda x: x - mp.tanh(x)),
        near("softsign", lambda x: x / (1 + np.abs(x)), lambda x: x / (1 + abs(x))),
        near("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6,
             lambda x: x * min(max(x + 3, 0), 6) / 6),
        near("leaky_relu", lambda x: np.where(x > 0, x, 0.125 * x),
             lambda x: x if x > 0 else x / 8, 0.125),
    ]  # fmt: skip


def _gelu_tanh(x: Any) -> Any:
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)
    return x / (1 + mp.exp(-2 * inner))


def _special() -> list[Row]:
    def row(name: str, truth: Any, exact: Any, *more: Any, **named: Any) -> Row:
        return Row("special." + name, truth, exact, *more, source="SciPy", **named)

    return [
        row("erf", sp.erf, _mp("erf")),
        row("erfc", sp.erfc, _mp("erfc")),
        row("erfinv", sp.erfinv, _mp("erfinv"), UNIT),
        row("erfcx", sp.erfcx, _erfcx),
        row("ndtr", sp.ndtr, _normal),
        row("ndtri", sp.ndtri, _quantile, SHARE, around=(0.5,)),
        row("log_ndtr", sp.log_ndtr, _log_normal),
        row("entr", sp.entr, lambda x: -x * mp.log(x), POSITIVE, around=(1.0,)),
        Row("logit", ref.logit, lambda x: mp.log(x) - mp.log1p(-x), SHARE, around=(0.5,)),
        Row("lgamma", sp.gammaln, _lgamma, around=(1.0, 2.0), source="SciPy"),
        row("digamma", sp.digamma, _mp("digamma"), around=(1.4616321449683623,)),
        row("polygamma 1", ref.trigamma, _trigamma, call=lambda t, x: t.polygamma(1, x),
            largest=_BIG),
        row("polygamma 2", lambda x: sp.polygamma(2, x), lambda x: mp.psi(2, x), POSITIVE,
            call=lambda t, x: t.polygamma(2, x)),
        row("multigammaln", lambda x: sp.gammaln(x) + sp.gammaln(x - 0.5) + np.log(np.pi) / 2,
            lambda x: _lgamma(x) + _lgamma(x - mp.mpf(1) / 2) + mp.log(mp.pi) / 2, ABOVE_ONE,
            call=lambda t, x: t.special.multigammaln(x, 2)),
        row("i0", sp.i0, lambda x: mp.besseli(0, x), largest=_BIG),
        row("i0e", sp.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), largest=_BIG),
        row("i1", sp.i1, lambda x: mp.besseli(1, x), largest=_BIG),
        row("i1e", sp.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), largest=_BIG),
        row("bessel_j0", ref.bessel(0, 0), lambda x: mp.besselj(0, x)),
        row("bessel_j1", ref.bessel(0, 1), lambda x: mp.besselj(1, x)),
        row("bessel_y0", ref.bessel(1, 0), _y0, POSITIVE),
        row("bessel_y1", ref.bessel(1, 1), _y1, POSITIVE),
        row("modified_bessel_i0", sp.i0, lambda x: mp.besseli(0, x), largest=_BIG),
        row("modified_bessel_i1", sp.i1, lambda x: mp.besseli(1, x), largest=_BIG),
        row("modified_bessel_k0", sp.k0, _k0, POSITIVE, largest=_BIG),
        row("modified_bessel_k1", sp.k1, _k1, POSITIVE, largest=_BIG),
        row("scaled_modified_bessel_k0", sp.k0e, lambda x: _k0(x) * mp.exp(x), POSITIVE,
            largest=_BIG),
        row("scaled_modified_bessel_k1", sp.k1e, lambda x: _k1(x) * mp.exp(x), POSITIVE,
            largest=_BIG),
        row("spherical_bessel_j0", lambda x: np.sin(x) / x, lambda x: mp.sin(x) / x),
        row("airy_ai", ref.airy, _mp("airyai"), largest=1e8),
    ]  # fmt: skip


def _powers() -> list[Row]:
    def power(by: float, domain: Domain) -> Row:
        return Row(f"pow {by:g}", lambda x: x**by, lambda x: mp.power(x, by), domain,
                   lambda t, x: t.pow(x, by))  # fmt: skip

    return [
        power(3, REAL),
        power(2.5, POSITIVE),
        power(-1.5, POSITIVE),
        Row("2.5 pow", lambda x: 2.5**x, lambda x: mp.power(mp.mpf(2.5), x), REAL,
            lambda t, x: t.pow(2.5, x)),
    ]  # fmt: skip


def _pairs() -> list[Row]:
    return [
        Row("pow", np.power, _mp("power"), POSITIVE, second=log_uniform(1e-3, 40.0)),
        Row("div", np.divide, lambda a, b: a / b, second=log_uniform(1e-18, 1e18)),
        Row("atan2", np.arctan2, _mp("atan2"), second=beside(4)),
        Row("hypot", np.hypot, _mp("hypot"), second=beside(4)),
        Row("fmod", np.fmod, _fmod, second=log_uniform(1e-3, 1e3)),
        Row("remainder", ref.remainder, lambda a, b: a - b * mp.floor(a / b),
            second=log_uniform(1e-3, 1e3)),
        Row("logaddexp", ref.extended(ref.logaddexp),
            lambda a, b: max(a, b) + mp.log1p(mp.exp(-abs(a - b))), second=gap(20.0)),
        Row("logaddexp2", ref.extended(ref.logaddexp2),
            lambda a, b: max(a, b) + mp.log1p(mp.power(2, -abs(a - b))) / mp.log(2),
            second=gap(30.0)),
        Row("xlogy", lambda a, b: a * np.log(b), lambda a, b: a * mp.log(b),
            second=log_uniform(1e-30, 1e30, signed=False)),
        Row("special.xlog1py", lambda a, b: a * np.log1p(b), lambda a, b: a * mp.log1p(b),
            second=log_uniform(1e-30, 1e30, signed=False)),
        Row("special.zeta", ref.zeta, lambda a, b: mp.zeta(a, b), ABOVE_ONE, largest=60.0,
            second=log_uniform(1e-2, 1e2, signed=False), source="SciPy"),
        Row("special.gammainc", lambda a, x: ref.gamma_shares(a, x)[0],
            _lower_share, POSITIVE, largest=1e5, second=_gamma_pair, source="SciPy"),
        Row("special.gammaincc", lambda a, x: ref.gamma_shares(a, x)[1],
            lambda a, x: 1 - _lower_share(a, x), POSITIVE, largest=1e5, second=_gamma_pair,
            source="SciPy"),
    ]  # fmt: skip


ROWS = (*_elementary(), *_activations(), *_special(), *_powers(), *_pairs())
