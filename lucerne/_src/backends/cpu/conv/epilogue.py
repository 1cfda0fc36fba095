"""Element-wise ops on the results of a convolution, block by block while they are in cache.

A task of `gather` or `tiled` calls `after` when its block of the target is written: the block is
read once more, changed in place, and never seen in between by anyone else. Operands lie like the
target (FULL) or have one number for each channel (CHANNEL). The bits are those of separate ops:
the result of the convolution has been rounded to its type in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.conv.launch import ConvContext
from lucerne._src.backends.cpu.conv.problem import Array
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I64, PTR
from lucerne._src.backends.cpu.fused.elements import Elements
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt
from lucerne._src.ir.checks.index_maps import LoopWalk

FULL, CHANNEL, HERE = "full", "channel", "here"
AFTER = tuple(f"AFTER_{k}" for k in range(8))
"""Words with the element strides of CHANNEL operands."""
BLOCK_STARTS = "NCDHW"
"""The dimensions of the target along which blocks begin at different places."""


@dataclass(frozen=True)
class After:
    """`ways`: how each value that flows into the ops is found; `slots`: the extra pointer of the
    context it has, and `steps` the strides of CHANNEL operands."""

    elements: Elements
    ways: tuple[str, ...]
    slots: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: dt.dtype
    """Of the target."""
    across: bool
    """Vectors run over channels, not over the columns of a plane."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (*self.elements.key, self.ways, self.slots, self.dtype.name, self.across)

    def words(self) -> dict[str, int]:
        return dict(zip(AFTER, self.steps, strict=False))

    def walk(self, target: Array) -> LoopWalk:
        """What the code below goes through when the target lies like this."""
        loops, given = [], []
        for dim, n, stride in zip("NCDHW", target.shape, target.strides, strict=True):
            is_run = dim == ("C" if self.across else "W")
            step = 1 if is_run else stride if dim in BLOCK_STARTS else 0
            loops.append((n, [step * self.dtype.itemsize]))
            here = []
            for v, way, channel in zip(self.elements.given, self.ways, self.steps, strict=True):
                own = (1 if is_run else channel) if dim == "C" else 0
                here.append((own if way == CHANNEL else step) * v.meta.dtype.itemsize)
            given.append(here)
        return self.elements.walk(loops, given)


def runs_across(target: Array) -> bool | None:
    """Whether vectors over a target run over channels (else over columns); None: neither of them
    lie side by side in memory."""
    channels, columns = (target.strides[d] == 1 or target.shape[d] == 1 for d in (1, 4))
    if channels and not (columns and target.shape[4] > 1):
        return True
    return False if columns else None


def write_after(m: Module, a: After, names: list[str]) -> None:
    """`after(context, offset, images, rows, cols, lane, lanes)`: a block of the target, beginning
    `offset` elements on; `lane` is its first channel."""
    params = [("context", PTR)]
    params += [(name, I64) for name in ("offset", "images", "rows", "cols", "lane", "lanes")]
    with m.function("after", params, internal=True) as f:
        place, *counts = f.args
        _Writer(f, a, ConvContext(f, place, names)).write(counts)


class _Writer:
    def __init__(self, f: LLVMFunction, a: After, c: ConvContext) -> None:
        self.f, self.a, self.c = f, a, c
        self.lanes = VECTOR_BYTES // a.dtype.compute.itemsize
        self.wide = LlvmScalar(f, self.lanes)
        self.operands = list(zip(a.elements.given, a.ways, a.slots, a.steps, strict=True))

    def write(self, counts: list[LLVMValue]) -> None:
        f, c = self.f, self.c
        offset, images, rows, cols, lane, lanes = counts
        with f.loop(0, images) as image:
            start = offset + image.index * c.Y_N
            if self.a.across:
                with f.loop(0, rows) as row, f.loop(0, cols) as col:
                    at = start + row.index * c.Y_H + col.index * c.Y_W
                    self._run(at, lanes, lane)
                return
            joined = f.compare("eq", c.Y_H, cols)
            pieces = f.select(joined, f.minimum(rows, 1), rows)
            length = f.select(joined, rows * cols, cols)
            with f.loop(0, lanes) as channel, f.loop(0, pieces) as row:
                at = start + channel.index * c.Y_C + row.index * c.Y_H
                self._run(at, length, lane + channel.index)

    def _run(self, at: LLVMValue, length: LLVMValue, channel: LLVMValue) -> None:
        """Neighbouring elements of the target: pixels of a channel, or channels from `channel`."""
        f, n = self.f, self.lanes
        bases = [
            self.c.out if way == HERE else self.c.extra(slot) for _, way, slot, _ in self.operands
        ]
        still = self._still(bases, channel)
        whole = length & -n

        def visit(k: LLVMValue, mask: LLVMValue | None) -> None:
            given: list[Num | None] = []
            for (v, way, _, _), base, ready in zip(self.operands, bases, still, strict=True):
                given.append(ready or self._load(v.meta.dtype, way, base, at, k, channel, mask))
            [result] = self.a.elements.run(self.wide, given)
            place = self._place(self.c.out, self.a.dtype, at + k)
            self.wide.store(result, self.a.dtype, place, mask)

        with f.loop(0, whole, n) as loop:
            visit(loop.index, None)
        with f.if_(whole < length):
            visit(whole, f.low_mask(length - whole, n))

    def _place(self, base: LLVMValue, dtype: dt.dtype, index: LLVMValue) -> LLVMValue:
        return self.f.at(base, index * dtype.itemsize)

    def _still(self, bases: list[LLVMValue], channel: LLVMValue) -> list[Num | None]:
        """Numbers of the one channel of a run over pixels."""
        found: list[Num | None] = []
        for k, ((v, way, _, _), base) in enumerate(zip(self.operands, bases, strict=True)):
            if way != CHANNEL or self.a.across:
                found.append(None)
                continue
            place = self._place(base, v.meta.dtype, channel * getattr(self.c, AFTER[k]))
            found.append(self.wide.load_splat(v.meta.dtype, place))
        return found

    def _load(
        self,
        dtype: dt.dtype,
        way: str,
        base: LLVMValue,
        at: LLVMValue,
        k: LLVMValue,
        channel: LLVMValue,
        mask: LLVMValue | None,
    ) -> Num:
        if way == CHANNEL:  # adjacent: see `rules.conv`
            return self.wide.load(dtype, self._place(base, dtype, channel + k), mask)
        return self.wide.load(dtype, self._place(base, dtype, at + k), mask)
