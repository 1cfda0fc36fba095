"""Packing of weights into panels, in parallel: [panel][tap][channel summed][lanes of a panel].

The task of chunk c packs one part of the summed channels of one panel. How weights are read
depends on which of their strides is one: `lanes` are adjacent, or the summed channels (`reduced`),
or the taps; `any` reads one by one. The first part of each panel also lays out what the sums
start from: the bias, or zeros.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.backends.cpu.conv.fields import GATHER, TAP
from lucerne._src.backends.cpu.conv.launch import TASK, ConvContext, task_code
from lucerne._src.backends.cpu.conv.microkernel import VECTORS
from lucerne._src.backends.cpu.conv.problem import Gather
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, VOID

LANES, REDUCED, TAPS, ANY = "lanes", "reduced", "taps", "any"
TAPS_AT_ONCE = 256


def pack_way(p: Gather) -> str:
    """Which stride of the weights is one."""
    if p.w_lane == 1 or p.lanes == 1:
        return LANES
    if p.w_reduced == 1 or p.reduced == 1:
        return REDUCED
    dense = [math.prod(p.taps[d + 1 :]) for d in range(3)]
    same = all(s == w or n == 1 for s, w, n in zip(dense, p.w_taps, p.taps, strict=True))
    return TAPS if same else ANY


def channels_at_once(p: Gather) -> int:
    """Summed channels that one transpose of adjacent taps may take together."""
    taps = math.prod(p.taps)
    return max(1, TAPS_AT_ONCE // taps) if p.w_reduced == taps else 1


def pack_code(p: Gather, element: TileElement, watch: bool) -> int:
    """`watch`: the flag of the context tells of a weight that is not finite."""
    way, bias = pack_way(p), p.bias
    key = ("conv.pack", way, bias, element.dtype.name, element.compute.name, watch)
    return task_code(key, lambda m: PackWriter(m, way, bias, element, watch).write())


class PackWriter:
    """Writes the task. `names` are those of its table, `tap` those of a tap's entry."""

    names, tap = GATHER, TAP

    def __init__(
        self, m: Module, way: str, bias: bool, element: TileElement, watch: bool = False
    ) -> None:
        self.m, self.way, self.bias, self.element = m, way, bias, element
        self.watch = watch
        self.compute = element.compute
        self.n = lanes_of(self.compute)
        self.width = VECTORS * self.n

    def write(self) -> None:
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, self.names)
            self.f, self.thread = f, thread
            panel, part = chunk // c.REDUCED_BLOCKS, chunk % c.REDUCED_BLOCKS
            group = panel // c.PANELS
            self.panel, self.part = panel, part
            first_lane = panel % c.PANELS * self.width
            self.lanes = f.minimum(c.LANES - first_lane, self.width)
            start = group * c.W_GROUP + first_lane * c.W_LANE
            self.source = self.element.at(f, c.second, start)
            self.packed = c.space("WEIGHTS")
            self.begin = part * c.REDUCED_BLOCK
            self.end = f.minimum(self.begin + c.REDUCED_BLOCK, c.REDUCED)
            with f.if_(f.compare("eq", part, 0)):
                self._start(group * c.LANES + first_lane)
            {LANES: self._by_lanes, REDUCED: self._by_reduced, TAPS: self._by_taps,
             ANY: self._one_by_one}[self.way]()  # fmt: skip
            self.finish()

    def finish(self) -> None:
        """After all channels of a chunk: a packing of another kind goes on from here."""
        if self.watch:
            self._look()

    def _look(self) -> None:
        """Raise the flag if a weight is not finite: it times zero is no zero."""
        f, vector = self.f, self.compute.vector(self.n)
        masks = [f.low_mask(self.lanes - j * self.n, self.n) for j in range(VECTORS)]
        with f.loop(0, self.c.TAPS, 1, [f.zero(vector)] * VECTORS) as taps:
            row = self._target(taps.index, self.begin)
            with f.loop(self.begin, self.end, 1, [row, *taps.carried]) as q:
                row, *sums = q.carried
                places = [f.at(row, j * self.n, self.compute) for j in range(VECTORS)]
                seen = [
                    f.mul_add(f.masked_load(vector, place, mask), f.zero(vector), total)
                    for place, mask, total in zip(places, masks, sums, strict=True)
                ]
                q.next(f.at(row, self.width, self.compute), *seen)
            taps.next(*q.results[1:])
        for total in taps.results:
            with f.if_(f.fold("or", f.compare("uno", total, total))):
                f.atomic_store(f.constant(1), self.c.flag, "monotonic")

    def _start(self, channel: LLVMValue) -> None:
        """The bias of this panel's channels (zeros without one)."""
        f, c, compute = self.f, self.c, self.compute
        place = f.at(c.space("START"), self.panel * self.width, compute)
        with f.loop(0, self.width) as lane:
            v = f.zero(compute)
            if self.bias:
                one = channel + f.minimum(lane.index, self.lanes - 1)
                v = self.element.load(f, self.element.at(f, c.third, one * c.B_STEP))
            f.store(v, f.at(place, lane.index, compute))

    # ---- taps --------------------------------------------------------------------------------

    def _tap(self, index: LLVMValue, *names: str) -> list[LLVMValue]:
        f = self.f
        at = self.c.word_at(self.c.TAP_LIST + index * len(self.tap))
        return [f.word(at, self.tap.index(name), I64) for name in names]

    def _target(self, index: LLVMValue, channel: LLVMValue) -> LLVMValue:
        """Where this panel has a channel of a tap."""
        base, step = self._tap(index, "TARGET", "PANEL")
        at = base + self.panel * step + channel * self.width
        return self.f.at(self.packed, at, self.compute)

    def _by_lanes(self) -> None:
        f, c = self.f, self.c
        masks = [f.low_mask(self.lanes - j * self.n, self.n) for j in range(VECTORS)]
        with f.loop(0, c.TAPS) as taps:
            [at] = self._tap(taps.index, "SOURCE")
            source = self.element.at(f, self.source, at)
            with f.loop(self.begin, self.end) as q:
                row = self.element.at(f, source, q.index * c.W_REDUCED)
                target = self._target(taps.index, q.index)
                for j, mask in enumerate(masks):
                    v = self.element.load(f, self.element.at(f, row, j * self.n), self.n, mask)
                    f.store(v, f.at(target, j * self.n, self.compute))

    def _by_reduced(self) -> None:
        f, c = self.f, self.c
        with f.loop(0, c.TAPS) as taps:
            [at] = self._tap(taps.index, "SOURCE")
            source = self.element.at(f, self.source, at + self.begin)
            target = self._target(taps.index, self.begin)
            self._turn(source, c.W_LANE, target, self.end - self.begin)

    def _turn(
        self, source: LLVMValue, step: LLVMValue, target: LLVMValue, columns: LLVMValue
    ) -> None:
        args: list[Any] = [source, step, target, self.width, self.lanes, self.width, columns]
        self.f.call_at(self.c.pointer("TRANSPOSE_W"), VOID, args)

    def _by_taps(self) -> None:
        """Turn adjacent taps into rows of lanes aside, then move each row where it belongs."""
        f, c = self.f, self.c
        aside = c.scratch("PACKING", self.thread)
        count, step = c.TAP_COUNT, c.PACKING_CHANNELS
        with f.loop(self.begin, self.end, step) as q:
            channels = f.minimum(self.end - q.index, step)
            source = self.element.at(f, self.source, q.index * c.W_REDUCED)
            self._turn(source, c.W_LANE, aside, channels * count)
            with f.loop(0, channels) as one, f.loop(0, c.TAPS) as taps:
                [at] = self._tap(taps.index, "SOURCE")
                row = f.at(aside, (one.index * count + at) * self.width, self.compute)
                target = self._target(taps.index, q.index + one.index)
                for j in range(VECTORS):
                    v = f.load(self.compute.vector(self.n), f.at(row, j * self.n, self.compute))
                    f.store(v, f.at(target, j * self.n, self.compute))

    def _one_by_one(self) -> None:
        f, c = self.f, self.c
        with f.loop(0, c.TAPS) as taps:
            [at] = self._tap(taps.index, "SOURCE")
            source = self.element.at(f, self.source, at)
            with f.loop(self.begin, self.end) as q:
                row = self.element.at(f, source, q.index * c.W_REDUCED)
                target = self._target(taps.index, q.index)
                with f.loop(0, self.width) as lane:
                    one = f.minimum(lane.index, self.lanes - 1)
                    v = self.element.load(f, self.element.at(f, row, one * c.W_LANE))
                    f.store(v, f.at(target, lane.index, self.compute))
