"""The first few of a row in order, without sorting the rest.

Very few: the best so far are kept as sorted records. A vector of elements is compared with the last
of them; almost always none is better, and the scan runs on at the speed of memory.

More: counting the leading bits of all keys tells up to which of them the wanted records reach. Only
these are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    I1,
    I32,
    I64,
    PTR,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import INT, Type
from lucerne._src.backends.cpu.index.rows import RowCode
from lucerne._src.backends.cpu.sort.passes import Digits
from lucerne._src.backends.cpu.sort.records import Records
from lucerne._src.backends.cpu.sort.rows import insert_record, write_sort_records

FEW = 40
"""Up to so many are kept while scanning."""


@dataclass(frozen=True)
class Top:
    """What changes the code. Records ascend from the best."""

    rank: int
    records: Records
    unit: bool
    few: bool

    @property
    def lead(self) -> Digits:
        """The leading bits of a key as one digit."""
        return Digits(self.records, min(11, self.records.bits))

    def scratch(self, n: int, k: int) -> int:
        size = self.records.size
        return (k + 1) * size if self.few else 2 * n * size + self.lead.counts_bytes


class TopCode(RowCode):
    """Operands: positions, input. Extra words: bytes of scratch per thread, k, row stride of
    the positions; the last loop is the row that is searched."""

    def __init__(self, m: Module, name: str, form: Top, numbers: int, extra: int) -> None:
        super().__init__(m, name, form.rank, 2, numbers)
        self.form, self.extra = form, extra
        if not form.few:
            write_sort_records(m, form.records)
            _write_top_row(m, form)

    def rows(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        first: LLVMValue,
        last: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        r = self.form.records
        bases = [f.word(block, w, PTR) for w in (0, 1)]
        each, k, out_step = (f.word(block, self.extra + i) for i in range(3))
        scratch = f.at(f.word(block, 2, PTR), f.args[2] * each)
        dims = self.loops(f, block)
        step = dims[-1][1][1]
        with f.loop(first, last) as row:
            offsets = self.offsets(f, row.index, dims[:-1], 2)
            positions, source = map(f.at, bases, offsets)
            if self.form.few:
                self._select(f, source, step, stop, k, scratch)
                done = scratch
            else:
                done = f.call("top_row", PTR, [source, step, stop, k, scratch])
            with f.loop(0, k) as loop:
                at = r.position(f, r.place(f, done, loop.index))
                f.store(at, f.at(positions, loop.index * out_step))

    def _record_at(
        self, f: LLVMFunction, source: LLVMValue, step: LLVMValue, j: LLVMValue
    ) -> LLVMValue:
        r = self.form.records
        return r.record(f, r.key(f, f.load(r.raw, f.at(source, j * step))), j)

    def _select(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        step: LLVMValue,
        n: LLVMValue,
        k: LLVMValue,
        best: LLVMValue,
    ) -> None:
        r = self.form.records
        r.store(f, self._record_at(f, source, step, f.constant(0)), best)
        with f.loop(1, k) as loop:
            insert_record(f, r, best, loop.index, self._record_at(f, source, step, loop.index))
        start = k
        if self.form.unit:
            lanes = VECTOR_BYTES // r.raw.size
            whole = k + ((n - k) // lanes) * lanes
            with f.loop(k, whole, lanes) as loop:
                keys = r.key(f, f.load(r.raw.vector(lanes), f.at(source, loop.index, r.raw)))
                limit = f.splat(self._limit(f, best, k), lanes)
                better = f.bitcast(f.compare("ult", keys, limit), Type(f"i{lanes}", INT, lanes))
                hits = better if lanes == 64 else f.convert("zext", better, I64)
                self._offer_lanes(
                    f, source, step, loop.index, LLVMValue(f, I64, hits.text), k, best
                )
            start = whole
        with f.loop(start, n) as rest:
            self._offer(f, source, step, rest.index, k, best)

    def _offer_lanes(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        step: LLVMValue,
        first: LLVMValue,
        hits: LLVMValue,
        k: LLVMValue,
        best: LLVMValue,
    ) -> None:
        """The elements whose bits are set, in order."""
        with f.if_(f.compare("ne", hits, 0)), f.while_([hits]) as loop:
            (left,) = loop.carried
            lane = f.call("llvm.cttz.i64", I64, [left, f.constant(True, I1)])
            self._offer(f, source, step, first + lane, k, best)
            rest = left & (left - 1)
            loop.again(f.compare("ne", rest, 0), rest)

    def _limit(self, f: LLVMFunction, best: LLVMValue, k: LLVMValue) -> LLVMValue:
        """The key that an element must stay below."""
        r = self.form.records
        word = f.load(I64, r.place(f, best, k - 1))
        if r.paired:
            return word
        return f.convert("trunc", f.bits("lshr", word, r.first_bit), r.raw)

    def _offer(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        step: LLVMValue,
        j: LLVMValue,
        k: LLVMValue,
        best: LLVMValue,
    ) -> None:
        r = self.form.records
        record = self._record_at(f, source, step, j)
        last = f.load(I64, r.place(f, best, k - 1))
        with f.if_(f.compare("ult", r.key_word(f, record), last)):
            insert_record(f, r, best, k - 1, record)


def _write_top_row(m: Module, form: Top) -> None:
    """`ptr top_row(source, step, n, k, scratch)`: sorted records, of which the first k count."""
    r, lead = form.records, form.lead
    shift = lead.end - lead.bits
    params = [("source", PTR), ("step", I64), ("n", I64), ("k", I64), ("scratch", PTR)]
    with m.function("top_row", params, PTR, internal=True) as f:
        source, step, n, k, counts = f.args
        every = f.at(counts, lead.counts_bytes)
        chosen = f.at(every, n * r.size)
        differing = r.encode(f, source, step, form.unit, f.constant(0), n, every)
        lead.clear(f, counts)
        lead.count(f, counts, every, f.constant(0), n, f.constant(shift))
        with f.while_([f.constant(0), f.constant(0)]) as loop:
            digit, below = loop.carried
            reached = below + f.convert("zext", f.load(I32, f.at(counts, digit, I32)), I64)
            loop.again(reached < k, f.select(reached < k, digit + 1, digit), reached)
        last = loop.results[0]
        with f.loop(0, n, carry=[f.constant(0)]) as scan:
            record = r.load(f, r.place(f, every, scan.index))
            r.store(f, record, r.place(f, chosen, scan.carried[0]))
            digit = lead.digit(f, r.key_word(f, record), f.constant(shift))
            scan.next(scan.carried[0] + f.convert("zext", digit <= last, I64))
        f.ret(f.call("sort_records", PTR, [chosen, every, counts, scan.results[0], differing]))
