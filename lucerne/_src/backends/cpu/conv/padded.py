"""Copies of a block of an array into cached scratch: [image][depth][row][column][channel].

What lies outside the array becomes zero, other types become the type of the sums, and planes are
turned so that channels are adjacent. One table may describe several such copies: the words of one
begin with its letter.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.conv.launch import ConvContext
from lucerne._src.backends.cpu.conv.problem import Array
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID

IN_PLACE, CHANNELS, PLANES, ANY = "in place", "channels", "planes", "any"
"""How an array lies in memory: usable as it is, channels adjacent, width adjacent, or neither."""


def layout_of(a: Array) -> str:
    if a.strides[1] == 1 or a.shape[1] == 1:
        return CHANNELS
    return PLANES if a.strides[4] == 1 or a.shape[4] == 1 else ANY


def copy_words(letter: str) -> list[str]:
    """Strides and sizes of the array, strides of the copy, code that turns planes."""
    words = "N C D H W SIZE_D SIZE_H SIZE_W PIXEL ROW SLICE IMAGE TRANSPOSE"
    return [f"{letter}_{word}" for word in words.split()]


def describe(letter: str, a: Array) -> dict[str, int]:
    """The words that say where the array is."""
    found = dict(zip((f"{letter}_{d}" for d in "NCDHW"), a.strides, strict=True))
    sizes = zip((f"{letter}_SIZE_{d}" for d in "DHW"), a.space, strict=True)
    return {**found, **dict(sizes)}


class PaddedCopy:
    """Writes the code of one copy."""

    def __init__(
        self, m: Module, letter: str, names: list[str], element: TileElement, reads: str
    ) -> None:
        self.m, self.letter, self.names = m, letter, names
        self.element, self.reads = element, reads
        self.compute = element.compute
        self.size, self.n = self.compute.size, lanes_of(element.compute)

    def _word(self, c: ConvContext, name: str) -> LLVMValue:
        return getattr(c, f"{self.letter}_{name}")

    def fill(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        buffer: LLVMValue,
        images: LLVMValue,
        start: tuple[LLVMValue, LLVMValue, LLVMValue],
        counts: tuple[LLVMValue, LLVMValue, LLVMValue],
        channels: LLVMValue,
    ) -> None:
        """Copy `images` from `source` (the first image), positions from `start` on."""

        def word(name: str) -> LLVMValue:
            return self._word(c, name)

        slices, rows, pixels = counts
        with f.loop(0, images) as image, f.loop(0, slices) as slice_, f.loop(0, rows) as row:
            d, h = start[0] + slice_.index, start[1] + row.index
            at = image.index * word("IMAGE") + slice_.index * word("SLICE")
            target = f.at(buffer, at + row.index * word("ROW"), self.compute)
            inside = (d >= 0) & (d < word("SIZE_D")) & (h >= 0) & (h < word("SIZE_H"))
            with f.if_(inside) as branch:
                at = image.index * word("N") + d * word("D") + h * word("H")
                place = self.element.at(f, source, at)
                args = [c.place, place, target, start[2], pixels, channels]
                f.call(f"fill_{self.letter}", VOID, args)
            with branch.else_():
                f.fill_bytes(target, 0, pixels * word("PIXEL") * self.size)

    def write_row(self) -> None:
        """The function that copies pixels left .. left + pixels of a row."""
        params = [("context", PTR), ("row", PTR), ("target", PTR)]
        params += [("left", I64), ("pixels", I64), ("channels", I64)]
        with self.m.function(f"fill_{self.letter}", params, internal=True) as f:
            place, row, target, left, pixels, channels = f.args
            c = ConvContext(f, place, self.names)
            before = f.maximum(f.minimum(0 - left, pixels), 0)
            stop = f.maximum(f.minimum(self._word(c, "SIZE_W") - left, pixels), before)
            step = self._word(c, "PIXEL") * self.size
            with f.if_(before > 0):
                f.fill_bytes(target, 0, before * step)
            with f.if_(stop < pixels):
                f.fill_bytes(f.at(target, stop * step), 0, (pixels - stop) * step)
            source = self.element.at(f, row, (left + before) * self._word(c, "W"))
            args = (f, c, source, f.at(target, before * step), stop - before, channels)
            {CHANNELS: self._copy_channels, PLANES: self._turn_planes, ANY: self._copy_any}[
                self.reads
            ](*args)

    def _copy_channels(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        pixels: LLVMValue,
        channels: LLVMValue,
    ) -> None:
        """Channels are adjacent; if pixels are as well, the row is one stretch."""
        n, element = self.n, self.element
        pitch, step = self._word(c, "PIXEL"), self._word(c, "W")
        together = f.compare("eq", step, channels) & f.compare("eq", pitch, channels)
        count = f.select(together, f.minimum(pixels, 1), pixels)
        length = f.select(together, pixels * channels, channels)
        whole = length & -n
        with f.loop(0, count) as pixel:
            row = element.at(f, source, pixel.index * step)
            place = f.at(target, pixel.index * pitch, self.compute)
            with f.loop(0, whole, n) as k:
                v = element.load(f, element.at(f, row, k.index), n)
                f.store(v, f.at(place, k.index, self.compute))
            with f.if_(whole < length):
                mask = f.low_mask(length - whole, n)
                v = element.load(f, element.at(f, row, whole), n, mask)
                f.masked_store(v, f.at(place, whole, self.compute), mask)

    def _turn_planes(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        pixels: LLVMValue,
        channels: LLVMValue,
    ) -> None:
        args: list[Any] = [source, self._word(c, "C"), target, self._word(c, "PIXEL")]
        code = c.pointer(f"{self.letter}_TRANSPOSE")
        f.call_at(code, VOID, [*args, channels, channels, pixels])

    def _copy_any(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        pixels: LLVMValue,
        channels: LLVMValue,
    ) -> None:
        element = self.element
        pitch, step, plane = (self._word(c, name) for name in ("PIXEL", "W", "C"))
        with f.loop(0, pixels) as pixel, f.loop(0, channels) as k:
            v = element.load(f, element.at(f, source, pixel.index * step + k.index * plane))
            f.store(v, f.at(target, pixel.index * pitch + k.index, self.compute))
