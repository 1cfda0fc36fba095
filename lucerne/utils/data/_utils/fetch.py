"""Fetching: from keys (or a stream) to the samples of a batch, then to the batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from lucerne.utils.data.dataset import StackDataset, Subset

Mark = Callable[[int], None]


def _quiet(position: int) -> None:
    """Nobody wants to know which sample is being loaded."""


def loads_one_by_one(dataset: Any) -> bool:
    """Whether the samples of a batch are fetched singly (so that each can have its own seed).

    `Subset` and `StackDataset` always have `__getitems__`, but it only matters if what they are
    made of has.
    """
    kind = type(dataset)
    if kind is Subset:
        return loads_one_by_one(dataset.dataset)
    if kind is StackDataset:
        parts = dataset.datasets
        parts = parts.values() if isinstance(parts, dict) else parts
        return all(loads_one_by_one(part) for part in parts)
    return not callable(getattr(dataset, "__getitems__", None))


class MapFetcher:
    """Samples by key. `mark(i)` is called before the i-th sample of a batch is loaded."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any]):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.single = loads_one_by_one(dataset)

    def samples(self, keys: Any, mark: Mark = _quiet) -> Any:
        if not self.auto_collation:
            mark(0)
            return self.dataset[keys]
        if not self.single:
            mark(0)
            return self.dataset.__getitems__(keys)
        found = []
        for i, key in enumerate(keys):
            mark(i)
            found.append(self.dataset[key])
        return found

    def fetch(self, keys: Any, mark: Mark = _quiet) -> Any:
        return self.collate_fn(self.samples(keys, mark))


class StreamFetcher:
    """Samples of an IterableDataset, `batch_size` at a time (one by one if it is None)."""

    def __init__(
        self,
        stream: Iterator[Any],
        batch_size: int | None,
        drop_last: bool,
        collate_fn: Callable[[Any], Any],
    ) -> None:
        self.stream = stream
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.taken = 0
        self.ended = False

    def skip(self, samples: int, mark: Mark = _quiet) -> None:
        """Pass over what was delivered before."""
        for _ in itertools.islice(self._one_by_one(mark), samples):
            continue

    def _one_by_one(self, mark: Mark) -> Iterator[Any]:
        while not self.ended:
            mark(self.taken)
            try:
                sample = next(self.stream)
            except StopIteration:
                self.ended = True
                return
            self.taken += 1
            yield sample

    def fetch(self, mark: Mark = _quiet) -> Any:
        """The next batch; StopIteration at the end of the stream."""
        samples = self._one_by_one(mark)
        if self.batch_size is None:
            return self.collate_fn(next(samples))
        if self.ended:
            raise StopIteration
        found = list(itertools.islice(samples, self.batch_size))
        if not found or (self.drop_last and len(found) < self.batch_size):
            self.ended = True
            raise StopIteration
        return self.collate_fn(found)
