"""The switch of lazy mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.capture.lazy import cuts
from lucerne._src.capture.lazy.pending import Pending
from lucerne._src.capture.lazy.programs import Programs
from lucerne._src.ir import dispatch

_MODES = (None, "default", "bitwise")
_programs: dict[str | None, Programs] = {}


class _Switch(threading.local):
    """What `lazy_mode(True)` turned on in this thread."""

    def __init__(self) -> None:
        self.pending: Pending | None = None


_switch = _Switch()


def _made(mode: str | None) -> Pending:
    if mode not in _MODES:
        raise ValueError(f"lazy: mode is 'default' or 'bitwise', not {mode!r}")
    chosen = None if mode == "default" else mode
    if chosen not in _programs:
        _programs[chosen] = Programs(chosen)
    return Pending(_programs[chosen])


@contextmanager
def lazy(mode: str | None = None) -> Iterator[None]:
    """Inside, ops are written down and run together when a value is needed.

    What is needed: `item()`, printing, `numpy()`, an `if` on a tensor, saving; and the end of the
    block. Each different graph is compiled once. `mode="bitwise"`: every bit as eager has it.

    >>> import lucerne as torch
    >>> with torch.lazy():
    ...     x = torch.ones(3)
    ...     y = (x * 2 + 1).sum()
    ...     print(y)
    tensor(9.)
    """
    if any(isinstance(x, Pending) for x in dispatch.state.kernel_level):
        yield  # it is on already
        return
    pending = _made(mode)
    with pending:
        try:
            yield
        finally:
            _end(pending)


def lazy_mode(on: bool = True, mode: str | None = None) -> None:
    """Switch lazy mode on (or off) in this thread, until it is switched again.

    >>> import lucerne as torch
    >>> torch.lazy_mode(True)
    >>> y = torch.ones(2) + 1
    >>> torch.lazy_mode(False)
    >>> y
    tensor([2., 2.])
    """
    pending = _switch.pending
    if on and pending is None:
        _switch.pending = _made(mode)
        _switch.pending.__enter__()
    elif not on and pending is not None:
        stack = dispatch.state.kernel_level
        if stack[-1] is not pending:
            raise RuntimeError("lazy_mode(False): something that was begun inside is not over yet")
        _switch.pending = None
        try:
            _end(pending)
        finally:
            pending.__exit__(None, None, None)


def _end(pending: Pending) -> None:
    if pending.graph.nodes:
        pending.cut(cuts.END)
    else:
        pending.run_now()


def lazy_sync() -> None:
    """Run what was written down now: before tensors are handed to another thread, for example."""
    for x in dispatch.state.kernel_level:
        if isinstance(x, Pending):
            x.cut(cuts.ASKED)


def lazy_report() -> Any:
    """What lazy mode did so far: graphs, compiles, and where and why it was cut."""
    return cuts.REPORT
