"""One step of a collective: frames go out to some ranks while frames of others come in.

All collectives are made of this. One thread does both directions, so nothing can block another; the
wait ends when all is there, when a peer is gone, when somebody reports a failure, at the deadline,
or by Ctrl-C.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.links import close_quietly
from lucerne._src.distributed.processes import frames
from lucerne._src.distributed.processes.frames import HEAD, MAGIC, Call
from lucerne._src.distributed.run.board import Board

SCRATCH = 1 << 16
PIECE = 1 << 20
LONG_WAIT = 0.1
"""Seconds after which a wait is told to who watches."""
REASON_WAIT = 0.5
"""Seconds: when a connection breaks, a reason may be on its way by another one."""
HISTORY = 256

View = memoryview


class PeerGone(Exception):  # noqa: N818  (it is caught, never shown)
    """A connection ended."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class PeerLink:
    """The connection to one peer, and what has come over it but is not used yet."""

    def __init__(self, rank: int, sock: socket.socket) -> None:
        self.rank, self.sock = rank, sock
        sock.setblocking(False)
        self.fd = sock.fileno()
        self._raw = bytearray(SCRATCH)
        self._view = memoryview(self._raw)
        self._at = self._end = 0
        self.out: deque[View] = deque()
        self._into: View | None = None
        self._got = -1

    # -- out -------------------------------------------------------------------------------------

    def push(self) -> bool:
        """Send what the system takes; whether all is sent."""
        out = self.out
        while out:
            try:
                if len(out) > 1 and len(out[0]) + len(out[1]) <= SCRATCH:
                    sent = self.sock.sendmsg([out[0], out[1]])
                else:
                    sent = self.sock.send(out[0][:PIECE])
            except BlockingIOError:
                return False
            except OSError:
                raise PeerGone(self.rank) from None
            while sent:
                first = out.popleft()
                if sent >= len(first):
                    sent -= len(first)
                else:
                    out.appendleft(first[sent:])
                    sent = 0
        return True

    # -- in --------------------------------------------------------------------------------------

    def expect(self, into: View) -> None:
        self._into, self._got = into, -1

    def _more(self) -> bool:
        """Read into the scratch; False: nothing is there."""
        if self._at == self._end:
            self._at = self._end = 0
        elif self._end == SCRATCH:
            rest = bytes(self._view[self._at : self._end])
            self._raw[: len(rest)] = rest
            self._at, self._end = 0, len(rest)
        count = self._read(self._view[self._end :])
        self._end += max(count, 0)
        return count >= 0

    def _read(self, view: View) -> int:
        """How many bytes came; -1: none are there now."""
        try:
            count = self.sock.recv_into(view)
        except BlockingIOError:
            return -1
        except OSError:
            raise PeerGone(self.rank) from None
        if not count:
            raise PeerGone(self.rank)
        return count

    def pull(self, mesh: Mesh, seq: int, step: int) -> bool:
        """Take what has come of the expected frame; whether it is whole."""
        into = self._into
        assert into is not None
        if self._got < 0 and not self._head(mesh, seq, step, into):
            return False
        total = len(into)
        while self._got < total:
            ready = min(self._end - self._at, total - self._got)
            if ready:
                into[self._got : self._got + ready] = self._view[self._at : self._at + ready]
                self._at += ready
                self._got += ready
            elif total - self._got >= SCRATCH // 2:
                count = self._read(into[self._got : self._got + PIECE])
                if count < 0:
                    return False
                self._got += count
            elif not self._more():
                return False
        self._into = None
        return True

    def _head(self, mesh: Mesh, seq: int, step: int, into: View) -> bool:
        while self._end - self._at < HEAD.size:
            if not self._more():
                return False
        head = HEAD.unpack_from(self._raw, self._at)
        magic, length = head[0], head[1]
        if magic != MAGIC or length > frames.MOST_TEXT:
            raise DistBackendError(f"rank {self.rank} sent bytes that are no frame of ours")
        while self._end - self._at < HEAD.size + length:
            if not self._more():
                return False
        text = bytes(self._view[self._at + HEAD.size : self._at + HEAD.size + length])
        mesh.compare(self.rank, head[2:], text, seq, step, len(into))
        self._at += HEAD.size + length
        self._got = 0
        return True


class Mesh:
    """The connections of one rank to all others of a group."""

    def __init__(
        self, name: str, me: int, ranks: Sequence[int], generation: int, board: Board
    ) -> None:
        self.name, self.me, self.ranks, self.generation = name, me, list(ranks), generation
        self.index = self.ranks.index(me)
        """This rank's number in the group; `me` is the one in the world."""
        self.links: dict[int, PeerLink] = {}
        self.error: Exception | None = None
        self.history: dict[int, Call] = {}
        self.board = board
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_in.setblocking(False)
        self.timeout = 1800.0
        self._texts: dict[Call, bytes] = {}
        forks.tell(self)

    def add(self, index: int, sock: socket.socket) -> None:
        self.links[index] = PeerLink(self.ranks[index], sock)

    def forget(self) -> None:
        for link in self.links.values():
            link.sock.close()
        self._wake_in.close()
        self._wake_out.close()

    def close(self) -> None:
        for link in self.links.values():
            close_quietly(link.sock)
        self._wake_in.close()
        self._wake_out.close()

    def fail(self, error: Exception) -> None:
        """From any thread: what waits here now, or comes here later, raises this."""
        if self.error is None:
            self.error = error
            try:
                self._wake_out.send(b"!")
            except OSError:
                pass

    # -- agreement -------------------------------------------------------------------------------

    def begin(self, seq: int, call: Call) -> None:
        self.history[seq] = call
        if seq >= HISTORY:
            self.history.pop(seq - HISTORY, None)

    def compare(
        self, rank: int, head: tuple[Any, ...], text: bytes, seq: int, step: int, expected: int
    ) -> None:
        """Raise unless a frame is the one that this call waits for."""
        their_step, generation, their_seq, length = head
        mine = self.history[seq]
        if generation != self.generation:
            raise DistBackendError(
                f"rank {rank} is of generation {generation} of this job, and this one is of "
                f"{self.generation}: a process of an earlier start is still running"
            )
        same = step or text.partition(b"\0")[0] == mine.signature.encode()
        if their_seq == seq and their_step == step and length == expected and same:
            return
        signature, line = frames.split_text(text)
        if their_seq != seq and their_seq in self.history:
            mine = self.history[their_seq]
        said = f"{signature} at {line}" if signature else f"step {their_step} with {length} bytes"
        raise DistBackendError(
            f"ranks called different collectives as number {their_seq} of group {self.name}: rank "
            f"{self.me} {mine.signature} at {mine.line}; rank {rank} {said}. All ranks of a group "
            "must make the same calls in the same order, with tensors of one shape and dtype"
        )

    def _text(self, call: Call) -> bytes:
        found = self._texts.get(call)
        if found is None:
            if len(self._texts) > 1024:
                self._texts.clear()
            found = self._texts[call] = call.text()
        return found

    # -- the step --------------------------------------------------------------------------------

    def exchange(
        self,
        seq: int,
        step: int,
        out: dict[int, Sequence[View]],
        into: dict[int, View],
        deadline: float,
    ) -> None:
        """Send a frame to each rank of `out` and receive one from each of `into`."""
        text = b"" if step else self._text(self.history[seq])
        self._check()
        sending: set[int] = set()
        for index, views in out.items():
            link = self.links[index]
            total = sum(map(len, views))
            head = HEAD.pack(MAGIC, len(text), step, self.generation, seq, total) + text
            if total <= SCRATCH // 2:
                link.out.append(memoryview(b"".join([head, *views])))
            else:
                link.out.append(memoryview(head))
                link.out.extend(v for v in views if len(v))
        for index, view in into.items():
            self.links[index].expect(view)
        try:
            for index in out:
                if not self.links[index].push():
                    sending.add(index)
            self._finish(seq, step, sending, set(into), deadline)
        except PeerGone as gone:
            raise self._reason(gone) from None

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _finish(
        self, seq: int, step: int, sending: set[int], receiving: set[int], deadline: float
    ) -> None:
        links = self.links
        receiving = {i for i in receiving if not links[i].pull(self, seq, step)}
        told = False
        while sending or receiving:
            poll = select.poll()
            poll.register(self._wake_in.fileno(), select.POLLIN)
            by_fd = {}
            for i in sending | receiving:
                mask = (select.POLLOUT if i in sending else 0) | (
                    select.POLLIN if i in receiving else 0
                )
                poll.register(links[i].fd, mask)
                by_fd[links[i].fd] = i
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._late(receiving or sending)
            ready = poll.poll(1000 * min(left, 1.0 if told else LONG_WAIT) + 1)
            self._check()
            if not ready and not told:
                told = True
            if told:
                self.board.waits([self.ranks[i] for i in receiving or sending])
            for fd, events in ready:
                index = by_fd.get(fd)
                if index is None:
                    continue
                if index in sending and events & ~select.POLLIN and links[index].push():
                    sending.discard(index)
                wanted = index in receiving and events & ~select.POLLOUT
                if wanted and links[index].pull(self, seq, step):
                    receiving.discard(index)
        if told:
            self.board.waits([])

    def _late(self, missing: set[int]) -> Exception:
        call = self.history[max(self.history)]
        names = ", ".join(str(self.ranks[i]) for i in sorted(missing))
        return DistBackendError(
            f"rank {self.me} waited {self.timeout:g} s in {call.signature} at {call.line} for rank "
            f"{names}, which did not come"
        )

    def _reason(self, gone: PeerGone) -> Exception:
        """Why a connection ended: what the watcher hears within a moment, or that it did."""
        end = time.monotonic() + REASON_WAIT
        while self.error is None and time.monotonic() < end:
            time.sleep(0.005)
        if self.error is not None:
            return self.error
        call = self.history[max(self.history)]
        return DistBackendError(
            f"rank {gone.rank} is gone: its connection ended while rank {self.me} was in "
            f"{call.signature} at {call.line}"
        )
