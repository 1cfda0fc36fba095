"""Iterators over a loader: in this process, or with workers."""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.process.profiler_hook import ANNOTATION, Watch, watched
from lucerne.utils.data._utils.fetch import MapFetcher
from lucerne.utils.data.borrowed import Borrowed
from lucerne.utils.data.errors import describe_keys
from lucerne.utils.data.launch import Launcher
from lucerne.utils.data.pool import Pool
from lucerne.utils.data.progress import Keys, Progress, ShardPlace, begin, keys_of
from lucerne.utils.data.seeds import SampleSeeds, no_trace
from lucerne.utils.data.shards import Shard, ShardHost
from lucerne.utils.data.worker import Epoch, Job, Open, Result, Task


class LoaderIterator:
    """One pass over a loader. `state_dict()` says where it is."""

    progress: Progress
    _watched_name = ""
    """What profiles call the loading of one batch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader = loader if hasattr(loader, "_streaming") else Borrowed(loader)
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._num_workers = loader.num_workers
        self._auto_collation = loader._auto_collation
        self._streaming: bool = loader._streaming
        self._num_yielded = 0
        self._base_seed: int | None = None
        self._epochs = 0

    def _begin(self) -> bool:
        """Set `progress` for an epoch, new or continued; whether it is continued."""
        loader = self._loader
        pending, loader._pending = loader._pending, None
        if pending is not None and not pending["finished"]:
            self.progress = Progress.from_state(pending)
        else:
            epoch = loader._epoch if loader.reproducible else self._epochs
            self.progress = begin(loader, self._base_seed, epoch, loader._root_seed())
            self.progress.per_sample = loader._seeds_samples
            if self._streaming:
                self.progress.total = self._num_workers
                self.progress.shards = [ShardPlace() for _ in range(max(1, self._num_workers))]
        self._num_yielded = self.progress.batches
        loader._progress = self.progress
        loader._epoch = self.progress.epoch + 1
        return pending is not None and not pending["finished"]

    def __iter__(self) -> LoaderIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def state_dict(self) -> dict[str, Any]:
        return self.progress.state_dict()

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        try:
            if Watch.current is None:
                batch = self._next_data()
            else:
                batch = watched(self._watched_name, ANNOTATION, self._next_data)
        except StopIteration:
            self.progress.finished = True
            raise
        except Exception as error:
            entry_failed(error)
            raise
        self._num_yielded += 1
        self._check_length()
        return batch

    next = __next__

    def _check_length(self) -> None:
        told = self._loader._IterableDataset_len_called
        if self._streaming and told is not None and self._num_yielded > told:
            more = (
                " For multiprocessing data-loading, this could be caused by not properly "
                "configuring the IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples."
            )
            notices.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {told} (when "
                f"accessing len(dataloader)), but {self._num_yielded} samples have been fetched."
                + (more if self._num_workers else "")
            )


# ---- in this process --------------------------------------------------------------------------


class SingleProcessIterator(LoaderIterator):
    """Loads batches when they are asked for."""

    _watched_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        loader = self._loader
        resumed = self._begin()
        progress = self.progress
        self._seeds: SampleSeeds | None = None
        if progress.per_sample:
            self._seeds = SampleSeeds(progress.base_seed, progress.epoch)
        if self._streaming:
            self._shards = self._open_shards(resumed)
            return
        self._keys: Keys = keys_of(loader, progress, resumed)
        self._fetcher = MapFetcher(self._dataset, self._auto_collation, loader.collate_fn)

    def _open_shards(self, resumed: bool) -> list[Shard | None]:
        loader, progress = self._loader, self.progress
        host = ShardHost(
            self._dataset, loader.collate_fn, loader.batch_size, loader.drop_last,
            loader.worker_init_fn,
        )  # fmt: skip
        assert progress.shards is not None
        with no_trace(resumed or self._seeds is not None):
            return [
                None if place.ended else host.open(
                    number, progress.total, len(progress.shards) == 1, self._seeds,
                    progress.base_seed, place.samples, place.state,
                )
                for number, place in enumerate(progress.shards)
            ]  # fmt: skip

    def _next_data(self) -> Any:
        batch = self._next_of_stream() if self._streaming else self._next_of_keys()
        return batch

    def _aside(self) -> AbstractContextManager[None]:
        """Samples that are seeded must not seed the program."""
        return nullcontext() if self._seeds is None else no_trace()

    def _next_of_keys(self) -> Any:
        left = (item for item in self._keys if not self.progress.has(item[0]))
        number, keys, occurrences, sampler_state = next(left)
        at = 0

        def mark(position: int) -> None:
            nonlocal at
            at = position
            if self._seeds is not None:
                key = keys[position] if self._auto_collation else keys
                self._seeds.sow(key, occurrences[position] if occurrences else 0)

        try:
            with self._aside():
                batch = self._fetcher.fetch(keys, mark)
        except Exception as error:
            one = keys[at] if self._auto_collation and self._fetcher.single and keys else keys
            error.add_note(f"While loading sample {describe_keys(one)}.")
            raise
        self.progress.delivered(number)
        self.progress.sampler_state = sampler_state
        return batch

    def _next_of_stream(self) -> Any:
        places = self.progress.shards
        assert places is not None
        while not all(place.ended for place in places):
            number = self.progress.turn
            self.progress.turn = (number + 1) % len(places)
            place, shard = places[number], self._shards[number]
            if place.ended or shard is None:
                continue
            try:
                with self._aside():
                    batch = shard.next_batch()
            except StopIteration:
                place.ended = True
                continue
            place.batches += 1
            place.samples, place.state = shard.fetcher.taken, shard.state()
            self.progress.batches += 1
            return batch
        raise StopIteration


# ---- with workers -----------------------------------------------------------------------------


class Session:
    """What workers must know of the running epoch, and how far each part of a stream has come.

    It knows neither the iterator nor the pool, so that both can go when the program drops them.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.stamp = 0
        self.progress: Progress
        self.received: list[ShardPlace] = []

    def begin(self, progress: Progress) -> None:
        self.stamp += 1
        self.progress = progress
        places = progress.shards or []
        self.received = [ShardPlace(p.batches, p.samples, p.ended, p.state) for p in places]

    def greet(self, worker_id: int) -> list[Any]:
        progress = self.progress
        hello: list[Any] = [
            Epoch(self.stamp, progress.base_seed, progress.epoch, progress.per_sample)
        ]
        numbers = range(worker_id, len(self.received), self.workers)
        for number in numbers:
            place = self.received[number]
            if not place.ended:
                where = (place.samples, place.state)
                hello.append(Open(self.stamp, number, progress.total, len(numbers) == 1, *where))
        return hello

    def note(self, task: Task, result: Result) -> None:
        if task.shard >= 0:
            place = self.received[task.shard]
            place.ended = place.ended or result.end
            if result.error is None:
                place.samples, place.state = result.samples, result.state


class MultiProcessIterator(LoaderIterator):
    """Batches loaded ahead by worker processes."""

    _watched_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        loader = self._loader
        self._prefetch: int = loader.prefetch_factor
        self._in_order: bool = loader.in_order
        self._session = Session(self._num_workers)
        self._start(first=True)

    def _start(self, first: bool) -> None:
        """Begin an epoch; the first one starts the workers."""
        resumed = self._begin()
        if not self.progress.per_sample and self._loader.reproducible is not False:
            self.progress.per_sample = True  # continued from a loader without workers
        self._session.begin(self.progress)
        self._keys = None if self._streaming else keys_of(self._loader, self.progress, resumed)
        if first:
            self._base_seed = self.progress.base_seed
            self._pool = self._make_pool()
        self._pool.begin_epoch(self._session.stamp, greet=not first)
        self._waiting: deque[tuple[int, Any]] = deque()
        self._numbers = itertools.count()
        self._cycle = itertools.cycle(range(self._num_workers))
        shards = self.progress.shards or []
        self._queues: list[deque[int]] = [deque() for _ in shards]
        self._fill()

    def _make_pool(self) -> Pool:
        loader = self._loader
        job = Job(
            loader.dataset, loader.collate_fn, loader.worker_init_fn, self._streaming,
            self._auto_collation, loader.batch_size, loader.drop_last, self._num_workers,
            self.progress.base_seed, loader._slot_budget(), self._prefetch + 2,
        )  # fmt: skip
        launcher = Launcher(job, loader.multiprocessing_context)
        session = self._session
        most = 2 * self._prefetch + 8
        return Pool(
            launcher, self._num_workers, loader.timeout, most, session.greet, session.note,
            session.stamp,
        )  # fmt: skip

    def _reset(self) -> None:
        """Another epoch with the same workers."""
        self._epochs += 1
        self._start(first=False)

    # ---- asking ----

    def _fill(self) -> None:
        if self._streaming:
            for number in range(len(self._queues)):
                self._ask_stream(number)
            return
        while len(self._waiting) < self._prefetch * self._num_workers and self._ask():
            continue

    def _ask(self) -> bool:
        """Ask for one more batch; False when there are no more keys."""
        assert self._keys is not None
        found = next((item for item in self._keys if not self.progress.has(item[0])), None)
        if found is None:
            return False
        number, keys, occurrences, state = found
        workers = range(self._num_workers)
        to = next(self._cycle) if self._in_order else min(workers, key=self._pool.load)
        self._waiting.append((number, state))
        self._pool.submit(to, Task(self._session.stamp, number, keys, occurrences))
        return True

    def _ask_stream(self, shard: int) -> None:
        """Keep a few batches of a part of the stream on their way."""
        if self._session.received[shard].ended:
            return
        most = max(1, self._prefetch * self._num_workers // len(self._queues))
        while len(self._queues[shard]) < most:
            number = next(self._numbers)
            self._queues[shard].append(number)
            task = Task(self._session.stamp, number, shard=shard)
            self._pool.submit(shard % self._num_workers, task)

    # ---- giving ----

    def _next_data(self) -> Any:
        return self._next_of_stream() if self._streaming else self._next_of_keys()

    def _next_of_keys(self) -> Any:
        if not self._waiting:
            self._finish()
        results = self._pool.results
        if self._in_order:
            wanted = self._waiting[0]
            self._pool.wait(lambda: wanted[0] in results)
        else:
            self._pool.wait(lambda: bool(results))
            number = next(iter(results))
            wanted = next(item for item in self._waiting if item[0] == number)
        self._waiting.remove(wanted)
        result, batch = results.pop(wanted[0])
        self._ask()
        self.progress.delivered(wanted[0])
        self.progress.sampler_state = wanted[1]
        if result.error is not None:
            result.error.reraise()
        return batch

    def _next_of_stream(self) -> Any:
        places = self.progress.shards
        assert places is not None
        results = self._pool.results
        while not all(place.ended for place in places):
            number = self.progress.turn
            self.progress.turn = (number + 1) % len(places)
            place, queue = places[number], self._queues[number]
            if place.ended:
                continue
            wanted = queue.popleft()
            self._pool.wait(lambda wanted=wanted: wanted in results)  # type: ignore[misc]
            result, batch = results.pop(wanted)
            if result.end:
                place.ended = True
                if result.error is not None:
                    result.error.reraise()
                continue
            place.batches += 1
            place.samples, place.state = result.samples, result.state
            self.progress.batches += 1
            self._ask_stream(number)
            return batch
        return self._finish()

    def _finish(self) -> Any:
        if not self._loader.persistent_workers:
            self._pool.close()
        raise StopIteration

    def _shutdown_workers(self) -> None:
        """End the workers now, in the middle of an epoch."""
        self._pool.close()

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.close()
