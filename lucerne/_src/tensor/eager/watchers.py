"""Eager calls, sent through somebody who watches them."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.tensor.eager import run as eager
from lucerne._src.tensor.storage import FAST


class _Route:
    """The thread whose fast path is off, and what stood at the bottom before."""

    before: Any = None


def watch_calls(run: Any, public: Any) -> None:
    """From now on `run(op, args, out=None)` gets the eager calls of ops of this thread, and those
    of other threads that machine code does not take (it takes those of one thread, the main one's);
    it passes them on to `eager.run`. Machine code is off in this thread, so all its calls arrive.

    `public(function, arguments, names)` gets the calls of public functions and methods, where an
    engine stands in front of them; the last arguments have the names (None: there are none). It
    passes them on to `function.__wrapped__`.
    """
    if FAST is None:
        _Route.before = dispatch.entry.run
        dispatch.install(run)
    else:
        FAST.route(run, public)
    dispatch.state.add_special(1)


def quicken(on: bool) -> bool:
    """Let machine code take the next call of this thread, although somebody watches, or no longer.
    Whether it may: not while something else needs the complete path."""
    state = dispatch.state
    if FAST is None or state.active or state.special != 1 or state.cast is not None:
        return False
    FAST.set_mode(state._grad_enabled, not on, 0)
    return True


def unwatch_calls(same_thread: bool = True) -> None:
    """No longer. To be called in the thread that called `watch_calls`, which may go the short way
    again then; in a forked process there may be another thread only."""
    if same_thread:
        dispatch.state.add_special(-1)
    if FAST is None:
        dispatch.install(_Route.before)
    else:
        FAST.route(eager.run, None)
