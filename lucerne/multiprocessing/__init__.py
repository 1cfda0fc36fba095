"""`lucerne.multiprocessing`: Python's `multiprocessing`, through which tensors are shared.

A tensor put on a queue, or given to a process, is not copied: its memory moves to a block that both
processes see (`Tensor.share_memory_`).
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403

from lucerne.multiprocessing import reductions as reductions
from lucerne.multiprocessing.reductions import init_reductions as init_reductions
from lucerne.multiprocessing.spawn import ProcessContext as ProcessContext
from lucerne.multiprocessing.spawn import ProcessExitedException as ProcessExitedException
from lucerne.multiprocessing.spawn import ProcessRaisedException as ProcessRaisedException
from lucerne.multiprocessing.spawn import SpawnContext as SpawnContext
from lucerne.multiprocessing.spawn import spawn as spawn
from lucerne.multiprocessing.spawn import start_processes as start_processes

__all__ = [
    *(name for name in multiprocessing.__all__ if name != "reducer"),
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
]

_STRATEGIES = {"file_descriptor"}


def get_all_sharing_strategies() -> set[str]:
    """How memory is shared: by the file of a block without a name, which nothing can leave over."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts the one strategy there is, and PyTorch's `file_system`, which then means the same."""
    known = {*_STRATEGIES, "file_system"}
    if new_strategy not in known:
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {sorted(known)}"
        )


init_reductions()
