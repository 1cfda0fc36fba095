"""Tensors and the world outside: Python numbers, NumPy, DLPack, pickles, text."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.base.memory import array_over
from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import told
from lucerne._src.base.process.profiler_hook import FUNCTION, Watch, watched
from lucerne._src.ir import dispatch
from lucerne._src.ir.convert import as_dtype
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ops.copy.cast import cast
from lucerne._src.tensor import format as text
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.interop import dlpack
from lucerne._src.tensor.interop.untyped import UntypedStorage as UntypedStorage
from lucerne._src.tensor.interop.untyped import copy_storage
from lucerne._src.tensor.storage import Storage

Array = np.ndarray[Any, Any]


def bits(t: Any) -> Array:
    """The tensor's elements as stored (bfloat16 as uint16, ...), sharing memory with it."""
    if dispatch.state.kernel_level:
        other = dispatch.state.kernel_level[-1].reads(t)
        t = t if other is None else other
    return _bits(t)


def fill(t: Any, array: Array) -> None:
    """Give a new tensor its first values."""
    assign(t, array)
    if dispatch.state.kernel_level:
        dispatch.state.kernel_level[-1].made(t)


def assign(t: Any, array: Any) -> None:
    """Write stored elements, wherever the tensor's memory is."""
    held = _bits(t)
    if held.flags.writeable:
        held[...] = array
        return
    meta, flat = t._meta, np.array(t._storage.host())
    start = t._offset * meta.dtype.itemsize
    np.ndarray(meta.shape, meta.dtype.storage, flat, start, meta.byte_strides)[...] = array
    t._storage.write(0, flat[: t._storage.nbytes])


def _bits(t: Any) -> Array:
    meta: TensorMeta = t._meta
    if meta.device.type == backends.META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    storage = meta.dtype.storage
    if not meta.numel:
        return np.empty(meta.shape, storage)
    flat = t._storage.host()
    return np.ndarray(meta.shape, storage, flat, t._offset * storage.itemsize, meta.byte_strides)


def resolved(t: Any) -> Any:
    """The tensor without its conj or neg bit."""
    return t.detach().resolve_conj().resolve_neg()


def _lazy_bit(t: Any) -> str:
    return "conjugate" if t._meta.dtype.category == dt.COMPLEX else "negative"


def values(t: Any) -> Array:
    """The tensor's elements as NumPy values; types NumPy lacks are widened."""
    if not t._meta.dtype.native:
        t = cast(t.detach(), t._meta.dtype.compute)
    return bits(resolved(t) if t._meta.flipped else t)


_MOST_DIMS = 64
"""Of a NumPy array."""


def _few_dims(t: Any) -> Array:
    """`values`, of more dimensions than an array has without those of size 1."""
    if t._meta.ndim > _MOST_DIMS:
        t = t.detach().reshape([n for n in t._meta.shape if n != 1])
    return values(t)


def item(t: Any) -> Any:
    if t._meta.numel != 1:
        text = f"a Tensor with {t._meta.numel} elements cannot be converted to Scalar"
        raise told(RuntimeError(text), "item", t)
    found = _told(t)
    if found is not None:
        return found
    return _few_dims(t).item() if Watch.current is None else _shown(t, "aten::item")


def _told(t: Any) -> Any:
    """What an interpreter says the one element is; None: it is to be looked at."""
    seen = dispatch.state.kernel_level
    return seen[-1].integer(t) if seen else None


def _shown(t: Any, name: str) -> Any:
    """The one element, for a profile that shows its reading under a name."""
    return watched(name, FUNCTION, lambda: _few_dims(t).item())


def tolist(t: Any) -> Any:
    if t._meta.ndim <= _MOST_DIMS:
        return values(t).tolist()
    flat = iter(_few_dims(t).reshape(-1).tolist())
    return _nested(flat, tuple(t._meta.shape))


def _nested(flat: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(flat)
    return [_nested(flat, shape[1:]) for _ in range(shape[0])]


def truth(t: Any) -> bool:
    if t._meta.numel == 0:
        raise told(RuntimeError("Boolean value of Tensor with no values is ambiguous"), "bool", t)
    if t._meta.numel > 1:
        text = "Boolean value of Tensor with more than one value is ambiguous"
        raise told(RuntimeError(text), "bool", t)
    if dispatch.state.kernel_level:
        dispatch.state.kernel_level[-1].decides(t)
    return bool(_few_dims(t).item() if Watch.current is None else _shown(t, "aten::is_nonzero"))


def number(t: Any, kind: type) -> Any:
    """What `int(t)`, `float(t)` and `complex(t)` give."""
    if t._meta.numel != 1:
        text = "only one element tensors can be converted to Python scalars"
        raise told(ValueError(text), kind.__name__, t)
    if kind is int:
        found = _told(t)
        if found is not None:
            return found
    value = values(t).item() if Watch.current is None else _shown(t, "aten::item")
    if isinstance(value, complex) and kind is not complex:
        if value.imag:
            name = "double" if kind is float else "int64_t"
            raise RuntimeError(f"value cannot be converted to type {name} without overflow")
        value = value.real
    return kind(value)


def index(t: Any) -> int:
    if t._meta.dtype.category > dt.INTEGER or t._meta.numel != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(values(t).item())


def to_numpy(t: Any, force: bool = False) -> Array:
    """A NumPy array over the same memory."""
    if force:
        t = resolved(t.cpu())
    if dispatch.state.grad_enabled and requires_grad(t):
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if t._meta.device.type not in (backends.HOST, "reference"):
        raise TypeError(
            f"can't convert {t._meta.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if t._meta.flipped:
        bit = _lazy_bit(t)
        raise RuntimeError(
            f"Can't call numpy() on Tensor that has {bit} bit set. Use "
            f"tensor.resolve_{'conj' if bit == 'conjugate' else 'neg'}().numpy() instead."
        )
    if not t._meta.dtype.native:
        raise TypeError(f"Got unsupported ScalarType {dt.cxx_name(t._meta.dtype)}")
    return bits(t)


def as_array(t: Any, dtype: Any = None, copy: bool | None = None) -> Array:
    found = to_numpy(t)
    if dtype is not None and found.dtype != dtype:
        return found.astype(dtype)
    return found.copy() if copy else found


def from_numpy(array: Any) -> Any:
    """A tensor over the memory of `array`: writes to either are seen by both.

    >>> import numpy as np, lucerne
    >>> a = np.zeros(2)
    >>> lucerne.from_numpy(a).add_(1)
    tensor([1., 1.], dtype=torch.float64)
    >>> a
    array([1., 1.])
    """
    if not isinstance(array, np.ndarray):
        kind = type(array)
        name = (
            kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        )
        raise TypeError(f"expected np.ndarray (got {name})")
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported."
        )
    if any(st < 0 for st in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().) "
        )
    dtype = dt.from_numpy_dtype(array.dtype)
    if any(st % array.itemsize for st in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )
    strides = tuple(st // array.itemsize for st in array.strides)
    meta = make_meta(dtype, array.shape, strides, Device(backends.HOST))
    buffer = _byte_view(array, meta.span * dtype.itemsize)
    return make_tensor(Storage(buffer, buffer.nbytes, meta.device, owner=array), 0, meta)


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Any:
    """A 1-D tensor over the memory of a buffer (bytearray, array, mmap): writes are seen by both.

    >>> import lucerne
    >>> b = bytearray(2)
    >>> lucerne.frombuffer(b, dtype=lucerne.uint8).fill_(7)
    tensor([7, 7], dtype=torch.uint8)
    >>> b
    bytearray(b'\\x07\\x07')
    """
    kind: dt.dtype = as_dtype(dtype)
    raw = np.frombuffer(buffer, np.uint8) if len(memoryview(buffer)) else np.empty(0, np.uint8)
    count = _buffer_count(raw.nbytes, kind.itemsize, count, offset)
    if not raw.flags.writeable:
        notices.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. "
            "This means you can write to the underlying (supposedly non-writable) buffer using the "
            "tensor.",
            stacklevel=2,
        )
    memory = _byte_view(raw[offset:], count * kind.itemsize)
    meta = make_meta(kind, (count,), None, Device(backends.HOST))
    t = make_tensor(Storage(memory, memory.nbytes, meta.device, owner=buffer), 0, meta)
    return t.requires_grad_() if requires_grad else t


def _buffer_count(nbytes: int, itemsize: int, count: int, offset: int) -> int:
    """How many elements to read: all that fit when `count` is negative."""
    if nbytes == 0 or count == 0:
        raise ValueError(f"both buffer length ({nbytes}) and count ({count}) must not be 0")
    if not 0 <= offset < nbytes:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({nbytes} bytes) minus 1"
        )
    if count > 0:
        if offset + count * itemsize > nbytes:
            raise ValueError(
                f"requested buffer length ({count} * {itemsize} bytes) after offset ({offset} "
                f"bytes) must not be greater than actual buffer length ({nbytes} bytes)"
            )
        return count
    if (nbytes - offset) % itemsize:
        raise ValueError(
            f"buffer length ({nbytes - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({itemsize})"
        )
    return (nbytes - offset) // itemsize


def _byte_view(array: Array, nbytes: int) -> Array:
    """The bytes from the first element to the last, as one writable uint8 array."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    address = array.__array_interface__["data"][0]
    return array_over(address, (nbytes,), np.dtype(np.uint8), None, array)


# ---- text -------------------------------------------------------------------------------------


def represent(t: Any) -> str:
    """What `print(t)` shows, as torch would."""
    stack = dispatch.state.kernel_level
    shown_as: str | None = stack[-1].shows(t) if stack else None
    if shown_as is not None:
        return shown_as
    meta: TensorMeta = t._meta
    suffixes = []
    if meta.device.type != backends.HOST:
        suffixes.append(f"device='{meta.device}'")
    grad = _grad_suffix(t)
    name = repr(meta.dtype)
    if meta.device.type == backends.META:
        parts = ["...", *suffixes, f"size={tuple(meta.shape)}"]
        if meta.dtype is not defaults.get_default_dtype():
            parts.append(f"dtype={name}")
        return f"tensor({', '.join(parts + grad)})"
    shown = {defaults.get_default_dtype(), defaults.default_complex(), dt.int64, dt.bool_}
    prefix = "tensor(" if type(t).__name__ in ("Tensor", "Parameter") else f"{type(t).__name__}("
    return text.tensor_text(
        _few_dims(t.detach()),
        dtype_name=name,
        is_default_dtype=meta.dtype in shown,
        prefix=prefix,
        suffixes=suffixes + grad,
        shape=tuple(meta.shape),
    )


def contents(t: Any, indent: int) -> str:
    """The numbers of a tensor alone, in brackets; `indent` is the column of the first."""
    return text.contents_text(_few_dims(t.detach()), indent, tuple(t._meta.shape))


def _grad_suffix(t: Any) -> list[str]:
    fn = t.grad_fn
    found = ["requires_grad=True"] if requires_grad(t) else []
    if fn is not None:
        found = [f"grad_fn=<{fn.name()}>"]
    levels = dispatch.state.forward
    tangent = levels[-1].tangent(t) if levels else None
    return found if tangent is None else [*found, f"tangent={tangent}"]


# ---- pickles and copies -----------------------------------------------------------------------


def deepcopy_tensor(t: Any, memo: dict[int, Any]) -> Any:
    if id(t) in memo:
        return memo[id(t)]
    if t._auto is not None and t._auto.grad_fn is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            "because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    if t._meta.flipped:
        made = resolved(t)
    else:
        made = make_tensor(copy_storage(t._storage, memo), t._offset, t._meta)
    if type(t) is not type(made):
        made = made.as_subclass(type(t))
    memo[id(t)] = made
    if requires_grad(t):
        made.requires_grad_()
    if t.grad is not None:
        made.grad = deepcopy_tensor(t.grad, memo)
    made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in t.__dict__.items()})
    return made


def copy_tensor(t: Any) -> Any:
    """`copy.copy`: another tensor on the same memory."""
    made = make_tensor(t._storage, t._offset, t._meta)
    if type(t) is not type(made):
        made = made.as_subclass(type(t))
    made.__dict__.update(t.__dict__)
    return made.requires_grad_() if requires_grad(t) else made


def reduce_tensor(t: Any) -> Any:
    """Pickle by storage, offset, shape and strides: tensors sharing memory share it after loading.

    Loading calls `rebuild_tensor` and `rebuild_storage` and nothing else.
    """
    meta: TensorMeta = t._meta
    place = (t._offset, meta.dtype, tuple(meta.shape), meta.strides, requires_grad(t))
    flip = (True,) if meta.flipped else ()
    return rebuild_tensor, (type(t), t._storage, *place, *flip), t.__dict__ or None


def rebuild_tensor(
    cls: type,
    storage: Storage,
    offset: int,
    dtype: dt.dtype,
    shape: Any,
    strides: Any,
    grad: bool,
    flipped: bool = False,
) -> Any:
    """Make the tensor that `reduce_tensor` described."""
    meta = make_meta(dtype, tuple(shape), tuple(strides), storage.device, flipped)
    if offset < 0 or any(n < 0 for n in (*meta.shape, *meta.strides)):
        raise ValueError(f"tensor pickle: bad geometry {meta} at {offset}")
    if meta.numel and (offset + meta.span) * dtype.itemsize > storage.nbytes:
        raise ValueError(f"tensor pickle: {meta} at {offset} exceeds {storage.nbytes} bytes")
    t = make_tensor(storage, offset, meta)
    if cls is not type(t):
        t = t.as_subclass(cls)
    return t.requires_grad_() if grad else t


# ---- DLPack -----------------------------------------------------------------------------------


def to_dlpack_capsule(t: Any, **options: Any) -> Any:
    """Hand the memory of a host tensor over through NumPy's exporter."""
    if requires_grad(t):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if t._meta.flipped:
        raise BufferError(f"Can't export tensors with the {_lazy_bit(t)} bit set")
    options.pop("stream", None)
    if t._meta.dtype in dlpack.CODES:
        return dlpack.name_type(bits(t).__dlpack__(**options), t._meta.dtype)
    return to_numpy(t).__dlpack__(**options)


def dlpack_device(t: Any) -> tuple[int, int]:
    if t._meta.device.type not in (backends.HOST, "reference"):
        raise ValueError(f"no DLPack device for {t._meta.device}")
    return (1, 0)


class _Capsule:
    """A bare DLPack capsule as an object that speaks the protocol (host memory)."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor over the memory of any object that speaks DLPack."""
    if not hasattr(ext_tensor, "__dlpack__"):
        ext_tensor = _Capsule(ext_tensor)
    dtype = None
    try:
        found = np.from_dlpack(ext_tensor)
    except (BufferError, RuntimeError):  # perhaps a type that NumPy has not
        capsule = ext_tensor.__dlpack__()
        dtype = dlpack.take_type(capsule)
        if dtype is None:
            raise
        found = np.from_dlpack(_Capsule(capsule))
    if not found.flags.writeable:
        address = found.__array_interface__["data"][0]
        found = array_over(address, found.shape, found.dtype, found.strides, found)
    t = from_numpy(found)
    if dtype is not None:
        t = t.view(dtype)
    if copy is False and device is not None and Device(device) != t.device:
        raise ValueError(f"from_dlpack: memory of {t.device} is on {device} only as a copy")
    moved = t if device is None else t.to(Device(device))
    return moved.clone() if copy and moved is t else moved
