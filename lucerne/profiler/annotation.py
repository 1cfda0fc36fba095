"""`record_function`: a name for a part of the user's program."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from lucerne._src.base.process.profiler_hook import ANNOTATION, Watch, Watcher


class record_function(ContextDecorator):
    """While a profile runs, what happens inside shows under a name. Also a decorator.

    >>> from lucerne.profiler import profile, record_function
    >>> with profile() as prof, record_function("my part"):
    ...     total = sum(range(10))
    >>> prof.events()[0].name
    'my part'
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[tuple[Watcher, Any]] = []

    def _recreate_cm(self) -> record_function:
        """A decorated function may call itself, or run in several threads: one for each call."""
        return type(self)(self.name, self.args)

    def __enter__(self) -> record_function:
        watcher = Watch.current
        if watcher is not None:
            span = watcher.begin(self.name, ANNOTATION, self.args)
            if span is not None:
                self._open.append((watcher, span))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._open:
            watcher, span = self._open.pop()
            if Watch.current is watcher:  # else the profile is over, and has closed it
                watcher.end(span)
