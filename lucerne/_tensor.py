"""`lucerne._tensor`: where torch keeps the class Tensor, and what pickles of subclasses call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.tensor.tensor import Tensor as Tensor

__all__ = ["Tensor", "_rebuild_from_type_v2"]


def _rebuild_from_type_v2(
    func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any
) -> Any:
    """A tensor of a subclass, with the attributes it was pickled with."""
    made = func(*args)
    made = made if type(made) is new_type else made.as_subclass(new_type)
    restore = getattr(new_type, "__setstate__", None)
    if restore is not None and restore is not getattr(Tensor, "__setstate__", None):
        restore(made, state)
    else:
        for part in state if isinstance(state, tuple) else (state,):
            for name, value in (part or {}).items():
                setattr(made, name, value)
    return made
