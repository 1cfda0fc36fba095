"""`lucerne.Stream` and `lucerne.Event`: queues of work, for code that is written for any device.

Work on the host is done when a call returns, so a stream of it is always empty and an event has
always happened.
"""

from __future__ import annotations

import time
from typing import Any

from lucerne._src import backends
from lucerne._src.tensor import api as lu


class Stream:
    """A queue of work on a device.

    >>> import lucerne
    >>> with lucerne.Stream() as s:
    ...     y = lucerne.ones(2) + 1
    >>> s.query()
    True
    """

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = lu.device(backends.HOST if device is None else device)
        self.priority, self.stream_id = priority, 0

    @property
    def device_type(self) -> str:
        return str(self.device.type)

    @property
    def device_index(self) -> int:
        return -1 if self.device.index is None else int(self.device.index)

    def query(self) -> bool:
        """Whether all its work is done."""
        return True

    def synchronize(self) -> None:
        """Return when all its work is done: that is now."""

    def wait_stream(self, stream: Stream) -> None:
        """Work given from now on waits for what `stream` has: there is none."""

    def wait_event(self, event: Event) -> None:
        """Work given from now on waits for `event`, which has happened."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when the work given so far is done."""
        made = Event(self.device, enable_timing=True) if event is None else event
        made.record(self)
        return made

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        """The stream that was current before is so again."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(str(self.device))

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device_type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A moment in a stream.

    >>> import lucerne
    >>> start, end = (lucerne.Event(enable_timing=True) for _ in range(2))
    >>> start.record()
    >>> end.record()
    >>> start.elapsed_time(end) >= 0
    True
    """

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> None:  # fmt: skip
        self.device = lu.device(backends.HOST if device is None else device)
        self.enable_timing, self.event_id = enable_timing, 0
        self._at: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Happen when the work given so far is done: now."""
        self._at = time.perf_counter()

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Work of `stream` waits for it: it has happened."""

    def synchronize(self) -> None:
        """Return when it has happened: that is now."""

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this one to `other`."""
        if not (self.enable_timing and other.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or other._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (other._at - self._at) * 1000

    def __repr__(self) -> str:
        index = -1 if self.device.index is None else self.device.index
        return (
            f"torch.Event device_type={self.device.type}, device_index={index}, event_flag=0, "
            f"event_id={self.event_id}"
        )
