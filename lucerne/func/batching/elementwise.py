"""Rules of pointwise ops, reductions and everything else that goes along given dimensions."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.meta import NumberMeta, TensorMeta
from lucerne._src.ops.copy.cast import cast, clone_as, copy
from lucerne._src.ops.copy.join import cat_same
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.keys import metas_of
from lucerne._src.tensor.layers.layer import cell_of
from lucerne.func.batching.level import KINDS, Call, padded_rank, rule


def pointwise(call: Call) -> Any:
    """Operands are aligned by their last dimensions, as they broadcast without the batch."""
    ranks = [m.ndim if type(m) is TensorMeta else -1 for m in call.metas]
    rank = max(ranks)
    values = [
        padded_rank(v, rank) if b and r < rank else v
        for v, b, r in zip(call.values, call.batched, ranks, strict=True)
    ]
    return call.run(*_promoted(call, values))


def _promoted(call: Call, values: list[Any]) -> list[Any]:
    """Dtypes follow the dimensions the function sees: where those of the values would decide
    otherwise, operands are converted first."""
    if len({m.dtype for m in call.metas if type(m) is TensorMeta}) == 1:
        return values
    operands = _operands(call.op, call.metas)
    want = promote.common_type(call.op.promote, operands)
    have = promote.common_type(
        call.op.promote, _operands(call.op, metas_of(call.op, tuple(values)))
    )
    if want is have:
        return values
    condition = call.op.promote == "where"
    return [
        cast(v, want)
        if isinstance(v, TensorBase) and not (condition and i == 0) and v.dtype is not want  # type: ignore[attr-defined]
        else v
        for i, v in enumerate(values)
    ]


def _operands(op: Any, metas: tuple[Any, ...]) -> list[Any]:
    return [
        m
        for m, kind in zip(metas, op.kinds, strict=True)
        if kind == op_.TENSOR and isinstance(m, (TensorMeta, NumberMeta))
    ]


KINDS[op_.POINTWISE] = pointwise


@rule("running_average")
def running_average(call: Call) -> Any:
    """What a normalization keeps of its batches is about to be written over."""
    cell = cell_of(call.args[0])
    if call.batched[1] and not call.batched[0] and (cell is None or not cell.own):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched.\nIf you are using a module and do not "
            "need eval mode, please set `track_running_stats` to be False.If you are using a "
            "prebuilt module and do not need eval mode, please see the functorch website for "
            "resources on how to patch your module to work with vmap "
            "(func.replace_all_batch_norm_modules_ does that; or map over the buffers as well, by "
            "functional_call)"
        )
    return pointwise(call)


def reduction(call: Call) -> Any:
    """The folded dimensions, one further on; a number is folded over a dimension of its own."""
    names = {name: i for i, name in enumerate(call.op.args)}
    values = list(call.values)
    value, given, keep = values[0], values[names["dim"]], values[names["keepdim"]]
    single = call.op.qualified in _ONE_DIM
    dims: tuple[int, ...] = (1,)
    if not call.rank(0):
        value, keep = value.unsqueeze(1), False
    elif single and given is None:
        value, keep = value.reshape(call.size, -1), False
    else:
        dims = tuple(d + 1 for d in reduced_dims(given, call.rank(0)))
    values[0], values[names["keepdim"]] = value, keep
    values[names["dim"]] = dims[0] if single else dims
    result = call.run(*values)
    want = (call.size, *call.results[0].shape)
    return result if tuple(result.shape) == want else result.reshape(want)


_ONE_DIM = frozenset(("prod_dim", "argmax", "argmin"))
"""Folds that take one dimension, or none for all elements in a row."""
KINDS[op_.REDUCTION] = reduction


# ---- along a dimension ---------------------------------------------------------------------------


def along(call: Call, *tensors: int, at: int) -> Any:
    """An op on tensors of one number of dimensions, along the dimension argument `at` names.

    A number among them is a row of one.
    """
    values = list(call.values)
    for i in tensors:
        value = call.full(i)
        is_number = isinstance(value, TensorBase) and value._meta.ndim == 1
        values[i] = value.unsqueeze(1) if is_number else value
    given, ndim = values[at], call.rank(0)
    if isinstance(given, tuple):
        values[at] = tuple(sh.wrap_dim(d, ndim) + 1 for d in given)
    else:
        values[at] = sh.wrap_dim(given, ndim) + 1
    found = call.run(*values)
    if not isinstance(found, tuple):
        return _shaped(found, call, 0)
    return tuple(_shaped(f, call, k) for k, f in enumerate(found))


def _shaped(found: Any, call: Call, k: int) -> Any:
    shape = (call.size, *call.results[k].shape)
    return found if tuple(found.shape) == shape else found.reshape(shape)


@rule("flip", "fft_c2c", "fft_r2c", "fft_c2r", "sort_along", "scan")
def over_dims(call: Call) -> Any:
    return along(call, 0, at=1)


@rule("linear_scan")
def linear_scan(call: Call) -> Any:
    return along(call, 0, 1, at=2)


@rule("gather")
def gather(call: Call) -> Any:
    return along(call, 0, 2, at=1)


@rule("scatter")
def scatter(call: Call) -> Any:
    return along(call, 0, 2, 3, at=1)


@rule("cat")
def cat(call: Call) -> Any:
    tensors, dim = call.values
    flags = call.batched[0]
    parts = [t if b else call.level.full(t) for t, b in zip(tensors, flags, strict=True)]
    return cat_same(tuple(parts), sh.wrap_dim(dim, call.metas[0][0].ndim) + 1)


@rule("padded")
def padded(call: Call) -> Any:
    value, number, *counts = call.values
    return call.run(value, number, *((0, *c) for c in counts))


# ---- element by element --------------------------------------------------------------------------


@rule("cast")
def convert(call: Call) -> Any:
    return cast(*call.values)


@rule("copy")
def copied(call: Call) -> Any:
    return copy(call.room(0), call.aligned(1, call.rank(0)))


@rule("clone_as")
def cloned(call: Call) -> Any:
    value, memory_format = call.values
    if memory_format in (lo.preserve_format, lo.contiguous_format):
        return clone_as(value, memory_format)
    last = value.movedim(2, -1)  # channels beside each other: what the format means without a batch
    return clone_as(last, lo.contiguous_format).movedim(-1, 2)


# ---- matrices ------------------------------------------------------------------------------------


@rule(
    "cholesky_factor", "lu_packed", "pivots_to_permutation", "qr_factors", "qr_reflectors",
    "eigh_factors", "eig_factors", "svd_factors", "ldl_packed",
)  # fmt: skip
def leading(call: Call) -> Any:
    """Ops on the last dimensions, which take any before them."""
    return call.run(*call.values)


@rule("tri_solve")
def tri_solve(call: Call) -> Any:
    return _paired(call, (0, 1))


@rule("ldl_apply_inverse")
def ldl_apply_inverse(call: Call) -> Any:
    values = [call.full(i) for i in range(3)]
    return call.run(*values, *call.values[3:])


def _paired(call: Call, at: tuple[int, int]) -> Any:
    rank = max(call.rank(i) for i in at)
    values = list(call.values)
    for i in at:
        values[i] = padded_rank(call.full(i), rank)
    return call.run(*values)


@rule("batch_matmul")
def batch_matmul(call: Call) -> Any:
    """One side without a batch: its matrix meets all rows of the other at once."""
    first, second = call.values
    (a, b), (ra, rb) = call.batched, (call.rank(0), call.rank(1))
    if a and not b and rb == 2 and _rows_fold(first):
        rows = first.view(math.prod(first.shape[:-1]), first.shape[-1])
        return call.run(rows, second).view(*first.shape[:-1], second.shape[-1])
    rank = max(ra, rb)
    return call.run(call.aligned(0, rank), call.aligned(1, rank))


def _rows_fold(value: Any) -> bool:
    """Whether all dimensions but the last can be read as one."""
    meta = value._meta
    rows = (math.prod(meta.shape[:-1]), meta.shape[-1])
    return sh.view_strides(tuple(meta.shape), meta.strides, rows) is not None


@rule("binary_search")
def binary_search(call: Call) -> Any:
    sequence, value, right = call.values
    if call.rank(0) > 1:  # row by row, in both
        return call.run(call.full(0), call.full(1), right)
    if not call.batched[0]:
        return call.run(sequence, value, right)
    rows = call.full(1)
    found = call.run(sequence, rows.reshape(call.size, -1), right)
    return found.reshape(rows.shape)


@rule("max_pool")
def max_pool(call: Call) -> Any:
    """Windows are slid over each image: the batch is more images."""
    value = call.values[0]
    found = call.run(fold(value), *call.values[1:])
    return tuple(unfold(f, call.size) for f in found)


def fold(value: Any) -> Any:
    """The batch and the dimension after it as one."""
    return value.reshape(value.shape[0] * value.shape[1], *value.shape[2:])


def unfold(value: Any, size: int) -> Any:
    """Undo `fold`."""
    return value.reshape(size, value.shape[0] // size, *value.shape[1:])
