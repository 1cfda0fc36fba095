"""Attention of a single query, as when a model writes one word after the other.

There is nothing to reuse: keys and values are read once, where they lie, a head in each task.

    scores = keys @ query * scale + mask         a key at a time, lanes along the columns
    weights = 2**(scores - top);  result = weights @ values / sum

Keys and values are rows: their last dimension is contiguous.

A "mask" of 64-bit integers is no mask: it says for each batch row which key is the last that is
seen (a buffer that is filled so far), and those behind are not read.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention.forward import NUMBERS, words, write_entry
from lucerne._src.backends.cpu.attention.micro import LANES, LOG2_E, VECTOR, exp2, larger
from lucerne._src.backends.cpu.attention.plan import AttentionArguments, AttentionStructure, single
from lucerne._src.backends.cpu.attention.rows import (
    load_part,
    mask_rows,
    narrowed,
    widened,
    write_mask_rows,
)
from lucerne._src.backends.cpu.emit.builder import F32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import int_of

AT_ONCE = 4
"""Vectors of a row that are multiplied together."""
KEYS_AT_ONCE = 4
_COLUMNS = AT_ONCE * LANES
_MINUS_INF = float("-inf")

__all__ = ["NUMBERS", "row_floats", "scratch_bytes", "write"]


def row_floats(keys: int) -> int:
    """Floats of a row of scores, with room for a whole vector at the end."""
    return -(-keys // LANES) * LANES


def scratch_bytes(keys: int, width: int) -> int:
    """Of a thread: scores, what the mask adds, the query; each from a cache line on."""
    wide = -(-width // _COLUMNS) * _COLUMNS
    return -(-(2 * row_floats(keys) + wide) * 4 // 64) * 64


def write(m: Module, s: AttentionStructure) -> None:
    """`i64 attend(ptr block)`."""
    if s.mask is not None and _is_masked(s):
        write_mask_rows(m, s.mask, 0)
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        _Task(f, s).write()
    write_entry(m, words(s.mask is not None))


def _is_masked(s: AttentionStructure) -> bool:
    return s.mask is not None and s.mask is not I64


class _Task:
    """Writes the function of one head."""

    def __init__(self, f: LLVMFunction, s: AttentionStructure) -> None:
        self.f, self.s = f, s
        block, chunk, tid = f.args
        self.a = a = AttentionArguments(f, block, words(s.mask is not None))
        b, h = chunk // a.heads, chunk % a.heads
        shared = h // a.sharing
        self.seen = a.keys
        if s.mask is I64:
            last = f.load(I64, f.at(a.mask, b * a.m_b))
            self.seen = f.minimum(f.maximum(last + 1, 1), a.keys)
        self.room = f.ceil_div(self.seen, LANES) * LANES
        self.scores = f.at(a.workspace, tid * a.scratch)
        self.masks = f.at(self.scores, self.room, F32)
        self.query = f.at(self.masks, self.room, F32)
        self.query_from = f.at(a.query, b * a.q_b + h * a.q_h)
        self.keys = f.at(a.key, b * a.k_b + shared * a.k_h)
        self.values = f.at(a.value, b * a.v_b + shared * a.v_h)
        self.out = f.at(a.out, b * a.o_b + h * a.o_h)
        self.stats = f.at(a.stats, chunk * 2, F32)
        if _is_masked(s):
            self.mask_from = f.at(a.mask, b * a.m_b + h * a.m_h)

    def write(self) -> None:
        f, a = self.f, self.a
        self._take_query()
        self._fill_scores()
        top = self._largest()
        base = f.select(f.compare("oeq", top, _MINUS_INF), 0.0, top)
        total = self._weigh(base)
        inverse = f.constant(1.0, F32) / total
        if _is_masked(self.s):  # a query that sees nothing gets zeros
            inverse = f.select(f.compare("oeq", total, 0.0), 0.0, inverse)
        f.store(base, self.stats)
        f.store(inverse, f.at(self.stats, 1, F32))
        with f.loop(0, a.value_width, _COLUMNS) as loop:
            self._columns(loop.index, inverse)

    def _row(self, place: LLVMValue, column: LLVMValue, width: LLVMValue) -> list[LLVMValue]:
        """The vectors of a row from a column on, zeros beyond its width."""
        f, type = self.f, self.s.type
        found = []
        for v in range(AT_ONCE):
            mask = f.low_mask(width - column - v * LANES, LANES)
            at = f.at(place, column + v * LANES, type)
            found.append(widened(f, load_part(f, type, at, mask)))
        return found

    def _take_query(self) -> None:
        """The query as floats, scaled so that scores count in powers of two."""
        f, a = self.f, self.a
        factor = f.splat(single(f, a.scale * LOG2_E), LANES)
        with f.loop(0, a.width, _COLUMNS) as loop:
            for v, x in enumerate(self._row(self.query_from, loop.index, a.width)):
                f.store(x * factor, f.at(self.query, loop.index + v * LANES, F32))

    def _fill_scores(self) -> None:
        f, a = self.f, self.a
        last = f.at(self.scores, self.room - LANES, F32)
        f.store(f.constant(_MINUS_INF, VECTOR), last)
        with f.loop(0, self.seen, KEYS_AT_ONCE) as loop:
            # Beyond the last key the last one is taken again.
            numbers = [f.minimum(loop.index + i, self.seen - 1) for i in range(KEYS_AT_ONCE)]
            rows = [f.at(self.keys, n * a.k_t) for n in numbers]
            start = [f.zero(VECTOR)] * KEYS_AT_ONCE
            with f.loop(0, a.width, _COLUMNS, start, at_least_once=True) as along:
                query = [
                    f.load(VECTOR, f.at(self.query, along.index + v * LANES, F32))
                    for v in range(AT_ONCE)
                ]
                made = []
                for row, total in zip(rows, along.carried, strict=True):
                    for x, y in zip(self._row(row, along.index, a.width), query, strict=True):
                        total = f.mul_add(x, y, total)
                    made.append(total)
                along.next(*made)
            for n, total in zip(numbers, along.results, strict=True):
                f.store(f.fold("add", total), f.at(self.scores, n, F32))
        if _is_masked(self.s):
            mask_rows(f, self.masks, self.mask_from, 1, self.seen, a.m_t, a.m_d)
            with f.loop(0, self.seen, LANES) as loop:
                mask = f.low_mask(self.seen - loop.index, LANES)
                place = f.at(self.scores, loop.index, F32)
                more = f.masked_load(VECTOR, f.at(self.masks, loop.index, F32), mask)
                f.store(f.load(VECTOR, place) + more, place)

    def _largest(self) -> LLVMValue:
        f = self.f
        with f.loop(0, self.room, LANES, [f.constant(_MINUS_INF, VECTOR)]) as loop:
            found = f.load(VECTOR, f.at(self.scores, loop.index, F32))
            loop.next(larger(f, found, loop.carried[0]))
        top: LLVMValue = loop.results[0]
        lanes = LANES
        while lanes > 2:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            top = larger(f, f.shuffle(top, None, high), f.shuffle(top, None, low))
        return larger(f, f.extract(top, 1), f.extract(top, 0))

    def _weigh(self, base: LLVMValue) -> LLVMValue:
        """Scores become weights; their sum."""
        f = self.f
        many = f.splat(base, LANES)
        with f.loop(0, self.room, LANES, [f.zero(VECTOR)]) as loop:
            place = f.at(self.scores, loop.index, F32)
            weight = exp2(f, f.load(VECTOR, place) - many)
            f.store(weight, place)
            loop.next(loop.carried[0] + weight)
        return f.fold("add", loop.results[0])

    def _columns(self, column: LLVMValue, inverse: LLVMValue) -> None:
        """Some columns of the result: all values, weighted."""
        f, a, s = self.f, self.a, self.s
        with f.loop(0, self.seen, 1, [f.zero(VECTOR)] * AT_ONCE) as loop:
            weight = f.splat(f.load(F32, f.at(self.scores, loop.index, F32)), LANES)
            row = self._row(f.at(self.values, loop.index * a.v_t), column, a.value_width)
            made = zip(row, loop.carried, strict=True)
            loop.next(*[f.mul_add(weight, x, total) for x, total in made])
        many = f.splat(inverse, LANES)
        for v, total in enumerate(loop.results):
            mask = f.low_mask(a.value_width - column - v * LANES, LANES)
            bits = f.bitcast(narrowed(f, total * many, s.type), int_of(s.type).vector(LANES))
            f.masked_store(bits, f.at(self.out, column + v * LANES, s.type), mask)
