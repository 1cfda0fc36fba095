"""DataLoader: batches of a dataset, in order or shuffled, loaded here or by worker processes."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

from lucerne._src.base.process import notices
from lucerne.utils.data import _utils
from lucerne.utils.data._utils.collate import default_collate as default_collate
from lucerne.utils.data._utils.collate import default_convert
from lucerne.utils.data._utils.worker import get_worker_info as get_worker_info
from lucerne.utils.data.dataset import Dataset as Dataset
from lucerne.utils.data.dataset import IterableDataset
from lucerne.utils.data.dataset import _DatasetKind as _DatasetKind
from lucerne.utils.data.iteration import (
    LoaderIterator,
    MultiProcessIterator,
    SingleProcessIterator,
)
from lucerne.utils.data.progress import Progress, check_state, shared_anew
from lucerne.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    fresh_seed,
)
from lucerne.utils.data.slots import slot_budget

T_co = TypeVar("T_co", covariant=True)

_BaseDataLoaderIter = LoaderIterator
_SingleProcessDataLoaderIter = SingleProcessIterator
_MultiProcessingDataLoaderIter = MultiProcessIterator
_utils = _utils


class _InfiniteConstantSampler(Sampler[Any]):
    """The keys of a stream: it has none."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield None


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader(Generic[T_co]):
    """Iterate over a dataset in batches.

    All arguments are PyTorch's, and under the same seed so is the order. What is more:

    - `reproducible`: `None` (default) gives every sample loaded by a worker its own seed, made of
      epoch and key, so that neither the number of workers nor a crash changes what is drawn;
      without workers samples draw from the global generators, as in PyTorch. `True` seeds samples
      in both cases, and makes the order a function of one seed and the epoch. `False` is PyTorch's
      way in both cases: one stream of numbers for each worker.
    - `state_dict()` and `load_state_dict()`: go on at the next batch, in another process and with
      another number of workers.
    - a worker that dies or is stopped is replaced, and the sample it was at is named.

    >>> from lucerne.utils.data import DataLoader
    >>> list(DataLoader(range(5), batch_size=2))
    [tensor([0, 1]), tensor([2, 3]), tensor([4])]
    >>> loader = DataLoader(range(6), batch_size=2)
    >>> first = next(iter(loader))
    >>> again = DataLoader(range(6), batch_size=2)
    >>> again.load_state_dict(loader.state_dict())
    >>> list(again)
    [tensor([2, 3]), tensor([4, 5])]
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    sampler: Any
    batch_sampler: Any
    pin_memory: bool
    drop_last: bool
    timeout: float
    prefetch_factor: int | None
    _iterator: MultiProcessIterator | None
    __initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        reproducible: bool | None = None,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.reproducible = reproducible
        self._streaming = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._streaming else _DatasetKind.Map
        if self._streaming:
            _check_stream(shuffle, sampler, batch_sampler)
        _check_batching(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            sampler = self._default_sampler(bool(shuffle), generator)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self._pending: dict[str, Any] | None = None
        self._progress: Progress | None = None
        self._epoch = 0
        self._root: int | None = None

    def _default_sampler(self, shuffle: bool, generator: Any) -> Any:
        if self._streaming:
            return _InfiniteConstantSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=generator)
        return SequentialSampler(self.dataset)

    @property
    def multiprocessing_context(self) -> Any:
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            context = _check_context(context, self.num_workers)
        self.__multiprocessing_context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    # ---- iterating ----

    def __iter__(self) -> Any:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None or not self._iterator._pool.members:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset()
        return self._iterator

    def _get_iterator(self) -> Any:
        if self.pin_memory:
            notices.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used."
            )
        if self.pin_memory and self.pin_memory_device:
            notices.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device,ignore pin_memory_device='{self.pin_memory_device}'."
            )
        if self.num_workers == 0:
            return SingleProcessIterator(self)
        return MultiProcessIterator(self)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _seeds_samples(self) -> bool:
        """Whether each sample gets its own seed."""
        return self.num_workers > 0 if self.reproducible is None else self.reproducible

    def _root_seed(self) -> int | None:
        """The seed of all epochs of a reproducible loader, drawn when it is first iterated."""
        if self.reproducible and self._root is None:
            self._root = fresh_seed(self.generator)
        return self._root

    def _slot_budget(self) -> int:
        return slot_budget(self.num_workers)

    def __len__(self) -> int:
        if not self._streaming:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """PyTorch warns here of more workers than cores; those that wait for files are fine."""

    # ---- states ----

    def state_dict(self) -> dict[str, Any]:
        """Where the program is in the epoch: after the last batch that it got.

        The state is made of numbers, strings, lists and dicts (and of what samplers or streams
        with states of their own add).
        """
        if self._pending is not None:
            return dict(self._pending)
        if self._progress is None:
            self._progress = _untouched(self)
        return self._progress.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration go on where the state was taken, with the same batches to come.

        Dataset, batch size and sampler must be made as they were; the number of workers is free.
        With a `DistributedSampler` the number of replicas and the batch size may be others: the
        keys of the epoch that nobody has seen are shared out among those there are.
        """
        check_state(state_dict, self._streaming)
        state_dict = shared_anew(state_dict, self)
        self._root = state_dict.get("root")
        finished = state_dict.get("finished", False)
        self._epoch = state_dict.get("epoch", 0) + bool(finished)
        self._pending = dict(state_dict)


def _untouched(loader: DataLoader[Any]) -> Progress:
    """The state of a loader that was never iterated: the next epoch is a new one."""
    made = Progress(0, -1, finished=True, root=loader._root)
    if loader._streaming:
        made.shards = []
    return made


# ---- checks -----------------------------------------------------------------------------------


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    expected = "DataLoader with IterableDataset: expected unspecified {0} option, but got {0}={1}"
    if shuffle not in (False, None):
        raise ValueError(expected.format("shuffle", shuffle))
    if sampler is not None:
        raise ValueError(expected.format("sampler", sampler))
    if batch_sampler is not None:
        raise ValueError(expected.format("batch_sampler", batch_sampler))


def _check_batching(
    batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                "drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def _check_context(context: Any, num_workers: int) -> Any:
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0)"
            f", but got num_workers={num_workers}"
        )
    if isinstance(context, str):
        known = mp.get_all_start_methods()
        if context not in known:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {known!r}, "
                f"but got multiprocessing_context={context!r}"
            )
        return mp.get_context(context)
    if not isinstance(context, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={context}"
        )
    return context
