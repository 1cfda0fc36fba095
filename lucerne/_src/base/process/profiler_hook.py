"""Who is told what the framework does, while somebody wants to know: the profiler's way in.

Places that do something worth a name ask `Watch.current`, which is None nearly always; then that
question is all it costs. Eager calls of ops don't even ask: while somebody watches, they are sent
through him (`lucerne._src.tensor.eager.watchers.watch_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

ANNOTATION, BACKWARD, LEAF, FRONT, FUNCTION, PROGRAM, COLLECTIVE = (
    "annotation", "backward", "leaf", "front", "function", "program", "collective",
)  # fmt: skip
"""What a span is: something the user named, a node of a backward pass, the end of one (a gradient
is added to a leaf's), a public function that chooses among ops, an op, a compiled program, a
collective of several processes (whose `thing` is what a trace says of it)."""


class Watcher(Protocol):
    """Somebody who wants to know. Every `begin` is followed by one `end`, errors or not."""

    def begin(self, name: str, kind: str, thing: Any = None) -> Any:
        """Something starts now; `thing` is what `kind` says it is. What is given back goes to
        `end`; None: it is not of interest, and `end` is not called."""

    def end(self, span: Any) -> None:
        """It is over."""

    def steps(self, span: Any, program: Any, times: Sequence[int]) -> None:
        """After the end of a program's span: when each of its steps began and ended, in nanoseconds
        of the clock of `time.perf_counter_ns`; 0 and 0 for steps that were not reached."""


class Watch:
    """The one who watches now, in all threads; None: nobody."""

    current: Watcher | None = None


def watched(name: str, kind: str, run: Callable[[], Any], thing: Any = None) -> Any:
    """What `run()` gives; whoever watches sees it as a span."""
    watcher = Watch.current
    span = None if watcher is None else watcher.begin(name, kind, thing)
    if watcher is None or span is None:
        return run()
    try:
        return run()
    finally:
        watcher.end(span)
