"""Datasets: what a `DataLoader` reads samples from."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1


class Dataset(Generic[T_co]):
    """A collection of samples, each found by a key: subclasses give `__getitem__` (and `__len__`).

    A subclass may also have `__getitems__`, which takes a list of keys and returns their samples at
    once. What `__getitem__` draws at random is fixed by the sample when workers load it (see
    `DataLoader`), so it may use any of the global generators.

    >>> from lucerne.utils.data import Dataset
    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> (Squares() + Squares())[5]
    4
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: subclasses give `__iter__`.

    Every worker iterates over its own copy, so `__iter__` asks `get_worker_info()` for its part.
    A stream with `state_dict` and `load_state_dict` is resumed through them; any other is resumed
    by reading again what had been read.

    >>> from lucerne.utils.data import IterableDataset
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(Count() + Count())
    [0, 1, 0, 1]
    """

    def __add__(self, other: Dataset[T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Samples are the rows of tensors of equal length.

    >>> import lucerne
    >>> TensorDataset(lucerne.tensor([1, 2]), lucerne.tensor([3, 4]))[1]
    (tensor(2), tensor(4))
    """

    tensors: tuple[Any, ...]

    def __init__(self, *tensors: Any) -> None:
        if any(t.size(0) != tensors[0].size(0) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Several datasets side by side: a sample is the tuple (or dict) of their samples.

    >>> StackDataset([1, 2], [3, 4])[0]
    (1, 3)
    >>> StackDataset(x=[1, 2], y=[3, 4])[0]
    {'x': 1, 'y': 3}
    """

    datasets: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        parts = list(args or kwargs.values())
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise ValueError("Size mismatch between datasets")
        self.datasets = args or kwargs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples of several keys; parts that can fetch many at once do."""
        if isinstance(self.datasets, dict):
            columns = {name: _column(part, indices) for name, part in self.datasets.items()}
            return [{name: c[i] for name, c in columns.items()} for i in range(len(indices))]
        return list(zip(*(_column(part, indices) for part in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def _column(part: Any, indices: list[Any]) -> list[Any]:
    """The samples of one part of a StackDataset."""
    many = getattr(part, "__getitems__", None)
    if not callable(many):
        return [part[i] for i in indices]
    found: list[Any] = many(indices)
    if len(found) != len(indices):
        raise ValueError(
            f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(found)}"
        )
    return found


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other.

    >>> ConcatDataset([[1, 2], [3]])[2]
    3
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        return list(itertools.accumulate(len(part) for part in sequence))

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(part, IterableDataset) for part in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: Any) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx = len(self) + idx
        part = bisect.bisect_right(self.cumulative_sizes, idx)
        found: T_co = self.datasets[part][idx - (self.cumulative_sizes[part - 1] if part else 0)]
        return found

    @property
    def cummulative_sizes(self) -> list[int]:
        notices.warn(
            "`cummulative_sizes` attribute is renamed to `cumulative_sizes`", FutureWarning
        )
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for part in self.datasets:
            yield from _stream(part)

    def __len__(self) -> int:
        return sum(len(_stream(part)) for part in self.datasets)


def _stream(part: Any) -> Any:
    if not isinstance(part, IterableDataset):
        raise AssertionError("ChainDataset only supports IterableDataset")
    return part


class Subset(Dataset[T_co]):
    """The samples of a dataset at the given keys.

    >>> Subset([10, 20, 30], [2, 0])[0]
    30
    """

    dataset: Any
    indices: Sequence[Any]

    def __init__(self, dataset: Any, indices: Sequence[Any]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples of several keys, fetched at once where the dataset can."""
        many = getattr(self.dataset, "__getitems__", None)
        keys = [self.indices[i] for i in indices]
        if callable(many):
            found: list[Any] = many(keys)
            return found
        return [self.dataset[key] for key in keys]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Any = lu.default_generator
) -> list[Subset[Any]]:
    """Cut a dataset at random into parts of the given lengths (or fractions that sum to 1).

    >>> import lucerne
    >>> parts = random_split(range(4), [0.5, 0.5], lucerne.Generator().manual_seed(0))
    >>> [list(part) for part in parts]
    [[0, 1], [3, 2]]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _whole_lengths(len(dataset), lengths)
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = lu.randperm(int(sum(lengths)), generator=generator).tolist()
    ends = itertools.accumulate(int(n) for n in lengths)
    return [
        Subset(dataset, order[end - int(n) : end]) for end, n in zip(ends, lengths, strict=True)
    ]


def _whole_lengths(total: int, fractions: Sequence[float]) -> list[int]:
    """Fractions as lengths; what rounding left over goes to the parts in turn."""
    lengths = []
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        lengths.append(math.floor(total * fraction))
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            notices.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset."
            )
    return lengths
