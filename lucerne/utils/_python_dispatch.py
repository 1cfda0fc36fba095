"""`lucerne.utils._python_dispatch`: modes and subclasses below autograd, under torch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir.overload import OpOverload
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.subclasses.torch_dispatch import BaseDispatchMode as BaseTorchDispatchMode
from lucerne._src.tensor.subclasses.torch_dispatch import DispatchMode as TorchDispatchMode
from lucerne._src.tensor.subclasses.torch_dispatch import disable_modes as _disable_current_modes
from lucerne._src.tensor.subclasses.torch_dispatch import (
    mode_stack as _get_current_dispatch_mode_stack,
)
from lucerne._src.tensor.subclasses.torch_function import dispatching

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "_disable_current_modes",
    "_get_current_dispatch_mode",
    "_get_current_dispatch_mode_stack",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]


def _get_current_dispatch_mode() -> Any:
    """The innermost mode that is entered, or None."""
    stack = _get_current_dispatch_mode_stack()
    return stack[-1] if stack else None


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is entered."""
    return bool(_get_current_dispatch_mode_stack())


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of a class can be taken apart into plain ones and put together again."""
    both = hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
    return both and t in dispatching


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor can be (`__tensor_flatten__`)."""
    return isinstance(t, TensorBase) and is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """A wrapper whose inner tensors are `callback(name, tensor)`."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.shape if outer_size is None else outer_size
    strides = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, strides)


def return_and_correct_aliasing(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """What a `__torch_dispatch__` should return: the argument itself where an op writes to one."""
    if "out" in kwargs:
        return kwargs["out"]
    name = func.overloadpacket.__name__
    if name.endswith("_") and not name.endswith("__") and args:
        return args[0]
    return out
