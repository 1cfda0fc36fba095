"""The steps of a radix sort: count digits, turn counts into places, move records.

Least significant digit first: each pass is stable, so after the last one records are in order.
Counts are 32-bit words, one for each value of a digit.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I32, I64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.sort.records import Records


@dataclass(frozen=True)
class Digits:
    """The cut of keys into digits of `bits` bits."""

    records: Records
    bits: int

    @property
    def values(self) -> int:
        return 1 << self.bits

    @property
    def counts_bytes(self) -> int:
        return 4 * self.values

    @property
    def first(self) -> int:
        return self.records.first_bit

    @property
    def end(self) -> int:
        return self.records.first_bit + self.records.bits

    def digit(self, f: LLVMFunction, word: LLVMValue, shift: LLVMValue) -> LLVMValue:
        return f.bits("lshr", word, shift) & (self.values - 1)

    def differs(self, f: LLVMFunction, differing: LLVMValue, shift: LLVMValue) -> LLVMValue:
        """Whether the digit at `shift` isn't the same in all records."""
        return f.compare("ne", self.digit(f, differing, shift), 0)

    def clear(self, f: LLVMFunction, counts: LLVMValue) -> None:
        lanes = 16
        zero = f.zero(I32.vector(lanes))
        with f.loop(0, self.values, lanes, at_least_once=True) as loop:
            f.store(zero, f.at(counts, loop.index, I32))

    def count(
        self,
        f: LLVMFunction,
        counts: LLVMValue,
        records: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
        shift: LLVMValue,
    ) -> None:
        with f.loop(start, stop) as loop:
            word = self.records.word(f, self.records.place(f, records, loop.index))
            place = f.at(counts, self.digit(f, word, shift), I32)
            f.store(f.load(I32, place) + 1, place)

    def places(self, f: LLVMFunction, counts: LLVMValue) -> None:
        """Each count becomes the sum of those before it."""
        with f.loop(0, self.values, carry=[f.constant(0, I32)], at_least_once=True) as loop:
            place = f.at(counts, loop.index, I32)
            here = f.load(I32, place)
            f.store(loop.carried[0], place)
            loop.next(loop.carried[0] + here)

    def move(
        self,
        f: LLVMFunction,
        counts: LLVMValue,
        source: LLVMValue,
        target: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
        shift: LLVMValue,
    ) -> None:
        """Records [start, stop) of `source` to the places their digits have in `target`."""
        r = self.records

        def one(k: LLVMValue) -> None:
            place = r.place(f, source, k)
            record = r.load(f, place)
            word = r.key_word(f, record)
            count = f.at(counts, self.digit(f, word, shift), I32)
            to = f.load(I32, count)
            f.store(to + 1, count)
            r.store(f, record, r.place(f, target, f.convert("zext", to, I64)))

        whole = start + ((stop - start) & -2)
        with f.loop(start, whole, 2) as loop:
            one(loop.index)
            one(loop.index + 1)
        with f.loop(whole, stop) as rest:
            one(rest.index)
