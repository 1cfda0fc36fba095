"""Loaders of other classes, which hand themselves to the iterators of a `DataLoader`."""

from __future__ import annotations

from typing import Any

from lucerne.utils.data.dataset import _DatasetKind
from lucerne.utils.data.slots import slot_budget


class Borrowed:
    """A loader that has what PyTorch's iterators read, and here what ours read beyond that: it
    does not go on in the middle of an epoch, and its epochs are not seeded."""

    reproducible: bool | None = False
    batch_size: int | None = None
    sampler: Any = None
    batch_sampler: Any = None
    in_order = True
    _seeds_samples = False
    _pending: dict[str, Any] | None = None
    _progress: Any = None
    _epoch = 0

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        given = ("batch_size", "sampler", "batch_sampler", "in_order")
        self.__dict__.update(
            (name, getattr(loader, name)) for name in given if hasattr(loader, name)
        )
        self._streaming = loader._dataset_kind == _DatasetKind.Iterable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def _root_seed(self) -> int | None:
        return None

    def _slot_budget(self) -> int:
        return slot_budget(self._loader.num_workers)
