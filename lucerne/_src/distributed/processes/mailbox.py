"""Point to point: messages between two ranks of a group, matched by sender, tag and order."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.links import close_quietly
from lucerne._src.distributed.processes import frames
from lucerne._src.distributed.processes.frames import Call
from lucerne._src.distributed.processes.work import Work

Array = np.ndarray[Any, Any]
_HEAD = struct.Struct("<4sHIqQ")
"""Magic, length of the text, generation, tag, length of the payload."""
_MAGIC = b"LUCP"
LEAVE_SECONDS = 1.0
MOST_KEPT = 1 << 30
"""Bytes of messages that nobody has asked for yet; the sender waits beyond."""


class _Posted:
    """A `recv` that waits."""

    def __init__(self, source: int | None, tag: int, into: memoryview, call: Call) -> None:
        self.source, self.tag, self.into, self.call = source, tag, into, call
        self.found = -1


class Mailbox:
    """Messages of one rank in one group; ranks are those of the group."""

    def __init__(
        self,
        generation: int,
        open_to: Callable[[int], socket.socket],
        fail: Callable[[Exception], None],
    ) -> None:
        self._generation, self._open_to, self._fail = generation, open_to, fail
        self._lock = forks.lock()
        self._out: dict[int, queue.SimpleQueue[Any]] = {}
        self._posted: list[tuple[_Posted, Work]] = []
        self._kept: dict[int, deque[tuple[int, str, bytes]]] = {}
        self._kept_bytes = 0
        self._socks: list[socket.socket] = []
        self.error: Exception | None = None
        self._closed = False
        forks.tell(self)

    def forget(self) -> None:
        self._closed = True
        for sock in self._socks:
            sock.close()

    def close(self) -> None:
        self._closed = True
        for out in self._out.values():
            out.put(None)
        for sock in self._socks:
            close_quietly(sock)

    def fail(self, error: Exception) -> None:
        """What waits here raises this."""
        with self._lock:
            self.error = self.error or error
            waiting, self._posted = self._posted, []
        for _, work in waiting:
            work.finish(error)

    def ends(self, source: int, error: Exception) -> None:
        """One sender has left: who waits for it alone raises this, when what it sent before has had
        time to come."""

        def tell() -> None:
            with self._lock:
                waiting = [row for row in self._posted if row[0].source == source]
                self._posted = [row for row in self._posted if row[0].source != source]
            for _, work in waiting:
                work.finish(error)

        timer = threading.Timer(LEAVE_SECONDS, tell)
        timer.daemon = True
        timer.start()

    # -- out -------------------------------------------------------------------------------------

    def send(self, peer: int, tag: int, array: Array, call: Call) -> Work:
        work = Work(call.signature)
        if self.error is not None:
            raise self.error
        with self._lock:
            out = self._out.get(peer)
            if out is None:
                out = self._out[peer] = queue.SimpleQueue()
                threading.Thread(target=self._send_all, args=(peer, out), daemon=True).start()
        out.put((tag, array, call, work))
        return work

    def _send_all(self, peer: int, out: queue.SimpleQueue[Any]) -> None:
        sock: socket.socket | None = None
        while not self._closed:
            item = out.get()
            if item is None:
                return
            tag, array, call, work = item
            try:
                if sock is None:
                    sock = self._open_to(peer)
                    self._socks.append(sock)
                text = call.text()
                raw = memoryview(array.view(np.uint8)) if array.size else memoryview(b"")
                sock.sendall(_HEAD.pack(_MAGIC, len(text), self._generation, tag, len(raw)) + text)
                sock.sendall(raw)
                work.finish()
            except Exception as error:  # whatever it is, the one who waits must hear of it
                work.finish(
                    self.error
                    or DistBackendError(f"{call.signature} at {call.line} to rank {peer}: {error}")
                )

    # -- in --------------------------------------------------------------------------------------

    def take(self, source: int, sock: socket.socket) -> None:
        """A connection on which `source` sends."""
        self._socks.append(sock)
        threading.Thread(target=self._read_all, args=(source, sock), daemon=True).start()

    def receive(self, source: int | None, tag: int, into: Array, call: Call) -> Work:
        raw = memoryview(into.view(np.uint8).data) if into.size else memoryview(bytearray())
        posted = _Posted(source, tag, raw, call)
        work = Work(call.signature, source=lambda: posted.found)
        with self._lock:
            if self.error is not None:
                raise self.error
            early = self._early(posted)
            if early is None:
                self._posted.append((posted, work))
        if early is not None:
            who, text, payload = early
            try:
                self._compare(posted, who, text, len(payload))
                raw[:] = payload
                work.finish()
            except DistBackendError as error:
                work.finish(error)
                self._fail(error)
        return work

    def _early(self, posted: _Posted) -> tuple[int, str, bytes] | None:
        """A message that was there before the question for it."""
        sources = [posted.source] if posted.source is not None else sorted(self._kept)
        for source in sources:
            kept = self._kept.get(source, deque())
            for k, (tag, text, payload) in enumerate(kept):
                if tag == posted.tag:
                    del kept[k]
                    self._kept_bytes -= len(payload)
                    posted.found = source
                    return source, text, payload
        return None

    def _compare(self, posted: _Posted, source: int, text: str, length: int) -> None:
        signature, line = frames.split_text(text.encode())
        if length != len(posted.into) or signature.split()[1:] != posted.call.signature.split()[1:]:
            raise DistBackendError(
                f"a message does not fit: {posted.call.signature} at {posted.call.line} got "
                f"{signature} at {line} of rank {source}. Both need one dtype and number of values"
            )

    def _match(self, source: int, tag: int) -> tuple[_Posted, Work] | None:
        for k, (posted, work) in enumerate(self._posted):
            if posted.tag == tag and posted.source in (None, source):
                del self._posted[k]
                posted.found = source
                return posted, work
        return None

    def _read_all(self, source: int, sock: socket.socket) -> None:
        try:
            while not self._closed:
                raw = self._exactly(sock, _HEAD.size)
                magic, length, generation, tag, total = _HEAD.unpack(raw)
                if magic != _MAGIC or length > frames.MOST_TEXT or total > frames.MOST_PAYLOAD:
                    break
                if generation != self._generation:
                    break
                text = self._exactly(sock, length).decode(errors="replace")
                self._deliver(source, sock, tag, text, total)
        except (OSError, MemoryError):
            pass
        finally:
            close_quietly(sock)

    def _deliver(self, source: int, sock: socket.socket, tag: int, text: str, total: int) -> None:
        with self._lock:
            found = self._match(source, tag)
        if found is None:
            while self._kept_bytes + total > MOST_KEPT and self._kept_bytes and not self._closed:
                time.sleep(0.01)
                with self._lock:
                    found = self._match(source, tag)
                if found is not None:
                    break
        if found is None:
            payload = self._exactly(sock, total)
            with self._lock:
                found = self._match(source, tag)  # asked for while it came
                if found is None:
                    self._kept.setdefault(source, deque()).append((tag, text, payload))
                    self._kept_bytes += total
                    return
            self._hand(
                found, source, text, total, lambda into: into.__setitem__(slice(None), payload)
            )
            return
        self._hand(found, source, text, total, lambda into: self._fill(sock, into))

    def _hand(
        self, found: tuple[_Posted, Work], source: int, text: str, total: int,
        fill: Callable[[memoryview], None],
    ) -> None:  # fmt: skip
        posted, work = found
        try:
            self._compare(posted, source, text, total)
            fill(posted.into)
        except DistBackendError as error:
            work.finish(error)
            self._fail(error)
            raise OSError("no message fits any more") from None
        except OSError:
            work.finish(
                self.error or DistBackendError(f"rank {source} ended in the middle of a message")
            )
            raise
        work.finish()

    def _fill(self, sock: socket.socket, into: memoryview) -> None:
        got = 0
        while got < len(into):
            count = sock.recv_into(into[got:])
            if not count:
                raise ConnectionError("closed")
            got += count

    def _exactly(self, sock: socket.socket, count: int) -> bytes:
        raw = bytearray(count)
        self._fill(sock, memoryview(raw))
        return bytes(raw)
