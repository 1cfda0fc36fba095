"""Parameter, Buffer and their uninitialised forms: the tensors a module owns."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.ir import dispatch
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.eager import native_bridge
from lucerne._src.tensor.subclasses import torch_function

Tensor = lu.Tensor


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """`isinstance(x, Parameter)` also holds for tensors of other types that were marked as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        marked = cls is Parameter and isinstance(instance, Tensor)
        if marked and getattr(instance, "_is_param", False):
            return True
        return bool(type.__instancecheck__(cls, instance))


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers when it is assigned to an attribute.

    It shares memory with `data`; results of ops on it are plain tensors.

    >>> import lucerne as torch
    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> w
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    >>> w * 2
    tensor([2., 2.], grad_fn=<MulBackward0>)
    """

    __module__ = "lucerne.nn.parameter"
    __slots__ = ()
    __torch_function__ = torch_function.disabled_torch_function

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = lu.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return _share(data, cls, requires_grad)
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires "
                "that detach() returns an instance of the same type, but return type "
                f"{type(made).__name__} was found instead. To use the type as a Parameter, please "
                "correct the detach() semantics defined by its __torch_function__() implementation."
            )
        made._is_param = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copied = self.data.clone(memory_format=lu.preserve_format)
        made = memo[id(self)] = type(self)(copied, self.requires_grad)
        return made

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()


def _share(data: Any, cls: type, requires_grad: bool) -> Any:
    """An instance of `cls` on the memory of `data`, a leaf of its own."""
    for interpreter in dispatch.state.kernel_level:
        interpreter.before_parameter()
    made: Any = object.__new__(cls)
    bare = data.detach()
    made._storage, made._offset, made._meta = bare._storage, bare._offset, bare._meta
    made._auto = made._view = made._array = None
    if requires_grad:
        Tensor.requires_grad_(made)
    return made


native_bridge.add_plain_type(Parameter)


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """`isinstance(x, Buffer)` holds for tensors that `Buffer(...)` marked."""

    def __instancecheck__(cls, instance: Any) -> bool:
        marked = cls is Buffer and isinstance(instance, Tensor)
        if marked and getattr(instance, "_is_buffer", False):
            return True
        return bool(type.__instancecheck__(cls, instance))


class Buffer(Tensor, metaclass=_BufferMeta, watched=False):
    """A tensor that becomes a buffer of the module it is assigned to.

    >>> import lucerne as torch
    >>> m = torch.nn.Module()
    >>> m.mean = torch.nn.Buffer(torch.zeros(2))
    >>> list(m.state_dict())
    ['mean']
    """

    __module__ = "lucerne.nn.parameter"
    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = lu.empty(0)
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made


_ALLOWED = frozenset((
    "__hash__", "size", "copy_", "is_complex", "is_floating_point", "half", "float", "double",
    "char", "short", "int", "long", "cuda", "cpu", "to", "get_device", "cast", "to_device",
))  # fmt: skip
"""Functions an uninitialised tensor takes part in."""


def _refused(name: str) -> Any:
    """A method that an uninitialised tensor cannot answer."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__torch_function__(getattr(Tensor, name), (type(self),), (self, *args), kwargs)

    return method


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet: `materialize(shape)` turns it into a real one."""

    cls_to_become: Any = None

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an initialised tensor (its values are undefined) of this shape."""
        made = lu.empty(shape, device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.data = made
        self.__class__ = self.cls_to_become

    # Ops ask `__torch_function__`; so do these, which are no ops.
    numel, nelement, detach = _refused("numel"), _refused("nelement"), _refused("detach")
    requires_grad_, stride = _refused("requires_grad_"), _refused("stride")
    item, tolist, numpy = _refused("item"), _refused("tolist"), _refused("numpy")
    __len__, __iter__, __bool__ = _refused("__len__"), _refused("__iter__"), _refused("__bool__")
    __getitem__ = _refused("__getitem__")

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return type(self), (self.requires_grad,)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Functions of values are refused; conversions of the (empty) tensor run."""
        known = getattr(func, "__name__", "")
        if known in _ALLOWED or type(func).__name__ == "method-wrapper" or known == "__get__":
            with torch_function.disable_overrides():
                return func(*args, **(kwargs or {}))
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you "
            "are using a `LazyModule` or explicitly manipulating "
            f"`torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call "
            "`forward` with a dummy batch to initialize the parameters before calling torch "
            "functions"
        )


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer still waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter, watched=False):  # type: ignore[misc]
    """A parameter without a shape, for modules that learn it from their first input.

    >>> import lucerne as torch
    >>> p = torch.nn.UninitializedParameter()
    >>> p.materialize((2, 3))
    >>> type(p).__name__, p.shape
    ('Parameter', torch.Size([2, 3]))
    """

    __module__ = "lucerne.nn.parameter"
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        data = lu.empty(0, device=device, dtype=dtype or get_default_dtype())
        return _share(data, cls, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        data = self.data
        made = memo[id(self)] = type(self)(self.requires_grad, data.device, data.dtype)
        return made


class UninitializedBuffer(UninitializedTensorMixin, Tensor, watched=False):  # type: ignore[misc]
    """A buffer without a shape; see `UninitializedParameter`."""

    __module__ = "lucerne.nn.parameter"
    cls_to_become = Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        data = lu.empty(0, device=device, dtype=dtype or get_default_dtype())
        made = _share(data, cls, requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made


def rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter as pickles of torch describe it."""
    if backward_hooks:
        raise NotImplementedError(
            "_rebuild_parameter: a parameter with backward hooks; register them after loading"
        )
    return Parameter(data, requires_grad)
