"""Depthwise convolution of channels-last arrays: each channel has its own taps.

Vectors run over channels and read the source where it is; nothing is padded. A row of outputs falls
into edge pixels, whose taps are cut to those inside the source, and the pixels between them, which
are taken eight at a time. Transposed convolutions are the same with other taps (see `problem`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from lucerne._src.backends.cpu.conv.launch import (
    TASK,
    ConvContext,
    ConvSpace,
    ConvTable,
    Phase,
    make_kernel,
    task_code,
    words,
)
from lucerne._src.backends.cpu.conv.problem import Class, Gather
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

_PIXELS = 8
_DIMS = "DHW"
_NAMES = words(
    "CHANNELS PADDED JOB_COUNT JOBS ROWS ROW_BLOCKS A_H",
    "WEIGHTS START TAPS TAP_LIST W_0 B_STEP X_N Y_N",
    *(f"{name}_{d}" for name in ("X", "Y", "SIZE", "IN", "STEP") for d in _DIMS),
)
_JOB = words(
    "WEIGHTS", *(f"{n}_{d}" for n in ("START", "COUNT", "FIRST", "APART", "TAPS") for d in _DIMS)
)
"""One combination of classes: its packed weights, and by dimension the outputs and taps."""
_NANOSECONDS_PER_OUTPUT = 0.2


def suits(p: Gather) -> bool:
    """One channel in a group, and enough of them to fill a good part of a vector."""
    return p.reduced == 1 and p.lanes == 1 and p.groups >= 4


def plan_channels(p: Gather, element: TileElement, bias_step: int) -> NativeKernel:
    """The kernel of a depthwise convolution whose source and target are channels-last."""
    table, space = ConvTable(_NAMES), ConvSpace()
    channels, compute = p.groups, element.compute
    padded = -(-channels // lanes_of(compute)) * lanes_of(compute)
    jobs: list[int] = []
    taps: list[int] = []
    for trio in itertools.product(*p.classes):
        at = len(taps) * padded
        for three in itertools.product(*(c.taps for c in trio)):
            taps.append(sum(k * s for (k, _), s in zip(three, p.w_taps, strict=True)))
        jobs.append(table.append([at, *_job_words(trio)]))
    rows = max(1, min(p.counts[1], 2048 // max(1, p.counts[2])))
    blocks = -(-p.counts[1] // rows)
    table.set(CHANNELS=channels, PADDED=padded, JOB_COUNT=len(jobs), JOBS=table.append(jobs))
    table.set(ROWS=rows, ROW_BLOCKS=blocks, A_H=p.counts[1])
    table.set(TAPS=len(taps), TAP_LIST=table.append(taps), W_0=p.w_group, B_STEP=bias_step)
    table.set(X_N=p.source.strides[0], Y_N=p.target.strides[0])
    for d, name in enumerate(_DIMS):
        values = [p.source.strides[2 + d], p.target.strides[2 + d], p.source.space[d]]
        values += [p.in_step[d], p.step[d]]
        letters = ("X", "Y", "SIZE", "IN", "STEP")
        table.set(**{f"{n}_{name}": v for n, v in zip(letters, values, strict=True)})
    table.set(WEIGHTS=space.take(len(taps) * padded * compute.size))
    table.set(START=space.take(padded * compute.size))
    key = (element.dtype.name, compute.name)
    pack = task_code(
        ("conv.depthwise.pack", *key, p.bias), lambda m: _write_pack(m, element, p.bias)
    )
    task = task_code(("conv.depthwise", *key), lambda m: _Writer(m, element).write())
    phases = [Phase(pack, len(taps) + 1), Phase(task, p.source.shape[0] * blocks)]
    work = math.prod(p.target.shape) * _NANOSECONDS_PER_OUTPUT
    return make_kernel(phases, table, space.used, 3 if p.bias else 2, work)


def _job_words(trio: tuple[Class, ...]) -> list[int]:
    """Offsets of the taps of a class are evenly apart: the first, the distance, the count."""
    offsets = [[o for _, o in c.taps] for c in trio]
    first = [o[0] if o else 0 for o in offsets]
    apart = [o[1] - o[0] if len(o) > 1 else 1 for o in offsets]
    counts = [len(o) for o in offsets]
    return [*(c.start for c in trio), *(c.count for c in trio), *first, *apart, *counts]


def _write_pack(m: Module, element: TileElement, bias: bool) -> None:
    """Chunk t: tap t of every channel; the last chunk: what sums start from."""
    compute = element.compute
    with m.function("task", TASK) as f:
        place, chunk, _ = f.args
        c = ConvContext(f, place, _NAMES)
        with f.if_(chunk < c.TAPS) as is_tap:
            offset = f.load(I64, c.word_at(c.TAP_LIST + chunk))
            target = f.at(c.space("WEIGHTS"), chunk * c.PADDED, compute)
            with f.loop(0, c.CHANNELS) as k:
                v = element.load(f, element.at(f, c.second, k.index * c.W_0 + offset))
                f.store(v, f.at(target, k.index, compute))
        with is_tap.else_(), f.loop(0, c.CHANNELS) as k:
            v = f.zero(compute)
            if bias:
                v = element.load(f, element.at(f, c.third, k.index * c.B_STEP))
            f.store(v, f.at(c.space("START"), k.index, compute))


@dataclass
class _Span:
    """Which taps of a dimension are inside: how many, and where the first one reads."""

    skipped: LLVMValue
    count: LLVMValue
    position: LLVMValue


class _Writer:
    """Chunk: some rows of one image."""

    def __init__(self, m: Module, element: TileElement) -> None:
        self.m, self.element, self.compute = m, element, element.compute
        self.n = lanes_of(self.compute)

    def write(self) -> None:
        for pixels in (_PIXELS, 1):
            self._write_pixels(pixels)
        with self.m.function("task", TASK) as f:
            place, chunk, _ = f.args
            self.f, c = f, ConvContext(f, place, _NAMES)
            self.c = c
            image, first = chunk // c.ROW_BLOCKS, chunk % c.ROW_BLOCKS * c.ROWS
            self.x = self.element.at(f, c.first, image * c.X_N)
            self.y = self.element.at(f, c.out, image * c.Y_N)
            stop = f.minimum(first + c.ROWS, c.A_H)
            with f.loop(0, c.JOB_COUNT) as jobs:
                self.job = c.word_at(f.load(I64, c.word_at(c.JOBS + jobs.index)))
                with f.loop(0, self._get("COUNT_D")) as d:
                    rows = f.minimum(stop, self._get("COUNT_H"))
                    with f.loop(first, rows) as h:
                        self._row(d.index, h.index)

    def _get(self, name: str) -> LLVMValue:
        return self.f.word(self.job, _JOB.index(name))

    def _span(self, d: str, a: LLVMValue) -> _Span:
        """The taps that output `a` of this class reads inside the source, along one dimension."""
        f, c = self.f, self.c
        start = a * getattr(c, f"IN_{d}") + self._get(f"FIRST_{d}")
        apart, taps = self._get(f"APART_{d}"), self._get(f"TAPS_{d}")
        low = f.minimum(f.ceil_div(f.maximum(0 - start, 0), apart), taps)
        room = f.maximum(getattr(c, f"SIZE_{d}") - start, 0)
        high = f.minimum(f.ceil_div(room, apart), taps)
        return _Span(low, f.maximum(high - low, 0), start + low * apart)

    def _row(self, d: LLVMValue, h: LLVMValue) -> None:
        f, c = self.f, self.c
        deep, high = self._span("D", d), self._span("H", h)
        at = deep.position * c.X_D + high.position * c.X_H
        x = self.element.at(f, self.x, at)
        at = (d * c.STEP_D + self._get("START_D")) * c.Y_D
        at = at + (h * c.STEP_H + self._get("START_H")) * c.Y_H + self._get("START_W") * c.Y_W
        y = self.element.at(f, self.y, at)
        taps_w = self._get("TAPS_W")
        skipped = (deep.skipped * self._get("TAPS_H") + high.skipped) * taps_w
        count, first = self._get("COUNT_W"), self._get("FIRST_W")
        last = first + (taps_w - 1) * self._get("APART_W")
        # Outputs from `left` to `right` read inside with every tap.
        left = f.minimum(f.ceil_div(f.maximum(0 - first, 0), c.IN_W), count)
        room = f.maximum(c.SIZE_W - last, 0)
        right = f.maximum(f.minimum(f.ceil_div(room, c.IN_W), count), left)
        common = (x, y, skipped, deep.count, high.count)
        many = left + (right - left) // _PIXELS * _PIXELS
        with f.loop(0, left) as w:
            self._call(1, w.index, *common)
        with f.loop(left, many, _PIXELS) as w:
            self._call(_PIXELS, w.index, *common)
        with f.loop(many, count) as w:
            self._call(1, w.index, *common)

    def _call(
        self,
        pixels: int,
        w: LLVMValue,
        x: LLVMValue,
        y: LLVMValue,
        skipped: LLVMValue,
        deep: LLVMValue,
        high: LLVMValue,
    ) -> None:
        f, c = self.f, self.c
        wide = self._span("W", w)
        at = self._get("WEIGHTS") + (skipped + wide.skipped) * c.PADDED
        args = [
            c.place, self.job, self.element.at(f, x, wide.position * c.X_W),
            self.element.at(f, y, w * c.STEP_W * c.Y_W),
            f.at(c.space("WEIGHTS"), at, self.compute), deep, high, wide.count,
        ]  # fmt: skip
        f.call(f"pixels{pixels}", VOID, args)

    # ---- pixels ------------------------------------------------------------------------------

    def _write_pixels(self, pixels: int) -> None:
        """All channels of some neighbouring outputs; `deep` x `high` x `wide` taps."""
        params = [("context", PTR), ("job", PTR), ("x", PTR), ("y", PTR), ("weights", PTR)]
        params += [("deep", I64), ("high", I64), ("wide", I64)]
        with self.m.function(f"pixels{pixels}", params, internal=True) as f:
            self.f, self.c = f, ConvContext(f, f.args[0], _NAMES)
            self.job = f.args[1]
            channels = self.c.CHANNELS
            whole = channels & -self.n
            with f.loop(0, whole, self.n) as k:
                self._channels(f, pixels, k.index, None)
            with f.if_(whole < channels):
                self._channels(f, pixels, whole, f.low_mask(channels - whole, self.n))

    def _channels(
        self, f: LLVMFunction, pixels: int, channel: LLVMValue, mask: LLVMValue | None
    ) -> None:
        """One vector of channels of each pixel."""
        c, element = self.c, self.element
        _, _, x, y, weights, deep, high, wide = f.args
        x, y = element.at(f, x, channel), element.at(f, y, channel)
        weights = f.at(weights, channel, self.compute)
        steps = {d: getattr(c, f"X_{d}") * self._get(f"APART_{d}") for d in _DIMS}
        across = c.IN_W * c.X_W
        taps_w = self._get("TAPS_W")
        w_h = taps_w * c.PADDED
        w_d = w_h * self._get("TAPS_H")
        vector = self.compute.vector(self.n)
        start = f.at(c.space("START"), channel, self.compute)
        first = f.load(vector, start) if mask is None else f.masked_load(vector, start, mask)
        with f.loop(0, deep, 1, [first] * pixels) as ds:
            with f.loop(0, high, 1, ds.carried) as hs:
                at = ds.index * steps["D"] + hs.index * steps["H"]
                row = element.at(f, x, at)
                w_row = f.at(weights, ds.index * w_d + hs.index * w_h, self.compute)
                with f.loop(0, wide, 1, [row, w_row, *hs.carried]) as ws:
                    row, w_row, *sums = ws.carried
                    tap = (
                        f.load(vector, w_row)
                        if mask is None
                        else f.masked_load(vector, w_row, mask)
                    )
                    made = []
                    for i, total in enumerate(sums):
                        v = element.load(f, element.at(f, row, across * i), self.n, mask)
                        made.append(f.mul_add(v, tap, total))
                    ahead = element.at(f, row, steps["W"])
                    ws.next(ahead, f.at(w_row, c.PADDED, self.compute), *made)
                hs.next(*ws.results[2:])
            ds.next(*hs.results)
        out_step = c.STEP_W * c.Y_W
        for i, v in enumerate(ds.results):
            element.store(f, v, element.at(f, y, out_step * i), mask)
