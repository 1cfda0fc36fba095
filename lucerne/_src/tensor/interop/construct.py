"""Making tensors out of Python data: `tensor`, `as_tensor`, the legacy constructor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.defaults import DefaultDevice as DefaultDevice
from lucerne._src.base.device import device as Device
from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.base.shape import Size
from lucerne._src.base.unspecialized import Guarding, Symbolic
from lucerne._src.ir.convert import as_optional_device, as_optional_dtype
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.symbolic.numbers import by_values, to_int
from lucerne._src.ops.creation import fills
from lucerne._src.tensor.autograd.state import requires_grad as needs_grad
from lucerne._src.tensor.base import TensorBase, make_tensor, new_tensor
from lucerne._src.tensor.interop import outside


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A new tensor with a copy of `data` (a number, a nested list, an array, a tensor).

    >>> import lucerne
    >>> lucerne.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if pin_memory:
        no_pinned_memory()
    if isinstance(data, TensorBase):
        notices.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than torch.tensor(sourceTensor).",
            stacklevel=2,
        )
    try:
        made = build(data, as_optional_dtype(dtype), as_optional_device(device))
    except Exception as error:
        entry_failed(error)
        raise
    return made.requires_grad_(requires_grad) if requires_grad else made


def build(data: Any, dtype: dt.dtype | None, device: Device | None) -> Any:
    """Always a copy; dtype inferred by torch's rules when not given."""
    is_tensor = isinstance(data, TensorBase)
    where = device or (data.device if is_tensor else DefaultDevice.get())
    if is_tensor:
        return data.detach().to(where, dtype or data._meta.dtype, copy=True)
    if isinstance(data, Symbolic):
        kind = dtype or defaults.dtype_of_number(data)
        return fills.make_filled((), data, kind, where, requires_grad=False)
    array, inferred = _array_of(data, dtype)
    target = dtype or inferred
    host = Device(backends.HOST)
    exact = dt.from_numpy_dtype(array.dtype)
    strides = tuple(n // array.itemsize for n in array.strides)
    dense = bool(array.size) and sh.is_dense(array.shape, strides) and min(strides, default=0) >= 0
    t = new_tensor(make_meta(exact, array.shape, strides if dense else None, host))
    outside.fill(t, array)
    if target is not exact:
        t = t.to(target)
    return t if where == host else t.to(where)


def _array_of(data: Any, dtype: dt.dtype | None) -> tuple[Any, dt.dtype]:
    if Guarding.count:  # numbers of a tensor that is made now are plain
        data = by_values(data)
    if isinstance(data, np.ndarray):
        plain = data.astype(data.dtype.newbyteorder("="), copy=False)
        return plain, dt.from_numpy_dtype(plain.dtype)
    if isinstance(data, np.generic):
        return np.asarray(data), dt.from_numpy_dtype(data.dtype)
    if isinstance(data, (bool, int, float, complex)):
        return _number_array(data, dtype)
    found = _plain_array(data, dtype) if type(data) in _LISTS and data else None
    if found is not None:
        return found
    if hasattr(data, "__dlpack__"):
        # not `__array_interface__`: it is an address, which PyTorch does not believe either
        array = np.asarray(data) if hasattr(data, "__array__") else np.from_dlpack(data)
        return array, dt.from_numpy_dtype(array.dtype)
    return _sequence_array(data, dtype)


_LISTS = (list, tuple)
_CARRIERS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def _plain_array(data: Any, dtype: dt.dtype | None) -> tuple[Any, dt.dtype] | None:
    """What most data is, a list (of lists) of numbers of one Python type, without a look at each
    number in Python. None: it is something else, or has a mistake that `_sequence_array` names."""
    flat, shape = data, [len(data)]
    while type(flat[0]) in _LISTS:
        width = len(flat[0])
        if not width or any(type(row) not in _LISTS or len(row) != width for row in flat):
            return None
        flat = list(itertools.chain.from_iterable(flat))
        shape.append(width)
    kinds = set(map(type, flat))
    kind = kinds.pop()
    if kinds or kind not in _CARRIERS:
        return None
    if kind is int and dtype is not None and dtype is not dt.int64:
        ends = [min(flat), max(flat)]
        if ends[0] <= -(2**53) or ends[1] >= 2**53:
            return None
        _check_integers(ends, dtype)
    try:
        array = np.array(flat, _CARRIERS[kind])
    except OverflowError:
        return None
    if kind is float:
        _check_floats(array, dtype)
    return array.reshape(shape), defaults.dtype_of_number_type(kind)


def _number_array(value: Any, dtype: dt.dtype | None) -> tuple[Any, dt.dtype]:
    inferred = defaults.dtype_of_number(value)
    if isinstance(value, int):
        _check_integers([value], dtype)
    if type(value) is int and value >= 2**63:
        return np.asarray(value, np.uint64), inferred
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
    array: Any = np.asarray(value, kinds[type(value)])
    if type(value) is float:
        _check_floats(array, dtype)
    return array, inferred


def _check_floats(array: Any, dtype: dt.dtype | None) -> None:
    """Refuse floats (nan is one) that an integer type can't hold."""
    if dtype is None or dtype.category != dt.INTEGER:
        return
    info = np.iinfo(dtype.storage)
    if not ((array >= info.min) & (array <= info.max)).all():
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def _check_integers(found: list[Any], dtype: dt.dtype | None) -> None:
    """Refuse numbers the target type can't hold (unsigned types take small negatives, as in C)."""
    integers = [x for x in found if type(x) is int]
    if not integers:
        return
    low, high = min(integers), max(integers)
    if low < -(2**63) or high >= (2**64 if dtype is dt.uint64 else 2**63):
        raise ValueError("Overflow when unpacking long long")
    if dtype is None or dtype.category != dt.INTEGER or dtype.itemsize == 8:
        return
    info = np.iinfo(dtype.storage)
    if high > info.max or low < (info.min if dtype.is_signed else -info.max):
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, Sequence) and not isinstance(data, str):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    if isinstance(data, (TensorBase, np.ndarray)):
        shape.extend(data.shape)  # type: ignore[union-attr]
    return tuple(shape)


def _leaves(data: Any, shape: tuple[int, ...], depth: int, into: list[Any]) -> None:
    if depth == len(shape):
        if isinstance(data, Sequence):
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        into.append(data)
        return
    if isinstance(data, (TensorBase, np.ndarray)):
        data = data.tolist()  # type: ignore[union-attr]
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise TypeError(f"not a sequence: expected a list at dimension {depth}, got {data!r}")
    if len(data) != shape[depth]:
        raise ValueError(
            f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})"
        )
    for x in data:
        _leaves(x, shape, depth + 1, into)


def _sequence_array(data: Any, dtype: dt.dtype | None) -> tuple[Any, dt.dtype]:
    if isinstance(data, str | bytes):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, dict) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    data = data if isinstance(data, Sequence) else list(data)
    shape = _shape_of(data)
    leaves: list[Any] = []
    _leaves(data, shape, 0, leaves)
    inferred = _common_type(leaves)
    plain = [x.item() if isinstance(x, (TensorBase, np.generic)) else x for x in leaves]  # type: ignore[union-attr]
    _check_integers(plain, dtype)
    array = np.array(plain, _carrier(plain, dtype or inferred)).reshape(shape)
    if array.dtype == np.float64:
        _check_floats(array, dtype)
    return array, inferred


def _carrier(plain: list[Any], target: dt.dtype) -> Any:
    """A NumPy type that holds the Python values exactly until they are converted."""
    if any(isinstance(x, complex) for x in plain):
        return np.complex128
    if any(isinstance(x, float) for x in plain):
        return np.float64
    if plain and all(isinstance(x, bool) for x in plain):
        return np.bool_
    if target.category >= dt.FLOAT and any(abs(x) >= 2**53 for x in plain):
        return np.float64
    if not plain:
        return target.compute.storage
    return np.uint64 if any(x >= 2**63 for x in plain) else np.int64


def _common_type(leaves: list[Any]) -> dt.dtype:
    if not leaves:
        return defaults.get_default_dtype()
    found: dt.dtype | None = None
    for x in leaves:
        if isinstance(x, TensorBase):
            kind = x._meta.dtype
        elif isinstance(x, np.generic):
            kind = dt.from_numpy_dtype(x.dtype)
        elif isinstance(x, (bool, int, float, complex)):
            kind = defaults.dtype_of_number(x)
        else:
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
        found = kind if found is None else dt.promote_types(found, kind)
    assert found is not None
    return found


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """`data` as a tensor, without a copy where that is possible."""
    dtype, device = as_optional_dtype(dtype), as_optional_device(device)
    if isinstance(data, TensorBase):
        return data.to(device or data._meta.device, dtype or data._meta.dtype)  # type: ignore[attr-defined]
    if isinstance(data, np.ndarray) and all(s >= 0 for s in data.strides):
        shared = outside.from_numpy(data)
        return shared.to(device or shared.device, dtype or shared.dtype)
    return build(data, dtype, device)


def legacy_tensor(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: dt.dtype | None = None
) -> Any:
    """`Tensor(2, 3)`: uninitialised; `Tensor([1, 2])`: data, in the default float type.

    A Size is sizes, any other sequence is data; a tensor gives another tensor on its memory.
    """
    dtype = dtype or defaults.get_default_dtype()
    device = as_optional_device(kwargs.pop("device", None))
    if "data" in kwargs:
        args = (kwargs.pop("data"),)
    if kwargs:
        raise TypeError(f"new() received an unexpected keyword argument '{next(iter(kwargs))}'")
    made = _legacy(args, dtype, device or DefaultDevice.get())
    return made if cls is type(made) else as_subclass(made, cls)


def _legacy(args: tuple[Any, ...], dtype: dt.dtype, device: Device) -> Any:
    first = args[0] if len(args) == 1 else None
    if isinstance(first, TensorBase):
        return first.view_as(first)  # type: ignore[attr-defined]
    if isinstance(first, outside.UntypedStorage):
        count = first.nbytes() // dtype.itemsize
        return make_tensor(first._storage, 0, make_meta(dtype, (count,), None, first.device))
    if len(args) == 1 and not isinstance(first, (int, np.integer, Size)):
        if isinstance(first, str | bytes):
            raise TypeError(f"new(): invalid data type '{type(first).__name__}'")
        if not hasattr(first, "__len__"):
            raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")
        return build(first, dtype, device)
    return _uninitialised(first if isinstance(first, Size) else args or (0,), dtype, device)


def _uninitialised(shape: Sequence[Any], dtype: dt.dtype, device: Device) -> Any:
    for i, n in enumerate(shape):
        if not isinstance(n, (int, np.integer)):
            raise TypeError(
                f"new(): argument 'size' failed to unpack the object at pos {i + 1} with error "
                f'"type must be tuple of ints,but got {type(n).__name__}"'
            )
    sizes = tuple(to_int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(sizes)}: {list(sizes)}"
        )
    return new_tensor(make_meta(dtype, sizes, None, device))


def as_subclass(t: Any, cls: type) -> Any:
    """An instance of `cls` with the state of `t`."""
    made: Any = object.__new__(cls)
    bare = make_tensor(t._storage, t._offset, t._meta)
    made._storage, made._offset, made._meta = bare._storage, bare._offset, bare._meta
    made._auto, made._view, made._array = t._auto if needs_grad(t) else None, t._view, None
    return made
