"""Orthogonal polynomials of `lucerne.special`: p_n(x), both x and n operands.

All come from a recurrence of three terms; inside (-1, 1) Chebyshev's have a closed form that stays
exact for large n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s

Step = Callable[[Any, Any, Any], Any]
LARGE = 6  # from here on Chebyshev's polynomials use the closed form


def _order(n: Any) -> Any:
    """n as a whole number; what does not fit into 64 bits becomes negative, as in C."""
    fits = s.abs(n) < 2.0**63
    return s.where(fits, s.trunc(n), -1)


def _even(n: Any) -> Any:
    return s.fmod(n, n * 0 + 2) == 0


def _chebyshev(x: Any, n: Any, first: Any, closed: Any, ends: tuple[Any, Any]) -> Any:
    """T, U, V and W differ in their first term, closed form and values at 1 and -1."""
    n = _order(n)
    inside = (s.abs(x) < 1) & (n > LARGE)
    steps = s.where(inside | (s.abs(x) == 1), 0, n)
    found = s.recurrence(steps, first, lambda k, p, q: 2 * x * q - p)
    found = s.where(inside, closed(s.acos(x), n), found)
    found = s.where(x == 1, ends[0](n), s.where(x == -1, ends[1](n), found))
    return s.where(n < 0, 0, found)


def _alternate(value: Any, n: Any) -> Any:
    return s.where(_even(n), value, -value)


@pointwise(promote="float", namespace="special")
def chebyshev_polynomial_t(input: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the first kind: cos(n t) at cos(t)."""
    ends = (lambda n: n * 0 + 1, lambda n: _alternate(n * 0 + 1, n))
    return _chebyshev(input, n, input, lambda t, n: s.cos(n * t), ends)


@pointwise(promote="float", namespace="special")
def chebyshev_polynomial_u(input: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the second kind: sin((n + 1) t) / sin(t) at cos(t)."""
    ends = (lambda n: n + 1, lambda n: _alternate(n + 1, n))
    return _chebyshev(input, n, 2 * input, lambda t, n: s.sin((n + 1) * t) / s.sin(t), ends)


@pointwise(promote="float", namespace="special")
def chebyshev_polynomial_v(input: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the third kind: cos((n + 1/2) t) / cos(t / 2) at cos(t)."""
    ends = (lambda n: n * 0 + 1, lambda n: _alternate(2 * n + 1, n))
    return _chebyshev(
        input, n, 2 * input - 1, lambda t, n: s.cos((n + 0.5) * t) / s.cos(t / 2), ends
    )


@pointwise(promote="float", namespace="special")
def chebyshev_polynomial_w(input: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the fourth kind: sin((n + 1/2) t) / sin(t / 2) at cos(t)."""
    ends = (lambda n: 2 * n + 1, lambda n: _alternate(n * 0 + 1, n))
    return _chebyshev(
        input, n, 2 * input + 1, lambda t, n: s.sin((n + 0.5) * t) / s.sin(t / 2), ends
    )


def _on_unit(kind: str) -> Any:
    """Chebyshev's polynomials moved from (-1, 1) to (0, 1), in the type of the result."""
    plain = globals()[f"chebyshev_polynomial_{kind}"].op.body

    def shifted(input: Tensor, n: Tensor) -> Tensor:
        return plain(2 * input - 1, n)

    shifted.__doc__ = f"Chebyshev's polynomial {kind.upper()} at 2 x - 1."
    name = f"shifted_chebyshev_polynomial_{kind}"
    return pointwise(promote="float", name=name, namespace="special")(shifted)


for _kind in "tuvw":
    _on_unit(_kind)


def _hermite(x: Any, n: Any, first: Any, step: Step) -> Any:
    n = _order(n)
    limit = 512 if x.dtype is dt.float64 else 128
    found = s.recurrence(s.where(n > limit, 0, n), first, step)
    return s.where(n < 0, 0, s.where(n > limit, math.nan, found))


@pointwise(promote="float", namespace="special")
def hermite_polynomial_h(input: Tensor, n: Tensor) -> Tensor:
    """The physicists' Hermite polynomial."""
    return _hermite(input, n, 2 * input, lambda k, p, q: 2 * input * q - 2 * k * p)


@pointwise(promote="float", namespace="special")
def hermite_polynomial_he(input: Tensor, n: Tensor) -> Tensor:
    """The probabilists' Hermite polynomial."""
    return _hermite(input, n, input, lambda k, p, q: input * q - k * p)


@pointwise(promote="float", namespace="special")
def laguerre_polynomial_l(input: Tensor, n: Tensor) -> Tensor:
    """Laguerre's polynomial."""
    order = _order(n)
    found = s.recurrence(
        s.where(input == 0, 0, order),
        1 - input,
        lambda k, p, q: ((2 * k + (1 - input)) * q - k * p) / (k + 1),
    )
    return s.where(order < 0, 0, found)


@pointwise(promote="float", namespace="special")
def legendre_polynomial_p(input: Tensor, n: Tensor) -> Tensor:
    """Legendre's polynomial."""
    order = _order(n)
    found = s.recurrence(
        s.where(s.abs(input) == 1, 0, order),
        input,
        lambda k, p, q: ((2 * k + 1) * input * q - k * p) / (k + 1),
    )
    found = s.where(input == -1, _alternate(order * 0 + 1, order), found)
    return s.where(order < 0, 0, found)
