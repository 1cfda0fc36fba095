"""Binary search of many values in sorted rows.

All searches of a row take the same number of steps, so several run side by side: while one waits
for memory the others go on. Steps are taken by masks: LLVM turns selects in such a loop into jumps,
which nobody can predict.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I1, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.index.rows import RowCode
from lucerne._src.backends.cpu.math.storage import STORED, unpack
from lucerne._src.base import dtype as dt

ABREAST = 8


@dataclass(frozen=True)
class Search:
    """What changes the code: loops, dtype of both tensors, and the side equal values go to."""

    rank: int
    dtype: str
    right: bool


class SearchCode(RowCode):
    """Operands: the result, the values, the sequence. Extra words: its length and byte stride."""

    def __init__(self, m: Module, name: str, form: Search, numbers: int, sequence: int) -> None:
        super().__init__(m, name, form.rank, 3, numbers)
        self.form, self.sequence = form, sequence
        self.dtype = dt.by_name(form.dtype)

    def rows(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        first: LLVMValue,
        last: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        bases = [f.word(block, w, PTR) for w in (0, 2, 1)]
        size, step = f.word(block, self.sequence), f.word(block, self.sequence + 1)
        dims = self.loops(f, block)
        inner = dims[-1][1]
        with f.loop(first, last) as row:
            offsets = self.offsets(f, row.index, dims[:-1], 3)
            out, values, sequence = (f.at(b, o) for b, o in zip(bases, offsets, strict=True))
            whole = start + ((stop - start) & -ABREAST)
            for lo, hi, count in ((start, whole, ABREAST), (whole, stop, 1)):
                with f.loop(lo, hi, count) as loop:
                    places = [loop.index + k for k in range(count)]
                    wanted = [self._load(f, f.at(values, j * inner[1])) for j in places]
                    rows = [f.at(sequence, j * inner[2]) for j in places]
                    found = self._search(f, rows, size, step, wanted)
                    for j, at in zip(places, found, strict=True):
                        f.store(at, f.at(out, j * inner[0]))

    def _load(self, f: LLVMFunction, place: LLVMValue) -> LLVMValue:
        v = f.load(STORED[self.dtype], place)
        return v if self.dtype is dt.bool_ else unpack(f, self.dtype, v)

    def _search(
        self,
        f: LLVMFunction,
        rows: list[LLVMValue],
        size: LLVMValue,
        step: LLVMValue,
        wanted: list[LLVMValue],
    ) -> list[LLVMValue]:
        """How many elements of the sequence stand before each wanted value."""
        zeros = [f.constant(0)] * len(wanted)
        with f.if_(size > 0) as some:
            with f.while_([size, *zeros]) as loop:
                length, *bases = loop.carried
                half = length >> 1
                probes = [f.maximum(b + half - 1, 0) for b in bases]
                steps = [
                    f.convert("sext", self._before(f, row, step, p, w), I64) & half
                    for row, p, w in zip(rows, probes, wanted, strict=True)
                ]
                rest = length - half
                loop.again(rest > 1, rest, *(b + s for b, s in zip(bases, steps, strict=True)))
            _, *bases = loop.results
            ends = [
                b + f.convert("zext", self._before(f, row, step, b, w), I64)
                for row, b, w in zip(rows, bases, wanted, strict=True)
            ]
            some.give(*ends)
        with some.else_():
            some.give(*zeros)
        return some.results

    def _before(
        self,
        f: LLVMFunction,
        sequence: LLVMValue,
        step: LLVMValue,
        at: LLVMValue,
        wanted: LLVMValue,
    ) -> LLVMValue:
        """Whether the element at a place of the sequence stands before the wanted value."""
        have = self._load(f, f.at(sequence, at * step))
        if not self.form.right:
            return self._less(f, have, wanted)
        return self._less(f, wanted, have) ^ f.constant(True, I1)

    def _less(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """nan comes after every number."""
        if self.dtype.category != dt.FLOAT:
            return f.compare("lt" if self.dtype.is_signed else "ult", a, b)
        return f.compare("lt", a, b) | (f.compare("uno", b, b) & f.compare("ord", a, a))
