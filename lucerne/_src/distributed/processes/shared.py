"""Memory that the ranks of a group on one machine see."""

from __future__ import annotations

import os
import secrets
import struct
from typing import Any

import numpy as np

from lucerne._src.base.process.shared_memory import AVAILABLE, SharedBlock
from lucerne._src.distributed.meeting.links import host_identity

Array = np.ndarray[Any, Any]
CHUNK = 4 << 20
"""Bytes of one chunk of one rank."""
TURNS = 3
"""Chunks at work at once."""
_MARK = 64
_CARD = struct.Struct("<100sqq16s")


class SharedRoom:
    """One block of each rank, with places for three chunks, all mapped here."""

    def __init__(self, size: int, me: int) -> None:
        self.chunk = CHUNK
        self.turn = 0
        self._me = me
        self._blocks: list[SharedBlock | None] = [None] * size
        self._nonce = secrets.token_bytes(16)
        try:
            block = SharedBlock.make(_MARK + TURNS * CHUNK) if AVAILABLE else None
        except OSError:
            block = None
        if block is not None:
            block.array[:16] = np.frombuffer(self._nonce, np.uint8)
        self._blocks[me] = block
        self._known: dict[tuple[int, int, Any, int], Array] = {}

    def card(self) -> bytes:
        """What others need to find this rank's block."""
        mine = self._blocks[self._me]
        fd = -1 if mine is None else mine.fd
        return _CARD.pack(host_identity().encode()[:100], os.getpid(), fd, self._nonce)

    def join(self, cards: dict[int, bytes]) -> bool:
        """Map the blocks of the others; whether all could be."""
        mine = self._blocks[self._me]
        if mine is None:
            return False
        here = host_identity().encode()[:100]
        for index, raw in cards.items():
            host, process, fd, nonce = _CARD.unpack(raw)
            if host.rstrip(b"\0") != here or fd < 0:
                return False
            try:
                handle = os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
                if os.fstat(handle).st_size < mine.nbytes:
                    os.close(handle)
                    return False
                block = SharedBlock(handle, mine.nbytes)
            except (OSError, ValueError):
                return False
            if block.array[:16].tobytes() != nonce:
                return False
            block.close_fd()
            self._blocks[index] = block
        return True

    def close_fd(self) -> None:
        """The mappings stay; nobody needs the file any more."""
        mine = self._blocks[self._me]
        if mine is not None:
            mine.close_fd()

    def slot(self, index: int, turn: int, dtype: Any, count: int) -> Array:
        """A rank's place for a turn, as so many values."""
        key = (index, turn % TURNS, dtype, count)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 512:
                self._known.clear()
            block = self._blocks[index]
            assert block is not None
            start = _MARK + (turn % TURNS) * self.chunk
            nbytes = count * np.dtype(dtype).itemsize
            found = block.array[start : start + nbytes].view(dtype)
            self._known[key] = found
        return found
