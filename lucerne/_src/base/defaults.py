"""Process-wide defaults that torch lets a user set: the floating type and its complex partner."""

from __future__ import annotations

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import HOST, entered
from lucerne._src.base.device import device as Device


class Defaults:
    __slots__ = ("floating",)

    def __init__(self) -> None:
        self.floating = dt.float32


DEFAULTS = Defaults()


def get_default_dtype() -> dt.dtype:
    """The type of `lucerne.tensor(1.0)`.

    >>> import lucerne
    >>> lucerne.get_default_dtype()
    torch.float32
    """
    return DEFAULTS.floating


def set_default_dtype(d: dt.dtype) -> None:
    """Make `d` the type of floating results that have no other."""
    if not isinstance(d, dt.dtype):
        raise TypeError(f"invalid dtype object: {d!r}")
    if not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    DEFAULTS.floating = d


def default_complex() -> dt.dtype:
    return DEFAULTS.floating.to_complex()


def dtype_of_number(value: object) -> dt.dtype:
    """The type a Python number has on its own."""
    return dtype_of_number_type(value.__class__)  # (of a symbolic size: int)


def dtype_of_number_type(kind: type) -> dt.dtype:
    if issubclass(kind, bool):
        return dt.bool_
    if issubclass(kind, int):
        return dt.int64
    if issubclass(kind, float):
        return DEFAULTS.floating
    if issubclass(kind, complex):
        return default_complex()
    raise TypeError(f"expected a Python number, got {kind.__name__}")


class DefaultDevice:
    """Where tensors go when nobody says: set by `set_default_device`."""

    value: Device | None = None

    @classmethod
    def get(cls) -> Device:
        return entered[-1] if entered else cls.value or Device(HOST)
