"""Sparse tensors: coordinates (COO) and compressed rows (CSR), as far as matrix products need them.

A SparseTensor is a shape, indices and a dense tensor of values; what it computes, it computes with
dense ops on the values, so autograd comes from those. Two nodes connect it with them: the gradient
of a sparse tensor is a sparse tensor of the same pattern. Ops that sparse_math.py lacks refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lucerne.base import defaults
from lucerne.base import dtype as dt
from lucerne.base import layout as lo
from lucerne.ir.convert import as_int_list, as_optional_device, as_optional_dtype
from lucerne.ir.dispatch import state as _state
from lucerne.ir.meta import make_meta
from lucerne.ops import embedding as _embedding
from lucerne.ops.join import stack
from lucerne.tensor.autograd.node import Node, gradient_edge
from lucerne.tensor.autograd.state import AutogradState, requires_grad
from lucerne.tensor.convert import as_tensor
from lucerne.tensor.format import add_suffixes, contents_text
from lucerne.tensor.interop import values
from lucerne.tensor.storage import Storage
from lucerne.tensor.tensor import Tensor

OPS: dict[str, Callable[..., Any]] = {}
"""The ops that sparse tensors answer, by name (see sparse_math.py)."""


class SparseTensor(Tensor, watched=False):
    """A tensor that stores only some of its elements.

    >>> import lucerne
    >>> s = lucerne.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> s.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """

    _index: Any
    """(sparse dimensions, elements): where each value stands."""
    _vals: Any
    _layout: lo.layout
    _sorted: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("use sparse_coo_tensor, sparse_csr_tensor or to_sparse to make one")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = getattr(func, "op", None)
        name = op.name if op is not None else func.__name__
        found = OPS.get(name)
        if found is None:
            refuse(f"torch.{name}", next(a for a in args if isinstance(a, SparseTensor)))
        return found(*args, **(kwargs or {}))

    # -- what it is ------------------------------------------------------------------------------

    @property
    def layout(self) -> lo.layout:
        return self._layout

    @property
    def is_sparse(self) -> bool:
        return self._layout is lo.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        return self._layout is lo.sparse_csr

    def sparse_dim(self) -> int:
        return int(self._index.shape[0])

    def dense_dim(self) -> int:
        return self.ndim - self.sparse_dim()

    def _nnz(self) -> int:
        return int(self._index.shape[1])

    def is_coalesced(self) -> bool:
        """Whether its indices are sorted and no two are the same."""
        self._only(lo.sparse_coo, "is_coalesced")
        return self._sorted

    def indices(self) -> Any:
        self._only(lo.sparse_coo, "indices")
        if not self._sorted:
            raise RuntimeError(
                "Cannot get indices on an uncoalesced tensor, please call .coalesce() first"
            )
        return self._index

    def values(self) -> Any:
        if not self._sorted:
            raise RuntimeError(
                "Cannot get values on an uncoalesced tensor, please call .coalesce() first"
            )
        return self._values()

    def _indices(self) -> Any:
        return self._index

    def _values(self) -> Any:
        """The values; a gradient that reaches them reaches this tensor."""
        if not (requires_grad(self) and _state.grad_enabled):
            return self._vals
        made = self._vals.detach()
        made._auto = AutogradState(_Values(self), 0, requires_grad=True)
        return made

    def crow_indices(self) -> Any:
        """Where each row begins among the values."""
        self._only(lo.sparse_csr, "crow_indices")
        counts = self._index.new_zeros((self.shape[0] + 1,))
        counts = counts.index_add(0, self._index[0] + 1, self._index[0].new_ones((self._nnz(),)))
        return counts.cumsum(0)

    def col_indices(self) -> Any:
        self._only(lo.sparse_csr, "col_indices")
        return self._index[1]

    def _only(self, layout: lo.layout, name: str) -> None:
        if self._layout is not layout:
            raise RuntimeError(f"{name} expected {layout} layout but got {self._layout}")

    # -- other forms -----------------------------------------------------------------------------

    def coalesce(self) -> Any:
        """Sorted, with the values of equal indices added."""
        self._only(lo.sparse_coo, "coalesce")
        if self._sorted:
            return self
        shape = self.shape[: self.sparse_dim()]
        flat = self._index.new_zeros((self._nnz(),))
        for row, n in zip(self._index, shape, strict=True):
            flat = flat * n + row
        order, place = flat.unique(return_inverse=True)
        values = self._values()
        summed = values.new_zeros((order.numel(), *values.shape[1:])).index_add(0, place, values)
        rows: list[Any] = []
        for n in reversed(shape):
            rows.insert(0, order % n)
            order = order.div(n, rounding_mode="floor")
        index = stack(rows) if rows else self._index[:, :1]
        return make(index, summed, self.shape, lo.sparse_coo, is_sorted=True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """All elements, those not stored as zeros."""
        values = self._values()
        zeros = values.new_zeros(self.shape)
        if self.sparse_dim() == 0:
            return zeros + values.sum(0)
        add = values.dtype is not dt.bool_
        made = zeros.index_put(tuple(self._index.unbind(0)), values, accumulate=add)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, **options: Any) -> Any:
        return to_sparse(self, sparse_dim, layout=layout, **options)

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """Compressed rows; entries are sorted by row and column."""
        if self._layout is lo.sparse_csr:
            return self
        if self.ndim != 2 or self.sparse_dim() != 2:
            raise RuntimeError(
                f"to_sparse_csr: expected a sparse matrix, got shape {list(self.shape)}"
            )
        done = self.coalesce()
        return make(done._index, done._values(), self.shape, lo.sparse_csr, is_sorted=True)

    def detach(self) -> Any:
        return make(self._index, self._vals.detach(), self.shape, self._layout, self._sorted)

    def stride(self, dim: int | None = None) -> NoReturn:
        refuse("stride", self)

    def is_contiguous(self, memory_format: Any = lo.contiguous_format) -> bool:
        return False

    def data_ptr(self) -> NoReturn:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self) -> NoReturn:
        refuse("untyped_storage", self)

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def tolist(self) -> NoReturn:
        refuse("tolist", self)

    def item(self) -> Any:
        return self.to_dense().item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.numpy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = OPS["clone"](self).detach()
        memo[id(self)] = made
        return made.requires_grad_() if requires_grad(self) else made

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = (
            self._index,
            self._vals.detach(),
            tuple(self.shape),
            str(self._layout),
            self._sorted,
        )
        return _rebuild, (*state, requires_grad(self))

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        coo = self._layout is lo.sparse_coo
        shown = self.detach()
        parts = {"indices": self._index} if coo else {
            "crow_indices": shown.crow_indices(), "col_indices": shown.col_indices(),
        }  # fmt: skip
        parts["values"] = shown._vals
        text = ",\n       ".join(
            f"{name}={_indented(t, len(name) + 8)}" for name, t in parts.items()
        )
        facts = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        if self.dtype not in (
            defaults.get_default_dtype(),
            dt.int64,
            dt.bool_,
            defaults.default_complex(),
        ):
            facts.append(f"dtype={self.dtype}")
        facts.append(f"layout={self._layout}")
        if self.grad_fn is not None:
            facts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif requires_grad(self):
            facts.append("requires_grad=True")
        if coo:
            text, facts = f"{text},\n       {facts[0]}", facts[1:]
        return add_suffixes(f"tensor({text}", facts, 7)

    @property
    def _sparse_pattern(self) -> tuple[Any, ...]:
        return self._index, self.shape, self._layout, self._sorted


def _indented(t: Any, width: int) -> str:
    """The text of a part; it shows no dtype, which stands at the end of the whole."""
    empty = f", size={tuple(t.shape)}" if not t.numel() else ""
    return f"tensor({contents_text(values(t), width + 7)}{empty})"


def refuse(what: str, t: Any) -> NoReturn:
    raise NotImplementedError(
        f"{what}: not available for sparse tensors (layout {t.layout}). Hint: x.to_dense() first"
    )


# ---- construction -----------------------------------------------------------------------------


class _Values(Node):
    """From the gradient of the values to the gradient of the sparse tensor."""

    __slots__ = ("pattern",)

    def __init__(self, source: SparseTensor) -> None:
        super().__init__([gradient_edge(source)], (source._vals._meta,))
        self.pattern = source._sparse_pattern

    def name(self) -> str:
        return "ValuesBackward0"

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        index, shape, layout, is_sorted = self.pattern
        g = grads[0]
        if g is None or is_sorted:
            return [None if g is None else make(index, g, shape, layout, is_sorted)]
        # Values that stand at one place all have that place's gradient: their mean is it.
        total = make(index, g, shape, layout, is_sorted=False).coalesce()
        count = make(index, g.new_ones(g.shape), shape, layout, is_sorted=False).coalesce()
        return [make(total._index, total._vals / count._vals, shape, layout, is_sorted=True)]


class _ToSparse(Node):
    """From the gradient of a sparse tensor to the gradient of its values."""

    __slots__ = ("index",)

    def __init__(self, made: SparseTensor, values: Any) -> None:
        super().__init__([gradient_edge(values)], (made._meta,))
        self.index = made._index

    def name(self) -> str:
        return "ToSparseBackward1"

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        g = grads[0]
        if isinstance(g, SparseTensor):
            if g._index.shape == self.index.shape and bool((g._index == self.index).all()):
                return [g._values()]
            g = g.to_dense()
        return [None if g is None else g[tuple(self.index.unbind(0))]]


def make(index: Any, values: Any, shape: Any, layout: lo.layout, is_sorted: bool) -> Any:
    """A sparse tensor of these parts; gradients pass through it to `values`."""
    made: Any = object.__new__(SparseTensor)
    sizes = tuple(shape)
    made._meta = make_meta(values.dtype, sizes, (0,) * len(sizes), values.device)
    made._storage, made._offset = Storage.allocate(0, values.device), 0
    made._auto = made._view = made._array = None
    made._index, made._vals, made._layout, made._sorted = index, values, layout, is_sorted
    if requires_grad(values) and _state.grad_enabled:
        made._vals = values.detach()
        made._auto = AutogradState(_ToSparse(made, values), 0, requires_grad=True)
    return made


def _some_rows(numbers: Any, rows: Any, shape: Any) -> Any:
    """A table that is zero but for these rows; a row may be named twice."""
    index = numbers.to(dt.int64).unsqueeze(0)
    return make(index, rows, shape, lo.sparse_coo, is_sorted=False)


_embedding.SPARSE["rows"] = _some_rows


def _rebuild(index: Any, values: Any, shape: Any, layout: str, is_sorted: bool, grad: bool) -> Any:
    kind = lo.sparse_coo if layout.endswith("coo") else lo.sparse_csr
    return make(index, values, shape, kind, is_sorted).requires_grad_(grad)


def _values_of(values: Any, dtype: Any, device: Any) -> Any:
    made = as_tensor(values, as_optional_dtype(dtype), as_optional_device(device))
    return made.detach() if made.is_leaf else made


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> Any:  # fmt: skip
    """A tensor with `values[i]` at `indices[:, i]`, zero elsewhere; equal places add up."""
    if values is None:
        shape = as_int_list(indices if size is None else size)
        indices, size = as_tensor([[]] * len(shape), dt.int64), shape
        values = as_tensor([], dtype)
    index = as_tensor(indices, dt.int64)
    held = _values_of(values, dtype, device)
    if index.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if index.shape[1] != held.shape[0]:
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{index.shape[1]}, nnz from values: {held.shape[0]}"
        )
    if index.numel() and int(index.min()) < 0:
        at = int(index.argmin()) // index.shape[1]
        raise RuntimeError(f"found negative index {int(index.min())} for dim {at}")
    if size is None:
        top = [int(row.max()) + 1 if row.numel() else 0 for row in index]
        size = (*top, *held.shape[1:])
    shape = as_int_list(size)
    for d, row in enumerate(index):
        if row.numel() and int(row.max()) >= shape[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found "
                f"index {int(row.max())}"
            )
    made = make(index, held, shape, lo.sparse_coo, bool(is_coalesced) or index.shape[1] < 2)
    return made.requires_grad_() if requires_grad else made


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """A matrix by compressed rows: row `i` holds the entries `crow[i]` to `crow[i + 1]`."""
    crow, col = as_tensor(crow_indices, dt.int64), as_tensor(col_indices, dt.int64)
    held = _values_of(values, dtype, device)
    rows = crow.numel() - 1
    shape = (
        as_int_list(size) if size is not None else (rows, int(col.max()) + 1 if col.numel() else 0)
    )
    if crow.ndim != 1 or held.ndim != 1 or len(shape) != 2 or shape[0] != rows:
        raise NotImplementedError("sparse_csr_tensor: only plain matrices (no batches, no blocks)")
    row = crow.new_tensor(range(rows)).repeat_interleave(crow[1:] - crow[:-1])
    made = make(stack([row, col]), held, shape, lo.sparse_csr, True)
    return made.requires_grad_() if requires_grad else made


def to_sparse(self: Any, sparse_dim: Any = None, *, layout: Any = None, **options: Any) -> Any:
    """The elements that are not zero, with their places (COO unless `layout` says CSR)."""
    wants_csr = layout is lo.sparse_csr
    if layout not in (None, lo.sparse_coo, lo.sparse_csr):
        raise NotImplementedError(f"to_sparse: no layout {layout}")
    if isinstance(self, SparseTensor):
        if wants_csr:
            return self.to_sparse_csr()
        if self._layout is lo.sparse_coo:
            return self
        return make(self._index, self._values(), self.shape, lo.sparse_coo, is_sorted=True)
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
    made = make(index, values, self.shape, lo.sparse_coo, is_sorted=True)
    return made.to_sparse_csr() if wants_csr else made


def _expects(name: str, what: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"{name} expected {what} layout but got Strided")

    method.__name__ = name
    method.__doc__ = "Only for sparse tensors."
    return method


def install() -> None:
    """Give Tensor what leads to sparse tensors, and the errors of what only those have."""
    Tensor.to_sparse = Tensor.to_sparse_coo = to_sparse  # type: ignore[attr-defined]
    Tensor.to_sparse_csr = lambda self, dense_dim=None: to_sparse(self, layout=lo.sparse_csr)  # type: ignore[attr-defined]
    for name in ("coalesce", "is_coalesced", "indices"):
        setattr(Tensor, name, _expects(name, "sparse coordinate tensor"))
    for name in ("crow_indices", "col_indices"):
        setattr(Tensor, name, _expects(name, "sparse row compressed tensor"))
    Tensor.values = _expects("values", "sparse tensor")  # type: ignore[attr-defined]


install()
