"""Starting one function in several processes, and passing on what went wrong in one of them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from lucerne.multiprocessing.signals import die_with_parent_of


class ProcessException(Exception):  # noqa: N818  (PyTorch's name)
    """A process of `spawn` failed."""

    __slots__ = ["error_index", "error_pid"]

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised in one of the processes: the message has its traceback."""


class ProcessExitedException(ProcessException):
    """One of the processes ended by a signal or with a code other than 0."""

    __slots__ = ["exit_code"]

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        return type(self), (
            self.msg, self.error_index, self.pid, self.exit_code, self.signal_name,
        )  # fmt: skip


def _run(
    fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Connection, parent: int
) -> None:
    die_with_parent_of(parent)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        return  # the parent has it too
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that `spawn(join=False)` started."""

    def __init__(self, processes: list[Any], errors: list[Connection]) -> None:
        self.processes, self.errors = processes, errors
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one has ended; True when all have. The first failure ends the others and is
        raised here."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        self._raise(failed)
        return False

    def _end_others(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
            process.join()

    def _raise(self, index: int) -> None:
        process, told = self.processes[index], self.errors[index]
        text = _text_of(told)
        if text is not None:
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}",
                index,
                process.pid,
            )
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(
                f"process {index} terminated with signal {name}", index, process.pid, code, name
            )
        raise ProcessExitedException(
            f"process {index} terminated with exit code {code}", index, process.pid, code
        )


def _text_of(told: Connection) -> str | None:
    """The traceback that a process sent, if it did."""
    try:
        return str(told.recv()) if told.poll(0) else None
    except EOFError:
        return None


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` for i in 0..nprocs-1, each in its own process."""
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    parent = die_with_parent_of(0)
    for index in range(nprocs):
        here, there = multiprocessing.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, args, there, parent), daemon=daemon)
        process.start()
        there.close()
        processes.append(process)
        errors.append(here)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        continue
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` new processes; an error in one is raised here.

    The script must be importable: put its code under `if __name__ == "__main__":`.
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
