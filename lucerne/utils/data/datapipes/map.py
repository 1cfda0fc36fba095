"""Pipes over datasets with keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne.utils.data.datapipes._decorator import functional_datapipe
from lucerne.utils.data.datapipes.datapipe import DataChunk, MapDataPipe, copied
from lucerne.utils.data.dataset import ConcatDataset


class SequenceWrapper(MapDataPipe[Any]):
    """A pipe from a sequence or mapping."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = copied(sequence, "sequence") if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe[Any]):
    """`fn` of each item."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any]) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe[Any]):
    """Items in chunks."""

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        begin = index * self.batch_size
        keys = range(begin, min(begin + self.batch_size, len(self.datapipe)))
        return self.wrapper_class([self.datapipe[key] for key in keys])

    def __len__(self) -> int:
        total = len(self.datapipe)
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)


@functional_datapipe("concat")
class Concater(MapDataPipe[Any]):
    """Pipes one after the other."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes
        self._all: ConcatDataset[Any] = ConcatDataset(datapipes)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)


@functional_datapipe("zip")
class Zipper(MapDataPipe[Any]):
    """Tuples of the items of several pipes."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> Any:
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))
