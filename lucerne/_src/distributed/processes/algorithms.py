"""Collectives on flat arrays of one group, as exchanges of frames.

Values are always combined in the order of ranks, each element by one rank or by all alike. So the
bits of a result depend neither on the size of the tensor nor on the way its bytes took, and all
ranks have the same ones.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.distributed.processes import reduction
from lucerne._src.distributed.processes.exchange import Mesh
from lucerne._src.distributed.processes.reduction import ReduceOp
from lucerne._src.distributed.processes.shared import SharedRoom

Array = np.ndarray[Any, Any]
EMPTY = memoryview(b"")
SMALL = 64 << 10
"""Bytes up to which a rank sends all it has to each other one: more bytes, but one wait less."""
ALONE = 4 << 20
"""Bytes times peers up to which each rank reduces all in shared memory by itself, for the same
reason."""
PIECE = 8 << 20
"""Bytes of one piece of a reduction at the root."""


def view(array: Array) -> memoryview:
    """The bytes of an array."""
    return memoryview(array.view(np.uint8).data) if array.size else EMPTY


class Algorithms:
    """The collectives of one rank in one group. One at a time: the group sees to that."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.me, self.size = mesh.index, len(mesh.ranks)
        self.others = [i for i in range(self.size) if i != self.me]
        self.seq, self.step, self.deadline = 0, 0, 0.0
        self._room: SharedRoom | None = None
        self._room_tried = False

    def begin(self, seq: int, timeout: float) -> None:
        self.seq, self.step = seq, 0
        self.deadline = time.monotonic() + timeout

    def exchange(self, out: dict[int, Sequence[memoryview]], into: dict[int, memoryview]) -> None:
        self.mesh.exchange(self.seq, self.step, out, into, self.deadline)
        self.step = (self.step + 1) & 0xFFFF

    def sync(self) -> None:
        """All ranks have come here."""
        self.exchange(dict.fromkeys(self.others, (EMPTY,)), dict.fromkeys(self.others, EMPTY))

    # -- reductions ------------------------------------------------------------------------------

    def all_reduce(self, x: Array, op: ReduceOp, kind: str) -> None:
        if x.nbytes <= SMALL or x.size < self.size:
            self._reduce_small(x, op, kind)
            return
        room = self._shared_room()
        if room is not None and x.nbytes * (self.size - 1) <= min(ALONE, room.chunk):
            self._reduce_alone(room, x, op, kind)
        elif room is not None:
            self._reduce_shared(room, x, op, kind)
        else:
            self._reduce_sliced(x, op, kind)

    def _reduce_small(self, x: Array, op: ReduceOp, kind: str) -> None:
        come = np.empty((self.size, x.size), x.dtype)
        come[self.me] = x
        mine = view(come[self.me])
        self.exchange(dict.fromkeys(self.others, (mine,)), {i: view(come[i]) for i in self.others})
        reduction.combine(op, kind, list(come), x)

    def _reduce_alone(self, room: SharedRoom, x: Array, op: ReduceOp, kind: str) -> None:
        """Each rank puts its values in, waits for the others, and reduces all."""
        turn = room.turn
        room.turn += 1
        room.slot(self.me, turn, x.dtype, x.size)[...] = x
        self.sync()
        slots = [room.slot(i, turn, x.dtype, x.size) for i in range(self.size)]
        reduction.combine(op, kind, slots, x)

    def _cuts(self, count: int) -> list[int]:
        return [count * i // self.size for i in range(self.size + 1)]

    def _reduce_sliced(self, x: Array, op: ReduceOp, kind: str) -> None:
        """Each rank reduces its slice of all, and gives it to the others."""
        cuts = self._cuts(x.size)
        parts = [x[a:b] for a, b in itertools.pairwise(cuts)]
        mine = parts[self.me]
        come = {i: np.empty_like(mine) for i in self.others}
        self.exchange(
            {i: (view(parts[i]),) for i in self.others}, {i: view(come[i]) for i in self.others}
        )
        total = np.empty_like(mine)
        reduction.combine(op, kind, [come.get(i, mine) for i in range(self.size)], total)
        mine[...] = total
        self.exchange(
            {i: (view(mine),) for i in self.others}, {i: view(parts[i]) for i in self.others}
        )

    def _shared_room(self) -> SharedRoom | None:
        """Memory that all ranks see, if they are on one machine; they agree on whether they do."""
        if not self._room_tried:
            self._room_tried = True
            room = SharedRoom(self.size, self.me)
            mine = memoryview(room.card())
            cards = {i: bytearray(len(mine)) for i in self.others}
            self.exchange(
                dict.fromkeys(self.others, (mine,)), {i: memoryview(c) for i, c in cards.items()}
            )
            fine = memoryview(
                b"\1" if room.join({i: bytes(c) for i, c in cards.items()}) else b"\0"
            )
            votes = {i: bytearray(1) for i in self.others}
            self.exchange(
                dict.fromkeys(self.others, (fine,)), {i: memoryview(v) for i, v in votes.items()}
            )
            room.close_fd()
            if bytes(fine) == b"\1" and all(v[0] for v in votes.values()):
                self._room = room
        return self._room

    def _reduce_shared(self, room: SharedRoom, x: Array, op: ReduceOp, kind: str) -> None:
        """Through shared memory in chunks, three of them at work: while one is taken out, the next
        is reduced, and the one after is put in. One wait for the others in each round."""
        most = room.chunk // x.itemsize
        count = max(-(-x.nbytes // room.chunk), 1)
        width = min(-(-x.size // count), most)
        starts = list(range(0, x.size, width))
        first = room.turn
        room.turn += len(starts)
        for k in range(len(starts) + 2):
            if k >= 2:
                self._take_out(room, first + k - 2, x[starts[k - 2] :][:width])
            if 1 <= k <= len(starts):
                self._reduce_mine(room, first + k - 1, x[starts[k - 1] :][:width], op, kind)
            if k < len(starts):
                part = x[starts[k] :][:width]
                room.slot(self.me, first + k, part.dtype, part.size)[...] = part
            if k < len(starts) + 1:
                self.sync()

    def _reduce_mine(
        self, room: SharedRoom, turn: int, part: Array, op: ReduceOp, kind: str
    ) -> None:
        cuts = self._cuts(part.size)
        mine = slice(cuts[self.me], cuts[self.me + 1])
        slots = [room.slot(i, turn, part.dtype, part.size)[mine] for i in range(self.size)]
        out = slots[self.me]
        if self.me == 0 or kind in ("bfloat16", "float16"):
            reduction.combine(op, kind, slots, out)
        else:
            reduction.combine(op, kind, slots, part[mine])
            out[...] = part[mine]

    def _take_out(self, room: SharedRoom, turn: int, part: Array) -> None:
        cuts = self._cuts(part.size)
        for i in range(self.size):
            mine = slice(cuts[i], cuts[i + 1])
            part[mine] = room.slot(i, turn, part.dtype, part.size)[mine]

    def reduce(self, x: Array, root: int, op: ReduceOp, kind: str) -> None:
        width = max(PIECE // max(x.itemsize, 1), 1)
        for start in range(0, max(x.size, 1), width):
            part = x[start : start + width]
            if self.me == root:
                come = {i: np.empty_like(part) for i in self.others}
                self.exchange({}, {i: view(c) for i, c in come.items()})
                total = np.empty_like(part)
                reduction.combine(op, kind, [come.get(i, part) for i in range(self.size)], total)
                part[...] = total
            else:
                self.exchange({root: (view(part),)}, {})

    def reduce_scatter(self, out: Array, parts: Sequence[Array], op: ReduceOp, kind: str) -> None:
        come = {i: np.empty_like(out) for i in self.others}
        self.exchange(
            {i: (view(parts[i]),) for i in self.others}, {i: view(c) for i, c in come.items()}
        )
        total = np.empty_like(out)
        mine = parts[self.me]
        reduction.combine(op, kind, [come.get(i, mine) for i in range(self.size)], total)
        out[...] = total

    # -- moving ----------------------------------------------------------------------------------

    def broadcast(self, x: Array, root: int) -> None:
        if self.me == root:
            self.exchange({i: (view(x),) for i in self.others}, {})
        else:
            self.exchange({}, {root: view(x)})

    def gather(self, x: Array, into: Sequence[Array] | None, root: int) -> None:
        if self.me == root:
            assert into is not None
            self.exchange({}, {i: view(into[i]) for i in self.others})
            into[root][...] = x
        else:
            self.exchange({root: (view(x),)}, {})

    def scatter(self, x: Array, parts: Sequence[Array] | None, root: int) -> None:
        if self.me == root:
            assert parts is not None
            self.exchange({i: (view(parts[i]),) for i in self.others}, {})
            x[...] = parts[root]
        else:
            self.exchange({}, {root: view(x)})

    def all_gather(self, x: Array, into: Sequence[Array]) -> None:
        self.exchange({i: (view(x),) for i in self.others}, {i: view(into[i]) for i in self.others})
        into[self.me][...] = x

    def all_to_all(self, parts: Sequence[Array], into: Sequence[Array]) -> None:
        self.exchange(
            {i: (view(parts[i]),) for i in self.others}, {i: view(into[i]) for i in self.others}
        )
        into[self.me][...] = parts[self.me]

    def all_gather_bytes(self, raw: bytes) -> list[bytes]:
        """Bytes of any length from each rank."""
        lengths = self._lengths(len(raw))
        into = [np.empty(n, np.uint8) for n in lengths]
        self.all_gather(np.frombuffer(raw, np.uint8), into)
        return [a.tobytes() for a in into]

    def _lengths(self, mine: int) -> list[int]:
        into = [np.zeros(1, np.int64) for _ in range(self.size)]
        self.all_gather(np.array([mine], np.int64), into)
        return [int(a[0]) for a in into]

    def scatter_bytes(self, parts: Sequence[bytes], root: int) -> bytes:
        """Bytes of any length for each rank."""
        length = np.zeros(1, np.int64)
        lengths = [np.array([len(part)], np.int64) for part in parts]
        self.scatter(length, lengths or None, root)
        body = np.empty(int(length[0]), np.uint8)
        self.scatter(body, [np.frombuffer(part, np.uint8) for part in parts] or None, root)
        return body.tobytes()
