"""`lucerne.overrides`: objects and modes that take op calls over (`__torch_function__`).

Subclasses of Tensor see ops and members; other classes that define `__torch_function__` see the ops
they are passed to; a TorchFunctionMode sees the ops (not the members) that anybody calls while it
is entered.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.ir.namespaces import NAMESPACES, homes, public_names
from lucerne._src.tensor.autograd.modes import enable_grad
from lucerne._src.tensor.subclasses import torch_function as _overrides
from lucerne._src.tensor.subclasses.torch_function import BaseFunctionMode as BaseTorchFunctionMode
from lucerne._src.tensor.subclasses.torch_function import FunctionMode as TorchFunctionMode
from lucerne._src.tensor.subclasses.torch_function import current_mode as _get_current_function_mode
from lucerne._src.tensor.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
    "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property",
    "resolve_name", "wrap_torch_function",
]  # fmt: skip


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Inside a `__torch_dispatch__`: autograd records again what is called in the block."""
    with enable_grad():
        yield


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor or an object whose type has a `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is entered or one of the arguments overrides op calls."""
    if _get_current_function_mode() is not None:
        return True
    return _overrides._state.overrides_enabled and any(map(_overrides.is_override, relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Let a mode or the overriding arguments answer a call of a function of your own."""
    found = _overrides.overriding(relevant_args)
    mode = _get_current_function_mode()
    if mode is not None:
        stack = _overrides._state.call_level
        at = stack.index(mode)
        del stack[at]
        try:
            types = tuple(type(f) for f in found)
            result = mode.__torch_function__(public_api, types, args, kwargs)
        finally:
            stack.insert(at, mode)
            _overrides._state.refresh()
        if result is not NotImplemented:
            return result
    return _overrides.ask(found, public_api, args, kwargs, _spelled(public_api))


def _spelled(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function overridable: `dispatcher(*args)` returns the arguments that may do so."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def get_default_nowrap_functions() -> set[Any]:
    """Functions whose results a subclass does not take over."""
    return set(_overrides.nowrap_functions())


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that `__torch_function__` can see, by the module or class that holds them."""
    found: dict[Any, list[Any]] = {}
    for space in NAMESPACES:
        module = sys.modules[f"lucerne.{space}" if space else "lucerne"]
        found[module] = [f for n, f in public_names(space).items() if not n.startswith("_")]
    found[Tensor] = [m for n, m in _tensor_members() if callable(m)]
    return found


def _tensor_members() -> list[tuple[str, Any]]:
    return [(n, m) for n, m in vars(Tensor).items() if n not in _overrides._UNWATCHED]


@functools.cache
def _names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name, member in _tensor_members():
        if isinstance(member, property):
            found[member.__get__] = f"torch.Tensor.{name}.__get__"
            found[member.__set__] = f"torch.Tensor.{name}.__set__"
        elif callable(member):
            found[member] = f"torch.Tensor.{name}"
    return found | {function: ".".join(home) for function, home in homes().items()}


def resolve_name(f: Any) -> str | None:
    """The public name of a function passed to `__torch_function__`; None for others.

    >>> import lucerne
    >>> lucerne.overrides.resolve_name(lucerne.Tensor.shape.__get__)
    'torch.Tensor.shape.__get__'
    """
    return _names().get(f)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether it is a member of Tensor (an op that is also a method counts)."""
    members = {m for _, m in _tensor_members() if callable(m)}
    return func in members or getattr(func, "__name__", "") == "__get__"


def get_ignored_functions() -> set[Any]:
    """Public functions that take no tensors, or that `__torch_function__` never sees."""
    torch = sys.modules["lucerne"]
    seen = set(_names())
    return {
        f
        for n, f in vars(torch).items()
        if inspect.isfunction(f) and not n.startswith("_") and f not in seen
    }


def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """For each overridable function one with the same signature that returns -1."""
    found: dict[Any, Callable[..., Any]] = {}
    for function in (f for functions in get_overridable_functions().values() for f in functions):
        found[function] = _returning(inspect.signature(function))
    return found


def _returning(signature: inspect.Signature) -> Callable[..., int]:
    def constant(*args: Any, **kwargs: Any) -> int:
        signature.bind(*args, **kwargs)
        return -1

    constant.__signature__ = signature  # type: ignore[attr-defined]
    return constant
