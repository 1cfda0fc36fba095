"""Resuming at any batch, with any number of workers: the rest of the epoch is the same, bit by bit.

    python -m tests.data.resume --cases 200

Each case runs an epoch (or two) in one go; then again up to a random batch, writes the state as
JSON, and goes on in a new loader with another seed and another number of workers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import lucerne
from lucerne.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tests.data.samples import Augmented, StatefulStream, Stream, plain

LENGTH = 23


class Counting(Sampler[int]):
    """A sampler that keeps its own place."""

    def __init__(self, length: int) -> None:
        self.length, self.at = length, 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield (self.at * 7) % self.length
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class PythonShuffle(Sampler[int]):
    """A sampler that shuffles with Python's own generator."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.length))
        random.shuffle(order)
        return iter(order)


def _generator() -> Any:
    return lucerne.Generator().manual_seed(11)


KINDS: dict[str, Any] = {
    "sequential": lambda data: {"batch_size": 3},
    "shuffled": lambda data: {"batch_size": 4, "shuffle": True},
    "dropping": lambda data: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "single": lambda data: {"batch_size": None, "shuffle": True},
    "own generator": lambda data: {"batch_size": 3, "shuffle": True, "generator": _generator()},
    "replacement": lambda data: {
        "batch_size": 3,
        "sampler": RandomSampler(data, replacement=True, num_samples=70),
    },
    "weighted": lambda data: {
        "batch_size": 2,
        "sampler": WeightedRandomSampler([1.0 + i % 3 for i in range(LENGTH)], 30),
    },
    "subset": lambda data: {"batch_size": 2, "sampler": SubsetRandomSampler(range(1, LENGTH))},
    "batch sampler": lambda data: {
        "batch_sampler": BatchSampler(RandomSampler(data, generator=_generator()), 5, False)
    },
    "distributed": lambda data: {
        "batch_size": 2,
        "sampler": DistributedSampler(data, num_replicas=2, rank=1),
    },
    "own state": lambda data: {"batch_size": 3, "sampler": Counting(LENGTH)},
    "python shuffle": lambda data: {"batch_size": 3, "sampler": PythonShuffle(LENGTH)},
    "any order": lambda data: {"batch_size": 3, "shuffle": True, "in_order": False},
    "stream": lambda data: {"batch_size": 3},
    "stream, single": lambda data: {"batch_size": None},
    "stream with state": lambda data: {"batch_size": 2},
}


def make(kind: str, workers: int, reproducible: bool | None) -> Any:
    data: Any = Augmented(LENGTH)
    if kind.startswith("stream"):
        data = StatefulStream(LENGTH) if kind == "stream with state" else Stream(LENGTH)
    return DataLoader(data, num_workers=workers, reproducible=reproducible, **KINDS[kind](data))


def seed_all(seed: int) -> None:
    lucerne.manual_seed(seed)
    random.seed(seed)


def visible(batches: list[Any], kind: str, keyed: bool) -> list[Any]:
    """What must agree: the keys, and all that was drawn when draws belong to samples."""
    if kind == "stream with state":  # the third part tells how it was resumed
        return [batch[:2] if keyed else batch[:1] for batch in batches]
    return batches if keyed else [batch[:1] for batch in batches]


def one_case(kind: str, before: int, after: int, stop: float, reproducible: bool | None) -> None:
    """Stop after a share of the epoch, and go on with another number of workers."""
    keyed = bool(reproducible) or (before > 0 and after > 0)
    seed_all(3)
    loader = make(kind, before, reproducible)
    whole = [plain(batch) for batch in loader]
    seed_all(3)
    loader = make(kind, before, reproducible)
    count = round(stop * len(whole))
    iterator = iter(loader)
    head = [plain(batch) for batch in itertools.islice(iterator, count)]
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator
    seed_all(999)
    trace = lucerne.get_rng_state()
    loader = make(kind, after, reproducible)
    loader.load_state_dict(state)
    tail = [plain(batch) for batch in loader]
    if keyed and kind != "own generator":
        assert lucerne.equal(lucerne.get_rng_state(), trace), "resuming must not draw"
    found = visible(head + tail, kind, keyed)
    wanted = visible(whole, kind, keyed)
    if kind == "any order":
        found, wanted = sorted(found), sorted(wanted)
    context = f"{kind}: {before} -> {after} workers after {count} of {len(whole)}"
    assert found == wanted, f"{context}:\n{str(found)[:2000]}\n{str(wanted)[:2000]}"


def cases(count: int, most_workers: int, seed: int = 0) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    kinds = list(KINDS)
    made = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        before, after = rng.randint(0, most_workers), rng.randint(0, most_workers)
        if kind == "any order":
            before = max(1, before)
        reproducible = rng.choice([None, True, True])
        stop = rng.choice([0.0, rng.random(), rng.random(), rng.random(), 1.0])
        made.append((kind, before, after, stop, reproducible))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.monotonic()
    for case in cases(args.cases, args.workers, args.seed):
        one_case(*case)
    print(f"{args.cases} cases identical, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
