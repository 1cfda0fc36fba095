"""Sorting rows, each by one thread: few elements by insertion, more by radix."""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.index.rows import RowCode
from lucerne._src.backends.cpu.sort.passes import Digits
from lucerne._src.backends.cpu.sort.records import Records

INSERTED = 40
"""Rows up to this size are sorted by insertion."""


DIGIT_BITS = 8


@dataclass(frozen=True)
class Rows:
    """What changes the code of a sort along one dimension."""

    rank: int
    records: Records
    unit: bool

    @property
    def digits(self) -> Digits:
        return Digits(self.records, DIGIT_BITS)

    def scratch(self, n: int) -> int:
        """Bytes a thread needs for rows of `n` elements."""
        return 2 * n * self.records.size + self.digits.counts_bytes


def insert_records(f: LLVMFunction, r: Records, records: LLVMValue, n: LLVMValue) -> None:
    """Sort records in place, one after another into those before it."""
    with f.loop(1, n) as loop:
        insert_record(f, r, records, loop.index, r.load(f, r.place(f, records, loop.index)))


def insert_record(
    f: LLVMFunction, r: Records, records: LLVMValue, end: LLVMValue, x: LLVMValue
) -> None:
    """Put `x` where it belongs among the sorted records [0, end), moving up those above it."""
    word = r.key_word(f, x)
    last = f.load(I64, r.place(f, records, f.maximum(end - 1, 0)))
    with f.if_((end > 0) & f.compare("ugt", last, word)) as some:
        with f.while_([end]) as loop:
            (j,) = loop.carried
            before = j - 1
            r.store(f, r.load(f, r.place(f, records, before)), r.place(f, records, j))
            above = f.load(I64, r.place(f, records, f.maximum(before - 1, 0)))
            loop.again((before > 0) & f.compare("ugt", above, word), before)
        some.give(loop.results[0])
    with some.else_():
        some.give(end)
    r.store(f, x, r.place(f, records, some.results[0]))


def write_sort_records(m: Module, r: Records) -> None:
    """`ptr sort_records(here, there, counts, n, differing)`: sorted, in one of the two places.

    `differing` has the bits set in which keys differ (more do no harm).
    """
    digits = Digits(r, DIGIT_BITS)
    params = [("here", PTR), ("there", PTR), ("counts", PTR), ("n", I64), ("differing", I64)]
    with m.function("sort_records", params, PTR, internal=True) as f:
        first, second, counts, n, differing = f.args
        with f.if_(n <= INSERTED):
            insert_records(f, r, first, n)
            f.ret(first)
        with f.while_([f.constant(digits.first), first, second]) as loop:
            shift, here, there = loop.carried
            with f.if_(digits.differs(f, differing, shift)) as varied:
                digits.clear(f, counts)
                digits.count(f, counts, here, f.constant(0), n, shift)
                digits.places(f, counts)
                digits.move(f, counts, here, there, f.constant(0), n, shift)
                varied.give(there, here)
            with varied.else_():
                varied.give(here, there)
            following = shift + digits.bits
            loop.again(following < digits.end, following, *varied.results)
        f.ret(loop.results[1])


def write_sort_row(m: Module, form: Rows) -> None:
    """`ptr sort_row(source, step, n, scratch)`: the row's records in order, in the scratch."""
    r = form.records
    write_sort_records(m, r)
    params = [("source", PTR), ("step", I64), ("n", I64), ("scratch", PTR)]
    with m.function("sort_row", params, PTR, internal=True) as f:
        source, step, n, counts = f.args
        first = f.at(counts, form.digits.counts_bytes)
        second = f.at(first, n * r.size)
        differing = r.encode(f, source, step, form.unit, f.constant(0), n, first)
        f.ret(f.call("sort_records", PTR, [first, second, counts, n, differing]))


class SortRowsCode(RowCode):
    """Operands: values, positions, input; the last loop is the row that is sorted."""

    def __init__(self, m: Module, name: str, form: Rows, numbers: int, scratch: int) -> None:
        """`scratch`: the word that tells how many bytes each thread has in the workspace."""
        super().__init__(m, name, form.rank, 3, numbers)
        self.form, self.scratch = form, scratch
        write_sort_row(m, form)

    def rows(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        first: LLVMValue,
        last: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        tid = f.args[2]
        bases = [f.word(block, w, PTR) for w in range(3)]
        scratch = f.at(f.word(block, 3, PTR), tid * f.word(block, self.scratch))
        dims = self.loops(f, block)
        steps = dims[-1][1]
        with f.loop(first, last) as row:
            offsets = self.offsets(f, row.index, dims[:-1], 3)
            values, positions, source = (f.at(b, o) for b, o in zip(bases, offsets, strict=True))
            done = f.call("sort_row", PTR, [source, steps[2], stop, scratch])
            self.form.records.decode(
                f, done, source, (steps[2], steps[0], steps[1]), start, stop, (values, positions)
            )
