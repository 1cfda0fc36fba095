"""Losses against classes and probabilities: nll_loss, the cross entropies, kl_div."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import raise_if
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need_dtype_of
from lucerne._src.ops.index.advanced import index_nd
from lucerne._src.ops.linalg import matmul
from lucerne._src.ops.nn.loss import FUNCTIONAL, legacy_reduction, reduced
from lucerne._src.ops.pointwise import activation

# ---- class indices -------------------------------------------------------------------------------


def _check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """Torch's refusals for input (N, C, ...) against class indices (N, ...)."""
    if input.ndim == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if input.ndim > 1 and target.ndim and input.shape[0] != target.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
            f"({target.shape[0]})."
        )
    wanted = [] if input.ndim == 1 else [input.shape[0], *input.shape[2:]]
    if input.ndim <= 2 and target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input.ndim == 1 and target.ndim == 1 and target.shape[0] != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}"
        )
    one_sample = input.ndim == 1 and list(target.shape) == [1]
    if list(target.shape) != wanted and not one_sample:
        if input.ndim <= 2:
            raise RuntimeError(
                f"size mismatch (got input: {list(input.shape)}, target: {list(target.shape)})"
            )
        if target.ndim != input.ndim - 1 and input.ndim == 4:
            raise RuntimeError(
                "only batches of spatial targets supported (3D tensors) but got targets of "
                f"dimension: {target.ndim}"
            )
        if input.ndim == 4:
            raise RuntimeError(
                f"size mismatch (got input: {list(input.shape)} , target: {list(target.shape)}"
            )
        raise RuntimeError(f"Expected target size {wanted}, got {list(target.shape)}")
    classes = input.shape[0] if input.ndim == 1 else input.shape[1]
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight.shape)}"
        )
    if target.dtype not in (dt.int64, dt.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {dt.cxx_name(target.dtype)}"
        )


def nll(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    """Minus the entry of `input` at each target class, weighted and reduced."""
    _check_classes(input, target, weight)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    target = target.to(dt.int64).reshape(()) if input.ndim == 1 else target.to(dt.int64)
    ignored = target == ignore_index
    safe = target.masked_fill(ignored, 0)
    dim = 1 if input.ndim > 1 else 0
    try:
        found = -input.gather(dim, safe.unsqueeze(dim)).squeeze(dim)
    except IndexError:
        bad = safe.masked_fill((safe >= 0) & (safe < input.shape[dim]), 0)
        wrong = bad.min() if int(bad.min()) < 0 else bad.max()
        raise IndexError(f"Target {int(wrong)} is out of bounds.") from None
    if weight is not None:
        weights = index_nd(weight, (safe,)).masked_fill(ignored, 0)
        found = (found * weights).masked_fill(ignored, 0)
    else:
        weights = None
        found = found.masked_fill(ignored, 0)
    if reduction == "none":
        return found
    if reduction == "sum":
        return found.sum()
    count = (~ignored).sum() if weights is None else weights.sum()
    return found.sum() / count


@composite(
    internal=True,
    name="nll_loss",
    opmath=True,
    out=False,
    autocast="full",
    torch="nll_loss",
    grad_fn="NllLossBackward0",
)
def nll_loss_op(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    """Negative log likelihood of the target classes, given log probabilities."""
    return nll(input, target, weight, reduction, ignore_index)


@front(namespace=FUNCTIONAL, autocast="full", torch="nll_loss_nd")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of the target classes, given log probabilities.

    >>> import lucerne
    >>> x = lucerne.tensor([[-0.5, -1.0], [-2.0, -0.1]])
    >>> lucerne.nn.functional.nll_loss(x, lucerne.tensor([0, 1]))
    tensor(0.3000)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    need_dtype_of(input, weight)
    return nll_loss_op(input, target, weight, reduction, ignore_index)


# ---- cross entropy -------------------------------------------------------------------------------


def _class_weights(weight: Tensor, ndim: int) -> Tensor:
    """Class weights shaped to multiply scores (N, C, ...)."""
    return weight.reshape((-1,) if ndim == 1 else (1, -1, *(1,) * (ndim - 2)))


def _soft_targets(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """Cross entropy against probabilities of classes."""
    dim = 1 if scores.ndim > 1 else 0
    classes = scores.shape[dim]
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / classes
    product = scores * target
    if weight is not None:
        product = product * _class_weights(weight, scores.ndim)
    if reduction == "none":
        return -product.sum(dim)
    if reduction == "sum":
        return -product.sum()
    return -product.sum() / (scores.numel() / classes if classes else 0.0)


def _smoothed(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int,
    smoothing: float,
) -> Tensor:  # fmt: skip
    """Cross entropy with part of the probability spread evenly over the classes."""
    sharp = nll(scores, target, weight, reduction, ignore_index)
    dim = 1 if scores.ndim > 1 else 0
    classes = scores.shape[dim]
    if scores.ndim == 1:
        target = target.reshape(())
    weighted = scores if weight is None else scores * _class_weights(weight, scores.ndim)
    ignored = target == ignore_index
    even = -weighted.sum(dim).masked_fill(ignored, 0)
    if reduction == "mean" and weight is not None:
        safe = target.masked_fill(ignored, 0)
        even = even.sum() / index_nd(weight, (safe,)).masked_fill(ignored, 0).sum()
    elif reduction == "mean":
        even = even.sum() / (~ignored).sum()
    elif reduction == "sum":
        even = even.sum()
    return (1 - smoothing) * sharp + even * (smoothing / classes)


def _classes_meta(
    input: TensorMeta, target: TensorMeta, weight: Any, reduction: str, ignore_index: int
) -> TensorMeta:
    return input.like(tuple(target.shape) if reduction == "none" else ())


def _widened(x: Any) -> Any:
    return x if x is None or x.dtype.compute is x.dtype else x.to(x.dtype.compute)


def _classes_back_meta(g: TensorMeta, input: TensorMeta, *rest: Any) -> TensorMeta:
    return input.like(tuple(input.shape))


@composite(checks=op_.VALUES, internal=True, out=False, meta=_classes_back_meta)
def cross_entropy_classes_backward(
    g: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
) -> Tensor:
    """Gradient of `cross_entropy_classes`: (softmax - one at the target) times the row's weight."""
    ignored = target == ignore_index
    safe = target.masked_fill(ignored, 0)
    x = _widened(input)
    counted = (~ignored).to(x.dtype)
    if weight is not None:
        counted = index_nd(_widened(weight), (safe,)) * counted
    g = _widened(g)
    row = (g * counted if reduction != "mean" else g * (counted / counted.sum())).unsqueeze(1)
    dense = x.softmax(1) * row
    picked = dense.new_zeros(dense.shape).scatter(1, safe.unsqueeze(1), row)
    found = (dense - picked).masked_fill(ignored.unsqueeze(1), 0)
    return found if found.dtype is input.dtype else found.to(input.dtype)


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=_classes_meta,
    vjp={
        "input": lambda g, input, target, weight, reduction, ignore_index: (
            cross_entropy_classes_backward(g, input, target, weight, reduction, ignore_index)
        )
    },
    autocast="full",
    torch="cross_entropy_loss",
    grad_fn="NllLossBackward0",
)
def cross_entropy_classes(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    """Cross entropy of scores (N, C, ...) against int64 classes (N, ...): one kernel each way."""
    scores = _widened(input).log_softmax(1)
    found = nll(scores, target, _widened(weight), reduction, ignore_index)
    return found if found.dtype is input.dtype else found.to(input.dtype)


def _is_plain(input: Tensor, target: Tensor, weight: Any) -> bool:
    """Scores of samples against class numbers: the case with a kernel of its own."""
    return (
        input.ndim > 1
        and target.dtype is dt.int64
        and input.is_floating_point()
        and (weight is None or (weight.dtype is input.dtype and not weight.requires_grad))
        and bool(input.numel())
    )


@front(namespace=FUNCTIONAL, torch="cross_entropy_loss")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy between scores (logits) and classes, given as indices or as probabilities.

    >>> import lucerne
    >>> logits = lucerne.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> lucerne.nn.functional.cross_entropy(logits, lucerne.tensor([0, 1]))
    tensor(0.1269)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if not label_smoothing and input.shape != target.shape and _is_plain(input, target, weight):
        _check_classes(input, target, weight)
        return cross_entropy_classes(input, target, weight, reduction, ignore_index)
    return cross_entropy_any(input, target, weight, reduction, ignore_index, label_smoothing)


@composite(
    internal=True,
    opmath=True,
    out=False,
    autocast="full",
    torch="cross_entropy_loss",
    grad_fn="NllLossBackward0",
)
def cross_entropy_any(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Cross entropy in all its forms."""
    dim = 1 if input.ndim > 1 else 0
    if input.shape == target.shape:
        _check_soft(input, target, weight, ignore_index)
        return _soft_targets(input.log_softmax(dim), target, weight, reduction, label_smoothing)
    need_dtype_of(input, weight)
    scores = input.log_softmax(dim)
    if label_smoothing > 0:
        return _smoothed(scores, target, weight, reduction, ignore_index, label_smoothing)
    return nll(scores, target, weight, reduction, ignore_index)


def _check_soft(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
    if target.dtype.category < dt.FLOAT:
        raise RuntimeError(
            "Expected floating point type for target with class probabilities, got "
            f"{dt.cxx_name(target.dtype)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    classes = input.shape[1 if input.ndim > 1 else 0] if input.ndim else 1
    if weight is not None and (weight.ndim != 1 or weight.numel() != classes):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or "
            f"no classes but got weight tensor of shape: {list(weight.shape)}"
        )


@front(namespace=FUNCTIONAL, torch=None)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """Cross entropy of a linear layer's result, `cross_entropy(linear(input, weight), target)`."""
    shape = _linear_shapes(input, linear_weight, linear_bias)
    if tuple(target.shape) == shape:
        _check_soft_options(linear_weight.shape[0], weight, ignore_index, label_smoothing)
    flat = linear_weight.reshape(-1, linear_weight.shape[-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = matmul.linear(input, flat, bias).reshape(shape)
    return cross_entropy(
        logits,
        target,
        weight=weight,
        reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )


def _check_soft_options(classes: int, weight: Any, ignored: int | None, smoothing: float) -> None:
    """What `linear_cross_entropy` refuses beside targets that are probabilities."""
    if ignored is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(f"expected weight shape to be ({classes},), got {tuple(weight.shape)}")
    if not 0.0 <= smoothing <= 1.0:
        raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {smoothing}")


def _linear_shapes(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[int, ...]:
    """The shape of the scores, once the operands are found to fit."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.ndim}"
        )
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise RuntimeError(
            f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}"
        )
    if weight.ndim > 2 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires "
            f"batched input, (N, {input.shape[-1]}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    return (*input.shape[:-1], *weight.shape[:-1])


# ---- probabilities -------------------------------------------------------------------------------


def _clamped_log(x: Tensor) -> Tensor:
    return x.log().clamp(min=-100)


@composite(
    internal=True,
    name="binary_cross_entropy_elements",
    vjp={
        "input": lambda g, input, target: (
            g * (input - target) / ((1 - input) * input).clamp(min=1e-12)
        ),
        "target": lambda g, input: g * ((-input).log1p() - input.log()),
    },
    out=False,
    fuse=True,
    torch="binary_cross_entropy",
)
def bce_elements(input: Tensor, target: Tensor) -> Tensor:
    """`-(target log(input) + (1 - target) log(1 - input))`, logs cut off at -100."""
    return (target - 1) * _log_rest(input) - target * _clamped_log(input)


def _log_rest(x: Tensor) -> Tensor:
    return (-x).log1p().clamp(min=-100)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    autocast="full",
    grad_fn="BinaryCrossEntropyBackward0",
)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of probabilities against targets between 0 and 1.

    >>> import lucerne
    >>> p = lucerne.tensor([0.5, 0.5])
    >>> lucerne.nn.functional.binary_cross_entropy(p, lucerne.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise RuntimeError(
            f"Found dtype {dt.cxx_name(target.dtype)} but expected {dt.cxx_name(input.dtype)}"
        )
    if not input.is_meta and input.numel():
        outside = ~((input >= 0) & (input <= 1)).all()
        raise_if(outside, lambda: RuntimeError("all elements of input should be between 0 and 1"))
    loss = bce_elements(input, target)
    return reduced(loss if weight is None else (loss * weight).to(input.dtype), reduction)


@composite(
    namespace=FUNCTIONAL,
    opmath=True,
    out=False,
    autocast="full",
    fuse=True,
    grad_fn="BinaryCrossEntropyWithLogitsBackward0",
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of scores (before the sigmoid), stable for large ones.

    >>> import lucerne
    >>> x = lucerne.tensor([0.0, 0.0])
    >>> lucerne.nn.functional.binary_cross_entropy_with_logits(x, lucerne.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    log_p = activation.logsigmoid(input)
    if pos_weight is not None:
        log_p = log_p * ((pos_weight - 1) * target + 1)
    loss = ((1 - target) * input - log_p).to(target.dtype)  # as in torch: written over the target
    return reduced(loss if weight is None else (loss * weight).to(loss.dtype), reduction)


@composite(namespace=FUNCTIONAL, opmath=True, out=False, autocast="full", fuse=True)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence of log probabilities `input` from `target`."""
    legacy = legacy_reduction(size_average, reduce, "")
    if not legacy and reduction == "mean":
        notices.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size.'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release.",
            stacklevel=2,
        )
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target.xlogy(target) - target * input
    if not legacy and reduction == "batchmean":
        total = loss.sum()
        return total / input.shape[0] if input.ndim else total
    return reduced(loss, legacy or reduction)
