"""A call failed: was it given something that is no tensor? Asked only after the failure.

Bodies of ops and fronts take tensors for granted, so that calls that are right pay for no check.
A list in place of a tensor then fails somewhere inside, with a message about an attribute; what the
user should read is which argument is wrong.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.signature import MISSING, parameters


class NotATensorError(TypeError):
    """Names the argument. A caller further out may name its own, which is the one the user gave."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeError, self.args


# Users see the class that torch raises.
NotATensorError.__qualname__ = NotATensorError.__name__ = "TypeError"
NotATensorError.__module__ = "builtins"

CAUGHT = (AttributeError, RuntimeError, NotATensorError)
_NUMBERS = (bool, int, float, complex)


def _is_wrong(annotation: Any, given: Any, error: Exception) -> bool:
    if given is MISSING or annotation not in ("Tensor", "Tensor | None"):
        return False
    if given is None:
        return bool(annotation == "Tensor")
    if isinstance(given, _NUMBERS) and isinstance(error, RuntimeError):
        return False  # numbers often stand for tensors: something else went wrong
    return not hasattr(given, "_meta") and not hasattr(type(given), "__torch_function__")


def not_a_tensor(name: str, p: Any, position: int, given: Any) -> NotATensorError:
    """The error that says which argument is wrong."""
    kind = type(given)
    shown = kind.__name__ if kind.__module__ != "numpy" else f"numpy.{kind.__name__}"
    where = "" if p.keyword_only else f" (position {position + 1})"
    hint = (
        ". Hint: torch.tensor(...) makes a Tensor of numbers, lists and arrays"
        if isinstance(given, (list, tuple, int, float)) or shown == "numpy.ndarray"
        else ""
    )
    return NotATensorError(
        f"{name}(): argument '{p.name}'{where} must be Tensor, not {shown}{hint}"
    )


_UNKNOWN_KEYWORD = re.compile(
    r"(.+)\(\) got an unexpected keyword argument '(.*?)'(\. Did you mean '.*?'\?)?"
)
"""Python's text; newer Pythons have a guess of their own."""


def named_keywords(error: TypeError, name: str, function: Callable[..., Any]) -> TypeError | None:
    """Python's error about an unknown keyword, with those there are; None: it is about another."""
    inner = inspect.unwrap(function)
    found = _UNKNOWN_KEYWORD.fullmatch(str(error))
    if found is None or not hasattr(inner, "__code__") or found[1] != inner.__name__:
        return None
    given, names = found[2], [p.name for p in parameters(inner)]
    near = [n for n in names if given.startswith(n) or n.startswith(given)]
    meant = f". Did you mean '{near[-1]}'?" if near else found[3] or "."
    text = f"{name}() got an unexpected keyword argument '{given}'{meant}"
    return TypeError(f"{text} It takes: {', '.join(names)}")


def _named(name: str, pairs: Iterable[tuple[Any, Any]], error: Exception) -> NotATensorError | None:
    for i, (p, given) in enumerate(pairs):
        if _is_wrong(p.annotation, given, error):
            return not_a_tensor(name, p, i, given)
    return None


def in_op(error: Exception, op: Any, args: tuple[Any, ...]) -> NotATensorError | None:
    """What to say about the arguments of an op; None: they are tensors."""
    return _named(op.name, zip(op.params, args, strict=True), error)


def raise_named(error: Exception, op: Any, args: tuple[Any, ...]) -> NoReturn:
    """In the handler of a failed call: raise what names the wrong argument, else the error."""
    mistake = in_op(error, op, args)
    if mistake is None:
        raise error
    raise mistake from None


def asked_metas(op: Any, metas: Sequence[Any], args: tuple[Any, ...]) -> tuple[TensorMeta, ...]:
    """What an op's meta function says about its results; a wrong call says so, at its line."""
    assert op.meta is not None, f"{op.name} has no meta function"
    try:
        found = op.meta(*metas)
    except CAUGHT as error:
        raise_named(error, op, args)
    return (found,) if isinstance(found, TensorMeta) else tuple(found)


def in_front(
    error: Exception, name: str, function: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> TypeError | None:  # fmt: skip
    """What to say about the arguments of a front; None: what the error says."""
    if not isinstance(error, CAUGHT):
        return named_keywords(error, name, function) if isinstance(error, TypeError) else None
    inner = inspect.unwrap(function)
    if not hasattr(inner, "__code__"):
        return None
    params = parameters(inner)
    given = [kwargs.get(p.name, MISSING) for p in params]
    given[: len(args)] = args[: len(params)]
    return _named(name, zip(params, given, strict=False), error)


def given_names(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, Any]]:
    """What a function was given, by the names of its parameters."""
    inner = inspect.unwrap(function)
    known = [p.name for p in parameters(inner)] if hasattr(inner, "__code__") else []
    known += [f"argument {k + 1}" for k in range(len(known), len(args))]
    return [*zip(known, args, strict=False), *kwargs.items()]
