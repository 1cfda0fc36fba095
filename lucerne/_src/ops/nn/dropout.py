"""Dropout: random elements or channels set to zero, the rest scaled up."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.process import notices
from lucerne._src.base.process.default_generator import generator_or_default
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import preserved_strides
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.random.draws import draw

# Constants of SELU: alpha dropout sets elements to the value SELU tends to at minus infinity.
_SATURATION = 1.7580993408473766


def _check(p: float, kind: type[Exception] = ValueError) -> None:
    if p < 0.0 or p > 1.0:
        raise kind(f"dropout probability has to be between 0 and 1, but got {p}")


def _noise(input: Tensor, by_feature: bool, keep: float) -> Tensor:
    """One draw an element, or one a channel: 1 with probability `keep`, else 0."""
    if not by_feature and input._meta.is_dense:
        generator = generator_or_default(None)
        return draw(input.detach(), "bernoulli", keep, 0.0, input.dtype, generator)
    if not by_feature:
        return input.new_empty_strided(input.shape, _dense(input)).bernoulli_(keep)
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = (*input.shape[:2], *(1 for _ in input.shape[2:]))
    return input.new_empty(shape).bernoulli_(keep)


def _dense(input: Tensor) -> Any:
    return preserved_strides(input._meta, lo.preserve_format)


def _drop(
    input: Tensor, p: float, train: bool, by_feature: bool, alpha: bool, inplace: bool
) -> Tensor:
    """The one algorithm behind all of them, drawing in torch's order."""
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        zero = input.new_zeros(())
        return input.mul_(zero) if inplace else input * zero
    noise = _noise(input, by_feature, 1 - p)
    if not alpha:
        noise = noise.div_(1 - p)
        return input.mul_(noise) if inplace else input * noise
    a = 1 / math.sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    shift = (noise - 1).mul_(_SATURATION * a).add_(_SATURATION * a * p)
    noise = noise.mul_(a)
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


@front(namespace="nn.functional")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is zero with probability `p`, else divided by `1 - p`.

    >>> import lucerne as torch
    >>> torch.nn.functional.dropout(torch.ones(3), p=0.5, training=False)
    tensor([1., 1., 1.])
    """
    _check(p)
    return _drop(input, p, training, False, False, inplace)


@front(namespace="nn.functional")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations."""
    _check(p)
    return _drop(input, p, training, False, True, inplace)


@front(namespace="nn.functional")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels."""
    _check(p)
    return _drop(input, p, training, True, True, inplace)


@front(namespace="nn.functional", torch="feature_dropout")
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, L) or (C, L)."""
    _check(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a "
            "channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _by_channel(input, p, training, inplace, batched=input.ndim == 3)


def _by_channel(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    x = input if batched else input.unsqueeze(0)
    result = _drop(x, p, training, True, False, inplace)
    if inplace:
        return input
    return result if batched else result.squeeze(0)


def _deprecated(name: str, ndim: int, spatial: int) -> None:
    notices.warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an "
        "error in a future release. To retain the behavior and silence this warning, please use "
        f"dropout instead. Note that {name} exists to provide channel-wise dropout on inputs with "
        f"{spatial} spatial dimensions, a channel dimension, and an optional batch dimension (i.e. "
        f"{spatial + 1}D or {spatial + 2}D inputs).",
        stacklevel=3,
    )


@front(namespace="nn.functional", torch="feature_dropout")
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, H, W)."""
    _check(p)
    if input.ndim not in (3, 4):
        _deprecated("dropout2d", input.ndim, 2)
    if input.ndim == 3:
        notices.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without "
            "a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout "
            "behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _drop(input, p, training, True, False, inplace)


@front(namespace="nn.functional", torch="feature_dropout")
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    if input.ndim not in (4, 5):
        _deprecated("dropout3d", input.ndim, 3)
    return _by_channel(input, p, training, inplace, batched=input.ndim == 5)


def _top_level(name: str, by_feature: bool, alpha: bool, inplace: bool) -> None:
    def run(input: Tensor, p: float, train: bool) -> Tensor:
        """Dropout as `nn.functional` has it, with every argument given."""
        _check(p, RuntimeError)
        return _drop(input, p, train, by_feature, alpha, inplace)

    run.__name__ = run.__qualname__ = name
    front()(run)


for _stem, _by, _alpha in (
    ("dropout", False, False),
    ("feature_dropout", True, False),
    ("alpha_dropout", False, True),
    ("feature_alpha_dropout", True, True),
):
    _top_level(_stem, _by, _alpha, False)
    _top_level(f"{_stem}_", _by, _alpha, True)


@front()
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout, with the mask of what was kept."""
    if input.numel() == 0 or not train:
        return input.clone(), input.new_ones(input.shape, dtype=dt.bool_)
    mask = input.new_empty(input.shape, dtype=dt.bool_)
    if p == 1:
        return input.new_zeros(input.shape), mask.fill_(False)
    mask = mask.bernoulli_(1 - p)
    return input * mask * (1 / (1 - p)), mask


@front(namespace="ops.aten")
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Gradient of dropout: what was kept, scaled."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


@front(namespace="nn.functional", torch=None)
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution; `hard`: one-hot values, soft gradients."""
    if eps != 1e-10:
        notices.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    gumbels = -logits.detach().new_empty(logits.shape).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = soft.new_zeros(soft.shape).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


@front(name="rrelu")
def torch_rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """Leaky relu whose slope is drawn for each non-positive element (its mean in evaluation)."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    low = input <= 0
    if not training:
        return choose(low, input * ((lower + upper) / 2), input)
    count = int(low.sum().item())
    draws = input.new_empty((count,), dtype=dt.float64).uniform_(lower, upper, generator=generator)
    kind = input.dtype.compute
    slopes = input.new_ones(input.shape, dtype=kind).masked_scatter(low, draws.to(kind))
    return (input * slopes).to(input.dtype)


@front(namespace="nn.functional")
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky relu with a random slope (see `torch.rrelu`)."""
    result = torch_rrelu(input, lower, upper, training)
    return input.copy_(result) if inplace else result


@front(namespace="nn.functional")
def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """`rrelu` in place."""
    return input.copy_(torch_rrelu(input, lower, upper, training))
