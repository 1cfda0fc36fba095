"""Sums over taps whose places and weights are tensors (see `ops/spatial/tap_sums.py`).

A task of scatter takes some planes; one of gather or products a stretch of points: the places and
weights of some points are loaded once for all channels. Taps that are none have the index -1; the
lanes of a gather that have such a one load nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node

_TYPES = {dt.float32: F32, dt.float64: F64}
_WORDS = ("channels", "size", "taps", "points", "units", "per_task")
_POINTERS = 4
"""The result and three operands; the word of the workspace, which nobody needs, follows."""
_STRETCH = 256
"""Points of a task of `tap_gather` and `tap_products`."""
_MOST_TAPS = 16
"""So many taps at most are held in registers; with more, each plane is walked on its own."""


@rule("tap_gather")
def tap_gather(node: Node) -> Any:
    planes, index, _ = (a.meta for a in node.args)
    return _kernel(node, "gather", planes.shape, index.shape, planes.shape[2])


@rule("tap_scatter")
def tap_scatter(node: Node) -> Any:
    planes, index = node.args[0].meta, node.args[1].meta
    return _kernel(node, "scatter", planes.shape, index.shape, node.args[3])


@rule("tap_products")
def tap_products(node: Node) -> Any:
    _, planes, index = (a.meta for a in node.args)
    return _kernel(node, "products", planes.shape, index.shape, planes.shape[2])


def _kernel(node: Node, name: str, planes: Any, index: Any, size: int) -> NativeKernel | None:
    """None: other types than float32 and float64, or operands with gaps."""
    out = node.outputs[0].meta
    metas = [a.meta for a in node.args[:3]]
    floats = {m.dtype for m in metas if m.dtype is not dt.int64} | {out.dtype}
    plain = all(m.contiguous for m in (*metas, out)) and out.numel and index[1]
    if len(floats) != 1 or out.dtype not in _TYPES or not plain:
        return None
    (n, channels), (_, taps, points) = planes[:2], index
    if name == "gather" and (taps > _MOST_TAPS or size >= 1 << 31):
        name = "planes"
    held = taps if name == "gather" else 0
    stretches = -(-points // _STRETCH)
    units = n * stretches if name in ("gather", "products") else n * channels
    cost = points * taps * (2.0 if name == "scatter" else 1.0)
    per_task = max(1, -(-units // 128))
    kind = out.dtype.name
    key = ("taps", name, kind, held)
    code = compiled(key, lambda m: _Writer(m, dt.by_name(kind), held).write(name))
    extra = [channels, size, taps, points, units, per_task]
    return NativeKernel(code["entry"], 1, 3, extra=extra, work=n * channels * cost)


class _Writer:
    """The kernels for one type. Words behind the pointers are those of `_WORDS`."""

    def __init__(self, m: Module, dtype: dt.dtype, held: int) -> None:
        self.m, self.type, self.held = m, _TYPES[dtype], held
        self.lanes = VECTOR_BYTES // 8  # as many as indices in a vector
        self.vector = self.type.vector(self.lanes)
        self.places = I64.vector(self.lanes)

    def write(self, name: str) -> None:
        """`i64 entry(ptr block)`."""
        bodies: dict[str, Callable[[LLVMFunction, LLVMValue], None]] = {
            "gather": self._gather_stretch, "planes": self._gather_plane,
            "scatter": self._scatter_plane, "products": self._stretch,
        }  # fmt: skip
        params = [("block", PTR), ("task", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self._enter(f)
            first = f.args[1] * self.per_task
            with f.loop(first, f.minimum(first + self.per_task, self.units)) as unit:
                bodies[name](f, unit.index)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            self._enter(f)
            tasks = f.ceil_div(self.units, self.per_task)
            f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], tasks])
            f.ret(0)

    def _enter(self, f: LLVMFunction) -> None:
        block = f.args[0]
        self.out, self.first, self.second, self.third = (
            f.word(block, i, PTR) for i in range(_POINTERS)
        )
        numbers = [f.word(block, _POINTERS + 1 + i) for i in range(len(_WORDS))]
        self.channels, self.size, self.taps, self.points, self.units, self.per_task = numbers

    def _fetch(
        self, f: LLVMFunction, plane: LLVMValue, at: LLVMValue, mask: LLVMValue
    ) -> LLVMValue:
        """Elements of a plane at indices; nothing where they are negative."""
        inside = f.bits("and", f.compare("ge", at, f.zero(self.places)), mask)
        if HOST.has_avx512:
            name = f"llvm.x86.avx512.mask.gather.qp{'s' if self.type is F32 else 'd'}.512"
            scale = f.constant(self.type.size, I32)
            return f.call(name, self.vector, [f.zero(self.vector), plane, at, inside, scale])
        pointers = PTR.vector(self.lanes)
        to = f.value(pointers, f"getelementptr {self.type.text}, {plane!r}, {at!r}")
        name = f"llvm.masked.gather.{self.vector.suffix}.v{self.lanes}p0"
        align = f.constant(self.type.size, I32)
        return f.call(name, self.vector, [to, align, inside, f.zero(self.vector)])

    def _gather_stretch(self, f: LLVMFunction, unit: LLVMValue) -> None:
        """A stretch of points in all planes: first planes, then indices, then weights."""
        lanes = VECTOR_BYTES // self.type.size
        vector, places = self.type.vector(lanes), I64.vector(lanes)
        stretches = f.ceil_div(self.points, _STRETCH)
        n, first = unit // stretches, unit % stretches * _STRETCH
        last = f.minimum(first + _STRETCH, self.points)
        planes = f.at(self.first, n * self.channels * self.size, self.type)
        rows = f.at(self.out, n * self.channels * self.points, self.type)
        with f.loop(first, last, lanes) as points:
            p = points.index
            mask = f.low_mask(last - p, lanes)
            taps = []
            for t in range(self.held):
                k = (n * self.held + t) * self.points + p
                at = f.masked_load(places, f.at(self.second, k, I64), mask)
                by = f.masked_load(vector, f.at(self.third, k, self.type), mask)
                inside = f.bits("and", f.compare("ge", at, f.zero(places)), mask)
                taps.append((f.convert("trunc", at, I32.vector(lanes)), inside, by))
            with f.loop(0, self.channels) as channel:
                plane = f.at(planes, channel.index * self.size, self.type)
                total = f.zero(vector)
                for at, inside, by in taps:
                    total = f.mul_add(by, self._pick(f, plane, at, inside, vector), total)
                target = f.at(rows, channel.index * self.points + p, self.type)
                f.masked_store(total, target, mask)

    def _pick(
        self, f: LLVMFunction, plane: LLVMValue, at: LLVMValue, inside: LLVMValue, vector: Any
    ) -> LLVMValue:
        """Elements of a plane at 32-bit indices, zero where `inside` is not set."""
        if HOST.has_avx512:  # asked for by name: kernels are compiled without gathers else
            name = f"llvm.x86.avx512.mask.gather.dp{'s' if self.type is F32 else 'd'}.512"
            size = f.constant(self.type.size, I32)
            return f.call(name, vector, [f.zero(vector), plane, at, inside, size])
        to = f.value(PTR.vector(vector.lanes), f"getelementptr {self.type.text}, {plane!r}, {at!r}")
        name = f"llvm.masked.gather.{vector.suffix}.v{vector.lanes}p0"
        align = f.constant(self.type.size, I32)
        return f.call(name, vector, [to, align, inside, f.zero(vector)])

    def _gather_plane(self, f: LLVMFunction, unit: LLVMValue) -> None:
        """One plane: first planes, then indices, then weights."""
        plane = f.at(self.first, unit * self.size, self.type)
        base = unit // self.channels * (self.taps * self.points)
        with f.loop(0, self.points, self.lanes) as points:
            p = points.index
            mask = f.low_mask(self.points - p, self.lanes)
            with f.loop(0, self.taps, 1, [f.zero(self.vector)]) as taps:
                k = base + taps.index * self.points + p
                at = f.masked_load(self.places, f.at(self.second, k, I64), mask)
                by = f.masked_load(self.vector, f.at(self.third, k, self.type), mask)
                v = self._fetch(f, plane, at, mask)
                taps.next(f.mul_add(by, v, taps.carried[0]))
            target = f.at(self.out, unit * self.points + p, self.type)
            f.masked_store(taps.results[0], target, mask)

    def _scatter_plane(self, f: LLVMFunction, unit: LLVMValue) -> None:
        """One plane of the result; taps may meet, so one after another."""
        plane = f.at(self.out, unit * self.size, self.type)
        f.fill_bytes(plane, 0, self.size * self.type.size)
        base = unit // self.channels * (self.taps * self.points)
        with f.loop(0, self.points) as points:
            p = points.index
            g = f.load(self.type, f.at(self.first, unit * self.points + p, self.type))
            with f.loop(0, self.taps) as taps:
                k = base + taps.index * self.points + p
                at = f.load(I64, f.at(self.second, k, I64))
                with f.if_(f.compare("ge", at, 0)):
                    by = f.load(self.type, f.at(self.third, k, self.type))
                    place = f.at(plane, at, self.type)
                    f.store(f.mul_add(by, g, f.load(self.type, place)), place)

    def _stretch(self, f: LLVMFunction, unit: LLVMValue) -> None:
        """Products of a stretch of points, over all channels: points, planes, indices."""
        stretches = f.ceil_div(self.points, _STRETCH)
        n, first = unit // stretches, unit % stretches * _STRETCH
        rows = f.at(self.first, n * self.channels * self.points, self.type)
        planes = f.at(self.second, n * self.channels * self.size, self.type)
        last = f.minimum(first + _STRETCH, self.points)
        with f.loop(0, self.taps) as taps, f.loop(first, last, self.lanes) as points:
            p = points.index
            mask = f.low_mask(last - p, self.lanes)
            k = (n * self.taps + taps.index) * self.points + p
            at = f.masked_load(self.places, f.at(self.third, k, I64), mask)
            with f.loop(0, self.channels, 1, [f.zero(self.vector)]) as channel:
                c = channel.index
                left = f.at(rows, c * self.points + p, self.type)
                v = self._fetch(f, f.at(planes, c * self.size, self.type), at, mask)
                part = f.masked_load(self.vector, left, mask)
                channel.next(f.mul_add(part, v, channel.carried[0]))
            f.masked_store(channel.results[0], f.at(self.out, k, self.type), mask)
