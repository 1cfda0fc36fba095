"""Composites that are kept whole: the kernels they have are better than their parts.

A call is kept where the batch can be part of what the kernel goes over anyway: more rows, more
images, dimensions counted from one further on. Any other call is opened, and its parts have rules.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ops.nn.classify import cross_entropy_classes, cross_entropy_classes_backward
from lucerne._src.tensor.base import TensorBase
from lucerne.func.batching.elementwise import fold, unfold
from lucerne.func.batching.level import Call, whole

# ---- element by element --------------------------------------------------------------------------


def _of_one_shape(call: Call) -> bool:
    shapes = {m.shape for m in call.metas if hasattr(m, "shape")}
    kinds = {m.dtype for m in call.metas if hasattr(m, "shape")}
    return len(shapes) == 1 and len(kinds) == 1


@whole(
    "tanh_gradient", "sigmoid_gradient", "relu_gradient", "gelu_gradient", "silu_gradient",
    "nn.functional.softsign", "binary_cross_entropy_elements",
    when=_of_one_shape,
)  # fmt: skip
def each_element(call: Call) -> Any:
    return call.run(*call.values)


# ---- along dimensions ----------------------------------------------------------------------------


def _has_dims(call: Call) -> bool:
    return call.rank(0) > 0


def _shifted(call: Call, at: int) -> Any:
    given, ndim = call.values[at], call.rank(0)
    if isinstance(given, int):
        return sh.wrap_dim(given, ndim) + 1
    return tuple(d + 1 for d in reduced_dims(given, ndim))


@whole(
    "mean", "nansum_dims", "nanmean_dims", "standardize", "variance", "deviation", "logsumexp",
    "softmax", "log_softmax", "p_norm", "count_nonzero",
    when=_has_dims,
)  # fmt: skip
def along_dims(call: Call) -> Any:
    at = next(i for i, name in enumerate(call.op.args) if name in ("dim", "dims"))
    values = list(call.values)
    values[at] = _shifted(call, at)
    return call.run(*values)


@whole("top_positions", when=_has_dims)
def top_positions(call: Call) -> Any:
    value, k, dim, largest = call.values
    return call.run(value, k, sh.wrap_dim(dim, call.rank(0)) + 1, largest)


def _same_rank(call: Call) -> bool:
    return call.rank(0) == call.rank(1) > 0 and bool(call.batched[0] and call.batched[1])


@whole("_softmax_backward_data", "_log_softmax_backward_data", when=_same_rank)
def softmax_backward(call: Call) -> Any:
    g, y, dim, dtype = call.values
    return call.run(g, y, sh.wrap_dim(dim, call.rank(1)) + 1, dtype)


def _rest_unbatched(call: Call) -> bool:
    """Only the first argument has a batch."""
    return bool(call.batched[0]) and not any(call.batched[1:])


@whole("layer_norm_rows", when=_rest_unbatched)
def layer_norm_rows(call: Call) -> Any:
    value, weight, bias, dims, eps = call.values
    ndim = call.rank(0)
    return call.run(value, weight, bias, tuple(sh.wrap_dim(d, ndim) + 1 for d in dims), eps)


# ---- more rows -----------------------------------------------------------------------------------


@whole("nn.functional.linear", when=_rest_unbatched)
def linear(call: Call) -> Any:
    return call.run(*call.values)


def _more_rows(call: Call) -> bool:
    """A product of the rows of a batch with one matrix, and one row added to all."""
    alone = call.batched == (False, True, False)
    row = call.rank(0) == 1 or (call.rank(0) == 2 and call.metas[0].shape[0] == 1)
    return alone and row


@whole("add_product", when=_more_rows)
def add_product(call: Call) -> Any:
    row, left, right = call.values
    return unfold(call.run(row, fold(left), right), call.size)


def _indices_only(call: Call) -> bool:
    return bool(call.batched[1]) and not call.batched[0]


@whole("embedding", when=_indices_only)
def embedding(call: Call) -> Any:
    return call.run(*call.values)


def _matrices(call: Call) -> bool:
    return all(m.ndim == 2 for m in call.metas)


@whole("lstm_gates", "gru_gates", "lstm_gates_backward", "gru_gates_backward", when=_matrices)
def gates(call: Call) -> Any:
    found = call.run(*(fold(call.full(i)) for i in range(len(call.values))))
    if isinstance(found, tuple):
        return tuple(unfold(f, call.size) for f in found)
    return unfold(found, call.size)


# ---- more images ---------------------------------------------------------------------------------


def _has_images(call: Call) -> bool:
    return call.rank(0) > 1


@whole("avg_pool", "adaptive_avg_pool", "resample", "resample_back", when=_has_images)
def images(call: Call) -> Any:
    return unfold(call.run(fold(call.values[0]), *call.values[1:]), call.size)


def _four_dims(call: Call) -> bool:
    return all(call.rank(i) == 4 for i in range(3))


@whole("flash_attention", "flash_attention_backward", when=_four_dims)
def flash_attention(call: Call) -> Any:
    """The batch is more sequences."""
    values = [
        fold(call.full(i)) if isinstance(v, TensorBase) else v for i, v in enumerate(call.values)
    ]
    values[3] = _mask(call)
    return tuple(unfold(f, call.size) for f in call.run(*values))


def _mask(call: Call) -> Any:
    mask = call.values[3]
    if mask is None:
        return None
    rank = call.rank(3)
    if not call.batched[3] and (rank < 4 or mask.shape[0] == 1):
        return mask  # one for all sequences
    full = call.full(3)
    full = full.reshape(call.size, *(1,) * (4 - rank), *full.shape[1:])
    return fold(full.expand(call.size, call.metas[0].shape[0], *full.shape[2:]))


# ---- losses --------------------------------------------------------------------------------------


def _is_plain_loss(call: Call) -> bool:
    names = dict(zip(call.op.args, call.values, strict=True))
    return names["weight"] is None


@whole("cross_entropy_classes", when=_is_plain_loss)
def cross_entropy(call: Call) -> Any:
    """A loss for each row of the batch, then a sum for each of the batch."""
    _, _, _, reduction, ignore = call.values
    scores, classes = call.full(0), call.full(1)
    found = cross_entropy_classes(fold(scores), fold(classes), None, "none", ignore)
    rows = unfold(found, call.size)
    if reduction == "none":
        return rows
    total = rows.reshape(call.size, -1).sum(1)
    return total if reduction == "sum" else total / _counted(classes, ignore, total.dtype)


@whole("cross_entropy_classes_backward", when=_is_plain_loss)
def cross_entropy_backward(call: Call) -> Any:
    _, _, _, _, reduction, ignore = call.values
    g, scores, classes = call.full(0), call.full(1), call.full(2)
    if reduction == "mean":
        g = g / _counted(classes, ignore, g.dtype)
    if reduction != "none":
        g = g.reshape(-1, *(1,) * (classes.ndim - 1)).expand(classes.shape)
    found = cross_entropy_classes_backward(
        fold(g), fold(scores), fold(classes), None, "none", ignore
    )
    return unfold(found, call.size)


def _counted(classes: Any, ignore: int, dtype: Any) -> Any:
    """How many classes of each of the batch count."""
    return (classes != ignore).reshape(classes.shape[0], -1).sum(1).to(dtype)
