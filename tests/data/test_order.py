"""The same seed gives PyTorch's own order: samplers, splits, and loaders over several epochs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
import lucerne.utils.data as ours
from tests.data.samples import plain

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.torch

LIBRARIES = [(torch, theirs), (lucerne, ours)]
Maker = Callable[[Any, Any], Any]


def both(make: Maker) -> tuple[Any, Any]:
    """What `make(library, library.utils.data)` gives under the same seeds, in both libraries."""
    found = []
    for library, data in LIBRARIES:
        library.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        got = make(library, data)
        state = library.get_rng_state().tolist()
        found.append((plain(got), state))
    return found[0], found[1]


def generator(library: Any, seed: int = 3) -> Any:
    return library.Generator().manual_seed(seed)


SAMPLERS: dict[str, Maker] = {
    "sequential": lambda t, d: d.SequentialSampler(range(7)),
    "random": lambda t, d: d.RandomSampler(range(11)),
    "random, generator": lambda t, d: d.RandomSampler(range(11), generator=generator(t)),
    "random, fewer": lambda t, d: d.RandomSampler(range(11), num_samples=4),
    "random, more": lambda t, d: d.RandomSampler(range(5), num_samples=13),
    "random, twice": lambda t, d: d.RandomSampler(range(5), num_samples=10, generator=generator(t)),
    "replacement": lambda t, d: d.RandomSampler(range(9), replacement=True, num_samples=70),
    "replacement, 32": lambda t, d: d.RandomSampler(
        range(9), replacement=True, num_samples=64, generator=generator(t)
    ),
    "subset": lambda t, d: d.SubsetRandomSampler([4, 8, 15, 16, 23, 42]),
    "subset, generator": lambda t, d: d.SubsetRandomSampler(range(9), generator=generator(t)),
    "weighted": lambda t, d: d.WeightedRandomSampler([0.1, 0.5, 2.0, 0.0, 1.0], 20),
    "weighted, once": lambda t, d: d.WeightedRandomSampler(
        [0.1, 0.5, 2.0, 0.2, 1.0], 4, replacement=False, generator=generator(t)
    ),
    "batches": lambda t, d: d.BatchSampler(d.RandomSampler(range(10)), 3, False),
    "batches, dropped": lambda t, d: d.BatchSampler(d.SequentialSampler(range(10)), 3, True),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler(name: str) -> None:
    def twice(library: Any, data: Any) -> Any:
        sampler = SAMPLERS[name](library, data)
        drawn = getattr(sampler, "generator", None)
        found = [list(sampler), len(sampler), list(sampler)]
        return found if drawn is None else [*found, drawn.get_state().tolist()]

    expected, got = both(twice)
    assert got == expected


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 7), st.booleans(), st.booleans(), st.integers(0, 3))
def test_distributed(length: int, replicas: int, shuffle: bool, drop: bool, epoch: int) -> None:
    def order(library: Any, data: Any) -> Any:
        found = []
        for rank in range(replicas):
            sampler = data.DistributedSampler(
                range(length), replicas, rank, shuffle=shuffle, seed=4, drop_last=drop
            )
            sampler.set_epoch(epoch)
            try:
                found.append([list(sampler), len(sampler), sampler.total_size])
            except Exception as error:
                found.append(type(error).__name__)
        return found

    expected, got = both(order)
    assert got == expected


LOADERS: dict[str, Maker] = {
    "plain": lambda t, d: d.DataLoader(range(10), batch_size=3),
    "shuffled": lambda t, d: d.DataLoader(range(10), batch_size=3, shuffle=True),
    "dropping": lambda t, d: d.DataLoader(range(10), batch_size=4, shuffle=True, drop_last=True),
    "generator": lambda t, d: d.DataLoader(range(9), 2, shuffle=True, generator=generator(t)),
    "no batches": lambda t, d: d.DataLoader(range(9), batch_size=None, shuffle=True),
    "sampler": lambda t, d: d.DataLoader(range(9), 2, sampler=d.RandomSampler(range(9), True)),
    "batch sampler": lambda t, d: d.DataLoader(
        range(9), batch_sampler=d.BatchSampler(d.RandomSampler(range(9)), 4, False)
    ),
    "list as sampler": lambda t, d: d.DataLoader(range(9), 2, sampler=[3, 1, 4, 1, 5]),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loader_order_over_epochs(name: str) -> None:
    def epochs(library: Any, data: Any) -> Any:
        loader = LOADERS[name](library, data)
        return [len(loader), [[plain(batch) for batch in loader] for _ in range(3)]]

    expected, got = both(epochs)
    assert got == expected


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("with_generator", [False, True])
def test_loader_with_workers(persistent: bool, with_generator: bool) -> None:
    def epochs(library: Any, data: Any) -> Any:
        loader = data.DataLoader(
            range(10), 3, shuffle=True, num_workers=1, persistent_workers=persistent,
            generator=generator(library) if with_generator else None,
        )  # fmt: skip
        return [[plain(batch) for batch in loader] for _ in range(3)]

    expected, got = both(epochs)
    assert got == expected


def test_random_numbers_without_workers_are_the_global_ones() -> None:
    """A training loop draws the same numbers as under PyTorch, samples included."""

    class Noisy:
        def __init__(self, library: Any) -> None:
            self.library = library

        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> Any:
            return i, self.library.rand(3), random.random(), np.random.rand()

    def epochs(library: Any, data: Any) -> Any:
        loader = data.DataLoader(Noisy(library), 2, shuffle=True)
        return [[plain(batch) + library.rand(1).tolist() for batch in loader] for _ in range(2)]

    expected, got = both(epochs)
    assert got == expected


SPLITS = [[3, 8], [0.3, 0.3, 0.4], [0.5, 0.5], [11], [0.1] * 10, [0, 11]]


@pytest.mark.filterwarnings("ignore:Length of split:UserWarning")
@pytest.mark.parametrize("lengths", SPLITS, ids=str)
def test_random_split(lengths: Any) -> None:
    def split(library: Any, data: Any) -> Any:
        parts = data.random_split(range(11), lengths)
        more = data.random_split(range(11), lengths, generator(library))
        return [[list(part) for part in parts], [list(part.indices) for part in more]]

    expected, got = both(split)
    assert got == expected
