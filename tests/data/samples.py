"""Datasets of the loader tests: importable, so that worker processes find them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import lucerne
from lucerne.utils.data import Dataset, IterableDataset, get_worker_info


class Augmented(Dataset[Any]):
    """Each sample: its key, draws from all three global generators, and some bytes."""

    def __init__(self, length: int, size: int = 8, delay: float = 0.0) -> None:
        self.length, self.size, self.delay = length, size, delay

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if self.delay:
            time.sleep(self.delay)
        noise = lucerne.rand(2)
        return i, random.random(), np.random.rand(), noise, np.full(self.size, i, np.float32)


class Deadly(Augmented):
    """Does something bad at one key: `how` is a signal's number, or an exit code below 0."""

    def __init__(self, length: int, key: int, how: int, once_file: str = "") -> None:
        super().__init__(length)
        self.key, self.how, self.once_file = key, how, once_file

    def __getitem__(self, i: int) -> Any:
        if i == self.key and get_worker_info() is not None and self._armed():
            if self.how < 0:
                os._exit(-self.how)
            os.kill(os.getpid(), self.how)
            if self.how == signal.SIGSTOP:
                time.sleep(0.1)
        return super().__getitem__(i)

    def _armed(self) -> bool:
        """Always, or only the first time (which leaves a file)."""
        if not self.once_file:
            return True
        if os.path.exists(self.once_file):
            return False
        with open(self.once_file, "w") as file:
            file.write("fired")
        return True


class Raises(Augmented):
    """Raises at one key."""

    def __init__(self, length: int, key: int, error: type[Exception]) -> None:
        super().__init__(length)
        self.key, self.error = key, error

    def __getitem__(self, i: int) -> Any:
        if i == self.key:
            raise self.error(f"bad sample {i}")
        return super().__getitem__(i)


class Stuck(Augmented):
    """Never returns from one key."""

    def __init__(self, length: int, key: int) -> None:
        super().__init__(length)
        self.key = key

    def __getitem__(self, i: int) -> Any:
        while i == self.key and get_worker_info() is not None:
            time.sleep(0.01)
        return super().__getitem__(i)


class Stream(IterableDataset[Any]):
    """Numbers with a random draw each; workers share them as PyTorch's documentation shows."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.length, step):
            yield i, random.random(), lucerne.rand(1)


class StatefulStream(Stream):
    """A stream that can say where it is, and counts how many samples it really read."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.at = 0
        self.resumed_at = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        begin, self.at = self.at, 0
        for i in range(first + begin * step, self.length, step):
            self.at = (i - first) // step + 1
            yield i, random.random(), self.resumed_at
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = self.resumed_at = state["at"]


def plain(thing: Any) -> Any:
    """A batch as Python values, exact."""
    if isinstance(thing, list | tuple):
        return [plain(part) for part in thing]
    if isinstance(thing, dict):
        return {name: plain(part) for name, part in thing.items()}
    return thing.tolist() if hasattr(thing, "tolist") else thing
