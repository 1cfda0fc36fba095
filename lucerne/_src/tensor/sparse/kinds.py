"""The two kinds of sparse tensors: by coordinates (COO), and compressed (CSR, CSC, BSR, BSC).

A sparse tensor is a shape, indices and a dense tensor of values. What it computes, it computes with
dense ops on the values, so autograd comes from those; two nodes connect the two worlds. The
gradient of a sparse tensor is a sparse tensor of the same pattern.

Ops reach it through `__torch_function__`: dense calls never pass here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lucerne._src.base import layout as lo
from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.ir.define import fronts
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.dispatch import state as _state
from lucerne._src.ir.meta import make_meta
from lucerne._src.ops.copy.join import stack
from lucerne._src.tensor.autograd.node import GradientNode, gradient_edge
from lucerne._src.tensor.autograd.state import AutogradState, requires_grad, set_history
from lucerne._src.tensor.storage import Storage
from lucerne._src.tensor.subclasses.by_table import flat, here, name_of
from lucerne._src.tensor.tensor import Tensor

OPS: dict[str, Callable[..., Any]] = {}
"""The ops that sparse tensors answer, by name (see ops.py)."""

INTO: dict[str, Callable[..., Any]] = {}
"""Ops that write into a dense tensor in place, which is their first argument."""

QUESTIONS = frozenset(("is_floating_point", "is_complex", "result_type", "is_signed", "numel"))
"""Functions that look at shape and dtype alone: they need no sparse form."""

COMPRESSED = (lo.sparse_csr, lo.sparse_csc, lo.sparse_bsr, lo.sparse_bsc)
BY_ROWS = (lo.sparse_csr, lo.sparse_bsr)
BLOCKED = (lo.sparse_bsr, lo.sparse_bsc)
SHOWN = {
    lo.strided: "Strided", lo.sparse_coo: "Sparse", lo.sparse_csr: "SparseCsr",
    lo.sparse_csc: "SparseCsc", lo.sparse_bsr: "SparseBsr", lo.sparse_bsc: "SparseBsc",
}  # fmt: skip


class SparseTensor(Tensor, watched=False):
    """A tensor that stores only some of its elements.

    >>> import lucerne
    >>> s = lucerne.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> s.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """

    _vals: Any
    """The stored elements, without history: that is the sparse tensor's."""
    _layout: lo.layout
    _sorted: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("use sparse_coo_tensor, sparse_csr_tensor or to_sparse to make one")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = name_of(func, OPS)
        named = dict(kwargs or {})
        target = named.pop("out", None)
        if name not in OPS and name.endswith("_"):
            name, target = name[:-1], args[0]
        found = OPS.get(name)
        if found is None and name in QUESTIONS:
            return fronts()[name].function(*args, **named)
        if found is None:
            refuse(name, next((a for a in flat(args) if isinstance(a, SparseTensor)), target))
        if target is None:
            return found(*args, **named)
        place = target.target if isinstance(target, InPlace) else target
        if name in INTO and place is args[0] and not isinstance(place, SparseTensor):
            return INTO[name](*args, **named)
        return written(place, found(*args, **named))

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

    def values(self) -> Any:
        if not self._sorted:
            raise RuntimeError(
                "Cannot get values on an uncoalesced tensor, please call .coalesce() first"
            )
        return self._values()

    def _values(self) -> Any:
        """The values; a gradient that reaches them reaches this tensor."""
        if not (requires_grad(self) and _state.grad_enabled):
            return self._vals
        made = self._vals.detach()
        made._auto = AutogradState(_Values(self), 0, requires_grad=True)
        return made

    def with_values(self, values: Any) -> Any:
        """Other values at the same places."""
        raise NotImplementedError

    def coordinates(self) -> tuple[Any, ...]:
        """Where values stand, as indices of a dense tensor (of blocks)."""
        raise NotImplementedError

    def same_places(self, other: Any) -> bool:
        """Whether another tensor of this layout stores the same elements in the same order."""
        raise NotImplementedError

    def _only(self, layouts: tuple[lo.layout, ...], name: str, what: str) -> None:
        if self._layout not in layouts:
            raise RuntimeError(f"{name} expected {what} layout but got {SHOWN[self._layout]}")

    # -- what it has not -------------------------------------------------------------------------

    def detach(self) -> Any:
        with _NoGrad():
            return self.with_values(self._vals)

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        become(self, value)

    def stride(self, dim: int | None = None) -> Any:
        if not self.is_sparse:
            raise RuntimeError("Sparse CSR tensors do not have strides")
        return super().stride(dim)

    def is_contiguous(self, memory_format: Any = lo.contiguous_format) -> bool:
        if not self.is_sparse:
            raise RuntimeError("Sparse CSR tensors do not have is_contiguous")
        return False

    def data_ptr(self) -> NoReturn:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self) -> NoReturn:
        refuse("untyped_storage", self)

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError(
            f"can't convert {SHOWN[self._layout]} layout tensor to numpy. Use Tensor.to_dense() "
            "first."
        )

    def tolist(self) -> NoReturn:
        refuse("tolist", self)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The legacy type name, or a conversion to one."""
        if dtype is not None:
            return OPS["to"](self, self._vals.type(dtype).dtype)
        return str(self._vals.type()).replace("torch.", "torch.sparse.")

    def item(self) -> Any:
        return self.to_dense().item()

    def __bool__(self) -> bool:
        return bool(self.to_dense())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.numpy()

    def __copy__(self) -> Any:
        return self.with_values(self._values())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        made = OPS["clone"](self.detach())
        memo[id(self)] = made
        return made.requires_grad_() if requires_grad(self) else made

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = tuple(p.detach() for p in self._parts())
        state = (parts, tuple(self.shape), self._layout, self._sorted, requires_grad(self))
        return rebuilt, state

    def _parts(self) -> tuple[Any, ...]:
        """The index tensors, then the values."""
        raise NotImplementedError


class CooTensor(SparseTensor, watched=False):
    """By coordinates: value `i` stands at `indices[:, i]`; equal places add up.

    >>> import lucerne
    >>> lucerne.eye(2).to_sparse().indices()
    tensor([[0, 1],
            [0, 1]])
    """

    _index: Any
    """(sparse dimensions, elements): where each value stands."""

    def with_values(self, values: Any) -> Any:
        return make_coo(self._index, values, self._sparse_shape(values), self._sorted)

    def _sparse_shape(self, values: Any) -> tuple[int, ...]:
        return (*self.shape[: self._index.shape[0]], *values.shape[1:])

    def coordinates(self) -> tuple[Any, ...]:
        return tuple(self._index.unbind(0))

    def same_places(self, other: Any) -> bool:
        a, b = self._index, other._index
        return a is b or (a.shape == b.shape and bool((a == b).all()))

    def sparse_dim(self) -> int:
        return int(self._index.shape[0])

    def dense_dim(self) -> int:
        return self.ndim - self.sparse_dim()

    def _nnz(self) -> int:
        return int(self._index.shape[1])

    def is_coalesced(self) -> bool:
        """Whether its indices are sorted and no two are the same."""
        return self._sorted

    def _coalesced_(self, coalesced: bool) -> Any:
        """Say that it is (or is not) coalesced, without looking."""
        self._sorted = coalesced
        return self

    def indices(self) -> Any:
        if not self._sorted:
            raise RuntimeError(
                "Cannot get indices on an uncoalesced tensor, please call .coalesce() first"
            )
        return self._index

    def _indices(self) -> Any:
        return self._index

    def coalesce(self) -> Any:
        """Sorted, with the values of equal indices added."""
        if self._sorted:
            return self
        keys, place = flat_keys(self).unique(return_inverse=True)
        values = self._values()
        zeros = values.new_zeros((keys.numel(), *values.shape[1:]))
        summed = zeros.index_put((place,), values, accumulate=True)
        return make_coo(from_keys(self, keys), summed, self.shape, is_sorted=True)

    def _parts(self) -> tuple[Any, ...]:
        return self._index, self._vals


def flat_keys(t: Any) -> Any:
    """The places of a COO tensor as one number each, in the order of a dense tensor's elements."""
    flat = t._index.new_zeros((t._nnz(),))
    for row, n in zip(t._index, t.shape[: t.sparse_dim()], strict=True):
        flat = flat * n + row
    return flat


def from_keys(t: Any, keys: Any) -> Any:
    """The opposite of `flat_keys`: indices in the shape of `t`."""
    rows: list[Any] = []
    for n in reversed(t.shape[: t.sparse_dim()]):
        rows.insert(0, keys % n)
        keys = keys.div(n, rounding_mode="floor")
    return stack(rows) if rows else t._index[:, :1]


class CompressedTensor(SparseTensor, watched=False):
    """By compressed rows or columns, of elements or of blocks, with or without batch dimensions.

    >>> import lucerne
    >>> lucerne.eye(2).to_sparse_csr().crow_indices()
    tensor([0, 1, 2])
    """

    _starts: Any
    """(batch, rows + 1): where each row (column) begins among the values."""
    _places: Any
    """(batch, elements): the column (row) of each value."""

    def with_values(self, values: Any) -> Any:
        tail = values.shape[self.batch_dims + 1 + 2 * self.blocked :]
        shape = (*self.shape[: self.batch_dims + 2], *tail)
        return make_compressed(self._starts, self._places, values, shape, self._layout)

    @property
    def blocked(self) -> bool:
        return self._layout in BLOCKED

    @property
    def batch_dims(self) -> int:
        return int(self._starts.ndim) - 1

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        if not self.blocked:
            return 1, 1
        rows, columns = self._vals.shape[self.batch_dims + 1 : self.batch_dims + 3]
        return rows, columns

    def coordinates(self) -> tuple[Any, ...]:
        """Batch indices, row and column of each value (each block), as flat lists."""
        starts = self._starts.reshape(-1, self._starts.shape[-1])
        places = self._places.reshape(-1)
        groups, count = starts.shape[-1] - 1, self._nnz()
        lengths = (starts[:, 1:] - starts[:, :-1]).reshape(-1)
        long = self._along(lengths.numel(), places).repeat_interleave(lengths)
        line = long % groups if groups else long
        batch = self._along(starts.shape[0], places).repeat_interleave(count)
        found: list[Any] = []
        for n in reversed(self._starts.shape[:-1]):
            found.insert(0, batch % n)
            batch = batch.div(n, rounding_mode="floor")
        pair = [line, places] if self._layout in BY_ROWS else [places, line]
        return (*found, *pair)

    def _along(self, count: int, like: Any) -> Any:
        return like.new_ones((count,)).cumsum(0) - 1

    def same_places(self, other: Any) -> bool:
        pairs = ((self._starts, other._starts), (self._places, other._places))
        return other.layout is self._layout and all(
            a is b or (a.shape == b.shape and bool((a == b).all())) for a, b in pairs
        )

    def sparse_dim(self) -> int:
        return 2

    def dense_dim(self) -> int:
        return self._vals.ndim - self.batch_dims - 1 - 2 * self.blocked

    def _nnz(self) -> int:
        return int(self._places.shape[-1])

    def crow_indices(self) -> Any:
        """Where each row begins among the values."""
        self._only(BY_ROWS, "crow_indices", "sparse row compressed tensor")
        return self._starts

    def col_indices(self) -> Any:
        self._only(BY_ROWS, "col_indices", "sparse row compressed tensor")
        return self._places

    def ccol_indices(self) -> Any:
        """Where each column begins among the values."""
        self._only(
            (lo.sparse_csc, lo.sparse_bsc), "ccol_indices", "sparse column compressed tensor"
        )
        return self._starts

    def row_indices(self) -> Any:
        self._only((lo.sparse_csc, lo.sparse_bsc), "row_indices", "sparse column compressed tensor")
        return self._places

    def _parts(self) -> tuple[Any, ...]:
        return self._starts, self._places, self._vals


# ---- making them ------------------------------------------------------------------------------


def _made(cls: type, values: Any, shape: Any, layout: lo.layout) -> Any:
    if "to_dense" not in OPS:  # the last entry: all are there, and are methods
        LateBindings.sparse_ops()
    made: Any = object.__new__(cls)
    sizes = tuple(shape)
    made._meta = make_meta(values.dtype, sizes, (0,) * len(sizes), values.device)
    made._storage, made._offset = Storage.allocate(0, values.device), 0
    made._auto = made._view = made._array = None
    made._layout, made._vals = layout, values
    return made


def _with_history(made: Any, values: Any, name: str) -> Any:
    if requires_grad(values):
        made._vals = values.detach()
        if _state.grad_enabled:
            made._auto = AutogradState(_Held(made, values, name), 0, requires_grad=True)
    return made


def make_coo(index: Any, values: Any, shape: Any, is_sorted: bool, name: str = "") -> Any:
    """A COO tensor of these parts; gradients pass through it to `values`."""
    made = _made(CooTensor, values, shape, lo.sparse_coo)
    made._index, made._sorted = index, is_sorted
    return _with_history(made, values, name or "ToSparseBackward1")


def make_compressed(
    starts: Any, places: Any, values: Any, shape: Any, layout: lo.layout, name: str = ""
) -> Any:
    """A compressed tensor of these parts; gradients pass through it to `values`."""
    made = _made(CompressedTensor, values, shape, layout)
    made._starts, made._places, made._sorted = starts, places, True
    return _with_history(made, values, name or "ToSparseBackward0")


def rebuilt(
    parts: tuple[Any, ...], shape: Any, layout: lo.layout, is_sorted: bool, grad: bool
) -> Any:
    """From what `__reduce_ex__` and files hold."""
    if layout is lo.sparse_coo:
        made = make_coo(parts[0], parts[1], shape, is_sorted)
    else:
        made = make_compressed(parts[0], parts[1], parts[2], shape, layout)
    return made.requires_grad_(grad)


class _NoGrad:
    """Makes no history inside."""

    def __enter__(self) -> None:
        self._before = _state.grad_enabled
        _state.grad_enabled = False

    def __exit__(self, *exc: object) -> None:
        _state.grad_enabled = self._before


class _Values(GradientNode):
    """From the gradient of the values to the gradient of the sparse tensor."""

    __slots__ = ("pattern",)

    def __init__(self, source: SparseTensor) -> None:
        super().__init__([gradient_edge(source)], (source._vals._meta,))
        self.pattern = source.detach()

    def name(self) -> str:
        return "ValuesBackward0"

    def apply(self, grads: Any) -> list[Any]:
        g = grads[0]
        if g is None or self.pattern._sorted:
            return [None if g is None else self.pattern.with_values(g)]
        # Values that stand at one place all have that place's gradient: their mean is it.
        total = self.pattern.with_values(g).coalesce()
        count = self.pattern.with_values(g.new_ones(g.shape)).coalesce()
        return [total.with_values(total._values() / count._vals)]


class _Held(GradientNode):
    """From the gradient of a sparse tensor to the gradient of its values."""

    __slots__ = ("pattern", "shown")

    def __init__(self, made: SparseTensor, values: Any, shown: str) -> None:
        super().__init__([gradient_edge(values)], (made._meta,))
        self.shown = shown
        with _NoGrad():
            self.pattern = made.with_values(made._vals)

    def name(self) -> str:
        return self.shown

    def apply(self, grads: Any) -> list[Any]:
        g = grads[0]
        alike = isinstance(g, SparseTensor) and g.layout is self.pattern.layout
        if alike and self.pattern.same_places(g):
            return [g._values()]
        return [None if g is None else OPS["sparse_mask"](g, self.pattern)._values()]


# ---- writing over them ------------------------------------------------------------------------


def become(target: Any, made: Any) -> Any:
    """Give `target` the parts of another sparse tensor of its layout."""
    if target._layout is not made._layout:
        raise RuntimeError(
            f"set_data: expected layout {target._layout}, got {made._layout}: a sparse tensor "
            "keeps its layout"
        )
    for name in ("_index", "_sorted", "_starts", "_places", "_vals", "_meta"):
        if hasattr(made, name):
            setattr(target, name, getattr(made, name))
    return target


def written(target: Any, result: Any) -> Any:
    """What an in-place call or `out=` leaves in its target."""
    if not isinstance(target, SparseTensor):
        return target.copy_(result.to_dense() if isinstance(result, SparseTensor) else result)
    if not isinstance(result, SparseTensor):
        raise RuntimeError(f"the result is dense and can't be written into a {target._layout} one")
    if requires_grad(target) and target.is_leaf and _state.grad_enabled:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    if result.dtype is not target.dtype:
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {target.dtype}"
        )
    become(target, result)
    if requires_grad(result) and _state.grad_enabled:
        set_history(target, result._auto.grad_fn, result._auto.output_nr)
    return target


def refuse(what: str, t: Any) -> NoReturn:
    """Say that an op has no sparse form, and where it was called."""
    layout = t.layout
    raise NotImplementedError(
        f"Could not run 'aten::{what}' with arguments from the "
        f"'{SHOWN[layout]}{str(t.device.type).upper()}' backend: {what} has no sparse form (layout "
        f"{layout}).{here()}\nHint: x.to_dense() first."
    )
