"""What a worker process knows about itself."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class WorkerInfo:
    """Which worker this is: `id` of `num_workers`, with its `seed` and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any = None
    rng: Any = None
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` of this worker process; None in the main process.

    >>> print(get_worker_info())
    None
    """
    return _worker_info


def set_worker_info(info: WorkerInfo | None) -> None:
    global _worker_info
    _worker_info = info
