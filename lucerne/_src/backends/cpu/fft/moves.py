"""Between tensors and the buffers of `stages.py`: lanes from memory, and back.

Each function comes in three ways, by how the lanes lie: one after the other in memory
("lanes"); apart, while the points of one transform follow each other ("points": squares of vectors
are transposed); or neither ("any", number by number). `parts`: 1 for real tensors, 2 for complex.
Lanes beyond the count hold copies or zeros and are never written.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.cpu.elementwise.turn import transposed
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.fft.stages import UNIT, FFTLanes
from lucerne._src.backends.cpu.math.storage import deinterleave, interleave

_PARAMS = [("at", PTR), ("ps", I64), ("ls", I64), ("n", I64), ("count", I64), ("buffer", PTR)]
"""The tensor, bytes from point to point and from lane to lane, points, lanes, the buffer."""


class Moves:
    """Writes the functions for one real type and one number of parts into a module.

    `load{parts}(at, ps, ls, n, count, buffer, re, im)`: `re` and `im` are the bytes inside an
    element where real and imaginary parts go; a real tensor fills the first only.
    `store{parts}(..., re, im, scale)` is the opposite and multiplies by a number.
    """

    def __init__(self, m: Module, lanes: FFTLanes, parts: int) -> None:
        self.m, self.lanes, self.parts = m, lanes, parts
        self.size = lanes.type.size * parts

    def write(self) -> None:
        ends = [("re", I64), ("im", I64)]
        for way in ("lanes", "points", "any"):
            with self.m.function(f"load{self.parts}_{way}", [*_PARAMS, *ends], internal=True) as f:
                getattr(self, f"_load_{way}")(f)
            with self.m.function(
                f"store{self.parts}_{way}", [*_PARAMS, *ends, ("scale", self.lanes.type)],
                internal=True,
            ) as f:  # fmt: skip
                getattr(self, f"_store_{way}")(f, f.splat(f.args[8], self.lanes.count))
        self._choose("load", ends)
        self._choose("store", [*ends, ("scale", self.lanes.type)])

    def _choose(self, what: str, more: Sequence[tuple[str, Type]]) -> None:
        with self.m.function(f"{what}{self.parts}", [*_PARAMS, *more], internal=True) as f:
            _, ps, ls, *_ = f.args
            name = f"{what}{self.parts}_"
            with f.if_(f.compare("eq", ls, self.size)) as one:
                f.call(name + "lanes", VOID, f.args)
            with one.else_():
                with f.if_(f.compare("eq", ps, self.size)) as two:
                    f.call(name + "points", VOID, f.args)
                with two.else_():
                    f.call(name + "any", VOID, f.args)

    # ---- lanes one after the other -----------------------------------------------------------

    def _masks(self, f: LLVMFunction, count: LLVMValue) -> list[LLVMValue]:
        lanes = self.lanes.count
        return [f.low_mask(count * self.parts - k * lanes, lanes) for k in range(self.parts)]

    def _load_lanes(self, f: LLVMFunction) -> None:
        at, ps, _, n, count, buffer, re, im = f.args
        masks = self._masks(f, count)
        with f.loop(0, n) as k:
            place, to = f.at(at, k.index * ps), f.at(buffer, k.index * UNIT)
            found = [
                f.masked_load(self.lanes.vector, f.at(place, i * VECTOR_BYTES), mask)
                for i, mask in enumerate(masks)
            ]
            if self.parts == 2:
                found = list(deinterleave(f, self._joined(f, found)))
            for v, end in zip(found, (re, im), strict=False):
                f.store(v, f.at(to, end))

    def _joined(self, f: LLVMFunction, found: list[LLVMValue]) -> LLVMValue:
        return f.shuffle(found[0], found[1], range(2 * self.lanes.count))

    def _store_lanes(self, f: LLVMFunction, scale: LLVMValue) -> None:
        at, ps, _, n, count, buffer, re, im, _ = f.args
        masks = self._masks(f, count)
        with f.loop(0, n) as k:
            place, source = f.at(at, k.index * ps), f.at(buffer, k.index * UNIT)
            values = [
                f.load(self.lanes.vector, f.at(source, end)) * scale
                for end in (re, im)[: self.parts]
            ]
            if self.parts == 2:
                both, lanes = interleave(f, values[0], values[1]), self.lanes.count
                values = [f.shuffle(both, None, range(i * lanes, (i + 1) * lanes)) for i in (0, 1)]
            for i, (v, mask) in enumerate(zip(values, masks, strict=True)):
                f.masked_store(v, f.at(place, i * VECTOR_BYTES), mask)

    # ---- points one after the other ----------------------------------------------------------

    def _load_points(self, f: LLVMFunction) -> None:
        at, _, ls, n, count, buffer, re, im = f.args
        lanes, last = self.lanes.count, count - 1
        rows = [f.at(at, f.minimum(f.constant(k), last) * ls) for k in range(lanes)]
        step = lanes // self.parts
        with f.loop(0, n, step) as k:
            mask = f.low_mask((n - k.index) * self.parts, lanes)
            place = k.index * self.size
            found = [f.masked_load(self.lanes.vector, f.at(r, place), mask) for r in rows]
            for i, v in enumerate(transposed(f, found)):
                to = f.at(buffer, (k.index + i // self.parts) * UNIT)
                f.store(v, f.at(to, im if i % self.parts else re))

    def _store_points(self, f: LLVMFunction, scale: LLVMValue) -> None:
        at, _, ls, n, count, buffer, re, im, _ = f.args
        lanes = self.lanes.count
        step = lanes // self.parts
        with f.loop(0, n, step) as k:
            mask = f.low_mask((n - k.index) * self.parts, lanes)
            found = []
            for i in range(lanes):
                source = f.at(buffer, (k.index + i // self.parts) * UNIT)
                end = im if i % self.parts else re
                found.append(f.load(self.lanes.vector, f.at(source, end)) * scale)
            place = f.at(at, k.index * self.size)
            for i, v in enumerate(transposed(f, found)):
                with f.if_(f.compare("gt", count, i)):
                    f.masked_store(v, f.at(place, ls * i), mask)

    # ---- number by number --------------------------------------------------------------------

    def _load_any(self, f: LLVMFunction) -> None:
        at, ps, ls, n, count, buffer, re, im = f.args
        with f.loop(0, n) as k, f.loop(0, count) as lane:
            place = f.at(at, k.index * ps + lane.index * ls)
            to = f.at(f.at(buffer, k.index * UNIT), lane.index, self.lanes.type)
            for i, end in enumerate((re, im)[: self.parts]):
                v = f.load(self.lanes.type, f.at(place, i * self.lanes.type.size))
                f.store(v, f.at(to, end))

    def _store_any(self, f: LLVMFunction, scale: LLVMValue) -> None:
        at, ps, ls, n, count, buffer, re, im, factor = f.args
        with f.loop(0, n) as k, f.loop(0, count) as lane:
            place = f.at(at, k.index * ps + lane.index * ls)
            source = f.at(f.at(buffer, k.index * UNIT), lane.index, self.lanes.type)
            for i, end in enumerate((re, im)[: self.parts]):
                v = f.load(self.lanes.type, f.at(source, end)) * factor
                f.store(v, f.at(place, i * self.lanes.type.size))
