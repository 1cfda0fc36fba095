"""Planes laid out so that a convolution becomes sums over a flat row.

A block of a plane is copied into scratch with its zeros around it, every position of the padded
block at

    [residue of h][residue of w][h / stride][w / stride]

(one piece for stride 1). Then output pixel (r, q), at flat index f = r * PITCH + q, reads tap t at
`f + offset[t]`: one offset for all pixels, whatever the stride and dilation. Vectors run along f
over the ends of rows; what they compute there is thrown away. For a transposed convolution the
source is spread out with zeros between its elements (SPREAD), and its taps are flipped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from lucerne._src.backends.cpu.conv.launch import ConvContext, ConvTable
from lucerne._src.backends.cpu.conv.problem import Array, ConvSetting
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID

VECTORS_AT_ONCE = 8
DIMS = "DHW"
_BLOCK_BYTES = 96 << 10


def flat_words(letter: str) -> list[str]:
    """Strides and sizes of the array; the spread and the stride; the layout of its scratch."""
    names = [f"{n}_{d}" for n in ("", "SIZE_", "BEFORE_", "SPREAD_", "EVERY_") for d in DIMS]
    names = [name.replace("__", "_").lstrip("_") for name in names]
    return [f"{letter}_{n}" for n in (*names, "PITCH", "PIECE", "SLICE", "PLANE")]


@dataclass(frozen=True)
class FlatGeometry:
    """How a plane is laid out flat: taps read position `every * a + at[t] - before` of the source
    (in spread-out positions) for output a."""

    every: tuple[int, ...]
    spread: tuple[int, ...]
    before: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]
    """By dimension, what each tap adds to the padded position."""
    rows: int
    cols: int

    @property
    def pitch(self) -> int:
        """Flat distance of two rows."""
        return self.cols + max(at // self.every[2] for at in self.taps[2])

    @property
    def piece(self) -> int:
        """Flat size of one residue of rows and columns."""
        rows = self.rows + max(at // self.every[1] for at in self.taps[1])
        return rows * self.pitch

    @property
    def slice(self) -> int:
        return self.piece * self.every[1] * self.every[2]

    @property
    def slices(self) -> int:
        return 1 + max(self.taps[0])

    @property
    def plane(self) -> int:
        return self.slice * self.slices

    @property
    def length(self) -> int:
        """Flat indices from the first output of a block to past the last."""
        return (self.rows - 1) * self.pitch + self.cols

    def offsets(self) -> list[int]:
        """Flat offset of every tap, in the order of the weights."""
        return [self._offset(at) for at in itertools.product(*self.taps)]

    def _offset(self, at: tuple[int, ...]) -> int:
        (_, h, w), (_, sh, sw) = at, self.every
        residue = (h % sh) * sw + w % sw
        return at[0] * self.slice + residue * self.piece + (h // sh) * self.pitch + w // sw


def conv_geometry(kernel: tuple[int, ...], s: ConvSetting, rows: int, cols: int) -> FlatGeometry:
    taps = tuple(
        tuple(k * step for k in range(n)) for n, step in zip(kernel, s.dilation, strict=True)
    )
    return FlatGeometry(s.stride, (1, 1, 1), s.padding, taps, rows, cols)


def input_geometry(kernel: tuple[int, ...], s: ConvSetting, rows: int, cols: int) -> FlatGeometry:
    """Output i reads spread-out position i + padding - k * dilation."""
    most = [(n - 1) * step for n, step in zip(kernel, s.dilation, strict=True)]
    taps = tuple(
        tuple(m - k * step for k in range(n))
        for n, step, m in zip(kernel, s.dilation, most, strict=True)
    )
    before = tuple(m - p for m, p in zip(most, s.padding, strict=True))
    return FlatGeometry((1, 1, 1), s.stride, before, taps, rows, cols)


def block_rows(rows: int, cols: int, planes: int, itemsize: int, every: tuple[int, ...]) -> int:
    """Rows of outputs that keep the planes of a block in cache."""
    row = cols * planes * itemsize * every[1] * every[2]
    return max(1, min(rows, _BLOCK_BYTES // max(1, row)))


def describe_flat(table: ConvTable, letter: str, a: Array, g: FlatGeometry) -> None:
    for d, name in enumerate(DIMS):
        values = {
            f"{letter}_{name}": a.strides[2 + d], f"{letter}_SIZE_{name}": a.space[d],
            f"{letter}_BEFORE_{name}": g.before[d], f"{letter}_SPREAD_{name}": g.spread[d],
            f"{letter}_EVERY_{name}": g.every[d],
        }  # fmt: skip
        table.set(**values)
    values = {"PITCH": g.pitch, "PIECE": g.piece, "SLICE": g.slice, "PLANE": g.plane}
    table.set(**{f"{letter}_{name}": v for name, v in values.items()})


class FlatCopy:
    """Writes the code that lays a block of a plane out flat.

    The function `flat_X(context, plane, target, depth, row, slices, rows)` copies what outputs
    from (depth, row) on read: `slices` x `rows` padded positions, all columns.
    """

    def __init__(self, m: Module, letter: str, names: list[str], element: TileElement) -> None:
        self.m, self.letter, self.names, self.element = m, letter, names, element
        self.compute, self.n = element.compute, lanes_of(element.compute)

    def _word(self, c: ConvContext, name: str) -> LLVMValue:
        return getattr(c, f"{self.letter}_{name}")

    def call(self, f: LLVMFunction, c: ConvContext, *args: LLVMValue) -> None:
        f.call(f"flat_{self.letter}", VOID, [c.place, *args])

    def write(self) -> None:
        self._write_row()
        params = [("context", PTR), ("plane", PTR), ("target", PTR)]
        params += [(name, I64) for name in ("depth", "row", "slices", "rows")]
        with self.m.function(f"flat_{self.letter}", params, internal=True) as f:
            place, plane, target, depth, row, slices, rows = f.args
            c = ConvContext(f, place, self.names)

            def word(name: str) -> LLVMValue:
                return self._word(c, name)

            f.fill_bytes(target, 0, word("PLANE") * self.compute.size)
            with f.loop(0, slices) as d:
                z = depth * word("EVERY_D") + d.index - word("BEFORE_D")
                inside, z = self._source(f, c, "D", z)
                with f.if_(inside):
                    source = self.element.at(f, plane, z * word("D"))
                    piece = f.at(target, d.index * word("SLICE"), self.compute)
                    with f.if_(self._is_simple(f, c)) as simple:
                        self._simple_rows(f, c, source, piece, row, rows)
                    with simple.else_():
                        self._spread_rows(f, c, source, piece, row, rows)

    def _is_simple(self, f: LLVMFunction, c: ConvContext) -> LLVMValue:
        """Whether rows and columns go straight to their places."""
        one = f.compare("eq", self._word(c, "W"), 1) & (self._word(c, "BEFORE_W") >= 0)
        for name in ("EVERY_H", "EVERY_W", "SPREAD_H", "SPREAD_W"):
            one = one & f.compare("eq", self._word(c, name), 1)
        return one

    def _simple_rows(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        row: LLVMValue,
        rows: LLVMValue,
    ) -> None:
        n, element = self.n, self.element
        before, pitch = self._word(c, "BEFORE_W"), self._word(c, "PITCH")
        top = row - self._word(c, "BEFORE_H")
        first = f.minimum(f.maximum(0 - top, 0), rows)
        last = f.minimum(f.maximum(self._word(c, "SIZE_H") - top, first), rows)
        count = f.minimum(self._word(c, "SIZE_W"), pitch - before)
        whole = count & -n
        tail = f.low_mask(count - whole, n)
        step = self._word(c, "H")
        start = element.at(f, source, (top + first) * step)
        place = f.at(target, first * pitch + before, self.compute)
        with f.loop(first, last, 1, [start, place]) as loop:
            line, out = loop.carried
            with f.loop(0, whole, n) as k:
                v = element.load(f, element.at(f, line, k.index), n)
                f.store(v, f.at(out, k.index, self.compute))
            v = element.load(f, element.at(f, line, whole), n, tail)
            f.masked_store(v, f.at(out, whole, self.compute), tail)
            loop.next(element.at(f, line, step), f.at(out, pitch, self.compute))

    def _spread_rows(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        row: LLVMValue,
        rows: LLVMValue,
    ) -> None:
        every, pieces = self._word(c, "EVERY_H"), self._word(c, "EVERY_W")
        with f.loop(0, rows) as r:
            h = row * every + r.index - self._word(c, "BEFORE_H")
            inside, h = self._source(f, c, "H", h)
            with f.if_(inside):
                at = r.index // every * self._word(c, "PITCH")
                at = at + r.index % every * pieces * self._word(c, "PIECE")
                line = self.element.at(f, source, h * self._word(c, "H"))
                args = [c.place, line, f.at(target, at, self.compute)]
                f.call(f"flat_row_{self.letter}", VOID, args)

    def _source(
        self, f: LLVMFunction, c: ConvContext, d: str, at: LLVMValue
    ) -> tuple[LLVMValue, LLVMValue]:
        """Whether an element of the source stands at a spread-out position, and which."""
        spread = self._word(c, f"SPREAD_{d}")
        index = at // spread
        inside = (at >= 0) & f.compare("eq", at % spread, 0)
        return inside & (index < self._word(c, f"SIZE_{d}")), index

    def _write_row(self) -> None:
        """One row of the source: straight, by its even and odd elements, or one by one."""
        params = [("context", PTR), ("source", PTR), ("target", PTR)]
        with self.m.function(f"flat_row_{self.letter}", params, internal=True) as f:
            place, source, target = f.args
            c = ConvContext(f, place, self.names)
            before, every = self._word(c, "BEFORE_W"), self._word(c, "EVERY_W")
            spread, step = self._word(c, "SPREAD_W"), self._word(c, "W")
            adjacent = f.compare("eq", step, 1) & f.compare("eq", spread, 1)
            good = adjacent & (before >= 0)
            straight = good & f.compare("eq", every, 1)
            fits = self._reach(c)
            with f.if_(straight):
                count = f.minimum(self._word(c, "SIZE_W"), fits - before)
                self._straight(f, count, source, f.at(target, before, self.compute))
                f.ret()
            with f.if_(good & f.compare("eq", every, 2)):
                self._by_two(f, c, source, target, fits)
                f.ret()
            self._one_by_one(f, c, source, target, fits)

    def _reach(self, c: ConvContext) -> LLVMValue:
        """Padded columns that have a place."""
        return self._word(c, "PITCH") * self._word(c, "EVERY_W")

    def _straight(
        self, f: LLVMFunction, count: LLVMValue, source: LLVMValue, target: LLVMValue
    ) -> None:
        with f.loop(0, count, self.n) as k:
            mask = f.low_mask(count - k.index, self.n)
            v = self.element.load(f, self.element.at(f, source, k.index), self.n, mask)
            f.masked_store(v, f.at(target, k.index, self.compute), mask)

    def _by_two(
        self, f: LLVMFunction, c: ConvContext, source: LLVMValue, target: LLVMValue, fits: LLVMValue
    ) -> None:
        """Two vectors at a time into the pieces of even and odd columns."""
        n, element = self.n, self.element
        before, piece = self._word(c, "BEFORE_W"), self._word(c, "PIECE")
        count = f.minimum(self._word(c, "SIZE_W"), fits - before)
        first = f.at(target, before % 2 * piece + before // 2, self.compute)
        after = before + 1
        second = f.at(target, after % 2 * piece + after // 2, self.compute)
        with f.loop(0, count, 2 * n) as k:
            left = count - k.index
            masks = [f.low_mask(left - n * j, n) for j in range(2)]
            places = [element.at(f, source, k.index + n * j) for j in range(2)]
            pair = [element.load(f, p, n, mask) for p, mask in zip(places, masks, strict=True)]
            even = f.shuffle(pair[0], pair[1], range(0, 2 * n, 2))
            odd = f.shuffle(pair[0], pair[1], range(1, 2 * n, 2))
            at = k.index >> 1
            f.masked_store(even, f.at(first, at, self.compute), f.low_mask((left + 1) >> 1, n))
            f.masked_store(odd, f.at(second, at, self.compute), f.low_mask(left >> 1, n))

    def _one_by_one(
        self, f: LLVMFunction, c: ConvContext, source: LLVMValue, target: LLVMValue, fits: LLVMValue
    ) -> None:
        before, every = self._word(c, "BEFORE_W"), self._word(c, "EVERY_W")
        spread, step = self._word(c, "SPREAD_W"), self._word(c, "W")
        with f.loop(0, self._word(c, "SIZE_W")) as k:
            at = k.index * spread + before
            with f.if_((at >= 0) & (at < fits)):
                v = self.element.load(f, self.element.at(f, source, k.index * step))
                place = at % every * self._word(c, "PIECE") + at // every
                f.store(v, f.at(target, place, self.compute))
