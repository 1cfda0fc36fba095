"""The constructors: `sparse_coo_tensor`, `sparse_csr_tensor` and the other compressed layouts.

That indices lie inside the size is always checked (nothing may read outside of memory); that they
are sorted and distinct only if asked: by `check_invariants=True`, or for all by
`sparse.check_sparse_tensor_invariants.enable()`.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.ir.convert import as_int_list, as_optional_device, as_optional_dtype
from lucerne._src.ops.copy.join import stack
from lucerne._src.ops.creation import fills as _creation
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.index import scatter as _scatter
from lucerne._src.ops.nn import embedding as _embedding
from lucerne._src.tensor.interop.construct import as_tensor
from lucerne._src.tensor.sparse.kinds import (
    BLOCKED,
    BY_ROWS,
    COMPRESSED,
    SHOWN,
    flat_keys,
    make_compressed,
    make_coo,
)

_NAMES = {
    True: ("crow_indices", "col_indices", "rows", "ncols", "nrows"),
    False: ("ccol_indices", "row_indices", "columns", "nrows", "ncols"),
}


class Invariants:
    """Whether constructors check all that is asked of indices."""

    enabled = False


def _checks(asked: bool | None) -> bool:
    return Invariants.enabled if asked is None else asked


def _index(data: Any, device: Any) -> Any:
    made = as_tensor(data, None, as_optional_device(device))
    return made if made.dtype in (dt.int64, dt.int32) else made.to(dt.int64)


def _values_of(values: Any, dtype: Any, device: Any) -> Any:
    made = as_tensor(values, as_optional_dtype(dtype), as_optional_device(device))
    return made.detach() if made.is_leaf and not made.requires_grad else made


# ---- coordinates ------------------------------------------------------------------------------


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> Any:  # fmt: skip
    """A tensor with `values[i]` at `indices[:, i]`, zero elsewhere; equal places add up.

    >>> import lucerne
    >>> lucerne.sparse_coo_tensor([[0, 1]], [3.0, 4.0], (3,))
    tensor(indices=tensor([[0, 1]]),
           values=tensor([3., 4.]),
           size=(3,), nnz=2, layout=torch.sparse_coo)
    """
    if pin_memory:
        no_pinned_memory()
    if values is None:
        shape = as_int_list(indices if size is None else size)
        indices, size = as_tensor([[]] * len(shape), dt.int64), shape
        values = as_tensor([], dtype)
    index = _index(indices, device).to(dt.int64)
    held = _values_of(values, dtype, device)
    if index.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if index.shape[1] != (held.shape[0] if held.ndim else 1):
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{index.shape[1]}, nnz from values: {held.shape[0]}"
        )
    held = held if held.ndim else held.reshape(1)
    _check_signs(index)
    if size is None:
        top = [int(row.max()) + 1 if row.numel() else 0 for row in index]
        size = (*top, *held.shape[1:])
    shape = as_int_list(size)
    _check_coo(index, held, shape)
    known = bool(is_coalesced) or (is_coalesced is None and index.shape[1] < 2)
    made = make_coo(index, held, shape, known, "SparseCooTensorWithDimsAndTensorsBackward0")
    if is_coalesced and _checks(check_invariants) and index.shape[1] > 1:
        keys = flat_keys(made)
        if not bool((keys[1:] > keys[:-1]).all()):
            raise RuntimeError(
                "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            )
    return made.detach().requires_grad_() if requires_grad else made


def _check_signs(index: Any) -> None:
    if index.numel() and int(index.min()) < 0:
        at = int(index.argmin()) // index.shape[1]
        raise RuntimeError(f"found negative index {int(index.min())} for dim {at}")


def _check_coo(index: Any, held: Any, shape: tuple[int, ...]) -> None:
    if len(shape) != index.shape[0] + held.ndim - 1:
        raise RuntimeError(
            "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
            f"{len(shape)}, sparse_dim = {index.shape[0]}, dense_dim = {held.ndim - 1}"
        )
    wanted = [index.shape[1], *shape[index.shape[0] :]]
    if list(held.shape) != wanted:
        raise RuntimeError(f"values has incorrect size, expected {wanted}, got {list(held.shape)}")
    for d, row in enumerate(index):
        if row.numel() and int(row.max()) >= shape[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found "
                f"index {int(row.max())}"
            )


# ---- compressed -------------------------------------------------------------------------------


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """A matrix (with batch dimensions before and dense ones behind) by compressed rows or columns:
    line `i` holds the entries from `compressed_indices[i]` to `compressed_indices[i + 1]`."""
    if pin_memory:
        no_pinned_memory()
    if layout not in COMPRESSED:
        shown = "none" if layout is None else SHOWN[layout]
        raise RuntimeError(
            "sparse_compressed_tensor expected sparse compressed tensor layout but got " + shown
        )
    starts, places = _index(compressed_indices, device), _index(plain_indices, device)
    held = _values_of(values, dtype, device)
    block = 2 * (layout in BLOCKED)
    batch = starts.ndim - 1
    if held.ndim <= batch + block:
        raise RuntimeError(
            "values must have dimensionality > sum of batch and block dimensionalities (="
            f"{batch} + {block}) but got {held.ndim}"
        )
    if size is None:
        shape = _estimated(starts, places, held, layout)
    else:
        shape = as_int_list(size)
    _check_shapes(starts, places, held, shape, layout)
    _check_bounds(starts, places, shape, held, layout, thorough=_checks(check_invariants))
    name = "SparseCompressedTensorWithDimsBackward0"
    made = make_compressed(starts, places, held, shape, layout, name)
    return made.detach().requires_grad_() if requires_grad else made


def _estimated(starts: Any, places: Any, held: Any, layout: lo.layout) -> tuple[int, ...]:
    batch = starts.ndim - 1
    lines = starts.shape[-1] - 1
    across = int(places.max()) + 1 if places.numel() else 0
    pair = (lines, across) if layout in BY_ROWS else (across, lines)
    tail = held.shape[batch + 1 :]
    if layout in BLOCKED:
        pair, tail = (pair[0] * tail[0], pair[1] * tail[1]), tail[2:]
    return (*starts.shape[:-1], *pair, *tail)


def _check_shapes(
    starts: Any, places: Any, held: Any, shape: tuple[int, ...], layout: lo.layout
) -> None:
    long, short, lines, _, _ = _NAMES[layout in BY_ROWS]
    batch, block = starts.ndim - 1, 2 * (layout in BLOCKED)
    if starts.ndim != places.ndim:
        raise RuntimeError(
            f"{long} and {short} dimensionalities must be equal but got {starts.ndim} and "
            f"{places.ndim}, respectively"
        )
    dense = held.ndim - batch - block - 1
    if len(shape) != batch + 2 + dense:
        raise RuntimeError(
            "tensor dimensionality must be sum of batch, base, and dense dimensionalities (="
            f"{batch} + 2 + {dense}) but got {len(shape)}"
        )
    sizes = held.shape[batch + 1 : batch + 3] if block else (1, 1)
    for i in range(2):
        if sizes[i] < 1 or shape[batch + i] % sizes[i]:
            raise RuntimeError(
                f"tensor shape[{batch + i}] (={shape[batch + i]}) must be divisible with "
                f"blocksize[{i}] (={sizes[i]}) as defined by values shape"
            )
    at = 0 if layout in BY_ROWS else 1
    count = shape[batch + at] // sizes[at]
    if starts.shape[-1] != count + 1:
        raise RuntimeError(
            f"{long}.shape[-1] must be equal to the number of {lines} + 1 (={count + 1}), but got "
            f"{starts.shape[-1]}"
        )
    if places.shape[-1] != held.shape[batch]:
        raise RuntimeError(
            f"{short}.shape[-1] must be equal to nnz (={held.shape[batch]}) as defined by "
            f"values.shape[{batch}], but got {places.shape[-1]}"
        )


def _check_bounds(
    starts: Any, places: Any, shape: tuple[int, ...], held: Any, layout: lo.layout, thorough: bool
) -> None:
    long, short, _, across, along = _NAMES[layout in BY_ROWS]
    batch = starts.ndim - 1
    at = 1 if layout in BY_ROWS else 0
    size = held.shape[batch + 1 + at] if layout in BLOCKED else 1
    most = shape[batch + at] // size
    lengths = starts[..., 1:] - starts[..., :-1]
    if not bool((starts[..., 0] == 0).all()):
        _not_satisfied(f"{long}[..., 0] == 0")
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= most:
        _not_satisfied(f"0 <= {long}[..., 1:] - {long}[..., :-1] <= {across}")
    if not bool((starts[..., -1] == places.shape[-1]).all()):
        _not_satisfied(f"{long}[..., -1] == nnz")
    if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < most:
        _not_satisfied(f"0 <= {short} < {across}")
    if thorough and places.shape[-1] > 1 and not _are_ordered(starts, places):
        _not_satisfied(
            f"{short}[..., {long}[..., i - 1]:{long}[..., i]] for all i = 1, ..., {along} are "
            "sorted and distinct along the last dimension values"
        )


def _are_ordered(starts: Any, places: Any) -> bool:
    flat, begins = places.reshape(-1, places.shape[-1]), starts.reshape(-1, starts.shape[-1])
    rising = flat[:, 1:] > flat[:, :-1]
    new_line = flat.new_zeros((flat.shape[0], flat.shape[1] + 1))
    new_line = new_line.scatter(1, begins.to(dt.int64), 1).to(dt.bool_)
    return bool((rising | new_line[:, 1:-1]).all())


def _not_satisfied(what: str) -> None:
    raise RuntimeError(f"`{what}` is not satisfied.")


def _constructor(layout: lo.layout, by_rows: bool) -> Any:
    long, short = _NAMES[by_rows][:2]

    def make(
        compressed: Any = None, plain: Any = None, values: Any = None, size: Any = None, *,
        dtype: Any = None, device: Any = None, pin_memory: bool = False,
        requires_grad: bool = False, check_invariants: bool | None = None, **named: Any,
    ) -> Any:  # fmt: skip
        if pin_memory:
            no_pinned_memory()
        compressed = named.pop(long, compressed)
        plain = named.pop(short, plain)
        given = named.pop("layout", layout)
        if named:
            raise TypeError(f"{make.__name__}() got an unexpected keyword {next(iter(named))!r}")
        if given is not None and given is not layout:
            raise RuntimeError(f"{make.__name__}: expected layout {layout}, got {given}")
        return sparse_compressed_tensor(
            compressed, plain, values, size, dtype=dtype, layout=layout, device=device,
            requires_grad=requires_grad, check_invariants=check_invariants,
        )  # fmt: skip

    make.__name__ = make.__qualname__ = f"{layout.name}_tensor"
    blocks = " of blocks" if layout in BLOCKED else ""
    make.__doc__ = f"A matrix{blocks} from `{long}`, `{short}` and `values` ({layout.name})."
    return make


sparse_csr_tensor = _constructor(lo.sparse_csr, True)
sparse_csc_tensor = _constructor(lo.sparse_csc, False)
sparse_bsr_tensor = _constructor(lo.sparse_bsr, True)
sparse_bsc_tensor = _constructor(lo.sparse_bsc, False)


def _without_elements(
    shape: tuple[int, ...], dtype: Any, layout: Any, device: Any, requires_grad: bool
) -> Any:
    """What `zeros` and `empty` make of a sparse layout."""
    if layout is lo.sparse_coo:
        made = sparse_coo_tensor(shape, dtype=dtype, device=device)
    elif layout in (lo.sparse_csr, lo.sparse_csc) and len(shape) >= 2:
        lines = shape[-2 if layout in BY_ROWS else -1]
        values = as_tensor([], as_optional_dtype(dtype), as_optional_device(device))
        values = values.new_zeros((*shape[:-2], 0))
        starts = values.new_zeros((*shape[:-2], lines + 1), dtype=dt.int64)
        places = values.new_zeros(values.shape, dtype=dt.int64)
        made = make_compressed(starts, places, values, shape, layout)
    else:
        raise RuntimeError(
            f"empty: a tensor of layout {layout} and shape {list(shape)} can't be made without "
            "elements. Hint: torch.sparse_compressed_tensor, which takes them"
        )
    return made.requires_grad_(requires_grad)


# ---- rows of a table --------------------------------------------------------------------------


def _some_rows(numbers: Any, rows: Any, shape: Any) -> Any:
    """A table that is zero but for these rows; a row may be named twice."""
    return make_coo(numbers.to(dt.int64).unsqueeze(0), rows, shape, is_sorted=False)


def _some_places(values: Any, dim: int, index: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of `gather`: each value at the place it was taken from."""
    if not shape:
        return values
    at = [
        arange(n, device=index.device).reshape([-1 if k == d else 1 for k in range(index.ndim)])
        for d, n in enumerate(index.shape)
    ]
    at[dim] = index
    rows = [x.expand(index.shape).reshape(-1) for x in at]
    return make_coo(stack(rows).to(dt.int64), values.reshape(-1), shape, is_sorted=False)


_scatter.SPARSE["places"] = _some_places
_embedding.SPARSE["rows"] = _some_rows
_creation.SPARSE["empty"] = _without_elements


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of `diagonals` on the diagonals named by `offsets`."""
    rows = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    places = offsets.reshape(-1).to(dt.int64)
    if rows.ndim != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if rows.shape[0] != places.numel():
        raise RuntimeError(
            f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets "
            f"({places.numel()})"
        )
    if places.unique().numel() != places.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
    column = rows.new_ones((rows.shape[1],), dtype=dt.int64).cumsum(0) - 1
    row = column.unsqueeze(0) - places.unsqueeze(1)
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1]).unsqueeze(0)
    index = stack([row[inside], column.expand(row.shape)[inside]])
    made = make_coo(index, rows[inside], tuple(shape), is_sorted=False)
    if layout in (None, lo.sparse_coo):
        return made
    if layout not in (lo.sparse_csr, lo.sparse_csc):
        raise RuntimeError(
            "Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got "
            f"{SHOWN.get(layout, layout)}"
        )
    return made.to_sparse(layout=layout)
