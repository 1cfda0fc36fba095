"""Forks beside busy threads: every child does everything once, and comes to an end.

`python -m tests.threads forking --forks 500`
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import lucerne
from lucerne._src.backends.cpu.runtime.llvm import llvm
from tests.support.pace import Watch

PATIENCE = 20.0
"""Seconds of its own after which a child hangs: one that gets no processor only starves."""


def _compiling() -> Callable[[], Any]:
    numbers = itertools.count(1)

    def one() -> None:
        k = next(numbers) % 500  # machine code stays: a fork of gigabytes takes a second
        lucerne.compile(lambda x: (x.sin() * k).sum(0))(lucerne.ones(2, 1 + k % 50))

    return one


def _running() -> Callable[[], Any]:
    return lambda: WARM(LARGE)


def _drawing() -> Callable[[], Any]:
    return lambda: lucerne.randn(200_000)


def _adding() -> Callable[[], Any]:
    return lambda: (LEAF * LEAF - LEAF).sum().backward()


def _eager() -> Callable[[], Any]:
    return lambda: (LARGE @ LARGE[:, :64]).exp().sum()


def _emitting() -> Callable[[], Any]:
    """LLVM, whatever the disk has."""
    lines = "".join(f"  %v{k + 1} = mul i64 %v{k}, {k + 3}\n" for k in range(200))
    text = f"define i64 @f(i64 %v0) {{\n{lines}  ret i64 %v200\n}}\n"
    return lambda: llvm().emit_object(text, optimize=True)


BUSY: dict[str, Callable[[], Callable[[], Any]]] = {
    "compiling": _compiling,
    "running": _running,
    "drawing": _drawing,
    "adding": _adding,
    "eager": _eager,
    "emitting": _emitting,
}
LARGE = lucerne.ones(400, 400)
LEAF = lucerne.zeros(100_000, requires_grad=True)
WARM = lucerne.compile(lambda x: (x @ x).relu().sum(1))


def mixes() -> Iterator[tuple[str, ...]]:
    """Each kind of work alone, all together, and each pair."""
    for size in (1, len(BUSY), 2):
        yield from itertools.combinations(BUSY, size)


def _child(number: int) -> None:
    """All of it once, in a process that has one thread."""
    WARM(LARGE)
    lucerne.compile(lambda x: x.tan() * number)(lucerne.ones(3))
    lucerne.rand(5)
    _adding()()
    (LARGE @ LARGE).sum().item()
    lucerne.ones(7, 1 + number % 40).cumsum(1).softmax(0)


def hangs(mix: tuple[str, ...], forks: int) -> tuple[int, int]:
    """How many children hang, and how many end otherwise than well."""
    stop = threading.Event()

    errors: list[str] = []

    def work(one: Callable[[], Any]) -> None:
        try:
            while not stop.is_set():
                one()
        except BaseException:
            errors.append(traceback.format_exc())

    WARM(LARGE)
    threads = [threading.Thread(target=work, args=(BUSY[kind](),), daemon=True) for kind in mix]
    for t in threads:
        t.start()
    hung = failed = 0
    try:
        for number in range(forks):
            time.sleep(random.random() * 0.02)
            pid = os.fork()
            if pid == 0:
                faulthandler.dump_traceback_later(PATIENCE * 0.9)
                try:
                    _child(number)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            status = _waited(pid)
            hung += status is None
            failed += status not in (None, 0)
    finally:
        stop.set()
        for t in threads:
            t.join()
    if errors:
        print(*errors)
    return hung, failed + len(errors)


def _waited(pid: int) -> int | None:
    """The status of a child; None: it hung, and was ended."""
    watch = Watch(pid)
    while watch.seconds() < PATIENCE:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
