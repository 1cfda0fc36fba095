"""`lucerne.compiler`: what programs say to a compiler about their own functions.

Nothing is compiled yet, so a function that asks to be left alone is, and no program is ever inside
a compilation. What would compile says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def compile(model: Any = None, **options: Any) -> NoReturn:
    """Refuses: graphs of more than one op aren't compiled yet."""
    raise NotImplementedError(
        "torch.compile is not in Lucerne yet. Use the model or function as it is: the results are "
        "the same, and the kernel of each op is compiled anyway."
    )


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function, which runs as Python runs it; also as a decorator with arguments."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function itself: there is no graph to keep it in."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself: it is called each time."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing: there is no graph to put the substitute in."""
    return lambda function: function


def is_compiling() -> bool:
    return False


def is_dynamo_compiling() -> bool:
    return False


def is_exporting() -> bool:
    return False


def cudagraph_mark_step_begin() -> None:
    """No step is recorded."""


def reset() -> None:
    """Nothing was compiled."""


def list_backends(exclude_tags: tuple[str, ...] = ()) -> list[str]:
    return []
