"""Streams in a process: the parts of an IterableDataset that one process reads.

A part belongs to a *logical* worker. Usually process i hosts part i alone; an epoch resumed with
another number of workers keeps its parts, and each process hosts several of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lucerne.utils.data._utils import worker as who
from lucerne.utils.data._utils.fetch import StreamFetcher
from lucerne.utils.data._utils.worker import WorkerInfo
from lucerne.utils.data.seeds import SampleSeeds

_SHARD_STEP = 1 << 40
"""Samples of different parts have keys this far apart."""


def _quiet(position: int) -> None:
    """Nobody wants to know where the stream is."""


@contextmanager
def acting_as(info: WorkerInfo | None) -> Iterator[None]:
    """`get_worker_info()` gives `info` inside."""
    before = who.get_worker_info()
    who.set_worker_info(info)
    try:
        yield
    finally:
        who.set_worker_info(before)


class Shard:
    """One part of a stream, open for one epoch."""

    def __init__(self, number: int, dataset: Any, info: WorkerInfo | None) -> None:
        self.number, self.dataset, self.info = number, dataset, info
        self.fetcher: StreamFetcher
        self.note: Callable[[int], None] = _quiet
        self.seeds: SampleSeeds | None = None
        self.at = -1

    def open(self, host: ShardHost, skip: int, state: Any) -> None:
        """Begin the epoch, at the state given or after `skip` samples."""
        with acting_as(self.info):
            self._sow(-1)
            if state is not None and hasattr(self.dataset, "load_state_dict"):
                self.dataset.load_state_dict(state)
            stream = iter(self.dataset)
            if state is not None and not hasattr(self.dataset, "load_state_dict"):
                stream.load_state_dict(state)
            self.fetcher = StreamFetcher(stream, host.batch_size, host.drop_last, host.collate_fn)
            if state is None:
                self.fetcher.skip(skip, self._sow)
            self.fetcher.taken = max(skip, self.fetcher.taken)

    def _sow(self, position: int) -> None:
        self.at = position
        self.note(position)
        if self.seeds is not None:
            self.seeds.sow(self.number * _SHARD_STEP + position + 1)

    def next_batch(self) -> Any:
        """The next batch; StopIteration at the end."""
        with acting_as(self.info):
            return self.fetcher.fetch(self._sow)

    def state(self) -> Any:
        """What the stream says of its place, if it can."""
        for thing in (self.dataset, self.fetcher.stream):
            if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                return thing.state_dict()
        return None


class ShardHost:
    """The parts that one process reads, by (number, of how many)."""

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool,
        init_fn: Callable[[int], Any] | None,
        note: Callable[[int], None] | None = None,
    ) -> None:
        """`note` is told the position of each sample before it is read."""
        self.dataset, self.collate_fn = dataset, collate_fn
        self.batch_size, self.drop_last, self.init_fn = batch_size, drop_last, init_fn
        self.note = note or _quiet
        self._known: dict[tuple[int, int], Shard] = {}

    def open(
        self, number: int, total: int, alone: bool, seeds: SampleSeeds | None, seed: int,
        skip: int, state: Any,
    ) -> Shard:  # fmt: skip
        """Part `number` of `total` (of 0: the whole, outside any worker) at its place; `alone`
        tells that this process hosts no other, so that it needs no copy of the dataset."""
        shard = self._known.get((number, total))
        if shard is None:
            shard = self._make(number, total, alone, seed)
            self._known[number, total] = shard
        shard.seeds, shard.note = seeds, self.note
        shard.open(self, skip, state)
        return shard

    def _make(self, number: int, total: int, alone: bool, seed: int) -> Shard:
        dataset = self.dataset if alone else copy.deepcopy(self.dataset)
        info = WorkerInfo(number, total, seed + number, dataset) if total else None
        if info is not None and self.init_fn is not None:
            with acting_as(info):
                self.init_fn(number)
        return Shard(number, dataset, info)
