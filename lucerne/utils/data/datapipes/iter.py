"""Pipes over streams."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lucerne._src.base.refusals import only
from lucerne.utils.data._utils.collate import default_collate
from lucerne.utils.data._utils.worker import get_worker_info
from lucerne.utils.data.datapipes._decorator import functional_datapipe
from lucerne.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, copied


class IterableWrapper(IterDataPipe[Any]):
    """A pipe from anything that can be iterated; each pass goes over a copy of it, unless
    `deepcopy=False`: what later pipes write to items then stays in them."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copied(self.iterable, "iterable") if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


class _After(IterDataPipe[Any]):
    """A pipe that reads another one, and gives as many items."""

    datapipe: Any

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("map")
class Mapper(_After):
    """`fn` of each item."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any]) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __iter__(self) -> Iterator[Any]:
        return map(self.fn, self.datapipe)


@functional_datapipe("collate")
class Collator(Mapper):
    """`default_collate`, or another function, of each item."""

    def __init__(self, datapipe: Any, collate_fn: Callable[..., Any] = default_collate) -> None:
        super().__init__(datapipe, collate_fn)


@functional_datapipe("filter")
class Filter(IterDataPipe[Any]):
    """The items for which `filter_fn` is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., bool]) -> None:
        self.datapipe, self.filter_fn = datapipe, filter_fn

    def __iter__(self) -> Iterator[Any]:
        return filter(self.filter_fn, self.datapipe)


@functional_datapipe("batch")
class Batcher(IterDataPipe[Any]):
    """Items in chunks."""

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        items = iter(self.datapipe)
        while batch := list(itertools.islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        total = len(self.datapipe)
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe[Any]):
    """The items of chunks, `unbatch_level` levels deep (-1: all)."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield from self._open(item, self.unbatch_level)

    def _open(self, item: Any, level: int) -> Iterator[Any]:
        if level == 0 or not isinstance(item, list):
            yield item
            return
        for part in item:
            yield from self._open(part, level - 1)


@functional_datapipe("concat")
class Concater(IterDataPipe[Any]):
    """Pipes one after the other."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datapipes)

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(IterDataPipe[Any]):
    """Tuples of the items of several pipes, as long as all have some."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("shuffle")
class Shuffler(_After):
    """Items in random order, through a buffer."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else UnBatcher(datapipe, unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._enabled = shuffle
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for item in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(item)
                continue
            at = random.randrange(self.buffer_size)
            buffer[at], item = item, buffer[at]
            yield item
        random.shuffle(buffer)
        yield from buffer


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe[Any]):
    """In worker i of n, every n-th item beginning with i."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        only(
            "sharding_filter", "sharding_group_filter", sharding_group_filter, None,
            "there are no groups of workers, one pool shares the items",
        )  # fmt: skip
        self.source_datapipe = source_datapipe

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return itertools.islice(iter(self.source_datapipe), first, None, step)
