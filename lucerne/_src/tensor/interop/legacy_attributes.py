"""Members that programs ask for and that mean little here: flags of other layouts and devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device as Device
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.base.shape import Size
from lucerne._src.ir.convert import as_optional_device
from lucerne._src.ir.dispatch import state
from lucerne._src.ir.meta import with_flip
from lucerne._src.ops.creation.fills import strided_only
from lucerne._src.tensor.interop import construct
from lucerne._src.tensor.interop.shared_memory import is_shared, share_memory_
from lucerne._src.tensor.tensor import Tensor

# Device types of torch that a program may ask for by name; a backend of that name makes them true.
_FOREIGN_DEVICES = ("cuda", "xpu", "mps", "xla", "ipu", "mtia", "hpu", "vulkan", "maia")


def _device_flag(name: str) -> property:
    return property(
        lambda self: self._meta.device.type == name, doc=f"Whether it lives on `{name}`."
    )


def _move_to(name: str) -> Any:
    def method(
        self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Tensor:
        """A copy on that device."""
        where = Device(name) if device is None else Device(device)
        return self.to(where, memory_format=memory_format)

    method.__name__ = name
    return method


def cpu(self: Any, memory_format: Any = None) -> Tensor:
    """A copy in host memory; itself when it is there already."""
    return self.to(Device(backends.HOST), memory_format=memory_format)


def is_pinned(self: Any, device: Any = None) -> bool:
    """Pinned memory speeds up copies to accelerators; host backends have none."""
    return False


def pin_memory(self: Any, device: Any = None) -> NoReturn:
    """Refused, as torch does without an accelerator: no device here wants pinned memory."""
    no_pinned_memory()


TYPE_NAMES = {
    dt.float32: "Float", dt.float64: "Double", dt.float16: "Half", dt.bfloat16: "BFloat16",
    dt.uint8: "Byte", dt.int8: "Char", dt.int16: "Short", dt.int32: "Int", dt.int64: "Long",
    dt.bool_: "Bool", dt.complex64: "ComplexFloat", dt.complex128: "ComplexDouble",
}  # fmt: skip
_TYPES_BY_NAME = {f"{v}Tensor": k for k, v in TYPE_NAMES.items()}


def type_name(self: Any) -> str:
    home = "torch.sparse" if self.layout is lo.sparse_coo else "torch"
    return f"{home}.{TYPE_NAMES.get(self._meta.dtype, dt.cxx_name(self._meta.dtype))}Tensor"


def type_(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The legacy type name, or a conversion to one: `x.type("torch.LongTensor")`."""
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, str):
        try:
            dtype = _TYPES_BY_NAME[dtype.rsplit(".", 1)[-1]]
        except KeyError:
            raise ValueError(f"invalid type: '{dtype}'") from None
    return self.to(getattr(dtype, "_legacy_dtype", dtype))


def storage_type(self: Any) -> str:
    return type_name(self).replace("Tensor", "Storage")


def record_stream(self: Any, stream: Any) -> None:
    """Accepted for compatibility: host work is synchronous."""


def module_load(self: Any, other: Any, assign: bool = False) -> Tensor:
    """What loading a state dict does with a tensor."""
    return other.detach() if assign else self.copy_(other).detach()


def new(self: Any, *args: Any, device: Any = None) -> Tensor:
    """The legacy constructor: sizes, or data, with this tensor's dtype."""
    if len(args) == 1 and not isinstance(args[0], int) and not isinstance(args[0], tuple):
        return self.new_tensor(args[0], device=device)
    shape = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    return self.new_empty(shape if shape or isinstance(shape, Size) else (0,), device=device)


def new_tensor(
    self: Any,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A copy of `data` with this tensor's dtype and device, unless others are given."""
    strided_only("new_tensor", layout)
    if pin_memory:
        no_pinned_memory()
    made = construct.build(data, dtype or self.dtype, as_optional_device(device) or self.device)
    return made.requires_grad_(requires_grad)


def dense_dim(self: Any) -> int:
    return int(self._meta.ndim)


def sparse_dim(self: Any) -> int:
    return 0


def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """Itself: a strided tensor is dense (unless it stands for others inside vmap)."""
    if state.kernel_level:
        self = state.kernel_level[-1].densified(self)
    return self if dtype is None else self.to(dtype)


def to_padded_tensor(self: Any, padding: float, output_size: Any = None) -> Tensor:
    """Only for nested tensors (see `lucerne.nested`)."""
    raise NotImplementedError(
        "to_padded_tensor: expected a nested tensor, got a dense one. Hint: "
        "nested.as_nested_tensor(list of tensors) makes one"
    )


def _placed(old: Any, shape: Any, strides: Any, offset: int, nbytes: int) -> Any:
    """The meta of a tensor that is to lie at `offset` of a storage with so many bytes."""
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if strides is not None and len(strides) != len(shape):
        raise RuntimeError(f"unequal size length ({len(shape)}) and stride length ({len(strides)})")
    if min(shape, default=0) < 0 or min(strides or (), default=0) < 0:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(shape)} and "
            f"strides={None if strides is None else list(strides)}"
        )
    meta = old.like(shape=shape, strides=strides)
    if (offset + meta.span) * meta.dtype.itemsize > nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(meta.strides)}, storage offset "
            f"{offset} need more bytes than the storage's {nbytes}"
        )
    return meta


def set_(
    self: Any, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Make this tensor read another's storage."""
    if source is None:
        source = self.new_empty((0,))
    handle = source._storage
    if isinstance(source, Tensor) and size is None:
        meta = with_flip(source._meta, self._meta.flipped)
        self._storage, self._offset, self._meta = handle, source._offset, meta
    else:
        shape = tuple(size) if size is not None else (handle.nbytes // self._meta.dtype.itemsize,)
        strides = None if stride is None else tuple(stride)
        meta = _placed(self._meta, shape, strides, storage_offset, handle.nbytes)
        meta = with_flip(meta, self._meta.flipped)
        self._storage, self._offset, self._meta = handle, storage_offset, meta
    self._array = None
    return self


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "name": lambda self: None,
    "grad_dtype": lambda self: self._meta.dtype,
    "volatile": lambda self: False,
}


def install() -> None:
    """Put the members on Tensor."""
    for name in _FOREIGN_DEVICES:
        setattr(Tensor, f"is_{name}", _device_flag(name))
    for name in ("cuda", "xpu", "ipu", "mtia", "hpu"):
        setattr(Tensor, name, _move_to(name))
    for flag in ("quantized", "sparse", "sparse_csr", "nested", "mkldnn"):
        setattr(Tensor, f"is_{flag}", property(lambda self: False))
    for fn in (
        cpu, is_pinned, pin_memory, is_shared, share_memory_, storage_type, record_stream,
        module_load, new, new_tensor, dense_dim, sparse_dim, to_dense, set_,
        to_padded_tensor,
    ):  # fmt: skip
        if fn.__name__ not in Tensor.__dict__:
            setattr(Tensor, fn.__name__, fn)
    Tensor.type = type_  # type: ignore[method-assign]
    for name, read in _ANSWERS.items():
        setattr(Tensor, name, property(read))
