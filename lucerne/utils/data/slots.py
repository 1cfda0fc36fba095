"""Shared memory for batches: slots that a worker fills, the parent reads, and the worker reuses.

A slot holds one batch. The parent's tensors lie directly in it, and hold a `Lease` on it; the
worker gets the slot back when the last of them is gone. When a program keeps many batches, or no
shared memory can be had, batches are copied to private memory instead.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Any

import numpy as np

from lucerne._src.base.process.shared_memory import AVAILABLE, SharedBlock
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.storage import Storage
from lucerne.utils.data import wire

SMALL = 1 << 15
"""Batches of fewer bytes go through the socket: mapping them would cost more."""


def slot_budget(workers: int) -> int:
    """Bytes of shared memory that a worker may fill: a quarter of the machine's for all."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 1 << 32
    return memory // 4 // workers


class Place:
    """Where a batch's buffers are, as the worker tells the parent."""

    __slots__ = ("fresh", "inline", "layout", "nbytes", "retired", "slot")

    def __init__(self, layout: wire.Layout) -> None:
        self.layout = layout
        self.inline: bytes | None = None
        self.slot = -1
        self.nbytes = 0
        self.fresh = False
        self.retired: list[int] = []

    def __reduce__(self) -> Any:
        return _place, (
            self.layout, self.inline, self.slot, self.nbytes, self.fresh, self.retired,
        )  # fmt: skip


def _place(
    layout: wire.Layout, inline: bytes | None, slot: int, nbytes: int, fresh: bool, retired: Any
) -> Place:
    made = Place(layout)
    made.inline, made.slot, made.nbytes = inline, slot, nbytes
    made.fresh, made.retired = fresh, retired
    return made


# ---- in the worker ----------------------------------------------------------------------------


class Slots:
    """The slots of one worker."""

    def __init__(self, budget: int, keep: int) -> None:
        """At most `budget` bytes of shared memory; `keep` free slots are held for reuse."""
        self.budget = budget if AVAILABLE else 0
        self.keep = keep
        self.held = 0
        self._blocks: dict[int, SharedBlock] = {}
        self._free: list[int] = []
        self._known: set[int] = set()
        self._retired: list[int] = []
        self._next = 0
        self._expected = 0
        self._slot = -1
        self._used = 0
        self._own: Lease | None = None
        self._own_ends: deque[int] = deque()
        self._busy: set[int] = set()

    def begin(self) -> None:
        """A new batch begins: it may be as large as the last one."""
        self._slot, self._used = -1, 0
        if self._expected > SMALL:
            self._slot = self._take(self._expected)

    def abandon(self) -> None:
        """The batch came to nothing."""
        if self._slot >= 0:
            self._free.append(self._slot)
        self._slot, self._own = -1, None

    def released(self, slots: list[int]) -> None:
        """The parent has no tensor in these any more."""
        self._free += slots
        while len(self._free) > self.keep:
            self._retire(self._free.pop(0))

    def _take(self, nbytes: int) -> int:
        """A free slot that is large enough, or a new one; -1 if there is no memory for it."""
        while self._own_ends:
            self._busy.discard(self._own_ends.popleft())
        free = [s for s in self._free if s not in self._busy]
        fitting = [s for s in free if self._blocks[s].nbytes >= nbytes]
        if fitting:
            slot = min(fitting, key=lambda s: self._blocks[s].nbytes)
            self._free.remove(slot)
            return slot
        while self._free:  # too small for the batches of today, or kept by the user's collate_fn
            self._retire(self._free.pop())
        size = nbytes + nbytes // 8
        if self.held + size > self.budget:
            return -1
        try:
            block = SharedBlock.make(size)
        except OSError:
            return -1
        self.held += block.nbytes
        self._next += 1
        self._blocks[self._next] = block
        return self._next

    def _retire(self, slot: int) -> None:
        block = self._blocks.pop(slot)
        self.held -= block.nbytes
        if slot in self._known:
            self._known.discard(slot)
            self._retired.append(slot)

    # ---- filling ----

    def allocate(self, meta: TensorMeta) -> Any:
        """A tensor in the batch's slot, for `default_collate` to fill; None if it has no room."""
        nbytes = meta.numel * meta.dtype.itemsize
        begin = -(-self._used // wire.ALIGNMENT) * wire.ALIGNMENT
        if self._slot < 0 or not nbytes or begin + nbytes > self._blocks[self._slot].nbytes:
            return None
        if self._own is None:
            self._own = Lease(self._blocks[self._slot], self._slot, self._own_ends)
            self._busy.add(self._slot)
        self._used = begin + nbytes
        memory = np.asarray(self._own)[begin : self._used]
        return make_tensor(Storage(memory, nbytes, meta.device, owner=self._own), 0, meta)

    def store(self, buffers: list[memoryview]) -> tuple[Place, list[int]]:
        """Put a batch's buffers where the parent can see them; and the files to send along."""
        layout, end = wire.lay_out(buffers)
        total = end
        if total > SMALL:
            place = self._store_in_slot(buffers, total)
            if place is not None:
                return place
        self.abandon()
        self._expected = total
        made = Place(layout)
        memory = np.zeros(total, np.uint8)
        wire.place(buffers, layout, memory)
        made.inline = memory.tobytes()
        return self._with_retired(made), []

    def _store_in_slot(self, buffers: list[memoryview], total: int) -> Any:
        self._expected = total
        layout = None if self._slot < 0 else self._fit(buffers, self._blocks[self._slot])
        if layout is None:
            old = self._slot
            self._slot = self._take(total)
            if self._slot < 0:
                self._slot = old
                return None
            layout, _ = wire.lay_out(buffers)
            wire.place(buffers, layout, self._blocks[self._slot].array)
            if old >= 0:
                self._free.append(old)
            self._own = None
        made = Place(layout)
        slot, block = self._slot, self._blocks[self._slot]
        made.slot, made.nbytes, made.fresh = slot, block.nbytes, slot not in self._known
        self._known.add(slot)
        self._slot, self._own = -1, None
        return self._with_retired(made), [block.fd] if made.fresh else []

    def _with_retired(self, place: Place) -> Place:
        place.retired, self._retired = self._retired, []
        return place

    def _fit(self, buffers: list[memoryview], block: SharedBlock) -> wire.Layout | None:
        """Places in the current slot: where a buffer already lies, or behind; None if full."""
        layout: wire.Layout = []
        end = self._used
        for buffer in buffers:
            array = np.frombuffer(buffer, np.uint8) if buffer.nbytes else np.empty(0, np.uint8)
            address = int(array.__array_interface__["data"][0])
            if buffer.nbytes and block.holds(address, buffer.nbytes):
                layout.append((address - block.address, buffer.nbytes))
                continue
            begin = -(-end // wire.ALIGNMENT) * wire.ALIGNMENT
            end = begin + buffer.nbytes
            if end > block.nbytes:
                return None
            block.array[begin:end] = array
            layout.append((begin, buffer.nbytes))
        return layout

    def sent(self, place: Place) -> None:
        """The parent has the slot's file: ours can be closed, the mapping stays."""
        if place.fresh:
            self._blocks[place.slot].close_fd()


# ---- in the parent ----------------------------------------------------------------------------


class Lease:
    """Keeps a slot from being reused. Arrays over the slot hold it; it ends with the last one."""

    __slots__ = ("__array_interface__", "__weakref__", "block", "returns", "slot")

    def __init__(self, block: SharedBlock, slot: int, returns: deque[int]) -> None:
        self.block, self.slot, self.returns = block, slot, returns
        self.__array_interface__ = {
            "data": (block.address, False),
            "shape": (block.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self.returns.append(self.slot)


class Leases:
    """The parent's view of one worker's slots."""

    def __init__(self, most: int) -> None:
        """When more than `most` slots are taken by tensors of the program, batches are copied."""
        self.most = most
        self._blocks: dict[int, SharedBlock] = {}
        self._returns: deque[int] = deque()
        self._out = 0

    def open(self, data: bytes, place: Place, files: list[int]) -> Any:
        """The batch, over the slot where it lies or over a copy."""
        for slot in place.retired:
            self._blocks.pop(slot, None)
        if place.inline is not None:
            memory = wire.aligned(len(place.inline))
            memory[:] = np.frombuffer(place.inline, np.uint8)
            return wire.unpack(data, wire.cut(memory, place.layout))
        memory, lease = self._lease(place, files)
        if self._out > self.most:
            end = max(begin + nbytes for begin, nbytes in place.layout)
            private = wire.aligned(end)
            private[:] = memory[:end]
            memory = private
        del lease
        return wire.unpack(data, wire.cut(memory, place.layout))

    def _lease(self, place: Place, files: list[int]) -> tuple[np.ndarray[Any, Any], Lease]:
        if place.fresh:
            block = SharedBlock(files[0], place.nbytes)
            block.close_fd()
            self._blocks[place.slot] = block
        lease = Lease(self._blocks[place.slot], place.slot, self._returns)
        self._out += 1
        return np.asarray(lease), lease

    def drop(self, place: Place, files: list[int]) -> None:
        """A batch that nobody wants any more."""
        if place.inline is None:
            with contextlib.suppress(OSError):
                self._lease(place, files)
        for slot in place.retired:
            self._blocks.pop(slot, None)

    def returned(self) -> list[int]:
        """Slots that became free since the last time."""
        found = []
        while self._returns:
            found.append(self._returns.popleft())
        self._out -= len(found)
        return found
