"""Exercise 12: a sampler for several ranks that keeps three laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import lucerne as torch

TOLD = r"AssertionError: in epoch 0 these samples are drawn never or twice: \[\d"


def start() -> object:
    class Shared:
        def __init__(self, count: int, ranks: int, rank: int) -> None:
            self.count, self.ranks, self.rank, self.epoch = count, ranks, rank, 0

        def __iter__(self) -> Iterator[int]:
            generator = torch.Generator().manual_seed(self.rank)
            order = torch.randperm(self.count, generator=generator).tolist()
            return iter(order[self.rank :: self.ranks])

    return Shared


def solution() -> object:
    class Shared:
        def __init__(self, count: int, ranks: int, rank: int) -> None:
            self.count, self.ranks, self.rank, self.epoch = count, ranks, rank, 0

        def __iter__(self) -> Iterator[int]:
            generator = torch.Generator().manual_seed(self.epoch)
            order = torch.randperm(self.count, generator=generator).tolist()
            return iter(order[self.rank :: self.ranks])

    return Shared


def check(shared: Callable) -> None:
    """Each sample once an epoch, another order in the next, the same order when asked again."""
    for count, ranks in ((12, 3), (10, 4), (7, 1)):
        orders = []
        for epoch in (0, 1, 0):
            samplers = [shared(count, ranks, rank) for rank in range(ranks)]
            for sampler in samplers:
                sampler.epoch = epoch
            drawn = [list(sampler) for sampler in samplers]
            flat = [i for part in drawn for i in part]
            wrong = [i for i in range(count) if flat.count(i) != 1]
            assert not wrong, (
                f"in epoch {epoch} these samples are drawn never or twice: {wrong}; "
                "all ranks must shuffle alike, so what may the seed depend on?"
            )
            orders.append(drawn)
        assert orders[0] != orders[1], "the order of the next epoch is the same"
        assert orders[0] == orders[2], "an epoch can't be repeated"
