"""How gamma and Dirichlet samples move with their parameters (implicit reparameterisation).

A sample is `x = F^-1(u; a)` for a uniform `u` that stays as it is, so `dx/da = -(dF/da) / (dF/dx)`.
The numerator is an integral of the score over one tail; written in the logarithm (gamma) or the
logit (beta) of the sample it is smooth and falls at least exponentially, and the tanh-sinh rule
gives it to twelve digits.  The tail that begins on the far side of the mode is the one to take.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.creation import ranges
from lucerne._src.ops.pointwise import select, unary
from lucerne._src.ops.pointwise.activation import logsigmoid
from lucerne._src.ops.special import functions

_POINTS, _STEP = 97, 1 / 16  # of the rule: from -3 to 3
_DROP = 42.0  # the integrand is cut where it fell to exp(-42)


def _not_again(name: str, argument: str) -> Any:
    def formula(g: Tensor) -> Tensor:
        raise RuntimeError(f"the derivative for '{name}: {argument}' is not implemented")

    return formula


def _nodes(like: Tensor) -> tuple[Tensor, Tensor]:
    """Places in (0, 1) and weights of the tanh-sinh rule."""
    half = (_POINTS - 1) // 2
    t = ranges.arange(-half, half + 1, dtype=dt.float64, device=like.device) * _STEP
    inner = math.pi * unary.sinh(t)
    places = unary.sigmoid(inner)
    return places, _STEP * math.pi * unary.cosh(t) * places * unary.sigmoid(-inner)


def _reach(spread: Tensor) -> Tensor:
    """Where `e^y - 1 - y` is at least `spread`."""
    return unary.log1p(spread + (2 * spread).sqrt())


@composite(
    out=False,
    name="_standard_gamma_grad",
    vjp={
        "input": _not_again("_standard_gamma_grad", "self"),
        "output": _not_again("_standard_gamma_grad", "output"),
    },
)
def standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivative of a standard gamma sample `output` with respect to its concentration."""
    a, x = input.to(dt.float64).unsqueeze(-1), output.to(dt.float64).unsqueeze(-1)
    above = x > a
    side = select.where(above, 1.0, -1.0).to(dt.float64)
    ratio = _DROP / a
    below = (ratio + (ratio * ratio + 8 * ratio).sqrt()) / 2
    length = select.where(above, _reach(_DROP / x), below)
    places, weights = _nodes(x)
    y = side * length * places
    fall = a * y - x * unary.expm1(y)
    score = x.log() + y - functions.digamma(a)
    moved = side * x * length * (weights * score * fall.exp()).sum(-1, keepdim=True)
    return moved.squeeze(-1).to(output.dtype)


@composite(
    out=False,
    name="_dirichlet_grad",
    vjp={
        "x": _not_again("_dirichlet_grad", "x"),
        "alpha": _not_again("_dirichlet_grad", "alpha"),
        "total": _not_again("_dirichlet_grad", "total"),
    },
)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of a Dirichlet component `x` by its own concentration, over `1 - x`.

    A component is a beta sample with concentrations `alpha` and `total - alpha`.
    """
    a, n, p = (v.to(dt.float64).unsqueeze(-1) for v in (alpha, total, x))
    b = n - a
    above = p * n > a
    side = select.where(above, 1.0, -1.0).to(dt.float64)
    tail = select.where(above, b, a)
    length = _reach(2 * _DROP * n / (a * b)) + 2 * _DROP / tail
    places, weights = _nodes(p)
    start = p.log() - unary.log1p(-p)
    w = start + side * length * places
    log_t, log_rest = logsigmoid(w), logsigmoid(-w)
    fall = a * (log_t - p.log()) + b * (log_rest - unary.log1p(-p))
    score = log_t - functions.digamma(a) + functions.digamma(n)
    moved = side * p * length * (weights * score * fall.exp()).sum(-1, keepdim=True)
    return moved.squeeze(-1).to(x.dtype)
