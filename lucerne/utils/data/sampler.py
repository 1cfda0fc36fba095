"""Samplers: in which order a `DataLoader` visits the keys of a dataset.

Under the same seed every order here is PyTorch's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from lucerne._src.tensor import api as lu

T_co = TypeVar("T_co", covariant=True)
_CHUNK = 32
"""How many keys are drawn at once with replacement: part of the order's definition."""


class Sampler(Generic[T_co]):
    """Keys (or lists of keys) in some order: subclasses give `__iter__`.

    A sampler with `state_dict` and `load_state_dict` takes part in the loader's state; any other is
    resumed by asking again for what had been asked.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def fresh_seed(generator: Any = None) -> int:
    """One int64 of the generator (of the default one without it)."""
    return int(lu.empty((), dtype=lu.int64).random_(generator=generator).item())


def seeded(seed: int) -> Any:
    return lu.Generator().manual_seed(seed)


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class RandomSampler(Sampler[int]):
    """Keys in random order, or drawn with replacement.

    >>> import lucerne
    >>> list(RandomSampler(range(4), generator=lucerne.Generator().manual_seed(0)))
    [0, 1, 3, 2]
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not _positive(self.num_samples):
            raise ValueError(
                "num_samples should be a positive integer value, but got "
                f"num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        # The dataset may grow between epochs.
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = seeded(fresh_seed()) if self.generator is None else self.generator
        n = len(self.data_source)
        draw = self._chunks if self.replacement else self._rounds
        yield from itertools.chain.from_iterable(draw(n, generator))

    def _chunks(self, n: int, generator: Any) -> Iterator[list[int]]:
        """With replacement: independent keys."""
        rest = self.num_samples
        while rest >= _CHUNK:
            yield self._randint(n, _CHUNK, generator)
            rest -= _CHUNK
        yield self._randint(n, rest, generator)

    @staticmethod
    def _randint(n: int, count: int, generator: Any) -> list[int]:
        drawn = lu.randint(high=n, size=(count,), dtype=lu.int64, generator=generator)
        return list(drawn.tolist())

    def _rounds(self, n: int, generator: Any) -> Iterator[list[int]]:
        """Without: one permutation after the other, the last one cut short (maybe to nothing)."""
        for _ in range(self.num_samples // n):
            yield lu.randperm(n, generator=generator).tolist()
        yield lu.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given keys, in random order."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in lu.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Keys drawn with the given weights, which need not sum to 1.

    >>> import lucerne
    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    weights: Any
    num_samples: int
    replacement: bool

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        if not _positive(num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        as_tensor = lu.as_tensor(weights, dtype=lu.float64)
        if len(as_tensor.shape) != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(as_tensor.shape)}"
            )
        self.weights = as_tensor
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = lu.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Another sampler's keys, in lists of `batch_size`.

    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not _positive(batch_size):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        keys = iter(self.sampler)
        while batch := list(itertools.islice(keys, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        total: int = len(self.sampler)  # type: ignore[arg-type]
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)
