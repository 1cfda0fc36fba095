"""The first few of a row in order, without sorting the rest.

The best so far are kept as sorted records. A vector of elements is compared with the last of them;
almost always none is better, and the scan runs on at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne.backends.cpu.emit.builder import I64, PTR, Function, Module, Value
from lucerne.backends.cpu.emit.target import VECTOR_BYTES
from lucerne.backends.cpu.emit.types import INT, Type
from lucerne.backends.cpu.loops.index_rows import RowCode
from lucerne.backends.cpu.loops.sort_records import Records
from lucerne.backends.cpu.loops.sort_rows import Rows, insert_record, write_sort_row

FEW = 128
"""Up to so many are kept while scanning; for more the row is sorted."""


@dataclass(frozen=True)
class Top:
    """What changes the code. Records ascend from the best."""

    rank: int
    records: Records
    unit: bool
    few: bool

    @property
    def rows(self) -> Rows:
        return Rows(self.rank, self.records, self.unit)

    def scratch(self, n: int, k: int) -> int:
        return (k + 1) * self.records.size if self.few else self.rows.scratch(n)


class TopCode(RowCode):
    """Operands: positions, input. Extra words: bytes of scratch per thread, k, row stride of
    the positions; the last loop is the row that is searched."""

    def __init__(self, m: Module, name: str, form: Top, numbers: int, extra: int) -> None:
        super().__init__(m, name, form.rank, 2, numbers)
        self.form, self.extra = form, extra
        if not form.few:
            write_sort_row(m, form.rows)

    def rows(
        self, f: Function, block: Value, first: Value, last: Value, start: Value, stop: Value
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
                done = f.call("sort_row", PTR, [source, step, stop, scratch])
            with f.loop(0, k) as loop:
                at = r.position(f, r.place(f, done, loop.index))
                f.store(at, f.at(positions, loop.index * out_step))

    def _record_at(self, f: Function, source: Value, step: Value, j: Value) -> Value:
        r = self.form.records
        return r.record(f, r.key(f, f.load(r.raw, f.at(source, j * step))), j)

    def _select(
        self, f: Function, source: Value, step: Value, n: Value, k: Value, best: Value
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
                with f.if_(f.compare("ne", better, 0)), f.loop(0, lanes) as lane:
                    self._offer(f, source, step, loop.index + lane.index, k, best)
            start = whole
        with f.loop(start, n) as rest:
            self._offer(f, source, step, rest.index, k, best)

    def _limit(self, f: Function, best: Value, k: Value) -> Value:
        """The key that an element must stay below."""
        r = self.form.records
        word = f.load(I64, r.place(f, best, k - 1))
        if r.paired:
            return word
        return f.convert("trunc", f.bits("lshr", word, r.first_bit), r.raw)

    def _offer(
        self, f: Function, source: Value, step: Value, j: Value, k: Value, best: Value
    ) -> None:
        r = self.form.records
        record = self._record_at(f, source, step, j)
        last = f.load(I64, r.place(f, best, k - 1))
        with f.if_(f.compare("ult", r.key_word(f, record), last)):
            insert_record(f, r, best, k - 1, record)
