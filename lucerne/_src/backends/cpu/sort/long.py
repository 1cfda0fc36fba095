"""Sorting one long row by all threads: every pass of a radix sort is cut into chunks.

Each chunk counts its own digits; in the order of digits, and of chunks within a digit, the counts
become places. The chunks follow from the length alone, and a stable sort has one result anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.sort.passes import Digits
from lucerne._src.backends.cpu.sort.records import Records

LONG = 1 << 16
"""Rows from this size on are shared by all threads."""
MAX_CHUNKS = 16

# Words at the head of the workspace: what the tasks of a pass need to know.
_SOURCE, _VALUES, _POSITIONS, _HERE, _THERE, _SHIFT, _DIFFERING = range(7)
_HEAD = 8 * (_DIFFERING + MAX_CHUNKS + 1)


@dataclass(frozen=True)
class LongSort:
    """What changes the code."""

    records: Records
    unit: bool

    @property
    def digits(self) -> Digits:
        """Wide digits for wide keys: fewer passes over memory."""
        return Digits(self.records, 11 if self.records.bits >= 32 else 8)

    def scratch(self, n: int, chunks: int) -> int:
        return _HEAD + 64 + chunks * self.digits.counts_bytes + 2 * n * self.records.size


def chunks_of(n: int) -> int:
    return min(MAX_CHUNKS, -(-n // (LONG // 4)))


class SortLongCode:
    """Writes `void sort_long(ptr block, ptr source, ptr values, ptr positions)`.

    `numbers` is the first of these words of the block: n, chunks, elements of a chunk, byte strides
    of source, values and positions. The workspace is word 3.
    """

    def __init__(self, m: Module, form: LongSort, numbers: int) -> None:
        self.m, self.form, self.numbers = m, form, numbers

    def _number(self, f: LLVMFunction, block: LLVMValue, k: int) -> LLVMValue:
        return f.word(block, self.numbers + k)

    def _task(
        self, name: str, body: Callable[[LLVMFunction, LLVMValue, LLVMValue, LLVMValue], None]
    ) -> None:
        """A task gets the block, the head of the workspace and its own counts."""
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function(name, params, internal=True) as f:
            block, chunk, _ = f.args
            head = f.word(block, 3, PTR)
            counts = f.at(head, chunk * self.form.digits.counts_bytes + _HEAD)
            body(f, block, head, counts)

    def _range(self, f: LLVMFunction, block: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        each = self._number(f, block, 2)
        start = f.args[1] * each
        return start, f.minimum(start + each, self._number(f, block, 0))

    def write(self) -> None:
        self._task("long_encode", self._encode)
        self._task("long_count", self._count)
        self._task("long_move", self._move)
        self._task("long_decode", self._decode)
        params = [("block", PTR), ("source", PTR), ("values", PTR), ("positions", PTR)]
        with self.m.function("sort_long", params, internal=True) as f:
            block = f.args[0]
            head = f.word(block, 3, PTR)
            n, chunks = self._number(f, block, 0), self._number(f, block, 1)
            for k, v in enumerate(f.args[1:]):
                f.store(v, f.at(head, 8 * k), 8)
            after = f.at(head, chunks * self.form.digits.counts_bytes + (_HEAD + 63 & -64))
            size = n * self.form.records.size
            self._remember(f, head, after, f.at(after, size), f.constant(0))
            self._run(f, block, "long_encode")
            differing = self._differing(f, head, chunks)
            self._passes(f, block, head, chunks, differing)
            self._run(f, block, "long_decode")

    def _run(self, f: LLVMFunction, block: LLVMValue, task: str) -> None:
        f.call("lucerne_pfor", VOID, [f.symbol(task), block, self._number(f, block, 1)])

    @staticmethod
    def _remember(
        f: LLVMFunction, head: LLVMValue, here: LLVMValue, there: LLVMValue, shift: LLVMValue
    ) -> None:
        f.store(here, f.at(head, 8 * _HERE), 8)
        f.store(there, f.at(head, 8 * _THERE), 8)
        f.store(shift, f.at(head, 8 * _SHIFT), 8)

    @staticmethod
    def _differing(f: LLVMFunction, head: LLVMValue, chunks: LLVMValue) -> LLVMValue:
        with f.loop(0, chunks, carry=[f.constant(0)]) as loop:
            mine = f.load(I64, f.at(f.at(head, 8 * _DIFFERING), loop.index, I64))
            loop.next(loop.carried[0] | mine)
        return loop.results[0]

    def _passes(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        head: LLVMValue,
        chunks: LLVMValue,
        differing: LLVMValue,
    ) -> None:
        digits = self.form.digits
        first = f.constant(digits.first)
        here, there = f.word(head, _HERE, PTR), f.word(head, _THERE, PTR)
        with f.while_([first, here, there]) as loop:
            shift, here, there = loop.carried
            with f.if_(digits.differs(f, differing, shift)) as varied:
                self._remember(f, head, here, there, shift)
                self._run(f, block, "long_count")
                self._places(f, f.at(head, _HEAD), chunks)
                self._run(f, block, "long_move")
                varied.give(there, here)
            with varied.else_():
                varied.give(here, there)
            following = shift + digits.bits
            loop.again(following < digits.end, following, *varied.results)
        _, here, there = loop.results
        self._remember(f, head, here, there, f.constant(0))

    def _places(self, f: LLVMFunction, counts: LLVMValue, chunks: LLVMValue) -> None:
        """Counts become places, digit by digit and within a digit chunk by chunk."""
        digits = self.form.digits
        with f.loop(0, digits.values, carry=[f.constant(0, I32)]) as digit:
            column = f.at(counts, digit.index, I32)
            with f.loop(0, chunks, carry=digit.carried) as loop:
                place = f.at(column, loop.index * digits.counts_bytes)
                here = f.load(I32, place)
                f.store(loop.carried[0], place)
                loop.next(loop.carried[0] + here)
            digit.next(loop.results[0])

    # ---- tasks -------------------------------------------------------------------------------

    def _encode(
        self, f: LLVMFunction, block: LLVMValue, head: LLVMValue, counts: LLVMValue
    ) -> None:
        start, stop = self._range(f, block)
        differing = self.form.records.encode(
            f, f.word(head, _SOURCE, PTR), self._number(f, block, 3), self.form.unit,
            start, stop, f.word(head, _HERE, PTR),
        )  # fmt: skip
        f.store(differing, f.at(f.at(head, 8 * _DIFFERING), f.args[1], I64))

    def _count(self, f: LLVMFunction, block: LLVMValue, head: LLVMValue, counts: LLVMValue) -> None:
        digits = self.form.digits
        start, stop = self._range(f, block)
        digits.clear(f, counts)
        digits.count(f, counts, f.word(head, _HERE, PTR), start, stop, f.word(head, _SHIFT))

    def _move(self, f: LLVMFunction, block: LLVMValue, head: LLVMValue, counts: LLVMValue) -> None:
        start, stop = self._range(f, block)
        self.form.digits.move(
            f, counts, f.word(head, _HERE, PTR), f.word(head, _THERE, PTR), start, stop,
            f.word(head, _SHIFT),
        )  # fmt: skip

    def _decode(
        self, f: LLVMFunction, block: LLVMValue, head: LLVMValue, counts: LLVMValue
    ) -> None:
        start, stop = self._range(f, block)
        source, values, positions = (self._number(f, block, k) for k in (3, 4, 5))
        self.form.records.decode(
            f, f.word(head, _HERE, PTR), f.word(head, _SOURCE, PTR), (source, values, positions),
            start, stop, (f.word(head, _VALUES, PTR), f.word(head, _POSITIONS, PTR)),
        )  # fmt: skip
