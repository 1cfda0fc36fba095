"""From layout to layout: dense to sparse and back, and the sparse ones to each other."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ops.copy.join import stack
from lucerne._src.ops.index.searching import binary_search
from lucerne._src.tensor.sparse.kinds import (
    BLOCKED,
    BY_ROWS,
    COMPRESSED,
    SHOWN,
    CompressedTensor,
    CooTensor,
    SparseTensor,
    flat_keys,
    make_compressed,
    make_coo,
    refuse,
)
from lucerne._src.tensor.tensor import Tensor

# ---- to dense ---------------------------------------------------------------------------------


def dense_of(t: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
    """All elements, those not stored as zeros."""
    if masked_grad is False:
        raise NotImplementedError(
            "to_dense: masked_grad=False is not supported: the gradient of a sparse tensor has "
            "the elements that are stored. Leave it out, or use to_dense().detach() as a leaf"
        )
    values = t._values()
    if t.is_sparse:
        made = _coo_dense(t, values)
    else:
        made = _compressed_dense(t, values)
    return made if dtype is None else made.to(dtype)


def _coo_dense(t: Any, values: Any) -> Any:
    zeros = values.new_zeros(t.shape)
    if t.sparse_dim() == 0:
        return zeros + values.sum(0)
    add = values.dtype is not dt.bool_
    return zeros.index_put(t.coordinates(), values, accumulate=add)


def _compressed_dense(t: Any, values: Any) -> Any:
    b, (rows, columns) = t.batch_dims, t.block
    tail = values.shape[b + 1 :]
    lines = (t.shape[b] // rows, t.shape[b + 1] // columns)
    zeros = values.new_zeros((*t.shape[:b], *lines, *tail))
    made = zeros.index_put(t.coordinates(), values.reshape(-1, *tail), accumulate=False)
    return unblocked(made, b) if t.blocked else made


def unblocked(t: Any, batch: int) -> Any:
    """(batch, rows, columns, block rows, block columns, dense) as a matrix of elements."""
    order = [*range(batch), batch, batch + 2, batch + 1, batch + 3, *range(batch + 4, t.ndim)]
    turned = t.permute(order)
    s = turned.shape
    pair = (s[batch] * s[batch + 1], s[batch + 2] * s[batch + 3])
    return turned.reshape(*s[:batch], *pair, *s[batch + 4 :])


def in_blocks(t: Any, batch: int, block: tuple[int, int]) -> Any:
    """The opposite of `unblocked`."""
    s = t.shape
    (h, w), rows, columns = block, s[batch], s[batch + 1]
    split = t.reshape(*s[:batch], rows // h, h, columns // w, w, *s[batch + 2 :])
    order = [*range(batch), batch, batch + 2, batch + 1, batch + 3, *range(batch + 4, split.ndim)]
    return split.permute(order)


# ---- to sparse --------------------------------------------------------------------------------


def to_sparse(
    self: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The elements that are not zero, with their places (COO unless `layout` says another).

    >>> import lucerne
    >>> lucerne.tensor([[0.0, 2.0]]).to_sparse(layout=lucerne.sparse_csr).col_indices()
    tensor([1])
    """
    if isinstance(sparse_dim, lo.layout):
        sparse_dim, layout = None, sparse_dim
    if layout is lo.strided:
        return self.to_dense()
    if layout is None or layout is lo.sparse_coo:
        if isinstance(self, SparseTensor):
            return self if self.is_sparse else _as_coo(self)
        return _dense_to_coo(self, sparse_dim)
    if layout not in COMPRESSED:
        raise RuntimeError(f"to_sparse: conversion to {layout} is not supported")
    return to_compressed(self, layout, blocksize, dense_dim)


def _dense_to_coo(self: Any, sparse_dim: Any) -> Any:
    count = self.ndim if sparse_dim is None else int(sparse_dim)
    if not 0 <= count <= self.ndim or (self.ndim and not count):
        raise RuntimeError(
            f"sparse_dim argument must be in >0 and <={self.ndim} when the tensor is not a scalar"
        )
    stored = self.detach() != 0
    if count < self.ndim:
        stored = stored.flatten(count).any(-1)
    index = stored.nonzero().t().contiguous()
    values = self[tuple(index.unbind(0))] if count else self.reshape(1)[: index.shape[1]]
    return make_coo(index, values, self.shape, is_sorted=True)


def to_compressed(
    self: Any, layout: lo.layout, blocksize: Any = None, dense_dim: int | None = None
) -> Any:
    """Another layout of the same elements: CSR, CSC, BSR or BSC."""
    kind = SHOWN[self.layout]
    if layout in BLOCKED and blocksize is None and self.layout is not layout:
        raise RuntimeError(
            f"{_from(self)}: conversion from {kind} to {SHOWN[layout]} without blocksize argument "
            "given is not supported"
        )
    block = tuple(blocksize) if layout in BLOCKED and blocksize is not None else None
    if self.layout is layout and (block is None or self.block == block):
        return self
    if isinstance(self, CompressedTensor):
        return _recompressed(self, layout, block)
    if isinstance(self, CooTensor):
        if self.sparse_dim() != 2:
            raise RuntimeError(
                f"coo_to_{layout.name}: conversion from Sparse to {SHOWN[layout]} for input "
                "tensors with sparse_dim()!=2 is not supported"
            )
        return coo_to_compressed(self, layout, block)
    return _dense_to_compressed(self, layout, block, dense_dim or 0)


def _from(t: Any) -> str:
    if isinstance(t, CooTensor):
        return "coo_to_sparse"
    return "sparse_compressed_to_sparse" if isinstance(t, SparseTensor) else "dense_to_sparse"


def _check_block(shape: Any, block: tuple[int, ...] | None, layout: lo.layout) -> None:
    if block is None:
        return
    pair = f"({shape[0]},{shape[1]})"
    if len(block) != 2 or min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
        raise RuntimeError(
            f"dense_to_{layout.name}: tensor sparse size {pair} must be divisible by given "
            f"blocksize ({','.join(map(str, block))})"
        )


def _dense_to_compressed(self: Any, layout: lo.layout, block: Any, dense_dim: int) -> Any:
    batch = self.ndim - dense_dim - 2
    if batch < 0:
        raise IndexError(
            f"to_{layout.name}: expected a tensor of at least {dense_dim + 2} dimensions, got "
            f"{self.ndim}"
        )
    _check_block(self.shape[batch : batch + 2], block, layout)
    parts = self if block is None else in_blocks(self, batch, block)
    stored = parts.detach() != 0
    if stored.ndim > batch + 2:
        stored = stored.flatten(batch + 2).any(-1)
    turned = layout not in BY_ROWS
    if turned:
        stored = stored.transpose(batch, batch + 1)
    lengths = stored.sum(-1)
    counts = lengths.sum(-1).reshape(-1)
    if counts.numel() and not bool((counts == counts[0]).all()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    coords = list(stored.nonzero().unbind(1))
    shape = (*self.shape[:batch], int(counts[0]) if counts.numel() else 0)
    places = coords[-1].reshape(shape)
    at = (*coords[:batch], coords[-1], coords[-2]) if turned else tuple(coords)
    values = parts[at]
    values = values.reshape(*shape, *values.shape[1:])
    starts = _sums(lengths)
    name = "ToSparseBackward0"
    return make_compressed(starts, places, values, self.shape, layout, name)


def _sums(lengths: Any) -> Any:
    """Lengths of lines as the places where they begin."""
    zeros = lengths.new_zeros((*lengths.shape[:-1], lengths.shape[-1] + 1))
    zeros[..., 1:] = lengths.cumsum(-1)
    return zeros


def line_starts(numbers: Any, count: int) -> Any:
    """Where each of `count` lines begins, from the sorted line of each entry."""
    edges = numbers.new_ones((count + 1,)).cumsum(0) - 1
    return binary_search(numbers.contiguous(), edges, False).to(numbers.dtype)


def coo_to_compressed(self: Any, layout: lo.layout, block: Any) -> Any:
    done = self.coalesce()
    row, column = done._index.unbind(0)
    values, shape = done._values(), self.shape
    if block is not None:
        _check_block(shape[:2], block, layout)
        return _blocks_of(row, column, values, shape, layout, block)
    if layout in BY_ROWS:
        return make_compressed(line_starts(row, shape[0]), column, values, shape, layout)
    order = column.argsort(stable=True)
    starts = line_starts(column[order], shape[1])
    return make_compressed(starts, row[order], values[order], shape, layout)


def _blocks_of(
    row: Any, column: Any, values: Any, shape: Any, layout: lo.layout, block: tuple[int, int]
) -> Any:
    h, w = block
    down, across = shape[0] // h, shape[1] // w
    block_row, block_column = (
        row.div(h, rounding_mode="floor"),
        column.div(w, rounding_mode="floor"),
    )
    rows = layout in BY_ROWS
    key = block_row * across + block_column if rows else block_column * down + block_row
    keys, number = key.unique(return_inverse=True)
    zeros = values.new_zeros((keys.numel(), h, w, *values.shape[1:]))
    made = zeros.index_put((number, row % h, column % w), values)
    width, count = (across, down) if rows else (down, across)
    starts = line_starts(keys.div(width, rounding_mode="floor"), count)
    return make_compressed(starts, keys % width, made, shape, layout)


def _recompressed(self: Any, layout: lo.layout, block: Any) -> Any:
    if self.blocked and layout not in BLOCKED:
        raise RuntimeError(
            f"sparse_compressed_to_{layout.name}: expected SparseCsr or SparseCsc layout but got "
            f"{SHOWN[self.layout]}"
        )
    if self.batch_dims:
        return _dense_to_compressed(self.to_dense(), layout, block, self.dense_dim())
    if self.blocked and (block is None or self.block == block):
        return _turned_blocks(self, layout)
    return coo_to_compressed(_as_coo(self).coalesce(), layout, block)


def _turned_blocks(self: Any, layout: lo.layout) -> Any:
    """BSR from BSC and the other way round: the same blocks in another order."""
    row, column = self.coordinates()
    h, w = self.block
    down, across = self.shape[0] // h, self.shape[1] // w
    rows = layout in BY_ROWS
    order = (row * across + column if rows else column * down + row).argsort(stable=True)
    line, place = (row, column) if rows else (column, row)
    starts = line_starts(line[order], down if rows else across)
    return make_compressed(starts, place[order], self._values()[order], self.shape, layout)


def _as_coo(self: Any) -> Any:
    """Compressed to coordinates; of blocks every element is stored."""
    coords, values = list(self.coordinates()), self._values()
    b = self.batch_dims
    values = values.reshape(-1, *values.shape[b + 1 :])
    if self.blocked:
        h, w = self.block
        count = coords[-1].numel()
        inner = coords[-1].new_ones((h * w,)).cumsum(0) - 1
        dy, dx = inner.div(w, rounding_mode="floor").repeat(count), (inner % w).repeat(count)
        coords = [c.repeat_interleave(h * w) for c in coords]
        coords[-2], coords[-1] = coords[-2] * h + dy, coords[-1] * w + dx
        values = values.reshape(-1, *values.shape[3:])
    made = make_coo(stack([c.to(dt.int64) for c in coords]), values, self.shape, is_sorted=False)
    if self.blocked:
        return made.coalesce()
    return made._coalesced_(self.layout in BY_ROWS)


# ---- masks ------------------------------------------------------------------------------------


def sparse_mask(self: Any, mask: Any) -> Any:
    """The elements of `self` where `mask` stores some: a tensor of the mask's layout."""
    if not isinstance(mask, SparseTensor):
        refuse("sparse_mask with a dense mask", mask)
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} "
            f"but mask has size {list(mask.shape)}"
        )
    if isinstance(self, SparseTensor):
        if self.is_sparse and mask.is_sparse and self.sparse_dim() == mask.sparse_dim():
            return mask.detach().with_values(_looked_up(self.coalesce(), mask))
        if self.layout is mask.layout and self.same_places(mask):
            return mask.detach().with_values(self._values())
        self = self.to_dense()
    if not isinstance(mask, CompressedTensor):
        at = mask.coordinates()
        return mask.detach().with_values(self[at] if at else self.reshape(1)[: mask._nnz()])
    b = mask.batch_dims
    parts = in_blocks(self, b, mask.block) if mask.blocked else self
    values = parts[mask.coordinates()]
    return mask.detach().with_values(values.reshape(mask._vals.shape))


def _looked_up(self: Any, mask: Any) -> Any:
    """Values of a coalesced tensor at the places of another; zero where it has none."""
    values = self._values()
    if not self._nnz():
        return values.new_zeros((mask._nnz(), *values.shape[1:]))
    have, want = flat_keys(self), flat_keys(mask)
    at = binary_search(have, want, False).clamp(max=have.numel() - 1)
    hit = (have[at] == want).reshape(-1, *(1,) * (values.ndim - 1))
    return values[at].masked_fill(~hit, 0)


# ---- methods ----------------------------------------------------------------------------------


def _expects(name: str, what: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} expected {what} layout but got {SHOWN[self.layout]}")

    method.__name__ = name
    method.__doc__ = f"Only for a {what}."
    return method


def to_sparse_csr(self: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix by compressed rows."""
    return to_compressed(self, lo.sparse_csr, None, dense_dim)


def to_sparse_csc(self: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix by compressed columns."""
    return to_compressed(self, lo.sparse_csc, None, dense_dim)


def to_sparse_bsr(self: Any, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix by compressed rows of blocks."""
    return to_compressed(self, lo.sparse_bsr, blocksize, dense_dim)


def to_sparse_bsc(self: Any, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix by compressed columns of blocks."""
    return to_compressed(self, lo.sparse_bsc, blocksize, dense_dim)


def sparse_resize_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another shape for the same elements (COO), which must fit in."""
    return _resized(self, size, sparse_dim, dense_dim, keep=True)


def sparse_resize_and_clear_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another shape, and no elements."""
    return _resized(self, size, sparse_dim, dense_dim, keep=False)


def _resized(self: Any, size: Any, sparse_dim: int, dense_dim: int, keep: bool) -> Any:
    if not isinstance(self, CooTensor):
        refuse("sparse_resize_", self)
    shape = tuple(int(n) for n in size)
    if sparse_dim + dense_dim != len(shape):
        raise RuntimeError(
            "number of dimensions must be sparse_dim ("
            f"{sparse_dim}) + dense_dim ({dense_dim}), but got {len(shape)}"
        )
    index, values, known = self._index, self._vals, self._sorted
    if keep and self._nnz():
        if sparse_dim != self.sparse_dim() or dense_dim != self.dense_dim():
            raise RuntimeError("changing the number of sparse or dense dimensions on a non-empty "
                               "sparse tensor is not supported")  # fmt: skip
        if any(a < b for a, b in zip(shape, self.shape, strict=True)):
            raise RuntimeError("shrinking the size of a non-empty sparse tensor is not supported")
        if shape[sparse_dim:] != tuple(self.shape[sparse_dim:]):
            grown = values.new_zeros((self._nnz(), *shape[sparse_dim:]))
            grown[tuple(slice(n) for n in values.shape)] = values
            values = grown
    else:
        index = index.new_zeros((sparse_dim, 0))
        values, known = values.new_zeros((0, *shape[sparse_dim:])), True
    made = make_coo(index, values, shape, known)
    self._index, self._vals, self._meta, self._sorted = index, values, made._meta, known
    return self


def resize_as_sparse_(self: Any, the_template: Any) -> Tensor:
    """The shape of another sparse tensor, in which the elements must fit."""
    if self.shape == the_template.shape and self.sparse_dim() == the_template.sparse_dim():
        return self
    sizes = the_template.sparse_dim(), the_template.dense_dim()
    return _resized(self, the_template.shape, *sizes, keep=True)


def install() -> None:
    """Give Tensor what leads to sparse tensors, and the errors of what only those have."""
    cls: Any = Tensor
    cls.to_sparse = cls.to_sparse_coo = to_sparse
    for fn in (to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, sparse_mask,
               sparse_resize_, sparse_resize_and_clear_, resize_as_sparse_):  # fmt: skip
        setattr(cls, fn.__name__, fn)
    coo: Any = CooTensor
    compressed: Any = CompressedTensor
    for name in ("coalesce", "is_coalesced", "indices", "_indices"):
        method = _expects(name, "sparse coordinate tensor")
        for owner in (cls, compressed):
            setattr(owner, name, method)
    for lines, names in (
        ("row", "crow_indices col_indices"),
        ("column", "ccol_indices row_indices"),
    ):
        for name in names.split():
            method = _expects(name, f"sparse {lines} compressed tensor")
            for owner in (cls, coo):
                setattr(owner, name, method)
    cls.values = _expects("values", "sparse tensor")
    sparse: Any = SparseTensor
    sparse.to_dense = dense_of
    cls._nnz = _expects("_nnz", "sparse tensor")
    cls._values = _expects("_values", "sparse coordinate tensor")


install()
