"""Versions as torch compares them."""

from __future__ import annotations

import re
from typing import Any


def _key(version: Any) -> tuple[tuple[int, ...], bool, bool]:
    """What versions are ordered by: numbers, final after preview, local after plain."""
    if isinstance(version, tuple | list):
        version = ".".join(map(str, version))
    public, _, local = str(version).partition("+")
    found = re.match(r"\d+(\.\d+)*", public)
    if found is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = [int(n) for n in found[0].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), found[0] == public, bool(local)


class TorchVersion(str):
    """A version that compares by its numbers, with text and with tuples.

    >>> import lucerne
    >>> lucerne.__version__ >= (2, 0), lucerne.__version__ < "2.9"
    (True, False)
    """

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)
