"""The second connection between each two ranks: who failed, who left, and whose process ended.

One thread listens. What it hears ends the waits of the groups that it concerns.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.links import close_quietly

MOST = 1 << 16
_LENGTH = struct.Struct("<I")


class PeerWatcher:
    """Control connections of one rank to all others."""

    def __init__(
        self,
        heard: Callable[[int, dict[str, Any]], None],
        lost: Callable[[int], None],
    ) -> None:
        self._heard, self._lost = heard, lost
        self._socks: dict[int, socket.socket] = {}
        self._lock = forks.lock()
        self._closed = False
        self._wake_out, self._wake_in = socket.socketpair()
        forks.tell(self)

    def add(self, rank: int, sock: socket.socket) -> None:
        self._socks[rank] = sock

    def start(self) -> None:
        threading.Thread(target=self._listen, name="lucerne watch", daemon=True).start()

    def forget(self) -> None:
        self._closed = True
        for sock in (*self._socks.values(), self._wake_in, self._wake_out):
            sock.close()

    def close(self) -> None:
        self._closed = True
        self._wake_out.close()
        for sock in self._socks.values():
            close_quietly(sock)

    def tell(self, message: dict[str, Any]) -> None:
        """All others; whoever is gone need not know."""
        raw = json.dumps(message).encode()[:MOST]
        for sock in list(self._socks.values()):
            try:
                with self._lock:
                    sock.settimeout(1.0)
                    sock.sendall(_LENGTH.pack(len(raw)) + raw)
            except OSError:
                continue

    def _listen(self) -> None:
        looks = selectors.DefaultSelector()
        buffers = {rank: bytearray() for rank in self._socks}
        looks.register(self._wake_in, selectors.EVENT_READ, None)
        for rank, sock in self._socks.items():
            looks.register(sock, selectors.EVENT_READ, rank)
        while not self._closed:
            try:
                ready = looks.select()
            except OSError:
                break
            for key, _ in ready:
                if key.data is not None and not self._read(key.data, buffers[key.data]):
                    looks.unregister(key.fileobj)
            if not self._socks or any(key.data is None for key, _ in ready):
                break
        looks.close()
        self._wake_in.close()

    def _read(self, rank: int, buffer: bytearray) -> bool:
        """Take what a rank says; False: its connection is over."""
        try:
            piece = self._socks[rank].recv(MOST)
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            piece = b""
        if not piece:
            if not self._closed:
                self._lost(rank)
            return False
        buffer += piece
        while len(buffer) >= 4:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > MOST:
                self._lost(rank)
                return False
            if len(buffer) < 4 + length:
                break
            raw = bytes(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            try:
                message = json.loads(raw)
            except ValueError:
                continue
            if isinstance(message, dict):
                self._heard(rank, message)
        return True
