"""Where a rank writes what it is doing, for the agent on its machine that watches.

A file in memory with a row for each rank of the machine. A row is written by its rank alone, in
place, and read by the agent whenever it likes: no message, no thread of its own but the heartbeat.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import time
from typing import Any

ROW = 2048
_HEAD = struct.Struct("<QddIH")
"""Version (odd: being written), time of the last beat, since when, process, length of the text."""
BEAT = 0.2


class Board:
    """This rank's row; without a file, nothing is written."""

    def __init__(self, path: str | None = None, row: int = 0) -> None:
        self._map: mmap.mmap | None = None
        self._at = row * ROW
        self._version = 0
        self._since = 0.0
        self.row: dict[str, Any] = {"seq": 0, "call": "", "line": "", "waits": []}
        if path:
            handle = os.open(path, os.O_RDWR)
            try:
                self._map = mmap.mmap(handle, 0)
            finally:
                os.close(handle)
            self.write()
            threading.Thread(target=self._beat, name="lucerne beat", daemon=True).start()

    def enters(self, group: str, seq: int, call: str, line: str) -> None:
        """The rank is in a collective."""
        if self._map is not None:
            self.row = {
                "group": group, "seq": seq, "call": call[:300], "line": line[:300], "waits": [],
            }  # fmt: skip
            self.write()

    def leaves(self) -> None:
        """It is out of it."""
        if self._map is not None:
            self.row = {**self.row, "call": "", "last": self.row["call"], "waits": []}
            self.write()

    def hears(self, text: str) -> None:
        """It was told of a failure elsewhere: what ends it now is not its own."""
        if self._map is not None:
            self.row = {**self.row, "heard": text[:200]}
            self.write(new=False)

    def waits(self, ranks: list[int]) -> None:
        """It waits for these."""
        if self._map is not None and self.row["waits"] != ranks:
            self.row = {**self.row, "waits": ranks}
            self.write(new=False)

    def write(self, new: bool = True) -> None:
        found = self._map
        if found is None:
            return
        text = json.dumps(self.row).encode()[: ROW - _HEAD.size]
        since = time.time() if new else self._since
        self._since = since
        self._version += 2
        head = _HEAD.pack(self._version - 1, time.time(), since, os.getpid(), len(text))
        found[self._at : self._at + len(head)] = head
        found[self._at + len(head) : self._at + len(head) + len(text)] = text
        struct.pack_into("<Q", found, self._at, self._version)

    def _beat(self) -> None:
        parent = os.getppid()
        while True:
            time.sleep(BEAT)
            if os.getppid() != parent:
                os._exit(13)  # the agent is gone: nobody would end this rank
            assert self._map is not None
            struct.pack_into("<d", self._map, self._at + 8, time.time())


def make(path: str, rows: int) -> None:
    """A new board with so many rows."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(handle, rows * ROW)
    finally:
        os.close(handle)


class BoardView:
    """The agent's look at all rows."""

    def __init__(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self._map = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
        finally:
            os.close(handle)
        self.rows = len(self._map) // ROW

    def read(self, row: int) -> dict[str, Any] | None:
        """What a rank said last, with `beat` and `since`; None: nothing yet, or in the middle."""
        at = row * ROW
        version, beat, since, process, length = _HEAD.unpack_from(self._map, at)
        text = self._map[at + _HEAD.size : at + _HEAD.size + length]
        if not version or version % 2 or _HEAD.unpack_from(self._map, at)[0] != version:
            return None
        try:
            said = json.loads(text)
        except ValueError:
            return None
        if not isinstance(said, dict):
            return None
        return {**said, "beat": beat, "since": since, "process": process}
