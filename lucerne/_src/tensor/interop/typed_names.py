"""The old typed names: `FloatTensor`, `LongTensor`, ..., `FloatStorage`, ... and `TypedStorage`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device as Device
from lucerne._src.ir.convert import as_dtype
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.tensor.base import TensorBase, make_tensor, new_tensor
from lucerne._src.tensor.interop.construct import build, legacy_tensor
from lucerne._src.tensor.interop.legacy_attributes import TYPE_NAMES
from lucerne._src.tensor.interop.outside import UntypedStorage
from lucerne._src.tensor.storage import Storage, bytes_of
from lucerne._src.tensor.tensor import Tensor

NAMES = {name: dtype for dtype, name in TYPE_NAMES.items()}


# ---- tensors ----------------------------------------------------------------------------------


class tensortype(type):
    """Type of the typed constructors: calls make plain Tensors, isinstance asks the dtype."""

    _legacy_dtype: dt.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for a in args:
            if isinstance(a, TypedStorage) and a.dtype is not cls._legacy_dtype:
                raise RuntimeError(
                    f"{cls.__name__}: expected a storage of dtype {cls._legacy_dtype} or an "
                    f"UntypedStorage, got {a.dtype}"
                )
            if isinstance(a, TensorBase) and a._meta.dtype is not cls._legacy_dtype:
                raise TypeError(
                    f"{cls.__name__}: expected a tensor of dtype {cls._legacy_dtype}, got "
                    f"{a._meta.dtype}. Hint: x.to({cls._legacy_dtype}) converts"
                )
        args = tuple(a.untyped() if isinstance(a, TypedStorage) else a for a in args)
        return legacy_tensor(Tensor, args, kwargs, cls._legacy_dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, TensorBase)
            and instance._meta.dtype is cls._legacy_dtype
            and instance._meta.device.type == backends.HOST
            and instance.layout is lo.strided  # type: ignore[attr-defined]
        )

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"

    @property
    def dtype(cls) -> dt.dtype:
        return cls._legacy_dtype

    @property
    def layout(cls) -> lo.layout:
        return lo.strided

    @property
    def is_sparse(cls) -> bool:
        return False

    @property
    def is_cuda(cls) -> bool:
        return False


def _tensor_type(name: str, dtype: dt.dtype) -> tensortype:
    made = tensortype(f"{name}Tensor", (), {"_legacy_dtype": dtype, "__module__": "lucerne"})
    made.__doc__ = f"Legacy constructor of {dtype} tensors: sizes, or data."
    return made


TENSOR_TYPES = {
    f"{name}Tensor": _tensor_type(name, dtype)
    for name, dtype in NAMES.items()
    if dtype.category != dt.COMPLEX
}


# ---- storages ---------------------------------------------------------------------------------


class TypedStorage:
    """A storage read as elements of one dtype.

    >>> import lucerne
    >>> lucerne.FloatStorage([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """

    __slots__ = ("_flat",)

    def __init__(
        self, data: Any = 0, *, wrap_storage: Any = None, dtype: Any = None, device: Any = None
    ) -> None:
        kind = defaults.get_default_dtype() if dtype is None else as_dtype(dtype)
        where = Device(backends.HOST) if device is None else Device(device)
        if wrap_storage is not None:
            storage = wrap_storage._storage
            meta = make_meta(kind, (bytes_of(storage) // kind.itemsize,), None, storage.device)
            self._flat = make_tensor(storage, 0, meta)
        elif isinstance(data, int):
            self._flat = new_tensor(make_meta(kind, (data,), None, where))
        else:
            self._flat = build(data, kind, where)

    @property
    def dtype(self) -> dt.dtype:
        found: dt.dtype = self._flat.dtype
        return found

    @property
    def device(self) -> Device:
        found: Device = self._flat.device
        return found

    @property
    def is_cuda(self) -> bool:
        return False

    @property
    def is_sparse(self) -> bool:
        return False

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self._flat._storage)

    def size(self) -> int:
        return to_int(self._flat._meta.numel)

    __len__ = size

    def nbytes(self) -> int:
        return bytes_of(self._flat._storage)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        return int(self._flat.data_ptr())

    def tolist(self) -> list[Any]:
        found: list[Any] = self._flat.tolist()
        return found

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._flat[at].item()

    def __setitem__(self, at: Any, value: Any) -> None:
        self._flat[at] = value

    def fill_(self, value: Any) -> TypedStorage:
        self._flat.fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        self._flat.copy_(
            source._flat if isinstance(source, TypedStorage) else build(source, None, None)
        )
        return self

    def clone(self) -> TypedStorage:
        return _wrap(self._flat.clone())

    def cpu(self) -> TypedStorage:
        return _wrap(self._flat.cpu())

    def resize_(self, size: int) -> None:
        """Room for another number of elements; those that fit are kept."""
        storage = self._flat._storage
        storage.resize(size * self.dtype.itemsize)
        self._flat = make_tensor(storage, 0, self._flat._meta.like(shape=(size,)))

    def to(self, dtype: Any) -> TypedStorage:
        """A copy converted to another dtype."""
        return _wrap(self._flat.to(as_dtype(dtype), copy=True))

    def type(self, dtype: Any = None) -> Any:
        """The legacy name of its type, or a conversion to one."""
        if dtype is None:
            return f"torch.{_name(self.dtype)}Storage"
        name = dtype if isinstance(dtype, str) else dtype.__name__
        return self.to(NAMES[name.rsplit(".", 1)[-1].removesuffix("Storage")])

    def pickle_storage_type(self) -> str:
        return f"{_name(self.dtype)}Storage"

    def is_shared(self) -> bool:
        return self.untyped().is_shared()

    def share_memory_(self) -> TypedStorage:
        """Move the bytes where other processes can see them."""
        self.untyped().share_memory_()
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        lines = "\n ".join(str(x) for x in self.tolist())
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        return f" {lines}\n[{kind} of size {len(self)}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return _wrap, (self._flat,)

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return _wrap(self._flat.__deepcopy__(memo))


def _name(dtype: dt.dtype) -> str:
    return next(name for name, found in NAMES.items() if found is dtype)


def _wrap(flat: Any) -> TypedStorage:
    made = object.__new__(TypedStorage)
    made._flat = flat
    return made


def storage(self: Any) -> TypedStorage:
    """The tensor's whole storage, read as its dtype (the old way; see `untyped_storage`)."""
    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype)


for _short, _kind in (
    ("float", dt.float32), ("double", dt.float64), ("half", dt.float16), ("bfloat16", dt.bfloat16),
    ("byte", dt.uint8), ("char", dt.int8), ("short", dt.int16), ("int", dt.int32),
    ("long", dt.int64), ("bool", dt.bool_),
):  # fmt: skip
    setattr(TypedStorage, _short, lambda self, _kind=_kind: self.to(_kind))


class _StorageType(type):
    """Type of `FloatStorage` and its kin: they make a TypedStorage of their dtype."""

    dtype: dt.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if isinstance(args[0] if args else None, (np.integer,)):
            args = (int(args[0]), *args[1:])
        return TypedStorage(*args, dtype=kwargs.pop("dtype", cls.dtype), **kwargs)

    def _from_buffer(cls, buffer: Any) -> TypedStorage:
        """A storage with a copy of a buffer's bytes."""
        flat = np.frombuffer(buffer, np.uint8).copy()
        if flat.nbytes % cls.dtype.itemsize:
            raise ValueError(
                f"buffer length ({flat.nbytes} bytes) must be a multiple of element size "
                f"({cls.dtype.itemsize})"
            )
        held = Storage(flat, flat.nbytes, Device(backends.HOST))
        return TypedStorage(wrap_storage=UntypedStorage(held), dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


STORAGE_TYPES = {
    f"{name}Storage": _StorageType(f"{name}Storage", (), {"dtype": dtype, "__module__": "lucerne"})
    for name, dtype in NAMES.items()
}


def storage_type(self: Any) -> Any:
    """The legacy class of its storage."""
    return STORAGE_TYPES[f"{_name(self.dtype)}Storage"]


Tensor.storage = storage  # type: ignore[method-assign]
Tensor.storage_type = storage_type  # type: ignore[method-assign]
