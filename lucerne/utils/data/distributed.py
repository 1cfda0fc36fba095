"""DistributedSampler: each process visits its own part of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.tensor import api as lu
from lucerne.utils.data.sampler import Sampler, seeded


def _share(total: int, replicas: int, drop_last: bool) -> int:
    """How many of so many keys each process gets."""
    if drop_last and total % replicas:
        return math.ceil((total - replicas) / replicas)
    return math.ceil(total / replicas)


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th key, beginning with `rank`; call `set_epoch` before each epoch.

    `num_replicas` and `rank` are those of the process group, if there is one.
    All processes shuffle alike, by `seed` and epoch. When the dataset can't be cut evenly, keys are
    repeated from the beginning, or with `drop_last` the last ones are left out.

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        place = LateBindings.process_place()
        if place is not None:
            rank = place[0] if rank is None else rank
            num_replicas = place[1] if num_replicas is None else num_replicas
        if num_replicas is None or rank is None:
            raise ValueError(
                "Default process group has not been initialized, please make sure to call "
                "init_process_group. (Or pass num_replicas= and rank= yourself.)"
            )
        if rank >= num_replicas or rank < 0:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.num_samples = _share(len(dataset), num_replicas, drop_last)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed
        self._taken = 0

    def __iter__(self) -> Iterator[int]:
        total = len(self.dataset)
        if self.shuffle:
            whole = lu.randperm(total, generator=seeded(self.seed + self.epoch)).tolist()
        else:
            whole = list(range(total))
        taken, self._taken = min(self._taken, total), 0
        order = whole[taken:]
        size = _share(len(order), self.num_replicas, self.drop_last) if taken else self.num_samples
        size *= self.num_replicas
        missing = size - len(order)
        if not self.drop_last and missing > 0:
            order += (whole * math.ceil(missing / max(1, len(whole))))[:missing]
        order = order[:size]
        if len(order) != size:
            raise AssertionError(
                f"Number of indices ({len(order)}) does not match total_size ({size})"
            )
        return iter(order[self.rank : size : self.num_replicas])

    def begin_at(self, taken: int) -> None:
        """Let the next iteration (and no other) leave out the first keys of its epoch, which so
        many processes as there were have seen together: those there are now share the rest.

        >>> sampler = DistributedSampler(range(7), num_replicas=2, rank=0, shuffle=False)
        >>> sampler.begin_at(3)
        >>> list(sampler), list(sampler)
        ([3, 5], [0, 2, 4, 6])
        """
        self._taken = taken

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle differently from the next iteration on; all processes must call it alike."""
        self.epoch = epoch
