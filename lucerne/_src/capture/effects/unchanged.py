"""Objects that a call must leave as they are: looked at before, put back after.

A function that the bytecode machine can't run is captured by calling it, and what it does to lists,
dicts and objects that it is given goes unseen. So these are written down before the call; if they
differ afterwards they are put back, and the function can't be captured.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.effects.objects import is_iterator
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.tensor.base import TensorBase

_MOST = 10_000
_LEFT_ALONE = (TensorBase, type, types.ModuleType, types.FunctionType, types.MethodType)


class MutationCheck:
    """The content of everything that can be reached from some values.

    >>> xs = [1, [2]]
    >>> kept = MutationCheck([xs])
    >>> xs[1].append(3)
    >>> kept.put_back(), xs
    (True, [1, [2]])
    """

    def __init__(self, roots: Any) -> None:
        self.kept: list[tuple[Any, Any]] = []
        self.iterator: Any = None
        """An iterator among them: it can't be put back once it was advanced."""
        seen: set[int] = set()
        todo = [roots]
        while todo and len(seen) < _MOST:
            x = todo.pop()
            if id(x) in seen or is_a(x, _LEFT_ALONE) or is_module(x) or is_optimizer(x):
                continue
            seen.add(id(x))
            if is_iterator(x):
                self.iterator = x
                continue
            content = _content(x)
            if content is not None:
                self.kept.append((x, content))
                todo += _values(content)
            elif is_a(x, tuple | frozenset):
                todo += x

    def put_back(self) -> bool:
        """Undo what was done to them; whether there was anything."""
        changed = False
        for x, before in self.kept:
            if not _same(_content(x), before):
                changed = True
                _restore(x, before)
        return changed


def _content(x: Any) -> Any:
    """A flat copy of what an object holds; None: it holds nothing that can change."""
    if is_a(x, dict):
        return dict(x)
    if is_a(x, list | deque | bytearray):
        return list(x)
    if is_a(x, set):
        return set(x)
    own = own_dict(x)
    return dict(own) if is_a(own, dict) else None


def _values(content: Any) -> Iterator[Any]:
    yield from content.values() if is_a(content, dict) else content


def _same(now: Any, before: Any) -> bool:
    if is_a(before, set):
        return bool(now == before)
    if is_a(before, dict):
        same_keys = list(now) == list(before)
        return same_keys and all(now[k] is v for k, v in before.items())
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _restore(x: Any, before: Any) -> None:
    if is_a(x, dict | set):
        x.clear()
        x.update(before)
    elif is_a(x, list | bytearray):
        x[:] = before
    elif is_a(x, deque):
        x.clear()
        x.extend(before)
    else:
        x.__dict__.clear()
        x.__dict__.update(before)
