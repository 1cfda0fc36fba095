"""Special functions: the error function, gamma, Bessel and their kin (`lucerne.special`)."""

from __future__ import annotations

import math
from typing import Any

import lucerne._src.ir.scalar.special  # noqa: F401 - enters the formulas that bodies call
from lucerne._src.base import dtype as dt
from lucerne._src.base.numeric import finfo
from lucerne._src.ir.define import Decorator, composite, front, pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import refuse
from lucerne._src.ops.pointwise.rounding import round, sign
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.pointwise.unary import exp2, expm1, log1p, sigmoid, sinc


def _special(**fields: Any) -> Decorator:
    """Computed in floats."""
    return pointwise(promote="float", method=True, inplace=True, **fields)


_ROOT_PI = math.sqrt(math.pi)

# ---- the error function and the normal distribution ---------------------------------------------


@_special(
    vjp={"input": lambda g, input: g * (2 / _ROOT_PI) * (-(input * input)).exp()},
    sparse=True,
    foreach=True,
)
def erf(input: Tensor) -> Tensor:
    """The error function: how much of a bell curve lies within x.

    >>> import lucerne
    >>> lucerne.erf(lucerne.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """
    refuse(input, "erf_vml_cpu", dt.COMPLEX)
    return s.erf(input)


@_special(
    vjp={"input": lambda g, input: g * (-2 / _ROOT_PI) * (-(input * input)).exp()}, foreach=True
)
def erfc(input: Tensor) -> Tensor:
    """`1 - erf(x)`, exact for large x."""
    refuse(input, "erfc_vml_cpu", dt.COMPLEX)
    return s.erfc(input)


@_special(vjp={"input": lambda g, y: g * (_ROOT_PI / 2) * (y * y).exp()}, cost="heavy", sparse=True)
def erfinv(input: Tensor) -> Tensor:
    """The number whose error function is given."""
    refuse(input, "erfinv_vml_cpu", dt.COMPLEX)
    return s.erfinv(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, input, y: g * (2 * input * y - 2 / _ROOT_PI)},
    namespace="special",
)
def erfcx(input: Tensor) -> Tensor:
    """`exp(x * x) * erfc(x)`."""
    return s.erfcx(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, input: g * (input * input * -0.5).exp() / math.sqrt(2 * math.pi)},
    namespace="special",
)
def ndtr(input: Tensor) -> Tensor:
    """The share of a normal distribution below x."""
    return s.ndtr(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, y: g * math.sqrt(2 * math.pi) * (y * y * 0.5).exp()},
    namespace="special",
)
def ndtri(input: Tensor) -> Tensor:
    """The number below which a given share of a normal distribution lies."""
    return s.ndtri(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, input: g / erfcx(input * -math.sqrt(0.5)) * (math.sqrt(2) / _ROOT_PI)},
    namespace="special",
)
def log_ndtr(input: Tensor) -> Tensor:
    """`log(ndtr(x))` without underflow."""
    return s.log_ndtr(input)


# ---- logarithms with care -----------------------------------------------------------------------


@pointwise(
    promote="float",
    vjp={"input": lambda g, input: g * (-1 - input.log())},
    namespace="special",
)
def entr(input: Tensor) -> Tensor:
    """`-x * log(x)`: 0 at zero, -inf below."""
    found = s.where(input == 0, 0.0, -input * s.log(input))
    return s.where(input < 0, -math.inf, found)


@_special(
    vjp={
        "input": lambda g, input, other: choose((input == 0) & (other <= 0), 0.0, xlogy(g, other)),
        "other": lambda g, input, other: g * input / other,
    }
)
def xlogy(input: Tensor, other: Tensor) -> Tensor:
    """`input * log(other)`, 0 where `input` is 0."""
    refuse(input, "xlogy_cpu", dt.COMPLEX)
    found = s.where(input == 0, 0.0, input * s.log(other))
    return s.where(s.is_nan(other), other, found)


@pointwise(
    promote="float",
    vjp={
        "input": lambda g, input, other: choose(
            (input == 0) & (other <= -1), 0.0, xlog1py(g, other)
        ),
        "other": lambda g, input, other: g * input / (other + 1),
    },
    namespace="special",
)
def xlog1py(input: Tensor, other: Tensor) -> Tensor:
    """`input * log1p(other)`, 0 where `input` is 0."""
    refuse(input, "xlog1py_cpu", dt.COMPLEX)
    found = s.where(input == 0, 0.0, input * s.log1p(other))
    return s.where(s.is_nan(other), other, found)


def _logit_gradient(g: Tensor, input: Tensor, eps: float | None) -> Tensor:
    low, fill = (0.0, math.nan) if eps is None else (eps, 0.0)
    inside = (input >= low) & (input <= 1 - low)
    found = choose(inside, g / (input * (1 - input)), fill)
    return choose(input != input, math.nan, found)


@_special(vjp={"input": _logit_gradient})
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """`log(x / (1 - x))`: the inverse of sigmoid; `eps` keeps x away from 0 and 1."""
    refuse(input, "logit_cpu", dt.COMPLEX)
    if eps is not None:
        input = s.where(input < eps, eps, s.where(input > 1 - eps, 1 - eps, input))
    return s.logit(input)


# ---- gamma --------------------------------------------------------------------------------------


@_special(vjp={"input": lambda g, input: g * digamma(input)}, cost="heavy", foreach=True)
def lgamma(input: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function."""
    refuse(input, "lgamma_vml_cpu", dt.COMPLEX)
    return s.where(s.is_inf(input), math.inf, s.lgamma(input))


@_special(vjp={"input": lambda g, input: g * polygamma(1, input)}, cost="heavy")
def digamma(input: Tensor) -> Tensor:
    """The derivative of lgamma."""
    refuse(input, "digamma", dt.COMPLEX)
    return s.digamma(input)


@pointwise(
    internal=True,
    promote="float",
    vjp={"input": lambda g, n, input: g * polygamma(n + 1, input)},
    cost="heavy",
    torch="polygamma",
)
def polygamma_of(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma, n at least 1."""
    if n == 1:
        return s.trigamma(input)
    factor = (-1.0) ** (n + 1) * math.gamma(n + 1.0)
    return s.zeta(input * 0 + (n + 1), input) * factor


@front()
def polygamma(n: int, input: Tensor, *, out: Any = None) -> Tensor:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return polygamma_of(n, input, out=out) if n else digamma(input, out=out)


@front(name="polygamma", namespace="Tensor", method=True, inplace=True)
def polygamma_method(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The n-th derivative of digamma."""
    return polygamma(n, input, out=out)


@composite(method=True, inplace=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    total = lgamma(input + 0)  # (as in torch, where -0.0 is taken for 0.0 by this)
    for j in range(1, p):
        total = total + lgamma(input - j / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


def _no_gradient(name: str, argument: str) -> Any:
    def formula(g: Tensor) -> Tensor:
        raise NotImplementedError(f"the derivative for '{name}: {argument}' is not implemented")

    return formula


def _gamma_density(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return g * ((input - 1) * other.log() - other - lgamma(input)).exp()


def _at_limits(found: Any, a: Any, x: Any, none: float, all_: float) -> Any:
    """An incomplete gamma function where it is known anyway: `none` or `all_` of the whole."""
    found = s.where(s.is_inf(x), all_, found)
    found = s.where(s.is_inf(a), s.where(s.is_inf(x), math.nan, none), found)
    found = s.where((x == 0) & (a != 0), none, found)
    return s.where((x < 0) | (a < 0), math.nan, found)


@pointwise(
    vjp={"input": _no_gradient("igamma", "input"), "other": _gamma_density},
    method=True,
    inplace=True,
    numbers="none",
    cost="heavy",
)
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function."""
    refuse(input, "igamma", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return _at_limits(s.gammainc(input, other), input, other, 0.0, 1.0)


@pointwise(
    vjp={
        "input": _no_gradient("igammac", "input"),
        "other": lambda g, input, other: -_gamma_density(g, input, other),
    },
    method=True,
    inplace=True,
    numbers="none",
    cost="heavy",
)
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function."""
    refuse(input, "igammac", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return _at_limits(s.gammaincc(input, other), input, other, 1.0, 0.0)


@pointwise(
    promote="float",
    vjp={
        "input": _no_gradient("zeta", "self"),
        "other": lambda g, input, other: g * -input * zeta(input + 1, other),
    },
    namespace="special",
)
def zeta(input: Tensor, other: Tensor) -> Tensor:
    """Hurwitz's zeta function."""
    return s.where((input > 1) & (other == math.inf), math.nan, s.zeta(input, other))


# ---- Bessel and Airy ----------------------------------------------------------------------------


@_special(vjp={"input": lambda g, input: g * i1(input)}, cost="heavy")
def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of order zero."""
    return s.i0(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, input, y: g * (i1e(input) - sign(input) * y)},
    namespace="special",
)
def i0e(input: Tensor) -> Tensor:
    """`exp(-|x|) * i0(x)`."""
    return s.i0e(input)


def _i1_gradient(g: Tensor, input: Tensor, y: Tensor) -> Tensor:
    safe = choose(input == 0, 1.0, input)
    return choose(input == 0, g * 0.5, g * (i0(input) - y / safe))


@pointwise(promote="float", vjp={"input": _i1_gradient}, namespace="special")
def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of order one."""
    return s.i1(input)


def _i1e_gradient(g: Tensor, input: Tensor, y: Tensor) -> Tensor:
    tiny = input.abs() <= finfo(input.dtype).eps  # 1 / x would not fit
    slope = i0e(input) - y * (sign(input) + 1 / choose(tiny, 1.0, input))
    return choose(tiny, g * 0.5, g * slope)


@pointwise(promote="float", vjp={"input": _i1e_gradient}, namespace="special")
def i1e(input: Tensor) -> Tensor:
    """`exp(-|x|) * i1(x)`."""
    return s.i1e(input)


def _sphere(x: Any) -> Any:
    return s.where(s.is_inf(x), 0.0, s.where(x == 0, 1.0, s.sin(x) / x))


_WITHOUT_GRADIENT = {
    "airy_ai": ("Airy's function of the first kind.", lambda x: s.airy_ai(x)),
    "bessel_j0": ("The Bessel function of the first kind, order zero.", lambda x: s.j0(x)),
    "bessel_j1": ("The Bessel function of the first kind, order one.", lambda x: s.j1(x)),
    "bessel_y0": ("The Bessel function of the second kind, order zero.", lambda x: s.y0(x)),
    "bessel_y1": ("The Bessel function of the second kind, order one.", lambda x: s.y1(x)),
    "modified_bessel_i0": ("The modified Bessel function I, order zero.", lambda x: s.i0(x)),
    "modified_bessel_i1": ("The modified Bessel function I, order one.", lambda x: s.i1(x)),
    "modified_bessel_k0": ("The modified Bessel function K, order zero.", lambda x: s.k0(x)),
    "modified_bessel_k1": ("The modified Bessel function K, order one.", lambda x: s.k1(x)),
    "scaled_modified_bessel_k0": ("`exp(x)` times K of order zero.", lambda x: s.k0e(x)),
    "scaled_modified_bessel_k1": ("`exp(x)` times K of order one.", lambda x: s.k1e(x)),
    "spherical_bessel_j0": ("`sin(x) / x`, and 1 at zero.", _sphere),
}
"""Functions that torch does not differentiate: name, what they are, body."""


def _enter(name: str, text: str, body: Any) -> None:
    def entry(input: Tensor) -> Tensor:
        return body(input)

    entry.__doc__ = text
    pointwise(name=name, promote="float", namespace="special")(entry)


for _name, (_text, _body) in _WITHOUT_GRADIENT.items():
    _enter(_name, _text, _body)

# ---- names that `special` shares with the top level ---------------------------------------------

_SHARED = {
    "erf": erf, "erfc": erfc, "erfinv": erfinv, "exp2": exp2, "expit": sigmoid, "expm1": expm1,
    "gammainc": igamma, "gammaincc": igammac, "gammaln": lgamma, "digamma": digamma, "psi": digamma,
    "i0": i0, "log1p": log1p, "logit": logit, "multigammaln": mvlgamma, "polygamma": polygamma,
    "round": round, "sinc": sinc, "xlogy": xlogy,
}  # fmt: skip

for _name, _function in _SHARED.items():
    front(name=_name, namespace="special")(_function)
