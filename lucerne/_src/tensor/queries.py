"""Small questions about tensors, as functions of the top module."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.outside import UntypedStorage
from lucerne._src.tensor.interop.typed_names import TypedStorage


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, TensorBase)


def is_storage(obj: Any) -> bool:
    return isinstance(obj, (UntypedStorage, TypedStorage))


def numel(input: Any) -> int:
    """How many elements there are."""
    return input._meta.numel


def is_nonzero(input: Any) -> bool:
    """Whether the one element is not zero."""
    if input._meta.numel == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    if input._meta.numel > 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(input.item() != 0)


def is_signed(input: Any) -> bool:
    return bool(input._meta.dtype.is_signed)


def is_same_size(input: Any, other: Any) -> bool:
    return bool(input._meta.shape == other._meta.shape)


def is_inference(input: Any) -> bool:
    return bool(input.is_inference())


def get_device(input: Any) -> int:
    return int(input.get_device())


def _assert(condition: Any, message: str) -> None:
    """`assert` as a function, which a traced graph can hold."""
    assert condition, message


def typename(obj: Any) -> str:
    """The type's name, with torch's spelling for tensors."""
    if isinstance(obj, TensorBase):
        return str(obj.type())  # type: ignore[attr-defined]
    named = isinstance(obj, type) or (callable(obj) and hasattr(obj, "__qualname__"))
    cls = obj if named else type(obj)
    module = getattr(cls, "__module__", "")
    return cls.__qualname__ if module in ("", "builtins") else f"{module}.{cls.__qualname__}"
