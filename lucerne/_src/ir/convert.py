"""How static arguments are read: what users write becomes the hashable form plans are keyed by."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any

from lucerne._src.base.device import device
from lucerne._src.base.dtype import bool_, complex128, dtype, float64, int64
from lucerne._src.ir.symbolic.numbers import SymFloat, SymInt, floating

_PYTHON_DTYPES: dict[Any, dtype] = {float: float64, int: int64, bool: bool_, complex: complex128}


class Unknown:
    """A value that is not known yet (a proxy of `fx`): passed on as it is, whatever is expected."""

    __slots__ = ()


def as_int(value: Any) -> int:
    if type(value) is int or type(value) is SymInt:
        return value  # type: ignore[return-value]
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    if isinstance(value, float) or value is None or isinstance(value, str):
        raise TypeError(f"expected an int, got {value!r} of type {type(value).__name__}")
    if not hasattr(value, "__index__"):
        raise TypeError(f"expected an int, got {value!r} of type {type(value).__name__}")
    return int(value.__index__())


def as_optional_int(value: Any) -> int | None:
    return None if value is None else as_int(value)


def as_int_list(value: Any) -> tuple[int, ...]:
    """Ints, however given: 3, (2, 3), a Size, a tensor of ints."""
    if type(value) is int:
        return (value,)
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    if isinstance(value, Iterable) and not isinstance(value, str) and not is_zero_dim(value):
        return tuple(v if type(v) is int else as_int(v) for v in value)
    return (as_int(value),)


def is_zero_dim(value: Any) -> bool:
    return getattr(value, "ndim", 1) == 0


def as_optional_int_list(value: Any) -> tuple[int, ...] | None:
    return None if value is None else as_int_list(value)


def as_float(value: Any) -> float:
    if type(value) is float or type(value) is SymFloat:
        return value  # type: ignore[return-value]
    if type(value) is SymInt:
        return floating("float", value)
    if isinstance(value, (bool, int, numbers.Real)):
        return float(value)
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    if hasattr(value, "item"):
        return float(value.item())
    raise TypeError(f"expected a float, got {value!r} of type {type(value).__name__}")


def as_optional_float(value: Any) -> float | None:
    return None if value is None else as_float(value)


def as_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    if isinstance(value, (str, float, list, tuple)) or value is None:
        raise TypeError(f"expected a bool, got {value!r} of type {type(value).__name__}")
    return bool(value)


def as_dtype(value: Any) -> dtype:
    if type(value) is dtype:
        return value
    if isinstance(value, type) and value in _PYTHON_DTYPES:
        return _PYTHON_DTYPES[value]
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    named = isinstance(value, str) and value.isidentifier()
    raise TypeError(
        f"argument 'dtype' must be torch.dtype, not {type(value).__name__}: got {value!r}. "
        f"Hint: write torch.{value if named else 'float32'}, without quotes"
    )


def as_optional_dtype(value: Any) -> dtype | None:
    return None if value is None else as_dtype(value)


def as_device(value: Any) -> device:
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    return value if type(value) is device else device(value)


def as_optional_device(value: Any) -> device | None:
    return None if value is None else as_device(value)


def as_str(value: Any) -> str:
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {value!r} of type {type(value).__name__}")
    return value


def as_tensor_list(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(value)
    if isinstance(value, Unknown):
        return value  # type: ignore[return-value]
    raise TypeError(
        f"expected a list or tuple of Tensors, got {type(value).__name__}: wrap it as [x]"
    )


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": as_int,
    "int | None": as_optional_int,
    "IntList": as_int_list,
    "IntList | None": as_optional_int_list,
    "float": as_float,
    "float | None": as_optional_float,
    "bool": as_bool,
    "str": as_str,
    "Dtype": as_dtype,
    "Dtype | None": as_optional_dtype,
    "Device | None": as_optional_device,
    "TensorList": as_tensor_list,
}
"""Annotation of a parameter -> how its argument is read. Anything else is passed on as it is."""

IntList = Any
Dtype = dtype
Device = device
Opaque = Any
