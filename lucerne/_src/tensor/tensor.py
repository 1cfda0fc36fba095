"""Tensor: what the user holds.

State comes from TensorBase, methods from the op table (methods.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, overload

from lucerne._src import backends
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.device import device as Device
from lucerne._src.base.dtype import COMPLEX, FLOAT
from lucerne._src.base.dtype import dtype as DType
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd import api as autograd
from lucerne._src.tensor.autograd.node import as_shown, refresh_view
from lucerne._src.tensor.autograd.state import requires_grad, set_history
from lucerne._src.tensor.base import (
    Maker,
    PlainTensorBase,
    TensorBase,
    make_tensor,
    offset_of,
    plain_types,
    same_place,
)
from lucerne._src.tensor.eager.specialize import asks_place
from lucerne._src.tensor.interop import construct, outside
from lucerne._src.tensor.subclasses import own_names, torch_dispatch, torch_function

if TYPE_CHECKING:  # what methods.py and others put onto the class: a checker cannot see it
    from lucerne._src.tensor.declared import TableMembers
else:
    TableMembers = TensorBase


_FIELDS = {
    name: getattr(TensorBase, name) for name in PlainTensorBase.__slots__ if name[:2] != "__"
}


class Tensor(TableMembers):
    """An n-dimensional array on a device, with views, in-place writes and derivatives.

    >>> import lucerne as torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __module__ = "lucerne"
    __array_priority__ = 1000

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return construct.legacy_tensor(cls, args, kwargs)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def shape(self) -> sh.Size:
        return self._meta.shape

    @property
    def dtype(self) -> DType:
        return self._meta.dtype

    @property
    def device(self) -> Device:
        return self._meta.device

    @property
    def layout(self) -> lo.layout:
        return lo.strided

    @property
    def ndim(self) -> int:
        return self._meta.ndim

    @property
    def itemsize(self) -> int:
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._meta.numel * self._meta.dtype.itemsize

    @overload
    def size(self, dim: None = None) -> sh.Size: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> sh.Size | int:
        if dim is None:
            return self._meta.shape
        return self._meta.shape[sh.wrap_dim(dim, self._meta.ndim, allow_scalar=False)]

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...

    @overload
    def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        if dim is None:
            return self._meta.strides
        return self._meta.strides[sh.wrap_dim(dim, self._meta.ndim, allow_scalar=False)]

    def dim(self) -> int:
        return self._meta.ndim

    ndimension = dim

    def numel(self) -> int:
        return self._meta.numel

    nelement = numel

    def storage_offset(self) -> int:
        asks_place(self)
        return offset_of(self)

    def element_size(self) -> int:
        return self._meta.dtype.itemsize

    def untyped_storage(self) -> Any:
        asks_place(self)
        return outside.UntypedStorage(self._storage)

    def data_ptr(self) -> int:
        asks_place(self)
        start = self._storage.begin()
        return start + self._offset * self.itemsize if start and self._meta.numel else 0

    const_data_ptr = data_ptr

    def is_contiguous(self, memory_format: lo.memory_format = lo.contiguous_format) -> bool:
        return sh.is_format(self._meta.shape, self._meta.strides, memory_format)

    def is_floating_point(self) -> bool:
        return self._meta.dtype.category == FLOAT

    def is_complex(self) -> bool:
        return self._meta.dtype.category == COMPLEX

    def is_signed(self) -> bool:
        return self._meta.dtype.is_signed

    def is_same_size(self, other: Tensor) -> bool:
        return self._meta.shape == other._meta.shape

    def is_set_to(self, tensor: Tensor) -> bool:
        return same_place(self, tensor)

    def get_device(self) -> int:
        where = self._meta.device
        if where.index is None:
            return -1 if where.type in (backends.HOST, backends.META) else 0
        return where.index

    @property
    def is_cpu(self) -> bool:
        return self._meta.device.type == backends.HOST

    @property
    def is_meta(self) -> bool:
        return self._meta.device.type == backends.META

    def dim_order(self) -> tuple[int, ...]:
        """Dimensions from the outermost in memory to the innermost."""
        order = sh.memory_order(tuple(self._meta.shape), [self._meta.strides])
        return tuple(reversed(order))

    # -- autograd --------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        answer: bool = self._needs_grad
        return answer

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        autograd.set_requires_grad(self, value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        autograd.set_requires_grad(self, requires_grad)
        return self

    @property
    def grad(self) -> Tensor | None:
        return None if self._auto is None else autograd.read_grad(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        autograd.write_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        autograd.write_grad(self, None)

    @property
    def grad_fn(self) -> Any:
        if self._view is not None and self._auto is not None:
            refresh_view(self)
        return None if self._auto is None else as_shown(self._auto.grad_fn)

    @property
    def is_leaf(self) -> bool:
        return not requires_grad(self) or self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return 0 if self._auto is None else self._auto.output_nr

    @property
    def retains_grad(self) -> bool:
        return self._auto is not None and self._auto.retains_grad

    def retain_grad(self) -> None:
        autograd.retain_grad(self)

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf to the leaf's `.grad`."""
        autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def register_hook(self, hook: Any) -> Any:
        return autograd.register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        return autograd.register_post_accumulate_grad_hook(self, hook)

    def detach(self) -> Tensor:
        """The same values, cut off from the graph; shares storage and version counter."""
        if torch_function.dispatching and type(self) in torch_function.dispatching:
            return torch_dispatch.ask_detach(self)
        made: Tensor = make_tensor(self._storage, self._offset, self._meta)
        made._view = self._view and autograd.detached_view(self)
        if dispatch.state.kernel_level:
            made = dispatch.state.kernel_level[-1].aliased(made, self, True)
        for seen_by in dispatch.state.call_level:
            made = seen_by.aliased(made, self, True)
        return made if type(self) in plain_types else made.as_subclass(type(self))

    def detach_(self) -> Tensor:
        if self._view is not None and requires_grad(self):
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using "
                "DistributedDataParallel, make sure that all views are detached."
            )
        if self._auto is not None:
            set_history(self, None, 0, requires_grad=False)
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history, under a version counter of its own."""
        made: Tensor = make_tensor(self._storage.alias(), self._offset, self._meta)
        if dispatch.state.kernel_level:
            made = dispatch.state.kernel_level[-1].aliased(made, self, True)
        return made if type(self) in plain_types else made.as_subclass(type(self))

    @data.setter
    def data(self, value: Tensor) -> None:
        own = value._storage.buffer is self._storage.buffer
        if own and value._offset == self._offset and value._meta is self._meta:
            return  # (`t.data *= 2` writes to its own memory, and keeps its version as in torch)
        self._storage, self._offset, self._meta = value._storage, value._offset, value._meta
        self._array = None

    @property
    def _version(self) -> int:
        return self._storage.version

    @property
    def _base(self) -> Any:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        return self._view is not None

    def is_inference(self) -> bool:
        """Whether it was made in inference mode."""
        return self._storage.inference

    # -- values ----------------------------------------------------------------------------------

    def item(self) -> Any:
        """The one element, as a Python number."""
        return outside.item(self)

    def tolist(self) -> Any:
        return outside.tolist(self)

    def numpy(self, *, force: bool = False) -> Any:
        return outside.to_numpy(self, force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return outside.as_array(self, dtype, copy)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What NumPy's functions make of a tensor is a tensor again."""
        return outside.from_numpy(array)

    def __dlpack__(self, **options: Any) -> Any:
        return outside.to_dlpack_capsule(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return outside.dlpack_device(self)

    def __bool__(self) -> bool:
        return outside.truth(self)

    def __int__(self) -> int:
        return int(outside.number(self, int))

    def __float__(self) -> float:
        return float(outside.number(self, float))

    def __complex__(self) -> complex:
        return complex(outside.number(self, complex))

    def __index__(self) -> int:
        return outside.index(self)

    def __len__(self) -> int:
        if not self._meta.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._meta.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (TensorBase, bool, int, float, complex)):
            found: Any = self == element
            return bool(found.any())
        raise RuntimeError(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}."
        )

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        if torch_function.dispatching and torch_dispatch.is_wrapper(self):
            return f"{type(self).__name__}(..., size={tuple(self.shape)}, dtype={self.dtype})"
        return outside.represent(self)

    def __format__(self, spec: str) -> str:
        if not self._meta.ndim and not self.is_meta and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self.__dict__})

    # -- copies and pickles ----------------------------------------------------------------------

    def __copy__(self) -> Any:
        return outside.copy_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return outside.deepcopy_tensor(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return outside.reduce_tensor(self)

    # -- overriding ------------------------------------------------------------------------------

    def __init_subclass__(cls, watched: bool = True, **kwargs: Any) -> None:
        """`watched=False`: members go to the class itself, only ops to its `__torch_function__`."""
        super().__init_subclass__(**kwargs)
        own_names.keep_apart(cls, _FIELDS)
        if watched:
            torch_function.watch_members(cls, Tensor)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What a subclass inherits: run the op as usual, give results the subclass' type."""
        return torch_function.default_torch_function(cls, func, types, args, kwargs or {})

    def as_subclass(self, cls: type) -> Any:
        """The same tensor under another type."""
        return construct.as_subclass(self, cls)

    @staticmethod
    def _make_subclass(cls: type, data: Any, require_grad: bool = False, **_: Any) -> Any:
        """A tensor of a subclass over the memory of `data`: a leaf of its own."""
        made = make_tensor(data._storage, data._offset, data._meta).as_subclass(cls)
        return made.requires_grad_() if require_grad else made

    @staticmethod
    def _make_wrapper_subclass(
        cls: type, size: Any, strides: Any = None, *, device: Any = None, **options: Any
    ) -> Any:
        """A tensor of a class with `__torch_dispatch__`, without memory of its own."""
        return torch_dispatch.make_wrapper(cls, size, strides, device_=device, **options)


def _install() -> None:
    Maker.cls = Tensor
    plain_types.add(Tensor)
    dispatch.familiar.add(Tensor)


_install()
