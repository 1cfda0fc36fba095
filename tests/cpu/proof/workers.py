"""Cases in child processes: a child that dies names its case, and another goes on behind it."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_TEXT = 4096
_HANG_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Result:
    """What a child said about case `index`; `death`: the signal that ended it instead."""

    index: int
    said: dict[str, Any]
    death: str = ""
    doing: str = ""


class Notice:
    """A page both processes see: which case, and what it is doing."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, _TEXT)

    def write(self, text: str) -> None:
        raw = text.encode(errors="replace")[: _TEXT - 8]
        self.page[0:8] = len(raw).to_bytes(8, "little")
        self.page[8 : 8 + len(raw)] = raw

    def read(self) -> str:
        length = int.from_bytes(self.page[0:8], "little")
        return self.page[8 : 8 + length].decode(errors="replace")


Work = Callable[[int, Notice], dict[str, Any]]


class _Child:
    """One process, working through a list of case numbers."""

    def __init__(self, indices: Sequence[int], work: Work) -> None:
        self.left, self.notice = list(indices), Notice()
        self.heard, self.buffer = time.monotonic(), b""
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            self._work(writer, work)
        os.close(writer)
        self.reader = reader

    def _work(self, writer: int, work: Work) -> None:
        status = 1
        try:
            for index in self.left:
                line = json.dumps([index, work(index, self.notice)])
                raw = memoryview(line.encode() + b"\n")
                while raw:
                    raw = raw[os.write(writer, raw) :]
            status = 0
        finally:
            os._exit(status)

    def results(self) -> Iterator[Result]:
        """What has arrived; called when the pipe has something to say."""
        raw = os.read(self.reader, 1 << 16)
        self.heard = time.monotonic()
        *lines, self.buffer = (self.buffer + raw).split(b"\n")
        for line in lines:
            index, said = json.loads(line)
            self.left.remove(index)
            yield Result(index, said)
        if not raw:
            yield from self._ended()

    def _ended(self) -> Iterator[Result]:
        os.close(self.reader)
        self.reader = -1
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.left:
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            yield Result(self.left.pop(0), {}, name, self.notice.read())


def run_all(count: int, work: Work, processes: int) -> Iterator[Result]:
    """`work(index, notice)` for all cases, in forked processes; results as they come."""
    shares = [list(range(start, count, processes)) for start in range(processes)]
    with selectors.DefaultSelector() as selector:

        def start(indices: list[int]) -> None:
            if indices:
                child = _Child(indices, work)
                selector.register(child.reader, selectors.EVENT_READ, child)

        for share in shares:
            start(share)
        while selector.get_map():
            for key, _ in selector.select(timeout=5):
                child = key.data
                yield from child.results()
                if child.reader < 0:
                    selector.unregister(key.fd)
                    start(child.left)
            now = time.monotonic()
            for key in list(selector.get_map().values()):
                if now - key.data.heard > _HANG_SECONDS:
                    os.kill(key.data.pid, signal.SIGKILL)
                    key.data.heard = now
