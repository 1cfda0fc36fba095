"""How the codes of one step meet the numbers of a row.

A step is 16 words of the weight, one for each of 16 results; a *dot* says what it keeps of a
row of the input, and adds the products of a step to the sums. Float dots read the row as it is;
integer dots read it in 8 bits, from scratch, and add codes as they are: the sum of the row times
the code of zero is taken off at the end of a group.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.cpu.emit.builder import F32, I8, I32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I16, Type
from lucerne._src.backends.cpu.math import storage
from lucerne._src.backends.cpu.quantized.frame import FLOATS, LANES, WORDS
from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import COLUMNS, FLOAT8, INT4, INT8

Words = Sequence[LLVMValue]
_LOW_HALVES = 0x0F0F0F0F
_EVEN_BYTES = 0x00FF00FF


class _Dot:
    """What dots of all kinds know of the weight."""

    row_bytes: int
    """Bytes of a row for each column."""

    def __init__(self, stored: str) -> None:
        self.stored, self.columns = stored, COLUMNS[stored]

    @property
    def step_bytes(self) -> int:
        """Bytes of a row that one step reads."""
        return self.columns * self.row_bytes


class FloatDot(_Dot):
    """Rows of float32."""

    sums: Type = FLOATS
    row_bytes = F32.size

    def step(
        self, f: LLVMFunction, words: Words, rows: Words, sums: list[list[LLVMValue]]
    ) -> list[list[LLVMValue]]:
        """The sums of each row with the products of a step: `rows` say where its columns lie. One
        column after the other, so that few vectors are held beside the sums."""
        turned = [self._turned(w) for w in words]
        for c in range(self.columns):
            column = [self._number(f, w, c) for w in turned]
            held = sums
            sums = []
            for row, own in zip(rows, held, strict=True):
                x = f.splat(f.load(F32, f.at(row, c * F32.size)), LANES)
                sums.append([f.mul_add(w, x, s) for w, s in zip(column, own, strict=True)])
        return sums

    def _turned(self, w: LLVMValue) -> LLVMValue:
        """Codes with the sign in their highest bit, unless a table has it."""
        flip = {INT8: -0x7F7F7F80, INT4: -0x77777778}.get(self.stored)
        return w if flip is None or (self.stored == INT4 and _has_table()) else w ^ flip

    def _number(self, f: LLVMFunction, w: LLVMValue, column: int) -> LLVMValue:
        if self.stored == FLOAT8:
            byte = f.convert("trunc", f.bits("lshr", w, 8 * column), I8)
            return storage.unpack(f, dt.float8_e4m3fn, byte)
        if self.stored == INT8:
            return _signed(f, w, 8 * column, 8)
        place = 8 * (column % 4) + 4 * (column // 4)
        if _has_table():  # the instruction looks at four bits of each lane and at no more
            table = ", ".join(f"float {v - 8}.0" for v in range(16))
            codes = f.bits("lshr", w, place) if place else w
            name = "llvm.x86.avx512.permvar.sf.512"
            return f.call(name, FLOATS, [LLVMValue(f, FLOATS, f"<{table}>"), codes])
        return _signed(f, w, place, 4)


class IntegerDot(_Dot):
    """Rows in 8 bits, by integers alone: for any processor."""

    sums: Type = WORDS
    row_bytes = 1

    def step(
        self, f: LLVMFunction, words: Words, rows: Words, sums: list[list[LLVMValue]]
    ) -> list[list[LLVMValue]]:
        for q in range(self.columns // 4):
            codes = list(words)
            if self.stored == INT4:
                codes = [(f.bits("lshr", w, 4) if q else w) & _LOW_HALVES for w in words]
            places = [f.at(row, q * 4 * self.row_bytes) for row in rows]
            sums = [
                self._four(f, own, codes, place) for own, place in zip(sums, places, strict=True)
            ]
        return sums

    def _four(self, f: LLVMFunction, sums: Words, words: Words, row: LLVMValue) -> list[LLVMValue]:
        made = list(sums)
        for c in range(4):
            x = f.splat(f.convert("sext", f.load(I8, f.at(row, c)), I32), LANES)
            codes = [f.bits("lshr", w, 8 * c) & 255 for w in words]
            made = [s + w * x for w, s in zip(codes, made, strict=True)]
        return made

    def keep(self, f: LLVMFunction, numbers: LLVMValue, place: LLVMValue) -> None:
        """Numbers of a row (i32), some fours of them, as this dot reads them."""
        f.store(f.convert("trunc", numbers, I8), place, 1)


class PairDot(IntegerDot):
    """By products of pairs of 16 bits, on x86 without dot products of bytes."""

    row_bytes = 2

    def _four(self, f: LLVMFunction, sums: Words, words: Words, row: LLVMValue) -> list[LLVMValue]:
        even, odd = (f.splat(f.load(I32, f.at(row, at), 1), LANES) for at in (0, 4))
        made = []
        for w, s in zip(words, sums, strict=True):
            pairs = (w & _EVEN_BYTES, even), (f.bits("lshr", w, 8) & _EVEN_BYTES, odd)
            for codes, x in pairs:
                s = s + _pairs(f, codes, x)
            made.append(s)
        return made

    def keep(self, f: LLVMFunction, numbers: LLVMValue, place: LLVMValue) -> None:
        order = [q + c for q in range(0, numbers.type.lanes, 4) for c in (0, 2, 1, 3)]
        f.store(f.shuffle(f.convert("trunc", numbers, I16), None, order), place, 1)


class ByteDot(IntegerDot):
    """By dot products of four bytes (VNNI)."""

    def _four(self, f: LLVMFunction, sums: Words, words: Words, row: LLVMValue) -> list[LLVMValue]:
        four = I8.vector(VECTOR_BYTES)
        x = f.bitcast(f.splat(f.load(I32, row, 1), LANES), four)
        name = "llvm.x86.avx512.vpdpbusd.512"
        return [
            f.call(name, WORDS, [s, f.bitcast(w, four), x])
            for w, s in zip(words, sums, strict=True)
        ]


def dot_of(stored: str, dynamic: bool) -> FloatDot | IntegerDot:
    """The dot that this processor does best."""
    if not dynamic:
        return FloatDot(stored)
    if VECTOR_BYTES == 64 and HOST.has("avx512_vnni"):
        return ByteDot(stored)
    return PairDot(stored) if HOST.is_x86 else IntegerDot(stored)


def _has_table() -> bool:
    return VECTOR_BYTES == 64 and HOST.is_x86


def _signed(f: LLVMFunction, w: LLVMValue, place: int, bits: int) -> LLVMValue:
    """So many bits of each word, the highest of them their sign, as floats."""
    top = 32 - bits - place
    return f.convert("sitofp", (w << top if top else w) >> (32 - bits), F32)


def _pairs(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Products of 16 bits, two and two added."""
    name = {64: "avx512.pmaddw.d.512", 32: "avx2.pmadd.wd", 16: "sse2.pmadd.wd"}[VECTOR_BYTES]
    short = I16.vector(2 * LANES)
    return f.call(f"llvm.x86.{name}", WORDS, [f.bitcast(v, short) for v in (a, b)])
