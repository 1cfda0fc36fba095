"""Losses with margins: ranking, hinge, cosine, triplets, several labels."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import raise_if
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need_dtype_of
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.index.scatter import scatter_fold
from lucerne._src.ops.linalg import distances
from lucerne._src.ops.nn.loss import FUNCTIONAL, legacy_reduction, reduced
from lucerne._src.ops.pointwise import activation


def _above_zero(x: Tensor) -> Tensor:
    return x.clamp(min=0)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, -target * (input1 - input2) + margin)`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input1.ndim != input2.ndim or input1.ndim != target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced(_above_zero(-target * (input1 - input2) + margin), reduction)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """The distance itself for target 1, `max(0, margin - distance)` for target -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    apart = _above_zero(margin - input).where(target != 1, 0)
    return reduced(apart + input.where(target != -1, 0), reduction)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """`log(1 + exp(-target * input))` for targets 1 and -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduced((-input * target).to(input.dtype).exp().log1p(), reduction)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, torch=None)
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy of each class' score, averaged over the classes."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    log_sigmoid = activation.logsigmoid
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    return reduced(loss.sum(input.ndim - 1) / input.shape[-1], reduction)


# ---- cosine and triplets -------------------------------------------------------------------------


def _check_cosine(input1: Tensor, input2: Tensor, target: Tensor) -> None:
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and input1.ndim != 2:
        raise RuntimeError(
            "1D target tensor expects 2D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    if target.ndim == 0 and input1.ndim != 1:
        raise RuntimeError(
            "0D target tensor expects 1D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """`1 - cos` for target 1, `max(0, cos - margin)` for target -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_cosine(input1, input2, target)
    dim = target.ndim
    epsilon = 1e-12
    product = (input1 * input2).sum(dim)
    squares = ((input1 * input1).sum(dim) + epsilon) * ((input2 * input2).sum(dim) + epsilon)
    cosine = product / squares.sqrt()
    apart = _above_zero(cosine - margin).where(target == -1, 0)
    return reduced((1 - cosine).where(target == 1, 0) + apart, reduction)


def _check_triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )


@front(namespace=FUNCTIONAL, autocast="full")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, margin + |anchor - positive| - |anchor - negative|)` in the p-norm."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    distance = distances.pairwise_distance
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


@front(namespace=FUNCTIONAL, torch=None)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet margin loss under any distance function."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    _check_triplet(anchor, positive, negative, margin)
    distance = distance_function or distances.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced(_above_zero(margin + near - far), reduction)


# ---- several classes -----------------------------------------------------------------------------


def _as_rows(input: Tensor) -> Tensor:
    """Input as (N, C); a single sample becomes a batch of one."""
    if input.ndim > 2 or not (input.shape[1] if input.ndim == 2 else input.numel()):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    return input.reshape(1, -1) if input.ndim < 2 else input


def _check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of each wrong class against the right one, averaged over the classes."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    rows = _as_rows(input)
    _check_multi(input, target, weight)
    classes = target.reshape(-1)
    right = classes.reshape(-1, 1)
    gap = _above_zero(margin - rows.gather(1, right) + rows)
    loss = gap * gap if p == 2 else gap
    if weight is not None:
        loss = loss * weight.gather(0, classes).reshape(-1, 1)
    nothing = filled((), 0, rows.dtype, rows.device, None).expand(right.shape)
    each = scatter_fold(loss, 1, right, nothing, "set").sum(1) / rows.shape[1]
    return reduced(each.reshape(target.shape) if reduction == "none" else each, reduction)


def _check_multi(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    samples = input.shape[0] if input.ndim == 2 else 1
    if target.ndim > 1 or target.numel() != samples:
        raise RuntimeError(
            "multi_margin_loss(): target tensor should be 1-D with size equal to the batch size of "
            f"input. Expected target size [{samples}], but got {list(target.shape)}"
        )
    classes = input.shape[-1] if input.ndim else 1
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    need_dtype_of(input, weight)
    if target.dtype is not dt.int64:
        raise RuntimeError(f"expected scalar type Long but found {dt.cxx_name(target.dtype)}")


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full")
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of every class that isn't a target against every target; -1 ends a target list."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_reduction(reduction)
    rows = _as_rows(input)
    if input.ndim and target.shape != input.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    labels = target.reshape(rows.shape)
    if not target.is_meta and target.numel():
        outside = (labels < -1) | (labels >= rows.shape[1])
        raise_if(outside.any(), lambda: RuntimeError("argument #2 'target' is out of range"))
    listed = (labels >= 0).to(dt.int64).cumprod(1)
    safe = labels * listed
    nothing = filled(tuple(rows.shape), 0, dt.int64, rows.device, None)
    is_label = scatter_fold(nothing, 1, safe, listed, "add") > 0
    gap = _above_zero(1 - rows.gather(1, safe).unsqueeze(2) + rows.unsqueeze(1))
    counted = listed.to(dt.bool_).unsqueeze(2) & ~is_label.unsqueeze(1)
    each = gap.masked_fill(~counted, 0).sum((1, 2)) / rows.shape[1]
    return reduced(each if input.ndim == 2 else each.reshape(()), reduction)
