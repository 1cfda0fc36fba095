"""Losses between two tensors of one shape: squares, absolute values, likelihoods of densities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.process import notices
from lucerne._src.ir.define import composite
from lucerne._src.ir.dispatch import raise_if
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.pointwise.select import choose

FUNCTIONAL = "nn.functional"


def legacy_reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """What the deprecated flags `size_average` and `reduce` mean as a `reduction`."""
    if size_average is None and reduce is None:
        return reduction
    average = True if size_average is None else size_average
    chosen = "none" if reduce is False else "mean" if average else "sum"
    notices.warn(
        "size_average and reduce args will be deprecated, please use "
        f"reduction='{chosen}' instead.",
        stacklevel=3,
    )
    return chosen


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """All losses, their mean or their sum."""
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def _same_size(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if input.shape == target.shape:
        return input, target
    notices.warn(
        f"Using a target size ({target.shape}) that is different to the input size "
        f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size.",
        stacklevel=3,
    )
    shape = sh.broadcast_shapes(input.shape, target.shape)
    return input.expand(shape), target.expand(shape)


def _weighted(
    loss: Tensor, input: Tensor, weight: Tensor, reduction: str, by_weight: bool
) -> Tensor:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    if reduction == "mean" and by_weight:
        return loss.sum() / weight.sum()
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'."
        )
    return reduced(loss, reduction)


def _squared_vjp(
    g: Tensor, input: Tensor, target: Tensor, reduction: str, needs: frozenset[str]
) -> tuple[Any, Any]:
    scale = 2.0 / max(input.numel(), 1) if reduction == "mean" else 2.0
    by_input = (input - target) * (g * scale)
    return by_input, -by_input if "target" in needs else None


@composite(
    internal=True, out=False, vjp={("input", "target"): _squared_vjp}, fuse=True, torch="mse_loss"
)
def squared_error(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    """Squares of differences of two real tensors of one shape, or their mean or sum."""
    difference = input - target
    return reduced(difference * difference, reduction)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    oracle=lambda input, target, *_: np.mean((input - target) ** 2),
    autocast="full",
    fuse=True,
    grad_fn=lambda *args: "MseLossBackward0" if args[-1] is None else "",
)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean squared error.

    >>> import lucerne
    >>> lucerne.nn.functional.mse_loss(lucerne.tensor([1.0, 2.0]), lucerne.tensor([1.0, 4.0]))
    tensor(2.)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    a, b = _same_size(input, target)
    if weight is None and a.dtype is b.dtype and a.dtype.category == dt.FLOAT:
        return squared_error(a, b, reduction)
    difference = a - b
    if weight is not None:
        return _weighted(difference * difference, input, weight, reduction, True)
    return reduced(difference * difference, reduction)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    oracle=lambda input, target, *_: np.mean(np.abs(input - target)),
    autocast="full",
    fuse=True,
)
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean absolute error."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    a, b = _same_size(input, target)
    if weight is not None:
        return _weighted((a - b).abs(), input, weight, reduction, True)
    return reduced((a - b).abs(), reduction)


@composite(internal=True, opmath=True, out=False, fuse=True)
def bounded_slope(g: Tensor, input: Tensor, target: Tensor, bound: float, slope: float) -> Tensor:
    """The gradient of a loss that is a parabola up to the distance `bound`, of slope 1 / `slope`,
    and straight from there on."""
    x = input - target
    edge = bound / slope
    return choose(x <= -bound, g * -edge, choose(x >= bound, g * edge, g * (x / slope)))


def _bounded_vjp(
    g: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str,
    bound: float,
    slope: float,
    needs: frozenset[str],
) -> tuple[Any, Any]:
    each = g / max(input.numel(), 1) if reduction == "mean" else g
    by_input = bounded_slope(each, input, target, bound, slope)
    return by_input, -by_input if "target" in needs else None


def _smooth_vjp(
    g: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str,
    beta: float,
    needs: frozenset[str],
) -> tuple[Any, Any]:
    return _bounded_vjp(g, input, target, reduction, beta, beta, needs)


@composite(
    internal=True,
    out=False,
    vjp={("input", "target"): _smooth_vjp},
    fuse=True,
    torch="smooth_l1_loss",
)
def smooth_error(input: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    """`smooth_l1_loss` of two real tensors of one shape, `beta` above 0."""
    distance = (input - target).abs()
    square = distance * distance * (0.5 / beta)
    return reduced(square.where(distance < beta, distance - 0.5 * beta), reduction)


def _huber_vjp(
    g: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str,
    delta: float,
    needs: frozenset[str],
) -> tuple[Any, Any]:
    return _bounded_vjp(g, input, target, reduction, delta, 1.0, needs)


@composite(
    internal=True, out=False, vjp={("input", "target"): _huber_vjp}, fuse=True, torch="huber_loss"
)
def huber_error(input: Tensor, target: Tensor, reduction: str, delta: float) -> Tensor:
    """`huber_loss` of two real tensors of one shape."""
    distance = (input - target).abs()
    loss = (distance * distance * 0.5).where(distance <= delta, (distance - 0.5 * delta) * delta)
    return reduced(loss, reduction)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    autocast="full",
    fuse=True,
    grad_fn="SmoothL1LossBackward0",
)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared error below `beta`, absolute error above.

    >>> import lucerne
    >>> lucerne.nn.functional.smooth_l1_loss(lucerne.tensor([0.5]), lucerne.tensor([0.0]))
    tensor(0.1250)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    a, b = _same_size(input, target)
    if beta and a.dtype is b.dtype and a.dtype.category == dt.FLOAT:
        return smooth_error(a, b, reduction, beta)
    distance = (a - b).abs()
    if beta == 0:
        return reduced(distance, reduction)
    square = distance * distance * (0.5 / beta)
    return reduced(square.where(distance < beta, distance - 0.5 * beta), reduction)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    autocast="full",
    fuse=True,
    grad_fn="HuberLossBackward0",
)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared error below `delta`, `delta` times the absolute error above."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    a, b = _same_size(input, target)
    if weight is None and a.dtype is b.dtype and a.dtype.category == dt.FLOAT:
        return huber_error(a, b, reduction, delta)
    distance = (a - b).abs()
    loss = (distance * distance * 0.5).where(distance <= delta, (distance - 0.5 * delta) * delta)
    if input.dtype.category == dt.FLOAT:  # the target's type does not count
        loss = loss.to(input.dtype)
    if weight is not None:
        return _weighted(loss, input, weight, reduction, False)
    return reduced(loss, reduction)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full", fuse=True)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of counts `target` under Poisson rates `input`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (target * (2 * math.pi)).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


def _gaussian_variance(input: Tensor, var: Any) -> Tensor:
    """The variances in a shape that broadcasts over the input, refused when negative."""
    if not hasattr(var, "_meta"):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        return (input.detach() * 0 + 1) * var
    if not var.is_meta:
        raise_if((var < 0).any(), lambda: ValueError("var has negative entry/entries"))
    if var.shape == input.shape:
        return var
    if tuple(input.shape[:-1]) == tuple(var.shape):
        return var.unsqueeze(-1)
    odd = [y for x, y in zip(input.shape, var.shape, strict=False) if x != y]
    if input.ndim == var.ndim and sum(odd) == 1:
        return var
    raise ValueError("var is of incorrect size")


@composite(namespace=FUNCTIONAL, out=False, torch=None)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of `target` under normal distributions of means `input`."""
    var = _gaussian_variance(input, var)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    # The gradient passes the clamp as if it were not there, as in torch.
    var = choose(var < eps, (eps - var).detach() + var, var)
    difference = input - target
    loss = 0.5 * (var.log() + difference * difference / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)
