"""The gradient of depthwise weights, of channels-last arrays: vectors run over channels.

Each task takes some rows of some images and adds up, for every tap, products of the gradient with
the source moved by that tap; four vectors of channels at a time, so that a row of both stays in the
first cache while all taps pass. The sums of all tasks are added in order.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.conv.depthwise.planes import tap_offsets
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
from lucerne._src.backends.cpu.conv.problem import Array, ConvSetting
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

_DIMS = "DHW"
_VECTORS = 4
_PARTS = 16
_NAMES = words(
    "CHANNELS PADDED PARTS N TAPS TAP_LIST SUMS SUMS_PART W_0 X_N G_N",
    *(
        f"{n}_{d}"
        for n in ("X", "G", "SIZE", "OUT", "TAPS", "IN", "APART", "BEFORE")
        for d in _DIMS
    ),
)
_NANOSECONDS_PER_PRODUCT = 0.05


def plan_channels_weight(
    x: Array, w: Array, g: Array, s: ConvSetting, element: TileElement
) -> NativeKernel:
    table, space = ConvTable(_NAMES), ConvSpace()
    compute = element.compute
    step = _VECTORS * lanes_of(compute)
    padded = -(-w.shape[0] // step) * step
    taps = math.prod(w.space)
    parts = min(_PARTS, g.shape[0] * g.space[0] * g.space[1])
    table.set(CHANNELS=w.shape[0], PADDED=padded, PARTS=parts, N=x.shape[0], TAPS=taps)
    table.set(TAP_LIST=table.append(tap_offsets(w.space, w.strides[2:])), W_0=w.strides[0])
    table.set(SUMS=space.take(parts * taps * padded * compute.size), SUMS_PART=taps * padded)
    table.set(X_N=x.strides[0], G_N=g.strides[0])
    for d, name in enumerate(_DIMS):
        values = {
            f"X_{name}": x.strides[2 + d], f"G_{name}": g.strides[2 + d],
            f"SIZE_{name}": x.space[d], f"OUT_{name}": g.space[d], f"TAPS_{name}": w.space[d],
            f"IN_{name}": s.stride[d], f"APART_{name}": s.dilation[d],
            f"BEFORE_{name}": s.padding[d],
        }  # fmt: skip
        table.set(**values)
    key = (element.dtype.name, compute.name)
    add = task_code(("conv.depthwise.weight", *key), lambda m: _Writer(m, element).write())
    collect = task_code(("conv.depthwise.collect", *key), lambda m: _write_collect(m, element))
    work = math.prod(g.shape) * taps * _NANOSECONDS_PER_PRODUCT
    return make_kernel([Phase(add, parts), Phase(collect, taps)], table, space.used, 2, work)


def _write_collect(m: Module, element: TileElement) -> None:
    """Chunk: a tap. The parts are added in order."""
    compute = element.compute
    with m.function("task", TASK) as f:
        place, tap, _ = f.args
        c = ConvContext(f, place, _NAMES)
        offset = f.load(I64, c.word_at(c.TAP_LIST + tap))
        sums = f.at(c.space("SUMS"), tap * c.PADDED, compute)
        with f.loop(0, c.CHANNELS) as k:
            with f.loop(0, c.PARTS, 1, [f.zero(compute)]) as parts:
                at = parts.index * c.SUMS_PART + k.index
                parts.next(parts.carried[0] + f.load(compute, f.at(sums, at, compute)))
            element.store(f, parts.results[0], element.at(f, c.out, k.index * c.W_0 + offset))


class _Writer:
    """Chunk: a part of the rows of all images and depths."""

    def __init__(self, m: Module, element: TileElement) -> None:
        self.m, self.element, self.compute = m, element, element.compute
        self.n = lanes_of(self.compute)

    def write(self) -> None:
        self._write_pixels()
        with self.m.function("task", TASK) as f:
            place, part, _ = f.args
            c = self.c = ConvContext(f, place, _NAMES)
            self.f = f
            sums = f.at(c.space("SUMS"), part * c.SUMS_PART, self.compute)
            f.fill_bytes(sums, 0, c.SUMS_PART * self.compute.size)
            rows = c.N * c.OUT_D * c.OUT_H
            with f.loop(part * rows // c.PARTS, (part + 1) * rows // c.PARTS) as row:
                plane, h = row.index // c.OUT_H, row.index % c.OUT_H
                self._row(sums, plane // c.OUT_D, plane % c.OUT_D, h)

    def _row(self, sums: LLVMValue, image: LLVMValue, d: LLVMValue, h: LLVMValue) -> None:
        f, c, element = self.f, self.c, self.element
        x = element.at(f, c.second, image * c.X_N)
        g = element.at(f, c.first, image * c.G_N + d * c.G_D + h * c.G_H)
        with (
            f.loop(0, c.CHANNELS, _VECTORS * self.n) as k,
            f.loop(0, c.TAPS_D) as kd,
            f.loop(0, c.TAPS_H) as kh,
        ):
            z = d * c.IN_D + kd.index * c.APART_D - c.BEFORE_D
            y = h * c.IN_H + kh.index * c.APART_H - c.BEFORE_H
            inside = (z >= 0) & (z < c.SIZE_D) & (y >= 0) & (y < c.SIZE_H)
            with f.if_(inside):
                source = element.at(f, x, z * c.X_D + y * c.X_H + k.index)
                tap = (kd.index * c.TAPS_H + kh.index) * c.TAPS_W
                target = f.at(sums, tap * c.PADDED + k.index, self.compute)
                args = [c.place, source, element.at(f, g, k.index), target, c.CHANNELS - k.index]
                f.call("taps", VOID, args)

    def _write_pixels(self) -> None:
        """All taps along the width of one row, for up to four vectors of channels."""
        params = [("context", PTR), ("x", PTR), ("g", PTR), ("sums", PTR), ("channels", I64)]
        with self.m.function("taps", params, internal=True) as f:
            place, x, g, sums, channels = f.args
            c = ConvContext(f, place, _NAMES)
            masks = [f.low_mask(channels - j * self.n, self.n) for j in range(_VECTORS)]
            with f.loop(0, c.TAPS_W) as kw:
                start = kw.index * c.APART_W - c.BEFORE_W
                step = c.IN_W
                first = f.minimum(f.ceil_div(f.maximum(0 - start, 0), step), c.OUT_W)
                room = f.maximum(c.SIZE_W - start, 0)
                last = f.minimum(f.ceil_div(room, step), c.OUT_W)
                source = self.element.at(f, x, (start + first * step) * c.X_W)
                grads = self.element.at(f, g, first * c.G_W)
                target = f.at(sums, kw.index * c.PADDED, self.compute)
                self._dot(f, c, source, grads, target, last - first, masks)

    def _dot(
        self,
        f: LLVMFunction,
        c: ConvContext,
        x: LLVMValue,
        g: LLVMValue,
        sums: LLVMValue,
        count: LLVMValue,
        masks: list[LLVMValue],
    ) -> None:
        n, element = self.n, self.element
        vector = self.compute.vector(n)
        places = [f.at(sums, j * n, self.compute) for j in range(_VECTORS)]
        x_step, g_step = c.IN_W * c.X_W, c.G_W
        with f.loop(0, count, 1, [x, g, *(f.load(vector, p) for p in places)]) as loop:
            x, g, *totals = loop.carried
            made = []
            for j, (total, mask) in enumerate(zip(totals, masks, strict=True)):
                a = element.load(f, element.at(f, x, j * n), n, mask)
                b = element.load(f, element.at(f, g, j * n), n, mask)
                made.append(f.mul_add(a, b, total))
            loop.next(element.at(f, x, x_step), element.at(f, g, g_step), *made)
        for v, place in zip(loop.results[2:], places, strict=True):
            f.store(v, place)
