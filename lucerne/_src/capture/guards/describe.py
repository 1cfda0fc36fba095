"""Captured calls in the user's words: names of arguments, functions, and what guards ask.

>>> from lucerne._src.capture.guards.describe import leaf_names
>>> from lucerne._src.capture.trace.pytree import flatten
>>> def f(x, batch, scale=1.0): ...
>>> leaf_names(f, flatten(((0, {"ids": 1, "mask": [2, 3]}), {"scale": 4}), []))
['x', "batch['ids']", "batch['mask'][0]", "batch['mask'][1]", 'scale']
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.device import HOST
from lucerne._src.base.raw import is_a
from lucerne._src.capture.trace.pytree import LEAF

_NUMBERED = re.compile(r"argument (\d+)\b")


def function_of(fn: Any) -> Any:
    """The Python function behind something that is called; None: there is none."""
    fn = inspect.unwrap(getattr(fn, "func", fn))
    fn = getattr(fn, "__func__", fn)
    if not inspect.isfunction(fn):
        own = [vars(kind) for kind in type(fn).__mro__]
        fn = next((d[n] for n in ("forward", "__call__") for d in own if n in d), None)
    return fn if inspect.isfunction(fn) else None


def name_of(fn: Any) -> str:
    """How people call it: of a module, the name of its class."""
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    name = name if isinstance(name, str) else type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def place_of(fn: Any) -> tuple[str, int]:
    """File and first line; ("", 0) where that is not known."""
    found = function_of(fn)
    return ("", 0) if found is None else (found.__code__.co_filename, found.__code__.co_firstlineno)


def leaf_names(fn: Any, shape: Any) -> list[str]:
    """The names of the leaves of a call's arguments; `shape` is that of (args, kwargs)."""
    (_, positional), (_, keywords, named) = shape[1]
    names = _parameters(fn, len(positional))
    found: list[str] = []
    for name, part in zip(names, positional, strict=True):
        found += _paths(name, part)
    for name, part in zip(keywords, named, strict=True):
        found += _paths(str(name), part)
    return found


def _parameters(fn: Any, count: int) -> list[str]:
    """Names of so many positional arguments."""
    if not inspect.isroutine(fn) and hasattr(fn, "forward"):
        fn = fn.forward  # a module, whose own signature says nothing
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    more = range(count - len(names))
    names += [f"argument {len(names) + k}" if rest is None else f"{rest}[{k}]" for k in more]
    return names[:count]


def _paths(name: str, shape: Any) -> Iterator[str]:
    if shape is LEAF:
        yield name
        return
    kind, *keys, parts = shape
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    for k, part in enumerate(parts):
        if keys and issubclass(kind, dict):
            yield from _paths(f"{name}[{keys[0][k]!r}]", part)
        elif keys or fields:
            yield from _paths(f"{name}.{keys[0][k] if keys else fields[k]}", part)
        else:
            yield from _paths(f"{name}[{k}]", part)


def in_words(text: str, names: list[str]) -> str:
    """A guard's message with the names of arguments in place of their numbers.

    >>> in_words("argument 1 is 3, it was 2", ["x", "steps"])
    'steps is 3, it was 2'
    """
    return _NUMBERED.sub(lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)


def other_shape(fn: Any, before: Any, now: Any) -> str:
    """How the arguments of two calls differ in what they are made of.

    >>> from lucerne._src.capture.trace.pytree import flatten
    >>> def f(x, scale=1): ...
    >>> one, two = (flatten((args, kw), []) for args, kw in [((0,), {}), ((0,), {"scale": 3})])
    >>> other_shape(f, one, two)
    'it is called with scale as well'
    """
    old, new = leaf_names(fn, before), leaf_names(fn, now)
    more, less = [n for n in new if n not in old], [n for n in old if n not in new]
    if more and less:
        return f"it is called with {_some(more)} in place of {_some(less)}"
    if more:
        return f"it is called with {_some(more)} as well"
    if less:
        return f"it is called without {_some(less)}"
    return "arguments are passed by name where they were not, or the other way round"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def guards_in_words(fn: Any, guards: Any) -> list[str]:
    """Everything a compiled version takes for granted, one line each."""
    names = guards.names or leaf_names(fn, guards.shape)
    found = []
    for k, meta, needs_grad, kind in guards.tensors:
        strides = "" if meta.contiguous else f", strides {list(meta.strides)}"
        grad = ", requires_grad" if needs_grad else ""
        what = "" if kind.__name__ == "Tensor" else f", a {kind.__name__}"
        told = f"{meta.dtype.name}{list(meta.shape)} on {meta.device}{strides}{grad}{what}"
        found.append(f"{names[k]} is {told}")
    found += [f"{names[k]} is {_short(value)}" for k, value in guards.values]
    found += [f"{names[k]} is the same tensor object" for k, _ in guards.same]
    grad_mode, inference, cast, dtype, device = guards.circumstances
    modes = [
        f"grad mode is {'on' if grad_mode else 'off'}",
        "inference mode is on" if inference else "",
        "" if cast is None else "autocast is as it was",
        f"the default dtype is {dtype}",
        "" if device.type == HOST else f"the default device is {device}",
    ]
    found += [m for m in modes if m]
    if guards.shares:
        found.append("arguments share memory in the same way")
    found += [use.text for use in guards.uses]
    counts = Counter(map(str, guards.facts))
    found += [f"{n} times: {text}" if n > 1 else text for text, n in counts.items()]
    if guards.read_grads:
        found.append(f"{len(guards.read_grads)} gradients are there and are added to")
    found += [told for reason in dict.fromkeys(guards.more) if (told := _as_condition(reason))]
    return found + _surroundings(guards.reach)


_LISTED = 8
_CONDITIONS = (
    (re.compile(r"^a value in use\b.*"), ""),  # on the stack: has no name
    (re.compile(r"^.* is no [\w.]+$"), ""),  # the type of something that is told about elsewhere
    (re.compile(r"^(.*) is no longer (.*)$"), r"\1 is \2"),
    (re.compile(r"^(.*) was (.*)$"), r"\1 is \2"),
    (re.compile(r"^(.*) is another (.*)$"), r"\1 is the same \2"),
)


def _as_condition(reason: str) -> str:
    """What must hold, from what is said when it does not; empty: not worth telling."""
    for pattern, condition in _CONDITIONS:
        if pattern.match(reason):
            return pattern.sub(condition, reason)
    return reason


def _surroundings(reach: Any) -> list[str]:
    modules, tables = getattr(reach, "modules", {}), getattr(reach, "links", ())
    found = []
    if modules:
        parameters = len(getattr(reach, "tensors", ()))
        found.append(
            f"{len(modules)} modules are built as they were, with the same {parameters} tensors"
        )
    for table, _, thing in tables:
        if not is_a(thing, (bool, int, float, str, type(None))):
            continue
        found.append(f"{table.name} is {_short(thing)}")
    for place in getattr(reach, "places", ()):
        if is_a(place.value, (bool, int, float, str, type(None))):
            found.append(f"{place} is {_short(place.value)}")
    return found + _unread(reach)


def _unread(reach: Any) -> list[str]:
    """What is not compared; or why everything is."""
    because, unread = getattr(reach, "whole_because", ""), getattr(reach, "unread", [])
    if because:
        return [f"all that the function can reach is as it was ({because})"]
    if not unread:
        return []
    more = f" and {len(unread) - _LISTED} more" if len(unread) > _LISTED else ""
    return [f"never read, so it may change: {', '.join(unread[:_LISTED])}{more}"]


def _short(x: Any, most: int = 60) -> str:
    told = repr(x)
    return told if len(told) <= most else told[: most - 3] + "..."
