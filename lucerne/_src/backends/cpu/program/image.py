"""All words that machine code reads of a runner, in one piece of memory of which copies are made.

    image = RunnerImage()
    image.add("state", [0] * 32)
    image.add("bases", [0, 0])
    image.point("state", 2, image.place("bases"))      # word 2 of the state is an address
    words, address = image.copy()

A word that points into the piece holds, in the image, how far from its beginning that is; in a copy
it is an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.program.blocks import ALIGNMENT
from lucerne._src.base.process.forks import once

Words = np.ndarray[Any, np.dtype[np.int64]]
_LINE = ALIGNMENT // 8


class RunnerImage:
    """What is put together by `add` and `point`; then copied."""

    def __init__(self) -> None:
        self._parts: list[Words] = []
        self._count = 0
        self._pointers: list[int] = []
        self.parts: dict[str, slice] = {}

    def add(self, name: str, words: Sequence[int] | Words) -> None:
        """A table (of at least one word) behind those that are there."""
        made = np.array(words, np.int64).reshape(-1)
        made = made if len(made) else np.zeros(1, np.int64)
        self.parts[name] = slice(self._count, self._count + len(made))
        self._parts.append(made)
        self._count += len(made)

    def first(self, name: str) -> int:
        """The number of the first word of a table."""
        return int(self.parts[name].start)

    def place(self, name: str, word: int = 0) -> int:
        """Bytes from the beginning to a word of a table."""
        return 8 * (self.first(name) + word)

    def point(self, name: str, word: int, place: int) -> None:
        """Let a word of a table point to a place."""
        self._part(name)[word] = place
        self.points(name, [word])

    def points(self, name: str, words: Sequence[int]) -> None:
        """Say of words that hold a place that they are to hold an address."""
        first = self.first(name)
        self._pointers += [first + k for k in words]

    def set(self, name: str, word: int, value: int) -> None:
        self._part(name)[word] = value

    def _part(self, name: str) -> Words:
        return self._parts[list(self.parts).index(name)]

    @once
    def words(self) -> Words:
        """All of them, once nothing is added any more."""
        return np.concatenate(self._parts)

    @once
    def pointers(self) -> Words:
        return np.array(self._pointers, np.int64)

    def copy(self) -> tuple[Words, int]:
        """The words in memory of their own, and its address."""
        room = np.empty(self._count + _LINE, np.int64)
        start: int = room.__array_interface__["data"][0]  # (`ctypes.data` takes longer)
        skipped = -start % ALIGNMENT // 8
        made, address = room[skipped : skipped + self._count], start + 8 * skipped
        made[:] = self.words
        made[self.pointers] += address
        return made, address


class RunnerTables(dict[str, Any]):
    """Tables of a copy by name; others may be put in their places."""

    def __init__(self, image: RunnerImage, words: Words) -> None:
        self._image, self._words = image, words

    def __missing__(self, name: str) -> Any:
        if name not in self._image.parts:
            raise KeyError(name)
        found = self[name] = self._words[self._image.parts[name]]
        return found
