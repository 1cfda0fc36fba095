"""Nested tensors: a batch of tensors that differ in size, as one object.

`JaggedTensor` packs all entries into one dense tensor along the one dimension that is ragged, and
keeps where each begins. `NestedList` (the strided layout) holds the entries themselves, which may
differ in every dimension.

Both are wrappers: the dense tensors inside carry the history, so gradients need nothing of their
own. Ops reach them through `__torch_function__`: dense calls never pass here.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.index.searching import bucketize
from lucerne._src.tensor.subclasses.by_table import flat, here, name_of
from lucerne._src.tensor.tensor import Tensor

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
OPS: dict[str, Handler] = {}
"""What nested tensors answer: the function, its arguments, its keywords (see ops.py)."""
_counter = itertools.count(1)


class NestedInt:
    """The size of the ragged dimension, which is no number: it stands for all lengths.

    >>> import lucerne
    >>> nt = lucerne.nested.nested_tensor([[1, 2], [3]], layout=lucerne.jagged)
    >>> nt.size(1) == nt.mul(2).size(1)
    True
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def __repr__(self) -> str:
        if self._number is None:  # numbered when first shown
            self._number = next(_counter)
        return f"j{self._number}"

    def __index__(self) -> int:
        raise TypeError(
            f"{self!r} is the size of a ragged dimension and no number. Hint: x.offsets() has the "
            "places where entries begin, x.to_padded_tensor(0) makes the dimension regular"
        )


class Ragged:
    """Where the entries of a jagged tensor begin and how long they are; made once, shared by all
    tensors computed from one."""

    def __init__(self, offsets: Any, lengths: Any = None) -> None:
        self.offsets, self.lengths = offsets, lengths
        _known[id(offsets)] = self  # (while it lives, so does the tensor)
        self.size = NestedInt()
        self._lengths: list[int] | None = None
        self._batch: Any = None

    @property
    def count(self) -> int:
        return int(self.offsets.shape[0]) - 1

    @property
    def whole(self) -> bool:
        """Whether the entries fill the packed tensor."""
        return self.lengths is None

    def length_tensor(self) -> Any:
        return self.offsets[1:] - self.offsets[:-1] if self.lengths is None else self.lengths

    def length_list(self) -> list[int]:
        if self._lengths is None:
            self._lengths = [int(n) for n in self.length_tensor().tolist()]
        return self._lengths

    def starts(self) -> list[int]:
        found: list[int] = self.offsets[:-1].tolist()
        return found

    def longest(self) -> int:
        return max(self.length_list(), default=0)

    def entries(self) -> Any:
        """For each place of the packed tensor the entry it belongs to."""
        if dispatch.recording() and self.whole and self._lengths is not None:
            # What a graph is made of has no values, so the shape must not depend on them; and what
            # is made there can't be kept.
            places = arange(sum(self._lengths), device=self.offsets.device)
            return bucketize(places, self.offsets[1:-1], right=True)
        if self._batch is None:
            numbers = arange(self.count, device=self.offsets.device)
            self._batch = numbers.repeat_interleave(self.length_tensor())
        return self._batch

    def same(self, other: Ragged) -> bool:
        return self is other or self.offsets is other.offsets


_known: weakref.WeakValueDictionary[int, Ragged] = weakref.WeakValueDictionary()
"""By id of offsets."""


class NestedTensor(Tensor, watched=False):
    """A batch of tensors of different sizes.

    >>> import lucerne
    >>> nt = lucerne.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=lucerne.jagged)
    >>> nt.sum(1)
    tensor([3., 3.])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "use nested.nested_tensor, nested.as_nested_tensor or nested_tensor_from_jagged"
        )

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = getattr(func, "op", None)
        name = name_of(func, OPS)
        named = dict(kwargs or {})
        target = named.pop("out", None)
        if name not in OPS and name.endswith("_") and name[:-1] in OPS:
            name, target = name[:-1], args[0]
            func = getattr(Tensor, name)
        found = OPS.get(name)
        if found is None and op is not None and op.kind == op_.POINTWISE:
            found = OPS["pointwise"]
        if found is None:
            nested = next((a for a in flat(args) if isinstance(a, NestedTensor)), None)
            refuse(name, nested if nested is not None else args[0])
        result = found(func, args, named)
        if target is None:
            return result
        return write(target.target if isinstance(target, InPlace) else target, result)

    # -- what both kinds share -------------------------------------------------------------------

    @property
    def is_nested(self) -> bool:
        return True

    def dense_parts(self) -> list[Any]:
        """The dense tensors inside, which carry the history."""
        raise NotImplementedError

    def like(self, inner: list[Any]) -> Any:
        """The same structure around other tensors."""
        raise NotImplementedError

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """The entries of the batch."""
        raise NotImplementedError

    @property
    def requires_grad(self) -> bool:
        return any(t.requires_grad for t in self.dense_parts())

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        for t in self.dense_parts():
            t.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        grads = [t.grad for t in self.dense_parts()]
        if all(g is None for g in grads):
            return None
        pairs = zip(grads, self.dense_parts(), strict=True)
        return self.like([t.new_zeros(t.shape) if g is None else g for g, t in pairs])

    @grad.setter
    def grad(self, value: Any) -> None:
        for i, t in enumerate(self.dense_parts()):
            t.grad = None if value is None else value.dense_parts()[i]

    @property
    def grad_fn(self) -> Any:
        return next((t.grad_fn for t in self.dense_parts() if t.grad_fn is not None), None)

    @property
    def is_leaf(self) -> bool:
        return all(t.is_leaf for t in self.dense_parts())

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
        inputs: Any = None,
    ) -> None:  # fmt: skip
        if gradient is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        given = gradient.dense_parts()
        for i, t in enumerate(self.dense_parts()):
            keep = retain_graph or i + 1 < len(given)
            t.backward(given[i], retain_graph=keep, create_graph=create_graph, inputs=inputs)

    def retain_grad(self) -> None:
        for t in self.dense_parts():
            t.retain_grad()

    def register_hook(self, hook: Any) -> NoReturn:
        refuse("register_hook", self)

    def detach(self) -> Any:
        return self.like([t.detach() for t in self.dense_parts()])

    @property
    def data(self) -> Any:
        return self.like([t.data for t in self.dense_parts()])

    @data.setter
    def data(self, value: Any) -> None:
        for old, new in zip(self.dense_parts(), value.dense_parts(), strict=True):
            old.data = new

    def numel(self) -> int:
        return sum(t.numel() for t in self.unbind())

    nelement = numel

    def __len__(self) -> int:
        return int(self.size(0))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind())

    def item(self) -> Any:
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        return next(t for t in self.unbind() if t.numel()).item()

    def tolist(self) -> Any:
        """A list of the entries' lists."""
        return [t.tolist() for t in self.unbind()]

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise RuntimeError(
            ".numpy() is not supported for tensor subclasses. Hint: x.to_padded_tensor(0).numpy(), "
            "or x.unbind()"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.numpy()

    def data_ptr(self) -> int:
        found = [t.data_ptr() for t in self.dense_parts()]
        return found[0] if found else 0

    def __bool__(self) -> bool:
        return bool(self.item())

    def __copy__(self) -> Any:
        return self.like(self.dense_parts())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = self.like(
            [t.detach().clone().requires_grad_(t.requires_grad) for t in self.dense_parts()]
        )
        memo[id(self)] = made
        return made


class JaggedTensor(NestedTensor, watched=False):
    """All entries one behind the other in one dense tensor (`values`), with offsets."""

    __module__ = "lucerne.nested"
    _packed: Any
    _ragged: Ragged
    _at: int
    """Which dimension is ragged (of the batch, so at least 1)."""

    def dense_parts(self) -> list[Any]:
        return [self._packed]

    def like(self, inner: list[Any]) -> Any:
        return make_jagged(inner[0], self._ragged, self._at)

    @property
    def layout(self) -> lo.layout:
        return lo.jagged

    @property
    def ndim(self) -> int:
        return int(self._packed.ndim) + 1

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    @property
    def shape(self) -> sh.Size:
        sizes: list[Any] = [self._ragged.count, *self._packed.shape]
        sizes[self._at] = self._ragged.size
        return tuple.__new__(sh.Size, sizes)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[sh.wrap_dim(dim, self.ndim)]

    def stride(self, dim: int | None = None) -> Any:
        found = (f"{self._packed.stride(0)}*{self._ragged.size!r}", *self._packed.stride())
        return found if dim is None else found[sh.wrap_dim(dim, self.ndim)]

    def values(self) -> Any:
        """The packed entries."""
        return self._packed

    def offsets(self) -> Any:
        """Where each entry begins along the ragged dimension."""
        return self._ragged.offsets

    def lengths(self) -> Any:
        """How long each entry is, if entries do not fill all of the packed tensor; else None."""
        return self._ragged.lengths

    def is_contiguous(self, memory_format: Any = lo.contiguous_format) -> bool:
        return self._ragged.whole and bool(self._packed.is_contiguous())

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        if sh.wrap_dim(dim, self.ndim):
            raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
        along = self._at - 1
        if self._ragged.whole:
            return tuple(self._packed.split(self._ragged.length_list(), along))
        pairs = zip(self._ragged.starts(), self._ragged.length_list(), strict=True)
        return tuple(self._packed.narrow(along, start, n) for start, n in pairs)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        sizes = ", ".join(map(repr, self.shape))
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        grad = ", requires_grad=True" if not grad and self.requires_grad else grad
        whole = self.is_contiguous()
        return (
            f"NestedTensor(size=({sizes}), offsets={self._ragged.offsets!r}{grad}, "
            f"contiguous={whole})"
        )

    # -- as a wrapper (what compiling asks for) --------------------------------------------------

    @property
    def _starts(self) -> Any:
        return self._ragged.offsets

    @property
    def _gaps(self) -> Any:
        return self._ragged.lengths

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        names = ["_packed", "_starts"] if self._ragged.whole else ["_packed", "_starts", "_gaps"]
        return names, (self._at, tuple(self._ragged.length_list()))

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, strides: Any) -> Any:
        at, lengths = context
        ragged = ragged_of(inner["_starts"], inner.get("_gaps"))
        ragged._lengths = list(lengths)
        return make_jagged(inner["_packed"], ragged, at)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = (self._packed.detach(), self._ragged.offsets, self._ragged.lengths, self._at)
        return _rebuilt, (*parts, self.requires_grad)


class NestedList(NestedTensor, watched=False):
    """The entries themselves: they may differ in every dimension (the strided layout)."""

    __module__ = "lucerne.nested"
    _entries: tuple[Any, ...]

    def dense_parts(self) -> list[Any]:
        return list(self._entries)

    def like(self, inner: list[Any]) -> Any:
        return make_list(inner)

    @property
    def layout(self) -> lo.layout:
        return lo.strided

    @property
    def ndim(self) -> int:
        return self._entries[0].ndim + 1 if self._entries else 1

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    @property
    def shape(self) -> NoReturn:
        raise RuntimeError(
            "a nested tensor of the strided layout has no shape: its entries differ. Hint: "
            "x.size(dim) of a regular dimension, or [t.shape for t in x.unbind()]"
        )

    def size(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.shape
        d = sh.wrap_dim(dim, self.ndim)
        sizes = {t.shape[d - 1] for t in self._entries} if d else {len(self._entries)}
        if len(sizes) != 1:
            raise RuntimeError(f"Given dimension {d} is irregular and does not have a size.")
        return sizes.pop()

    def _nested_tensor_size(self) -> Any:
        """The sizes of all entries, one row each."""
        rows = [list(t.shape) for t in self._entries]
        return arange(0, dtype=dt.int64).new_tensor(rows)

    def values(self) -> Any:
        """All elements, one entry behind the other."""
        return cat([t.reshape(-1) for t in self._entries])

    def is_contiguous(self, memory_format: Any = lo.contiguous_format) -> bool:
        return all(t.is_contiguous() for t in self._entries)

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        if sh.wrap_dim(dim, self.ndim):
            raise RuntimeError(
                "NestedTensor can only be unbound along dimension 0 got dimension "
                f"{sh.wrap_dim(dim, self.ndim)} instead."
            )
        return self._entries

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        lines = ",\n".join(_indented(repr(t.detach())) for t in self._entries)
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        grad = ", requires_grad=True" if not grad and self.requires_grad else grad
        return f"nested_tensor([\n{lines}\n]{grad})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _relisted, ([t.detach() for t in self._entries], self.requires_grad)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


# ---- making them ------------------------------------------------------------------------------


def _around(cls: type, first: Any) -> Any:
    """A wrapper that answers dtype and device as the tensor inside does."""
    if "pointwise" not in OPS:  # from a pickle, before anybody named `lucerne.nested`
        LateBindings.nested_ops()
    made: Any = object.__new__(cls)
    made._meta, made._storage, made._offset = first._meta, first._storage, first._offset
    made._auto = made._view = made._array = None
    return made


def make_jagged(packed: Any, ragged: Ragged, at: int = 1) -> Any:
    made = _around(JaggedTensor, packed)
    made._packed, made._ragged, made._at = packed, ragged, at
    return made


def ragged_of(offsets: Any, lengths: Any = None) -> Ragged:
    """The structure that belongs to these offsets: what has one offsets object has one size."""
    found = _known.get(id(offsets))
    if found is None or found.offsets is not offsets or found.lengths is not lengths:
        found = Ragged(offsets, lengths)
    return found


def make_list(entries: Any) -> Any:
    found = tuple(entries)
    made = _around(NestedList, found[0] if found else arange(0, dtype=dt.float32))
    made._entries = found
    return made


def _rebuilt(packed: Any, offsets: Any, lengths: Any, at: int, grad: bool) -> Any:
    return make_jagged(packed, Ragged(offsets, lengths), at).requires_grad_(grad)


def _relisted(entries: list[Any], grad: bool) -> Any:
    return make_list(entries).requires_grad_(grad)


def write(target: Any, result: Any) -> Any:
    """What an in-place call leaves in its target."""
    if not isinstance(target, NestedTensor):
        return target.copy_(result)
    for old, new in zip(target.dense_parts(), result.dense_parts(), strict=True):
        old.copy_(new)
    return target


def refuse(what: str, t: Any) -> NoReturn:
    """Say that an op has no nested form, and where it was called."""
    raise NotImplementedError(
        f"{what} has no form for nested tensors (layout {t.layout}).{here()}\nHint: apply it to "
        "the entries (x.unbind()), to x.values(), or to x.to_padded_tensor(0)."
    )
