"""Other shapes and parts: transpose, permute, select, narrow, cat, index_select, squeeze."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ops.copy.join import cat as joined
from lucerne._src.ops.copy.join import stack as stacked
from lucerne._src.ops.index.searching import binary_search
from lucerne._src.tensor.sparse.kinds import (
    OPS,
    CompressedTensor,
    SparseTensor,
    make_compressed,
    make_coo,
    refuse,
)
from lucerne._src.tensor.tensor import Tensor

_TURNED = {
    lo.sparse_csr: lo.sparse_csc, lo.sparse_csc: lo.sparse_csr,
    lo.sparse_bsr: lo.sparse_bsc, lo.sparse_bsc: lo.sparse_bsr,
}  # fmt: skip


def t(input: Any) -> Any:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return transposed(input, 0, 1) if input.ndim == 2 else input


def transposed(input: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions swapped: of COO both sparse or both dense, of compressed the two of the
    matrix, which turns rows into columns."""
    if not isinstance(input, SparseTensor):
        return input.transpose(dim0, dim1)
    a, b = (sh.wrap_dim(d, input.ndim) for d in (dim0, dim1))
    if a == b:
        return input
    order = list(range(input.ndim))
    order[a], order[b] = b, a
    if not isinstance(input, CompressedTensor):
        return permuted(input, order)
    first = input.batch_dims
    if {a, b} != {first, first + 1}:
        raise RuntimeError(
            f"transpose: only the two dimensions of the matrix of a {input.layout} tensor can be "
            f"swapped, got {dim0} and {dim1}"
        )
    values = input._values()
    if input.blocked:
        values = values.transpose(first + 1, first + 2)
    shape = [input.shape[d] for d in order]
    layout = _TURNED[input.layout]
    return make_compressed(input._starts, input._places, values, shape, layout)


def permuted(input: Any, *dims: Any) -> Any:
    """Dimensions in another order; sparse ones stay sparse."""
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [sh.wrap_dim(d, input.ndim) for d in order]
    if sorted(order) != list(range(input.ndim)):
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {input.ndim} is not "
            f"equal to len(dims) = {len(order)}"
        )
    if not input.is_sparse:
        if input.ndim == 2:
            return transposed(input, 0, 1) if order == [1, 0] else input
        refuse("permute", input)
    count = input.sparse_dim()
    if any(d >= count for d in order[:count]):
        raise RuntimeError("transpose: can't swap a sparse dimension with a dense one")
    if order == list(range(input.ndim)):
        return input
    index = input._index[list(order[:count])] if count else input._index
    inner = [0, *(d - count + 1 for d in order[count:])]
    known = input._sorted and order[:count] == list(range(count))
    shape = [input.shape[d] for d in order]
    return make_coo(index, input._values().permute(inner), shape, known)


# ---- parts ------------------------------------------------------------------------------------


def _as_coo(input: Any) -> Any:
    return input if input.is_sparse else input.to_sparse()


def select(input: Any, dim: int, index: int) -> Any:
    """One place of a dimension, which disappears."""
    dim = sh.wrap_dim(dim, input.ndim)
    n = input.shape[dim]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
            f"dimension {dim}"
        )
    index += n if index < 0 else 0
    input = _as_coo(input)
    count = input.sparse_dim()
    shape = (*input.shape[:dim], *input.shape[dim + 1 :])
    if dim >= count:
        values = input._values().select(dim - count + 1, index)
        return make_coo(input._index, values, shape, input._sorted)
    kept = (input._index[dim] == index).nonzero().reshape(-1)
    values = input._values()[kept]
    if count == 1:
        return values.sum(0)
    rest = [d for d in range(count) if d != dim]
    return make_coo(input._index[rest][:, kept], values, shape, input._sorted)


def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    """Some places of a dimension, one after the other."""
    dim = sh.wrap_dim(dim, input.ndim)
    start += input.shape[dim] if start < 0 else 0
    if start < 0 or length < 0 or start + length > input.shape[dim]:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({input.shape[dim]})."
        )
    layout = input.layout
    input = _as_coo(input)
    count = input.sparse_dim()
    shape = (*input.shape[:dim], length, *input.shape[dim + 1 :])
    if dim >= count:
        values = input._values().narrow(dim - count + 1, start, length)
        return make_coo(input._index, values, shape, input._sorted)
    row = input._index[dim]
    kept = ((row >= start) & (row < start + length)).nonzero().reshape(-1)
    index = input._index[:, kept].clone()
    index[dim] -= start
    made = make_coo(index, input._values()[kept], shape, input._sorted)
    return made if layout is lo.sparse_coo else made.to_sparse(layout=layout)


def index_select(input: Any, dim: int, index: Any) -> Any:
    """The places of a dimension that `index` names, in that order (COO)."""
    dim = sh.wrap_dim(dim, input.ndim)
    input = _as_coo(input).coalesce()
    count = input.sparse_dim()
    places = index.reshape(-1).to(dt.int64)
    if places.numel() and not -1 < int(places.min()) <= int(places.max()) < input.shape[dim]:
        raise IndexError(
            f"index_select(): index contains a value that is out of range for tensor of size "
            f"{list(input.shape)} at dimension {dim}"
        )
    shape = (*input.shape[:dim], places.numel(), *input.shape[dim + 1 :])
    if dim >= count:
        values = input._values().index_select(dim - count + 1, places)
        return make_coo(input._index, values, shape, is_sorted=True)
    order = input._index[dim].argsort(stable=True)
    row = input._index[dim][order]
    bounds = [_first_at(row, places + d) for d in (0, 1)]
    lengths = bounds[1] - bounds[0]
    ends = lengths.cumsum(0)
    which = (places.new_ones((places.numel(),)).cumsum(0) - 1).repeat_interleave(lengths)
    every = which.new_ones((which.numel(),)).cumsum(0) - 1
    taken = order[every - (ends - lengths)[which] + bounds[0][which]]
    found = input._index[:, taken].clone()
    found[dim] = which
    return make_coo(found, input._values()[taken], shape, is_sorted=False).coalesce()


def _first_at(sorted_row: Any, wanted: Any) -> Any:
    return binary_search(sorted_row.contiguous(), wanted.contiguous(), False)


def item(input: Any, key: Any) -> Any:
    """`s[...]` with numbers and slices of step one."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys = (*keys[:at], *(slice(None),) * (input.ndim - len(keys) + 1), *keys[at + 1 :])
    dim = 0
    for k in keys:
        if isinstance(k, slice):
            start, stop, step = k.indices(input.shape[dim])
            if step != 1:
                refuse("indexing with a step", input)
            if (start, stop) != (0, input.shape[dim]):
                input = narrow(input, dim, start, max(0, stop - start))
            dim += 1
        elif isinstance(k, Tensor) and k.ndim == 1 and k.dtype is not dt.bool_:
            input = index_select(input, dim, k)
            dim += 1
        elif isinstance(k, int) and not isinstance(k, bool):
            input = select(input, dim, k)
        else:
            refuse(f"indexing with {type(k).__name__}", input)
    return input


# ---- joining ----------------------------------------------------------------------------------


def cat(tensors: Any, dim: int = 0) -> Any:
    """COO tensors one behind the other."""
    if not all(isinstance(x, SparseTensor) and x.is_sparse for x in tensors):
        found = [str(x.layout) for x in tensors]
        raise RuntimeError(f"cat: expected sparse COO tensors only, got layouts {', '.join(found)}")
    first = tensors[0]
    dim = sh.wrap_dim(dim, first.ndim)
    count = first.sparse_dim()
    if any(x.sparse_dim() != count or x.ndim != first.ndim for x in tensors):
        raise RuntimeError("cat: all tensors must have the same number of sparse and dense dims")
    total = sum(x.shape[dim] for x in tensors)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    if dim >= count:
        return _cat_dense(tensors, dim - count, shape)
    before, indices = 0, []
    for x in tensors:
        index = x._index.clone()
        index[dim] += before
        indices.append(index)
        before += x.shape[dim]
    values = joined([x._values() for x in tensors])
    known = dim == 0 and all(x._sorted for x in tensors)
    return make_coo(joined(indices, 1), values, shape, known)


def _cat_dense(tensors: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """Along a dense dimension: each one's values stand among zeros."""
    parts, before = [], 0
    width = shape[tensors[0].sparse_dim() + dim]
    for x in tensors:
        values = x._values()
        wide = list(values.shape)
        for n in (before, width - before - values.shape[dim + 1]):
            wide[dim + 1] = n
            parts.append(values.new_zeros(wide))
        parts.append(joined([parts.pop(-2), values, parts.pop(-1)], dim + 1))
        before += values.shape[dim + 1]
    index = joined([x._index for x in tensors], 1)
    return make_coo(index, joined(parts), shape, is_sorted=False)


def stack(tensors: Any, dim: int = 0) -> Any:
    """COO tensors along a new dimension."""
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def unsqueeze(input: Any, dim: int) -> Any:
    """A new dimension of size one; sparse if it stands before a sparse one or right behind."""
    input = _as_coo(input)
    dim = sh.wrap_dim(dim, input.ndim + 1)
    count = input.sparse_dim()
    shape = (*input.shape[:dim], 1, *input.shape[dim:])
    if dim > count:
        return make_coo(
            input._index, input._values().unsqueeze(dim - count + 1), shape, input._sorted
        )
    rows = list(input._index.unbind(0))
    rows.insert(dim, input._index.new_zeros((input._nnz(),)))
    return make_coo(stacked(rows), input._values(), shape, input._sorted)


def squeeze(input: Any, dim: Any = None) -> Any:
    """Without dimensions of size one."""
    chosen = (
        range(input.ndim) if dim is None else (dim if isinstance(dim, (tuple, list)) else [dim])
    )
    for d in sorted((sh.wrap_dim(d, input.ndim) for d in chosen), reverse=True):
        if input.shape[d] == 1:
            input = select(input, d, 0)
    return input


def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    return tuple(select(input, dim, i) for i in range(input.shape[sh.wrap_dim(dim, input.ndim)]))


OPS.update({
    "t": t, "transpose": transposed, "swapaxes": transposed, "swapdims": transposed,
    "permute": permuted, "select": select, "narrow": narrow, "index_select": index_select,
    "cat": cat, "concat": cat, "concatenate": cat, "stack": stack, "unsqueeze": unsqueeze,
    "squeeze": squeeze, "unbind": unbind,
})  # fmt: skip


def reshape(input: Any, *shape: Any) -> Any:
    raise RuntimeError(
        "reshape is not implemented for sparse tensors. Hint: x.to_dense().reshape(...).to_sparse()"
    )


OPS.update({"narrow_copy": narrow, "reshape": reshape, "flatten": reshape})
_methods: Any = SparseTensor
_methods.__getitem__ = item
_methods.__iter__ = lambda self: iter(unbind(self))
