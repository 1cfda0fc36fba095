"""Cases in child processes: a child that dies names its case, and another goes on behind it."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import mmap
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_TEXT = 4096
_TICK_SECONDS = 5
_HANG_SECONDS = 120.0
"""So long without a word from a child, and it counts as hanging; a tick counts as one even if the
clock says more: a machine that was paused is no child's fault."""


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
        self.silence, self.buffer, self.hung = 0.0, b"", False
        self.traces = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the child lives
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            faulthandler.register(signal.SIGUSR1, self.traces)
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
        self.silence = 0.0
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
            doing = self.notice.read()
            if self.hung:
                self.traces.seek(0)
                name, doing = "hung", f"{doing}\n{self.threads}{self.traces.read()}"
            yield Result(self.left.pop(0), {}, name, doing)

    def wait(self, seconds: float) -> None:
        """So much time has passed; end a child that says nothing for too long."""
        self.silence += seconds
        if self.silence < _HANG_SECONDS or self.hung:
            return
        self.threads = _threads(self.pid)
        if "state T" in self.threads:  # somebody has stopped it: it waits for them
            self.silence = 0.0
            return
        self.hung = True
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1)
        os.kill(self.pid, signal.SIGKILL)


def _threads(pid: int) -> str:
    """State and processor time of a process's threads."""
    lines = []
    for path in sorted(Path(f"/proc/{pid}/task").iterdir()):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        lines.append(f"thread {path.name}: state {fields[0]}, ticks {fields[11]} + {fields[12]}\n")
    return "".join(lines)


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
            before = time.monotonic()
            ready = selector.select(timeout=_TICK_SECONDS)
            passed = min(time.monotonic() - before, _TICK_SECONDS)
            for key in selector.get_map().values():
                key.data.wait(passed)
            for key, _ in ready:
                child = key.data
                yield from child.results()
                if child.reader < 0:
                    selector.unregister(key.fd)
                    start(child.left)
