"""The steps of a path through nested containers: `[0]`, `['name']`, `.field`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class KeyEntry(Protocol):
    """One step."""

    def get(self, parent: Any) -> Any: ...


KeyPath = tuple[KeyEntry, ...]


@dataclass(frozen=True)
class SequenceKey(Generic[T]):
    """An item of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey(Generic[K, T]):
    """A value of a dict."""

    key: K

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """An attribute of an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


def keystr(kp: KeyPath) -> str:
    """A path as text."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What a path leads to."""
    return functools.reduce(lambda found, key: key.get(found), kp, obj)
