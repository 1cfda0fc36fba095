"""`lucerne.cpu`: the host as a device among others, for code that is written for any device."""

from __future__ import annotations

import contextlib
from typing import Any

from lucerne.cpu import amp as amp


class Stream:
    """The host has no streams: this one is always done."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def record_event(self) -> Event:
        return Event()

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""


class Event:
    """An event of a stream that is always done."""

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing to record."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""


_default = Stream()


class StreamContext(contextlib.nullcontext[Any]):
    """`with stream(...)`: changes nothing."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self.stream = stream


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    return _default


def current_device() -> str:
    return "cpu"


def set_device(device: Any) -> None:
    """There is one."""


def device_count() -> int:
    return 1


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def synchronize(device: Any = None) -> None:
    """Ops have finished when they return."""
