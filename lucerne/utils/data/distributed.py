"""DistributedSampler: each process visits its own part of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.tensor import api as lu
from lucerne.utils.data.sampler import Sampler, seeded


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
        total = len(dataset)
        if drop_last and total % num_replicas:
            self.num_samples = math.ceil((total - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(total / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        total = len(self.dataset)
        if self.shuffle:
            order = lu.randperm(total, generator=seeded(self.seed + self.epoch)).tolist()
        else:
            order = list(range(total))
        missing = self.total_size - len(order)
        if not self.drop_last and missing > 0:
            order += (order * math.ceil(missing / max(1, len(order))))[:missing]
        order = order[: self.total_size]
        if len(order) != self.total_size:
            raise AssertionError(
                f"Number of indices ({len(order)}) does not match total_size ({self.total_size})"
            )
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle differently from the next iteration on; all processes must call it alike."""
        self.epoch = epoch
