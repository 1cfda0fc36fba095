"""What kernels over sliding windows share: their numbers, and the loops over output rows.

All windows have three spatial dimensions; fewer are padded with ones in front. Kernels come in two
shapes. COLUMNS: an output row at a time, vectors along the last spatial dimension (contiguous
planes). CHANNELS: an output pixel at a time, vectors along the channels (channels last), or one
channel at a time when they don't lie together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.ir.meta import TensorMeta

COLUMNS, CHANNELS = "columns", "channels"
AXES = 3
_AXIS_NAMES = ("size", "out", "kernel", "stride", "padding", "dilation")
NAMES = (
    "rows", "chunk_rows", "chunks", "channels",
    *(f"{name}{a}" for name in _AXIS_NAMES for a in range(AXES)),
    *(f"{side}_{d}" for side in ("in", "out") for d in ("n", "c", "s0", "s1", "s2")),
)  # fmt: skip
"""The words every pooling kernel has; `in_*` and `out_*` are strides in elements."""

_GRAIN = 1 << 12
"""Outputs worth a chunk."""

Range = tuple[LLVMValue, LLVMValue]


@dataclass(frozen=True)
class PoolGeometry:
    """Sizes and settings per spatial axis, three of each."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> PoolGeometry:
        lead = AXES - len(kernel)
        return PoolGeometry(
            (1,) * lead + tuple(kernel), (1,) * lead + tuple(stride),
            (0,) * lead + tuple(padding), (1,) * lead + tuple(dilation),
        )  # fmt: skip


def _spatial(values: Sequence[int], fill: int) -> list[int]:
    return [fill] * (AXES - (len(values) - 2)) + list(values[2:])


def frame_words(meta: TensorMeta, out: TensorMeta, at: PoolGeometry, shape: str) -> list[int]:
    """The words of NAMES."""
    n, c = meta.shape[:2]
    outs = _spatial(out.shape, 1)
    if shape == COLUMNS:
        rows, each = n * c * outs[0] * outs[1], outs[2]
    else:
        rows, each = n * outs[0] * outs[1] * outs[2], c
    if not each:
        rows = 0
    chunk_rows = max(1, _GRAIN // max(1, each))
    strides = [[*m.strides[:2], *_spatial(m.strides, 0)] for m in (meta, out)]
    return [
        rows, chunk_rows, -(-rows // chunk_rows), c, *_spatial(meta.shape, 1), *outs,
        *at.kernel, *at.stride, *at.padding, *at.dilation, *strides[0], *strides[1],
    ]  # fmt: skip


class PoolFrame:
    """Writes the task and the entry; subclasses write one row (or pixel) of output."""

    def __init__(self, m: Module, shape: str, first: int) -> None:
        """`first`: the block word where the words of NAMES begin."""
        self.m, self.shape, self.first = m, shape, first

    def number(self, f: LLVMFunction, name: str) -> LLVMValue:
        return f.word(f.args[0], self.first + NAMES.index(name))

    def axis(self, f: LLVMFunction, name: str) -> list[LLVMValue]:
        return [self.number(f, f"{name}{a}") for a in range(AXES)]

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("pool", params, internal=True) as f:
            chunk = f.args[1]
            each = self.number(f, "chunk_rows")
            first = chunk * each
            last = f.minimum(first + each, self.number(f, "rows"))
            sizes = self._sizes(f)
            with f.loop(first, last, 1, self._places(f, first, sizes)) as loop:
                self._row(f, loop.carried)
                loop.next(*_advanced(f, loop.carried, sizes))
        with self.m.function("entry", [("block", PTR)], I64) as f:
            chunks = self.number(f, "chunks")
            with f.if_(f.compare("eq", chunks, 1)) as one:
                f.call("pool", VOID, [f.args[0], 0, 0])
            with one.else_():
                f.call("lucerne_pfor", VOID, [f.symbol("pool"), f.args[0], chunks])
            f.ret(0)

    def _sizes(self, f: LLVMFunction) -> list[LLVMValue]:
        """How a row's number is made up, below the image."""
        outs = self.axis(f, "out")
        return [self.number(f, "channels"), *outs[:2]] if self.shape == COLUMNS else outs

    def _places(self, f: LLVMFunction, row: LLVMValue, sizes: list[LLVMValue]) -> list[LLVMValue]:
        """A row's number taken apart: the image, then a place for each size."""
        places: list[LLVMValue] = []
        for size in reversed(sizes):
            above = row // size
            places.insert(0, row - above * size)
            row = above
        return [row, *places]

    def _row(self, f: LLVMFunction, places: list[LLVMValue]) -> None:
        if self.shape == COLUMNS:
            self.columns(f, places[0], places[1], places[2:])
        else:
            self.pixel(f, places[0], places[1:])

    def offset(
        self, f: LLVMFunction, side: str, n: LLVMValue, c: LLVMValue | None, at: Sequence[LLVMValue]
    ) -> LLVMValue:
        """Elements from the first one to (n, c, at...); missing coordinates are zero."""
        total = n * self.number(f, f"{side}_n")
        if c is not None:
            total = total + c * self.number(f, f"{side}_c")
        for a, v in enumerate(at):
            total = total + v * self.number(f, f"{side}_s{a}")
        return total

    def taps(self, f: LLVMFunction, a: int, place: LLVMValue) -> tuple[LLVMValue, Range]:
        """Where the window at an output place begins, and which taps lie inside the input."""
        stride, padding, gap = (
            self.number(f, f"{n}{a}") for n in ("stride", "padding", "dilation")
        )
        kernel, size = self.number(f, f"kernel{a}"), self.number(f, f"size{a}")
        start = place * stride - padding
        low = f.maximum((gap - 1 - start) // gap, 0)
        high = f.minimum((size - start + gap - 1) // gap, kernel)
        return start, (low, high)

    def columns(self, f: LLVMFunction, n: LLVMValue, c: LLVMValue, at: list[LLVMValue]) -> None:
        """An output row: `at` are its first two spatial coordinates."""
        raise NotImplementedError

    def pixel(self, f: LLVMFunction, n: LLVMValue, at: list[LLVMValue]) -> None:
        """All channels of an output pixel."""
        raise NotImplementedError


def _advanced(f: LLVMFunction, places: list[LLVMValue], sizes: list[LLVMValue]) -> list[LLVMValue]:
    """The places of the next row, without a division."""
    image, *inner = places
    step = f.constant(1)
    found: list[LLVMValue] = []
    for place, size in zip(reversed(inner), reversed(sizes), strict=True):
        moved = place + step
        over = f.compare("eq", moved, size)
        found.insert(0, f.select(over, f.constant(0), moved))
        step = f.convert("zext", over, I64)
    return [image + step, *found]
