"""Versions: of Lucerne, and of the PyTorch whose behaviour it follows.

Programs look at `torch.__version__` to learn what they may call. So `lucerne.__version__` says that
first, and after the plus sign which Lucerne this is.
"""

from __future__ import annotations

import re
from typing import Any

lucerne = "0.1.0"
follows = "2.13.0"

debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"


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


__version__ = TorchVersion(f"{follows}+lucerne.{lucerne}")
