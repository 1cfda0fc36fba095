"""A loader of another class may hand itself to PyTorch's iterators, as fastai's does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lucerne as torch
from lucerne.utils.data import dataloader
from lucerne.utils.data.dataset import _DatasetKind


class Loader:
    """What PyTorch's iterators read, and nothing else."""

    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, timeout, worker_init_fn = None, 2, 0, None
    pin_memory, pin_memory_device, persistent_workers = False, "", False
    multiprocessing_context = None
    _index_sampler = itertools.count

    def __init__(self, num_workers: int, kind: int) -> None:
        self.num_workers, self._dataset_kind = num_workers, kind
        self.dataset: Any = self if kind == _DatasetKind.Iterable else [1, 4, 9]
        if kind == _DatasetKind.Map:
            self._index_sampler = range(3)  # type: ignore[assignment]

    def collate_fn(self, batch: Any) -> Any:
        return torch.tensor(batch)

    def __iter__(self) -> Any:
        return iter([[1, 2], [3], [4, 5, 6]])


STREAM = [[1, 2], [3], [4, 5, 6]]
ROWS = [
    (dataloader._SingleProcessDataLoaderIter, 0, _DatasetKind.Iterable, STREAM),
    (dataloader._SingleProcessDataLoaderIter, 0, _DatasetKind.Map, [1, 4, 9]),
    (dataloader._MultiProcessingDataLoaderIter, 1, _DatasetKind.Iterable, STREAM),
    (dataloader._MultiProcessingDataLoaderIter, 1, _DatasetKind.Map, [1, 4, 9]),
]


@pytest.mark.parametrize(("iterator", "workers", "kind", "want"), ROWS)
def test_loader_of_another_class(iterator: Any, workers: int, kind: int, want: Any) -> None:
    loader = Loader(workers, kind)
    for _ in range(2):
        assert [batch.tolist() for batch in iterator(loader)] == want
