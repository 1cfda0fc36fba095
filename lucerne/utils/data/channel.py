"""Messages between a loader and one worker, over a pair of sockets that no one else holds.

There is no queue shared by workers, so there is no lock that a killed worker could keep. The
parent never blocks on a socket: half a message from a stopped worker is just not there yet.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections import deque

_HEAD = struct.Struct("<QB7x")  # length of the message, how many files come with it
_PIECE = 1 << 18
_MOST_FILES = 16

Message = tuple[bytes, list[int]]


class Channel:
    """One end of the pair. Messages are bytes, and files may come with them."""

    def __init__(self, sock: socket.socket, blocking: bool) -> None:
        sock.setblocking(blocking)
        self.sock = sock
        self.open = True
        self._in = bytearray()
        self._files: deque[int] = deque()
        self._out: deque[tuple[memoryview, list[int]]] = deque()

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        """End the talk, also where processes forked since hold copies of the socket."""
        self.open = False
        self._out.clear()
        while self._files:
            os.close(self._files.popleft())
        with contextlib.suppress(OSError):  # the other side is gone
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # ---- out ----

    def send(self, data: bytes, files: list[int] | None = None) -> None:
        """Queue a message and send as much as goes without waiting (all of it when blocking).

        `files` must stay open until the message is sent; see `flush`.
        """
        files = files or []
        head = _HEAD.pack(len(data), len(files))
        if len(data) < _PIECE:
            self._out.append((memoryview(head + data), files))
        else:
            self._out.append((memoryview(head), files))
            self._out.append((memoryview(data), []))
        self.flush()

    @property
    def has_more(self) -> bool:
        """Whether something waits until the other end has read."""
        return bool(self._out)

    def flush(self) -> None:
        """Send what is queued as far as the other end takes it; its end means `open` is False."""
        while self._out and self.open:
            data, files = self._out[0]
            try:
                if files:
                    sent = socket.send_fds(self.sock, [data], files)
                else:
                    sent = self.sock.send(data)
            except BlockingIOError:
                return
            except OSError:
                self.open = False
                return
            if sent == len(data):
                self._out.popleft()
            else:
                self._out[0] = (data[sent:], [])

    # ---- in ----

    def receive(self) -> list[Message]:
        """All messages that have arrived whole; at the end of the connection `open` is False."""
        while self.open:
            if not self._read():
                break
        found = []
        while (message := self._whole_message()) is not None:
            found.append(message)
        return found

    def wait(self) -> Message:
        """The next message (of a blocking channel); EOFError when the other end is gone."""
        while (message := self._whole_message()) is None:
            if not self._read():
                raise EOFError("the other end of the channel is gone")
        return message

    def _read(self) -> bool:
        """Take in some bytes; False if there are none now, or never again."""
        try:
            data, files, _, _ = socket.recv_fds(self.sock, _PIECE, _MOST_FILES)
        except BlockingIOError:
            return False
        except OSError:
            data, files = b"", []
        self._files.extend(files)
        self._in += data
        self.open = self.open and bool(data)
        return bool(data)

    def _whole_message(self) -> Message | None:
        if len(self._in) < _HEAD.size:
            return None
        length, count = _HEAD.unpack_from(self._in)
        end = _HEAD.size + length
        if len(self._in) < end:
            return None
        data = bytes(memoryview(self._in)[_HEAD.size : end])
        del self._in[:end]
        return data, [self._files.popleft() for _ in range(count)]


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def wait_any(channels: list[Channel], sentinels: list[int], timeout: float) -> set[int]:
    """Return when something can be read (or written, where it waits to), or after a while: the
    files it was."""
    with _Selector() as selector:
        for channel in channels:
            wanted = selectors.EVENT_READ
            if channel.has_more:
                wanted |= selectors.EVENT_WRITE
            selector.register(channel.fileno(), wanted)
        for sentinel in sentinels:
            selector.register(sentinel, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(timeout)}
