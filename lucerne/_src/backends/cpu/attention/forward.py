"""The forward pass: softmax(query @ key.T * scale + mask) @ value without ever holding the scores.

A task is a group of query tiles of one head. It copies the head's keys and values to scratch, then
takes tile after tile of WIDTH queries through all keys, a block at a time:

    scores[key][query] = keys @ query.T          products of ROWS keys, kept as powers of two
    top   = max(top, scores)                     lane by lane
    sums, result = both * 2**(old top - top)
    scores = 2**(scores - top);  sums += scores;  result[column][query] += values.T @ scores

With `causal`, keys after the last query of a tile are never touched.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention.micro import (
    LANES,
    LINE,
    LOG2_E,
    ROWS,
    VECTOR,
    VECTORS,
    WIDTH,
    AttentionStep,
    exp2,
    larger,
    load_tile,
    product,
    store_tile,
    tree,
    turn,
    zeros,
)
from lucerne._src.backends.cpu.attention.plan import (
    KEYS_AT_ONCE,
    MASK_STEP,
    AttentionArguments,
    AttentionScratch,
    AttentionStructure,
    AttentionWords,
    single,
    steps,
)
from lucerne._src.backends.cpu.attention.rows import deliver, fetch, mask_rows, write_row_code
from lucerne._src.backends.cpu.emit.builder import F32, I32, I64, PTR, VOID, LLVMValue, Module

_MINUS_INF = float("-inf")

State = tuple[list[LLVMValue], list[LLVMValue]]
"""For each query the largest score so far and the sum of weights, as vectors."""
Change = tuple[list[LLVMValue], list[LLVMValue], list[LLVMValue]]
NUMBERS = (
    "scale", "heads", "sharing", "queries", "keys", "width", "value_width", "columns", "parts",
    "part", "tasks", "scratch", *steps("q", "bhtd"), *steps("k", "bhtd"), *steps("v", "bhtd"),
    *steps("o", "bht"), *steps("m", "bhtd"),
)  # fmt: skip
"""`sharing`: query heads per key head; `columns`: groups of columns of the values; `parts`: tasks
per head, of `part` queries each. Strides in bytes."""


def words(masked: bool) -> AttentionWords:
    inputs = ["out", "stats", "query", "key", "value", *(["mask"] if masked else [])]
    return AttentionWords(inputs, NUMBERS)


def scratch(s: AttentionStructure) -> AttentionScratch:
    """The parts of fixed size; keys and values follow."""
    made = AttentionScratch()
    made.add("rows", WIDTH * s.row_bytes)
    made.add("query", s.row_floats * LINE)
    made.add("result", s.row_floats * LINE)
    made.add("scores", KEYS_AT_ONCE * LINE)
    if s.mask is not None:
        made.add("mask_rows", WIDTH * MASK_STEP)
        made.add("mask", MASK_STEP // 4 * LINE)
    return made


def scratch_bytes(s: AttentionStructure, keys: int) -> int:
    whole = -(-keys // ROWS) * ROWS
    return scratch(s).size + 2 * whole * s.row_bytes


def write(m: Module, s: AttentionStructure) -> None:
    """`i64 attend(ptr block)`."""
    write_row_code(m, s, MASK_STEP)
    _VectorTask(m, s, words(s.mask is not None), scratch(s)).write()
    write_entry(m, words(s.mask is not None))


def write_entry(m: Module, words: AttentionWords, name: str = "attend") -> None:
    with m.function(name, [("block", PTR)], I64) as f:
        count = words.read(f, f.args[0], "tasks")
        f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], count])
        f.ret(0)


class Task:
    """Writes the function of one task: some tiles of the queries of one head.

    What is common to all ways to multiply is here; `tiled` has another way.
    """

    keys_at_once: int
    mask_step = MASK_STEP
    query: LLVMValue
    result: LLVMValue
    keys: LLVMValue
    values: LLVMValue

    def __init__(
        self, m: Module, s: AttentionStructure, words: AttentionWords, layout: AttentionScratch
    ) -> None:
        self.m, self.s, self.words, self.layout = m, s, words, layout
        self.row_bytes = s.row_bytes

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self.f = f
            block, chunk, tid = f.args
            self.a = a = AttentionArguments(f, block, self.words)
            self.base = f.at(a.workspace, tid * a.scratch)
            pair, part = chunk // a.parts, chunk % a.parts
            self._locate(pair // a.heads, pair % a.heads)
            # The last part of a causal head is the longest: it goes first.
            start = (a.parts - 1 - part) * a.part
            stop = f.minimum(start + a.part, a.queries)
            self._copy_keys(f.minimum(stop, a.keys) if self.s.causal else a.keys)
            with f.loop(start, stop, WIDTH) as tile:
                self._tile(tile.index)
            self._end()

    def _end(self) -> None:
        """Whatever must be done when all tiles are."""

    def _part(self, name: str) -> LLVMValue:
        return self.layout.place(self.f, self.base, name)

    def _locate(self, b: LLVMValue, h: LLVMValue) -> None:
        """Pointers of this head."""
        f, a = self.f, self.a
        shared = h // a.sharing
        self.query_from = f.at(a.query, b * a.q_b + h * a.q_h)
        self.key_from = f.at(a.key, b * a.k_b + shared * a.k_h)
        self.value_from = f.at(a.value, b * a.v_b + shared * a.v_h)
        self.out = f.at(a.out, b * a.o_b + h * a.o_h)
        self.stats = f.at(a.stats, (b * a.heads + h) * a.queries * 2, F32)
        if self.s.mask is not None:
            self.mask = f.at(a.mask, b * a.m_b + h * a.m_h)
        self.factor = single(f, a.scale * LOG2_E)

    def _copy_keys(self, count: LLVMValue) -> None:
        raise NotImplementedError

    def _take_query(self, q0: LLVMValue, valid: LLVMValue) -> None:
        """Bring WIDTH queries into the form of the right operand; clear the result."""
        raise NotImplementedError

    def _block(
        self, q0: LLVMValue, k0: LLVMValue, count: LLVMValue, limits: list[LLVMValue], state: State
    ) -> State:
        """A block of keys: the new (largest scores, sums)."""
        raise NotImplementedError

    def _tile(self, q0: LLVMValue) -> None:
        """WIDTH queries through all their keys."""
        f, a = self.f, self.a
        valid = f.minimum(a.queries - q0, WIDTH)
        self._take_query(q0, valid)
        end = f.minimum(q0 + valid, a.keys) if self.s.causal else a.keys
        limits = self._limits(q0)
        start = [f.constant(_MINUS_INF, VECTOR)] * VECTORS + [f.zero(VECTOR)] * VECTORS
        with f.loop(0, end, self.keys_at_once, start, at_least_once=True) as block:
            k0 = block.index
            count = f.minimum(end - k0, self.keys_at_once)
            if self.s.mask is not None:
                self._copy_mask(q0, k0, valid, count)
            state = block.carried[:VECTORS], block.carried[VECTORS:]
            top, sums = self._block(q0, k0, count, limits, state)
            block.next(*top, *sums)
        self._finish(q0, valid, block.results[:VECTORS], block.results[VECTORS:])

    def _limits(self, q0: LLVMValue) -> list[LLVMValue]:
        """The last key each query may see, as vectors of numbers."""
        f, whole = self.f, I32.vector(LANES)
        last = f.splat(f.convert("trunc", self.a.keys - 1, I32), LANES)
        if not self.s.causal:
            return [last] * VECTORS
        first = f.splat(f.convert("trunc", q0, I32), LANES)
        own = [first + f.lanes(whole) + v * LANES for v in range(VECTORS)]
        return [f.minimum(x, last) for x in own]

    def _copy_mask(self, q0: LLVMValue, k0: LLVMValue, valid: LLVMValue, count: LLVMValue) -> None:
        f, a = self.f, self.a
        rows, place = self._part("mask_rows"), f.at(self.mask, q0 * a.m_t + k0 * a.m_d)
        mask_rows(f, rows, place, valid, count, a.m_t, a.m_d)
        turn(f, self._part("mask"), LINE, rows, self.mask_step, WIDTH, count)

    def _new_base(self, top: list[LLVMValue], highest: list[LLVMValue]) -> Change:
        """The new largest scores, what to subtract from scores, what to multiply old sums with."""
        f = self.f
        new = [larger(f, a, b) for a, b in zip(top, highest, strict=True)]
        # Where everything is hidden so far the top is minus infinity: any finite number will do.
        base = [f.select(f.compare("oeq", x, _MINUS_INF), 0.0, x) for x in new]
        return new, base, [exp2(f, a - b) for a, b in zip(top, base, strict=True)]

    def _multiply_line(self, line: LLVMValue, factors: list[LLVMValue]) -> None:
        found = load_tile(self.f, line, LINE, 1)[0]
        store_tile(self.f, [[x * y for x, y in zip(found, factors, strict=True)]], line, LINE)

    def _finish(
        self, q0: LLVMValue, valid: LLVMValue, top: list[LLVMValue], sums: list[LLVMValue]
    ) -> None:
        """Divide by the sums, turn to rows, write; keep top and inverse sum for backward."""
        f, a = self.f, self.a
        inverse = [f.constant(1.0, VECTOR) / x for x in sums]
        if self.s.mask is not None:  # a query that sees nothing gets zeros
            inverse = [
                f.select(f.compare("oeq", x, 0.0), 0.0, y)
                for x, y in zip(sums, inverse, strict=True)
            ]
        with f.loop(0, a.value_width) as loop:
            self._multiply_line(f.at(self.result, loop.index * LINE), inverse)
        rows = self._part("rows")
        turn(f, rows, self.row_bytes, self.result, LINE, a.value_width, WIDTH)
        place = f.at(self.out, q0 * a.o_t)
        deliver(f, place, rows, valid, a.value_width, a.o_t, f.constant(1.0, F32))
        base = [f.select(f.compare("oeq", x, _MINUS_INF), 0.0, x) for x in top]
        for v in range(VECTORS):
            mask = f.low_mask(valid - v * LANES, LANES)
            at = f.at(self.stats, q0 + v * LANES, F32)
            f.masked_store(base[v], at, mask)
            f.masked_store(inverse[v], f.at(at, a.queries, F32), mask)


class _VectorTask(Task):
    """Products by vector registers, on float32 copies."""

    keys_at_once = KEYS_AT_ONCE

    def _copy_keys(self, count: LLVMValue) -> None:
        f, a = self.f, self.a
        whole = f.ceil_div(count, ROWS) * ROWS
        self.query, self.result = self._part("query"), self._part("result")
        self.keys = f.at(self.base, self.layout.size)
        self.values = f.at(self.keys, whole * self.row_bytes)
        one = f.constant(1.0, F32)
        fetch(f, self.keys, self.key_from, count, whole, a.width, a.k_t, a.k_d, one)
        fetch(f, self.values, self.value_from, count, whole, a.value_width, a.v_t, a.v_d, one)

    def _take_query(self, q0: LLVMValue, valid: LLVMValue) -> None:
        f, a = self.f, self.a
        rows, place = self._part("rows"), f.at(self.query_from, q0 * a.q_t)
        fetch(f, rows, place, valid, WIDTH, a.width, a.q_t, a.q_d, self.factor)
        turn(f, self.query, LINE, rows, self.row_bytes, WIDTH, a.width)
        f.fill_bytes(self.result, 0, a.columns * (self.s.group * LINE))

    def _block(
        self, q0: LLVMValue, k0: LLVMValue, count: LLVMValue, limits: list[LLVMValue], state: State
    ) -> State:
        top, sums = state
        return self._accumulate(k0, count, top, sums, self._scores(q0, k0, count, limits))

    def _scores(
        self, q0: LLVMValue, k0: LLVMValue, count: LLVMValue, limits: list[LLVMValue]
    ) -> list[LLVMValue]:
        """Fill the block of scores; the largest of each query."""
        f, a, s = self.f, self.a, self.s
        query, scores = self.query, self._part("scores")
        step = AttentionStep(s.row_bytes, 4, LINE)
        least = f.minimum(q0, a.keys - 1) if s.causal else a.keys - 1
        with f.loop(0, count, ROWS, [f.constant(_MINUS_INF, VECTOR)] * VECTORS) as panel:
            key = k0 + panel.index
            place = f.at(scores, panel.index * LINE)
            found = product(
                f, f.at(self.keys, key * s.row_bytes), query, a.width, step, zeros(f, ROWS)
            )
            store_tile(f, found, place, LINE)
            if s.mask is not None:
                panel.next(*self._hidden(place, key, panel.index, limits, panel.carried))
            else:
                with f.if_(key + (ROWS - 1) > least) as edge:
                    edge.give(*self._hidden(place, key, panel.index, limits, panel.carried))
                with edge.else_():
                    columns = zip(panel.carried, *found, strict=True)
                    edge.give(*[tree(f, column) for column in columns])
                panel.next(*edge.results)
        return panel.results

    def _hidden(
        self,
        place: LLVMValue,
        key: LLVMValue,
        row: LLVMValue,
        limits: list[LLVMValue],
        top: list[LLVMValue],
    ) -> list[LLVMValue]:
        """Add the mask, hide keys beyond the limits; the largest so far."""
        f = self.f
        masks = self._part("mask") if self.s.mask is not None else None
        with f.loop(0, ROWS, 1, top, at_least_once=True) as loop:
            line = f.at(place, loop.index * LINE)
            number = f.splat(f.convert("trunc", key + loop.index, I32), LANES)
            made = []
            for v in range(VECTORS):
                score = f.load(VECTOR, f.at(line, v * VECTOR.nbytes))
                if masks is not None:
                    at = f.at(masks, (row + loop.index) * LINE + v * VECTOR.nbytes)
                    score = score + f.load(VECTOR, at)
                score = f.select(number <= limits[v], score, _MINUS_INF)
                f.store(score, f.at(line, v * VECTOR.nbytes))
                made.append(larger(f, loop.carried[v], score))
            loop.next(*made)
        return loop.results

    def _accumulate(
        self,
        k0: LLVMValue,
        count: LLVMValue,
        top: list[LLVMValue],
        sums: list[LLVMValue],
        highest: list[LLVMValue],
    ) -> State:
        """Weights of a block from its scores, their sums, and the weighted values."""
        f, s = self.f, self.s
        new, base, shrink = self._new_base(top, highest)
        scores = self._part("scores")
        scaled = [x * y for x, y in zip(sums, shrink, strict=True)]
        with f.loop(0, f.ceil_div(count, ROWS) * ROWS, 2, scaled) as loop:
            sums = loop.carried
            for r in range(2):
                line = f.at(scores, (loop.index + r) * LINE)
                weights = [
                    exp2(f, x - b)
                    for x, b in zip(load_tile(f, line, LINE, 1)[0], base, strict=True)
                ]
                store_tile(f, [weights], line, LINE)
                sums = [x + w for x, w in zip(sums, weights, strict=True)]
            loop.next(*sums)
        values = f.at(self.values, k0 * s.row_bytes)
        with f.loop(0, self.a.columns) as group:
            place = f.at(self.result, group.index * (s.group * LINE))
            before = load_tile(f, place, LINE, s.group)
            start = [[x * y for x, y in zip(row, shrink, strict=True)] for row in before]
            left = f.at(values, group.index * (s.group * 4))
            step = AttentionStep(4, s.row_bytes, LINE)
            store_tile(f, product(f, left, scores, count, step, start), place, LINE)
        return new, loop.results
