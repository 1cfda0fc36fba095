"""Rows of a table looked up by integers: embedding, embedding_bag, one_hot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import capturing, raise_if
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.index.advanced import INDEX_TYPES, index_nd, index_put_nd, zeros_like_meta
from lucerne._src.ops.index.scatter import scatter_fold, scatter_reduce_op, spread
from lucerne._src.ops.linalg.sparse_products import csr_times_dense, row_numbers
from lucerne._src.ops.pointwise.select import choose


def _check_indices(name: str, indices: Tensor) -> None:
    if indices.dtype not in INDEX_TYPES:
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got torch.{dt.cxx_name(indices.dtype)}Tensor instead (while checking "
            f"arguments for {name})"
        )


SPARSE: dict[str, Callable[..., Any]] = {}
"""How rows and their numbers become a sparse tensor; tensor/sparse.py, which has them, fills it."""


def _sparse_vjp(
    g: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, weight_meta: TensorMeta
) -> Tensor:
    """The gradient as the rows that were looked up, one by one."""
    if scale_grad_by_freq:
        raise RuntimeError(
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
        )
    flat = indices.reshape(-1)
    rows = g.reshape(flat.shape[0], *weight_meta.shape[1:])
    if padding_idx >= 0:
        keep = (flat != padding_idx).nonzero().reshape(-1)
        flat, rows = index_nd(flat, (keep,)), index_nd(rows, (keep,))
    return SPARSE["rows"](flat, rows, weight_meta.shape)


def _embedding_vjp(
    g: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool,
    weight_meta: TensorMeta,
) -> Tensor:  # fmt: skip
    if sparse:
        return _sparse_vjp(g, indices, padding_idx, scale_grad_by_freq, weight_meta)
    flat = indices.reshape(-1)
    rows = g.reshape(flat.shape[0], *weight_meta.shape[1:])
    tail = (-1, *(1,) * (weight_meta.ndim - 1))
    if padding_idx >= 0:
        rows = rows.masked_fill((flat == padding_idx).reshape(tail), 0)
    if scale_grad_by_freq:
        nothing = filled((weight_meta.shape[0],), 0, g.dtype, g.device, None)
        counts = scatter_fold(nothing, 0, flat, spread(1, g, flat), "add")
        rows = rows / index_nd(counts, (flat,)).reshape(tail)
    return index_put_nd(zeros_like_meta(weight_meta), (flat,), rows, True)


def _embedding_meta(weight: TensorMeta, indices: TensorMeta, *rest: Any) -> TensorMeta | None:
    if weight.ndim != 2 or indices.dtype not in INDEX_TYPES or weight.device != indices.device:
        return None
    return weight.like((*indices.shape, weight.shape[1]))


@composite(
    checks=op_.VALUES,
    vjp={"weight": _embedding_vjp},
    out=False,
    meta=_embedding_meta,
    oracle=lambda weight, indices, padding_idx, scale_grad_by_freq, sparse: weight[indices],
    samples=[((4, 2), [[0, 3], [2, 0]])],
)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` at `indices`; the row `padding_idx` gets no gradient."""
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_indices("embedding", indices)
    return index_nd(weight, (indices,), False).contiguous()


@front()
def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of `weight` that are looked up to a norm of at most `max_norm`, in place."""
    table, flat = weight.detach(), indices.reshape(-1)
    rows = index_nd(table, (flat,), False)
    norms = rows.norm(norm_type, 1, keepdim=True)
    scaled = rows * (max_norm / (norms + 1e-7))
    table.index_put_((flat,), scaled.where(norms > max_norm, rows))
    return weight


@front(name="embedding", namespace="nn.functional")
def embedding_lookup(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up the rows of `weight` at the integers `input`.

    >>> import lucerne
    >>> table = lucerne.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> lucerne.nn.functional.embedding(lucerne.tensor([1, 0]), table)
    tensor([[3., 4.],
            [1., 2.]])
    """
    rows = weight.shape[0] if weight.ndim else 0
    if padding_idx is not None:
        if not -rows <= padding_idx < max(rows, 1):
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx = padding_idx + rows if padding_idx < 0 else padding_idx
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    at = -1 if padding_idx is None else padding_idx
    return embedding(weight, input, at, scale_grad_by_freq, sparse)


# ---- embedding_bag -------------------------------------------------------------------------------


def bag_numbers(offsets: Tensor, count: int) -> Tensor:
    """For each of `count` entries the number of the bag it lies in."""
    marks = filled((count + 1,), 0, dt.int64, offsets.device, None)
    ones = filled((), 1, dt.int64, offsets.device, None).expand(offsets.shape)
    starts = index_put_nd(marks, (offsets,), ones, True)
    return starts.cumsum(0).narrow(0, 0, count) - 1


def _bag_weight_vjp(
    g: Tensor, indices: Tensor, starts: Tensor, values: Tensor | None, weight_meta: TensorMeta
) -> Tensor:
    rows = index_nd(g, (row_numbers(starts, indices.shape[0]),))
    rows = rows if values is None else rows * values.unsqueeze(1)
    return index_put_nd(zeros_like_meta(weight_meta), (indices,), rows, True)


def _bag_values_vjp(g: Tensor, indices: Tensor, starts: Tensor, weight: Tensor) -> Tensor:
    rows = index_nd(g, (row_numbers(starts, indices.shape[0]),))
    return (rows * index_nd(weight, (indices,))).sum(-1)


@composite(
    checks=op_.VALUES,
    internal=True,
    name="embedding_bag_sums",
    opmath=True,
    out=False,
    vjp={"weight": _bag_weight_vjp, "values": _bag_values_vjp},
)
def bag_sums(weight: Tensor, indices: Tensor, starts: Tensor, values: Tensor | None) -> Tensor:
    """Sums of rows, times `values`: the product of a sparse matrix with the table.

    Bag `i` has the entries `starts[i]` to `starts[i + 1]`.
    """
    if values is None:
        values = filled((indices.shape[0],), 1, weight.dtype, weight.device, None)
    return csr_times_dense(starts, indices, values, weight)


def _largest(nothing: Tensor, bags: Tensor, rows: Tensor) -> Tensor:
    """The maxima of bags. Of equal ones the first has the gradient, as in torch."""
    where, count = bags.unsqueeze(1).expand(rows.shape), rows.shape[0]
    if not count:
        return index_put_nd(nothing, (bags,), rows, True)  # zeros that know their table
    top = scatter_reduce_op(nothing, 0, where, rows.detach(), "amax", False)
    numbers = arange(count, device=rows.device).unsqueeze(1)
    at = choose(rows.detach() == index_nd(top, (bags,)), numbers, count)
    none = filled(tuple(nothing.shape), count, dt.int64, rows.device, None)
    first = scatter_reduce_op(none, 0, where, at, "amin", True)
    return choose(first < count, rows.gather(0, first.clamp(max=count - 1)), top)


@composite(
    checks=op_.VALUES,
    internal=True,
    name="embedding_bag_rows",
    opmath=True,
    out=False,
    torch="embedding_bag",
)
def bag_rows(
    weight: Tensor,
    indices: Tensor,
    bags: Tensor,
    bag_count: int,
    mode: str,
    per_sample_weights: Tensor | None,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Tensor:
    """Rows at `indices` folded by bag."""
    rows = embedding(weight, indices, -1, scale_grad_by_freq, sparse)
    shape = (bag_count, weight.shape[1])
    nothing = filled(shape, 0, weight.dtype, weight.device, None)
    if mode == "max":
        return _largest(nothing, bags, rows)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    total = index_put_nd(nothing, (bags,), rows, True)
    if mode == "sum":
        return total
    counts = index_put_nd(
        filled((bag_count,), 0, weight.dtype, weight.device, None),
        (bags,),
        filled((), 1, weight.dtype, weight.device, None),
        True,
    )
    return total / counts.clamp(min=1).unsqueeze(1)


@front(name="embedding_bag", namespace="nn.functional")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of bags of embeddings, without the rows in between.

    >>> import lucerne
    >>> table = lucerne.tensor([[1.0], [2.0], [4.0]])
    >>> bags = lucerne.tensor([[0, 1], [2, 2]])
    >>> lucerne.nn.functional.embedding_bag(bags, table, mode="sum")
    tensor([[3.],
            [8.]])
    """
    if weight.dtype is dt.int64 and input.is_floating_point():
        weight, input = input, weight
    _check_bag(input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq, sparse)
    count, device = input.numel(), input.device
    if input.ndim == 2:
        each, rows = input.shape[1], input.shape[0]
        starts = arange(rows + 1, dtype=dt.int64, device=device) * each
        input, sorted_starts = input.reshape(-1), True
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    else:
        rows = offsets.shape[0] - int(include_last_offset)
        if capturing() and rows and not include_last_offset:
            _check_offsets_later(offsets, count)
            sorted_starts, last = False, count  # (bags in any order are right for those in order)
        else:
            sorted_starts, last = _check_offsets(offsets, count)
        if include_last_offset and sorted_starts and last < count:
            # What lies behind the end of the last bag is in no bag, and has no gradient.
            input, count = input.narrow(0, 0, last), last
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights.narrow(0, 0, last)
        ends = filled((1,), count, offsets.dtype, device, None)
        starts = cat((offsets.narrow(0, 0, rows), ends)).to(dt.int64)
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    plain = sorted_starts and padding_idx is None and not (scale_grad_by_freq or sparse)
    if plain and mode != "max" and rows:
        return _summed(input, weight, starts, mode, per_sample_weights)
    bags = bag_numbers(starts.narrow(0, 0, rows), count)
    if padding_idx is not None:
        keep = (input != padding_idx % weight.shape[0]).nonzero().reshape(-1)
        input, bags = index_nd(input, (keep,)), index_nd(bags, (keep,))
        if per_sample_weights is not None:
            per_sample_weights = index_nd(per_sample_weights, (keep,))
    return bag_rows(weight, input, bags, rows, mode, per_sample_weights, scale_grad_by_freq, sparse)


def _summed(input: Tensor, weight: Tensor, starts: Tensor, mode: str, values: Any) -> Tensor:
    """Sums or means of bags without the rows in between."""
    try:
        total = bag_sums(weight, input.to(dt.int64), starts, values)
    except IndexError:
        rows = weight.shape[0]
        at = int(((input < 0) | (input >= rows)).nonzero()[0])
        raise RuntimeError(
            f"Index {at} of input takes value {int(input[at])} which is not in the valid range "
            f"[0, {rows})"
        ) from None
    if mode == "sum":
        return total
    counts = starts.narrow(0, 1, starts.shape[0] - 1) - starts.narrow(0, 0, starts.shape[0] - 1)
    return total / counts.clamp(min=1).to(weight.dtype).unsqueeze(1)


def _check_offsets(offsets: Tensor, count: int) -> tuple[bool, int]:
    """Torch's refusals; whether the bags follow each other, and the last offset."""
    size = offsets.shape[0]
    if not size:
        return False, count
    first, last = int(offsets.select(0, 0)), int(offsets.select(0, offsets.shape[0] - 1))
    if first != 0:
        raise RuntimeError(f"{_FIRST}. However, got {first}")
    if last > count:
        raise RuntimeError(f"{_LAST}({count}) but got offsets[-1] of {last}")
    follow = size < 2 or bool(
        (offsets.narrow(0, 1, size - 1) >= offsets.narrow(0, 0, size - 1)).all()
    )
    return follow, last


_FIRST = (
    "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
    "position 0"
)
_LAST = "offsets[-1] can not be greater than input's length"


def _check_offsets_later(offsets: Tensor, count: int) -> None:
    """The same refusals when the values are known, which are not told then."""
    raise_if(offsets.select(0, 0) != 0, lambda: RuntimeError(_FIRST))
    last = offsets.select(0, offsets.shape[0] - 1)
    raise_if(last > count, lambda: RuntimeError(f"{_LAST}({count})"))


def _check_bag(
    input: Tensor, weight: Tensor, offsets: Any, mode: str, per_sample_weights: Any,
    scale_grad_by_freq: bool, sparse: bool,
) -> None:  # fmt: skip
    """Torch's refusals, in torch's order."""
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            f"fixed length sequences. However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.ndim == 1 and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if input.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        mine, other = (dt.cxx_name(x.dtype) for x in (weight, per_sample_weights))
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument "
            f"#1 'per_sample_weights'; but type torch.{mine}Tensor does not equal "
            f"torch.{other}Tensor (while checking arguments for embedding_bag)"
        )
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    _check_indices("embedding_bag", input)


# ---- one_hot -------------------------------------------------------------------------------------


@composite(
    namespace="nn.functional",
    vjp={},
    out=False,
    oracle=lambda input, num_classes: np.eye(
        num_classes if num_classes > 0 else int(input.max()) + 1, dtype=np.int64
    )[input],
    samples=[([0, 2, 1], 3)],
)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """For each integer a row of zeros with a one at its place.

    >>> import lucerne
    >>> lucerne.nn.functional.one_hot(lucerne.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not dt.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not tensor.numel():
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return filled((*tensor.shape, num_classes), 0, dt.int64, tensor.device, None)
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    num_classes = max(num_classes, 0)
    zeros = filled((*tensor.shape, num_classes), 0, dt.int64, tensor.device, None)
    where = tensor.unsqueeze(-1)
    try:
        return scatter_fold(zeros, -1, where, spread(1, zeros, where), "set")
    except IndexError:
        low = int(tensor.min()) < 0
        raise RuntimeError(
            "Class values must be non-negative." if low
            else "Class values must be smaller than num_classes."
        ) from None  # fmt: skip
