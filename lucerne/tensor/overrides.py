"""Types that take op calls over: `__torch_function__`, as in torch."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucerne.ir import dispatch
from lucerne.ir.op import Op
from lucerne.tensor.base import TensorBase, plain_types

_state = dispatch.state


def disabled_torch_function(
    cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Assign as `__torch_function__` to make a subclass behave as a plain tensor."""
    return NotImplemented


def is_override(x: Any) -> bool:
    """Whether this object's type wants to see op calls."""
    cls = type(x)
    if cls in plain_types or x is None:
        return False
    return getattr(cls, "__torch_function__", None) is not None


def _candidates(op: Op, args: tuple[Any, ...]) -> Iterator[Any]:
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l" and isinstance(a, tuple):
            yield from a
        else:
            yield a


def any_override(op: Op, args: tuple[Any, ...]) -> bool:
    if not _state.overrides_enabled:
        return False
    return any(is_override(a) for a in _candidates(op, args))


def offer(op: Op, args: tuple[Any, ...], out: Any) -> tuple[bool, Any]:
    """Let overriding arguments answer the call, subclasses before their bases."""
    if not _state.overrides_enabled:
        return False, None
    found: list[Any] = []
    for a in (*_candidates(op, args), out):
        if is_override(a) and type(a) not in [type(f) for f in found]:
            at = next((i for i, f in enumerate(found) if issubclass(type(a), type(f))), len(found))
            found.insert(at, a)
    if not found:
        return False, None
    positional = tuple(a for p, a in zip(op.params, args, strict=True) if not p.keyword_only)
    named = {p.name: a for p, a in zip(op.params, args, strict=True) if p.keyword_only}
    if out is not None:
        named["out"] = out
    types = tuple(type(f) for f in found)
    for f in found:
        result = type(f).__torch_function__(op.public, types, positional, named)
        if result is not NotImplemented:
            return True, result
    raise TypeError(
        f"no implementation found for '{op.qualified}' on types that implement "
        f"__torch_function__: {[t.__name__ for t in types]}"
    )


def plain_arguments(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with NumPy scalars as Python numbers; anything else that is no tensor is an error."""
    found: list[Any] = []
    for p, a in zip(op.params, args, strict=True):
        if p.kind == "t":
            a = _plain(op, p.name, a)
        elif p.kind == "l":
            a = tuple(_plain(op, p.name, x) for x in a)
        found.append(a)
    return tuple(found)


def _plain(op: Op, name: str, a: Any) -> Any:
    if a is None or isinstance(a, (TensorBase, bool, int, float, complex)):
        return a
    if isinstance(a, np.generic) or (isinstance(a, np.ndarray) and a.ndim == 0):
        return a.item()
    if isinstance(a, numbers.Number):
        return complex(a) if isinstance(a, numbers.Complex) and not isinstance(a, numbers.Real) else float(a)  # type: ignore[arg-type]
    raise TypeError(
        f"{op.name}(): argument '{name}' must be Tensor, not {type(a).__name__}. "
        "Hint: lucerne.tensor(...) makes a Tensor of a list or an array."
    )


class disable_overrides:  # noqa: N801
    """Inside, subclasses are treated as plain tensors (torch: DisableTorchFunctionSubclass)."""

    def __enter__(self) -> None:
        self._before = _state.overrides_enabled
        _state.overrides_enabled = False

    def __exit__(self, *exc: object) -> None:
        _state.overrides_enabled = self._before


def default_torch_function(
    cls: type, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run `func` as if on plain tensors; results become `cls` (shapes, numbers stay)."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with disable_overrides():
        result = func(*args, **kwargs)
    return _retype(result, cls)


def _retype(result: Any, cls: type) -> Any:
    if isinstance(result, TensorBase) and type(result) in plain_types and type(result) is not cls:
        return result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        parts = [_retype(r, cls) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
