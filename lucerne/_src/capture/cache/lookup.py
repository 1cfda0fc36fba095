"""The compiled versions of a function, found by the metas of its arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.raw import is_a
from lucerne._src.capture.cache.entry import CacheEntry
from lucerne._src.tensor.base import TensorBase

Key = tuple[Any, ...]


def key_of(leaves: Sequence[Any]) -> Key:
    """What versions for other sizes differ in."""
    return tuple([x._meta for x in leaves if is_a(x, TensorBase)])


class Versions:
    """Traced versions stay; of those that were made from a capture for all sizes, the ones that
    were not used for longest go when there are too many."""

    def __init__(self) -> None:
        self._found: dict[Key, list[CacheEntry]] = {}
        self._recent: OrderedDict[CacheEntry, Key] = OrderedDict()
        self.instances = 0

    def find(self, leaves: Sequence[Any], shape: Any) -> CacheEntry | None:
        """A version that may be used for these leaves."""
        for entry in self._found.get(key_of(leaves), ()):
            if entry.guards.hold(leaves, shape) and entry.fits(leaves):
                self.use(entry)
                return entry
        return None

    def use(self, entry: CacheEntry) -> None:
        """Note that it was used just now."""
        if entry in self._recent:
            self._recent.move_to_end(entry)

    def prefer(self, leaves: Sequence[Any], entry: CacheEntry) -> None:
        """Ask this one first for leaves like these."""
        found = self._found.get(key_of(leaves), [])
        if entry in found:
            found.remove(entry)
            found.insert(0, entry)

    def alike(self, leaves: Sequence[Any]) -> Sequence[CacheEntry]:
        """Versions for tensors of the same metas, whatever else they ask for."""
        return self._found.get(key_of(leaves), ())

    def add(self, leaves: Sequence[Any], entry: CacheEntry) -> Key:
        key = key_of(leaves)
        self._found.setdefault(key, []).append(entry)
        return key

    def add_instance(self, leaves: Sequence[Any], entry: CacheEntry) -> None:
        self.instances += 1
        self._recent[entry] = self.add(leaves, entry)
        while len(self._recent) > config.most_instances:
            oldest, key = self._recent.popitem(last=False)
            self._found[key].remove(oldest)
            if not self._found[key]:
                del self._found[key]
