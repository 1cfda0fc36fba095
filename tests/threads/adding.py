"""Backward passes of several threads into one leaf: no addition is lost.

`python -m tests.threads adding --passes 10000`
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import lucerne

THREADS = 4
SIZE = 2000
"""Elements: enough that kernels run without Python's lock."""


def _leaf() -> Any:
    return lucerne.zeros(SIZE, requires_grad=True)


def _eager(w: Any) -> Callable[[], Any]:
    return lambda: (w * w - w).sum().backward()


def _hooked(w: Any) -> Callable[[], Any]:
    """A hook sends the pass through nodes instead of records."""
    w.register_hook(lambda g: g)
    return _eager(w)


def _towards(w: Any) -> Callable[[], Any]:
    return lambda: (w * w - w).sum().backward(inputs=[w])


def _compiled(w: Any) -> Callable[[], Any]:
    loss = lucerne.compile(lambda t: (t * t - t).sum())
    return lambda: loss(w).backward()


def _compiled_step(w: Any) -> Callable[[], Any]:
    return lucerne.compile(lambda: (w * w - w).sum().backward())


def _every_other(w: Any) -> Callable[[], Any]:
    """Compiled and eager passes, by turns in each thread."""
    ways = itertools.cycle([_compiled_step(w), _eager(w)])
    return lambda: next(ways)()


def _used_up(w: Any) -> Callable[[], Any]:
    """A hook that moves the gradient elsewhere as soon as it is there."""
    total = lucerne.zeros(SIZE)

    def move(leaf: Any) -> None:
        total.add_(leaf.grad)
        leaf.grad = None

    w.register_post_accumulate_grad_hook(move)
    w.total = total
    return _eager(w)


WAYS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "eager": _eager,
    "eager, a hook": _hooked,
    "eager, inputs=": _towards,
    "eager, used up by a hook": _used_up,
    "compiled": _compiled,
    "compiled step": _compiled_step,
    "compiled and eager": _every_other,
}


def lost(way: str, passes: int) -> int:
    """How many elements are not the sum of what every pass of every thread added."""
    leaf = _leaf()
    body = WAYS[way](leaf)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(passes):
                body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    found = getattr(leaf, "total", leaf.grad)
    return int((found != -THREADS * passes).sum())
