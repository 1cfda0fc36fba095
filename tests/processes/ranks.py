"""Ranks for tests: forked from here, so that they start at once, and ended whatever they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_any
from pathlib import Path
from typing import Any

PATIENCE = 90.0


def _main(job: Callable[..., Any], rank: int, size: int, args: Any, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        pipe.send(("done", job(rank, size, *args)))
    except BaseException as error:
        shown = "".join(traceback.format_exception(error))
        pipe.send((type(error).__name__, f"{error}\n{shown}"))
    finally:
        pipe.close()
        os._exit(0)


def run(size: int, job: Callable[..., Any], *args: Any, patience: float = PATIENCE) -> list[Any]:
    """`job(rank, size, *args)` on each rank: its result, or the name and text of its error.

    A rank that ends without a word gives `("gone", ...)`, one that takes too long `("late", ...)`.
    """
    context = multiprocessing.get_context("fork")
    found: list[Any] = [("late", "")] * size
    pipes: dict[Connection, int] = {}
    processes = []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(job, rank, size, args, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes[ours] = rank
        processes.append(process)
    end = time.monotonic() + patience
    while pipes and time.monotonic() < end:
        for ready in wait_any(list(pipes), max(end - time.monotonic(), 0.01)):
            assert isinstance(ready, Connection)
            rank = pipes.pop(ready)
            try:
                found[rank] = ready.recv()
            except EOFError:
                found[rank] = ("gone", "")
    for process in processes:
        process.kill() if process.exitcode is None and pipes else process.join(10)
        process.join(10)
    return found


def results(size: int, job: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of all ranks; an error of one is raised."""
    found = run(size, job, *args)
    wrong = [f"rank {k}: {name} {text}" for k, (name, text) in enumerate(found) if name != "done"]
    if wrong:
        raise AssertionError("\n".join(wrong))
    return [value for _, value in found]


def meeting() -> str:
    """A file that does not exist, for `file://`."""
    return str(Path(tempfile.mkdtemp(prefix="lucerne-meet-")) / "meet")


def join(m: Any, rank: int, size: int, place: str, **options: Any) -> Any:
    """`m.distributed` with the world made."""
    dist = m.distributed
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=size, **options
    )
    return dist
