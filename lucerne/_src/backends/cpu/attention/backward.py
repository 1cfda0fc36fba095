"""The backward pass: gradients of query, key and value from that of the result.

A task is one head of the keys, with all query heads it serves: it alone writes its gradients, in a
fixed order, so the result does not depend on the number of threads. Queries are taken in blocks of
QUERIES (several tiles), keys in blocks of KEYS_AT_ONCE; for each pair of blocks

    weights[key][query] = 2**(keys @ query.T - top) / sum           made again, never kept
    slopes[key][query]  = weights * (values @ grad.T - delta)       delta = sum of grad * out
    grad_query.T += keys.T @ slopes
    grad_key     += slopes @ query,     grad_value += weights @ grad
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention.forward import write_entry
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
    load_tile,
    product,
    store_tile,
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

TILES = 4
QUERIES = TILES * WIDTH
SCORE_STEP = QUERIES * 4 + 64
"""Bytes from key to key in a block of weights; not a power of two."""

NUMBERS = (
    "scale", "heads", "sharing", "queries", "keys", "width", "value_width", "columns", "tasks",
    "scratch", "key_room", *steps("q", "bhtd"), *steps("k", "bhtd"), *steps("v", "bhtd"),
    *steps("m", "bhtd"), *steps("g", "bhtd"), *steps("o", "bhtd"), *steps("dq", "bht"),
    *steps("dk", "bht"), *steps("dv", "bht"),
)  # fmt: skip
"""`columns`: groups of columns of the keys; `key_room`: bytes of all keys in scratch."""


def words(masked: bool) -> AttentionWords:
    pointers = ["grad_query", "grad_key", "grad_value", "query", "key", "value"]
    return AttentionWords(
        [*pointers, *(["mask"] if masked else []), "grad", "out", "stats"],
        NUMBERS,
    )


def scratch(s: AttentionStructure) -> AttentionScratch:
    """The parts of fixed size; keys, values and their gradients follow."""
    made = AttentionScratch()
    made.add("rows", WIDTH * s.row_bytes)
    for name in ("query_rows", "grad_rows"):
        made.add(name, QUERIES * s.row_bytes)
    for name in ("query", "grad", "result"):
        made.add(name, TILES * s.row_floats * LINE)
    for name in ("weights", "slopes"):
        made.add(name, KEYS_AT_ONCE * SCORE_STEP)
    made.add("stats", TILES * 3 * LINE)
    if s.mask is not None:
        made.add("mask_rows", WIDTH * MASK_STEP)
        made.add("mask", MASK_STEP // 4 * LINE)
    return made


def key_room(s: AttentionStructure, keys: int) -> int:
    return -(-keys // ROWS) * ROWS * s.row_bytes


def scratch_bytes(s: AttentionStructure, keys: int) -> int:
    return scratch(s).size + 4 * key_room(s, keys)


def write(m: Module, s: AttentionStructure) -> None:
    """`i64 attend_back(ptr block)`."""
    write_row_code(m, s, MASK_STEP)
    _write_gather(m, s)
    found = words(s.mask is not None)
    _VectorTask(m, s, found, scratch(s)).write()
    write_entry(m, found, "attend_back")


def _write_gather(m: Module, s: AttentionStructure) -> None:
    """`gather(target, scores, rows, count, columns)`: target[key] += scores[key] @ rows, for ROWS
    keys, `count` queries and all columns."""
    params = [
        ("target", PTR), ("scores", PTR), ("rows", PTR), ("count", I64), ("columns", I64),
    ]  # fmt: skip
    with m.function("gather", params, internal=True) as f:
        target, scores, rows, count, columns = f.args
        step = AttentionStep(SCORE_STEP, 4, s.row_bytes)
        with f.loop(0, columns, WIDTH) as loop:
            place, right = f.at(target, loop.index, F32), f.at(rows, loop.index, F32)
            start = load_tile(f, place, s.row_bytes, ROWS)
            found = product(f, scores, right, count, step, start)
            store_tile(f, found, place, s.row_bytes)


class BackwardTask:
    """Writes the function of one task: the walk over blocks of queries and of keys.

    What is common to all ways to multiply is here; `tiled_back` has another way.
    """

    keys_at_once = KEYS_AT_ONCE
    panel = ROWS
    """Keys whose gradients are added to in one go."""
    mask_step = MASK_STEP
    grad_keys: LLVMValue
    grad_values: LLVMValue
    """Where `begin` put the sums that `_deliver_keys` hands out."""

    def __init__(
        self, m: Module, s: AttentionStructure, words: AttentionWords, layout: AttentionScratch
    ) -> None:
        self.m, self.s, self.words, self.layout = m, s, words, layout

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self.f = f
            block, chunk, tid = f.args
            self.a = a = AttentionArguments(f, block, self.words)
            self.base = f.at(a.workspace, tid * a.scratch)
            shared = a.heads // a.sharing
            self.b, self.shared = chunk // shared, chunk % shared
            self.factor = single(f, a.scale)
            self.begin()
            with f.loop(0, a.sharing) as head:
                self._locate(self.shared * a.sharing + head.index)
                with f.loop(0, a.queries, QUERIES) as loop:
                    self._query_block(loop.index)
            self.end()
            self._deliver_keys()

    def begin(self) -> None:
        """Copy keys and values, and make room for their gradients."""
        raise NotImplementedError

    def end(self) -> None:
        """After the last product."""

    def prepare(self, q0: LLVMValue, tile: LLVMValue) -> None:
        """Copy a tile of queries and gradients; delta and the statistics."""
        raise NotImplementedError

    def tile(self, start: LLVMValue, k0: LLVMValue, tile: LLVMValue, count: LLVMValue) -> None:
        """Weights and slopes of a tile of queries (the first is `start`) for `count` keys, and what
        they add to the queries' gradient."""
        raise NotImplementedError

    def gather(self, q0: LLVMValue, k0: LLVMValue, panel: LLVMValue, tiles: LLVMValue) -> None:
        """What all queries of the block add to the gradients of a panel of keys and values."""
        raise NotImplementedError

    def part(self, name: str) -> LLVMValue:
        return self.layout.place(self.f, self.base, name)

    def tile_part(self, name: str, tile: LLVMValue, each: int) -> LLVMValue:
        return self.f.at(self.part(name), tile * each)

    # ---- keys and queries ---------------------------------------------------------------------

    def _deliver_keys(self) -> None:
        f, a = self.f, self.a
        place = f.at(a.grad_key, self.b * a.dk_b + self.shared * a.dk_h)
        deliver(f, place, self.grad_keys, a.keys, a.width, a.dk_t, self.factor)
        place = f.at(a.grad_value, self.b * a.dv_b + self.shared * a.dv_h)
        one = f.constant(1.0, F32)
        deliver(f, place, self.grad_values, a.keys, a.value_width, a.dv_t, one)

    def _locate(self, h: LLVMValue) -> None:
        """Pointers of one query head."""
        f, a, b = self.f, self.a, self.b
        self.query = f.at(a.query, b * a.q_b + h * a.q_h)
        self.grad = f.at(a.grad, b * a.g_b + h * a.g_h)
        self.out = f.at(a.out, b * a.o_b + h * a.o_h)
        self.grad_query = f.at(a.grad_query, b * a.dq_b + h * a.dq_h)
        self.stats = f.at(a.stats, (b * a.heads + h) * a.queries * 2, F32)
        if self.s.mask is not None:
            self.mask = f.at(a.mask, b * a.m_b + h * a.m_h)

    def _query_block(self, q0: LLVMValue) -> None:
        f, a = self.f, self.a
        left = f.minimum(a.queries - q0, QUERIES)
        tiles = f.ceil_div(left, WIDTH)
        with f.loop(0, tiles) as tile:
            self.prepare(q0, tile.index)
        end = f.minimum(q0 + left, a.keys) if self.s.causal else a.keys
        with f.loop(0, end, self.keys_at_once) as loop:
            k0 = loop.index
            count = f.minimum(end - k0, self.keys_at_once)
            first = self._first_tile(q0, k0)
            with f.loop(first, tiles) as tile:
                start = q0 + tile.index * WIDTH
                seen = f.minimum(count, start + WIDTH - k0) if self.s.causal else count
                if self.s.mask is not None:
                    self._copy_mask(start, k0, seen)
                self.tile(start, k0, tile.index, seen)
            with f.loop(0, count, self.panel) as panel:
                self.gather(q0, k0, panel.index, tiles)
        with f.loop(0, tiles) as tile:
            self._deliver_query(q0, tile.index)

    def _first_tile(self, q0: LLVMValue, key: LLVMValue) -> LLVMValue:
        """The first tile of a block whose queries see this key."""
        if not self.s.causal:
            return self.f.constant(0)
        return self.f.maximum(key - q0, 0) // WIDTH

    def keep_stats(
        self, start: LLVMValue, valid: LLVMValue, tile: LLVMValue, grad: LLVMValue, out: LLVMValue
    ) -> None:
        """Delta of a tile, from its turned gradients and results, beside the statistics."""
        f, a = self.f, self.a
        with f.loop(0, a.value_width, 1, [f.zero(VECTOR)] * VECTORS) as loop:
            at = loop.index * LINE
            x, y = (load_tile(f, f.at(p, at), LINE, 1)[0] for p in (grad, out))
            loop.next(*[f.mul_add(*each) for each in zip(x, y, loop.carried, strict=True)])
        stats = self.tile_part("stats", tile, 3 * LINE)
        for v in range(VECTORS):
            mask = f.low_mask(valid - v * LANES, LANES)
            source = f.at(self.stats, start + v * LANES, F32)
            top = f.masked_load(VECTOR, source, mask)
            inverse = f.masked_load(VECTOR, f.at(source, a.queries, F32), mask)
            for i, found in enumerate((top, inverse, loop.results[v])):
                f.store(found, f.at(stats, i * LINE + v * VECTOR.nbytes))

    def _deliver_query(self, q0: LLVMValue, tile: LLVMValue) -> None:
        f, a, s = self.f, self.a, self.s
        start = q0 + tile * WIDTH
        valid = f.minimum(a.queries - start, WIDTH)
        rows, result = self.part("rows"), self.tile_part("result", tile, s.row_floats * LINE)
        turn(f, rows, s.row_bytes, result, LINE, a.width, WIDTH)
        deliver(f, f.at(self.grad_query, start * a.dq_t), rows, valid, a.width, a.dq_t, self.factor)

    def _copy_mask(self, start: LLVMValue, k0: LLVMValue, count: LLVMValue) -> None:
        f, a = self.f, self.a
        valid = f.minimum(a.queries - start, WIDTH)
        rows, place = self.part("mask_rows"), f.at(self.mask, start * a.m_t + k0 * a.m_d)
        mask_rows(f, rows, place, valid, count, a.m_t, a.m_d)
        turn(f, self.part("mask"), LINE, rows, self.mask_step, WIDTH, count)


class _VectorTask(BackwardTask):
    """Products of vectors, operands in float32."""

    def begin(self) -> None:
        f, a = self.f, self.a
        places = [f.at(self.base, self.layout.size)]
        for _ in range(3):
            places.append(f.at(places[-1], a.key_room))
        self.keys, self.values, self.grad_keys, self.grad_values = places
        whole, one = f.ceil_div(a.keys, ROWS) * ROWS, f.constant(1.0, F32)
        key = f.at(a.key, self.b * a.k_b + self.shared * a.k_h)
        fetch(f, self.keys, key, a.keys, whole, a.width, a.k_t, a.k_d, one)
        value = f.at(a.value, self.b * a.v_b + self.shared * a.v_h)
        fetch(f, self.values, value, a.keys, whole, a.value_width, a.v_t, a.v_d, one)
        f.fill_bytes(self.grad_keys, 0, a.key_room)
        f.fill_bytes(self.grad_values, 0, a.key_room)

    def prepare(self, q0: LLVMValue, tile: LLVMValue) -> None:
        """Copy a tile of queries and gradients, as rows and turned; delta and the statistics."""
        f, a, s = self.f, self.a, self.s
        start = q0 + tile * WIDTH
        valid = f.minimum(a.queries - start, WIDTH)
        one = f.constant(1.0, F32)
        for name, source, width, step, item in (
            ("query", self.query, a.width, a.q_t, a.q_d),
            ("grad", self.grad, a.value_width, a.g_t, a.g_d),
        ):
            rows = self.tile_part(f"{name}_rows", tile, WIDTH * s.row_bytes)
            fetch(f, rows, f.at(source, start * step), valid, WIDTH, width, step, item, one)
            turned = self.tile_part(name, tile, s.row_floats * LINE)
            turn(f, turned, LINE, rows, s.row_bytes, WIDTH, width)
        # The result's place serves for the turned output first.
        rows = self.part("rows")
        out = self.tile_part("result", tile, s.row_floats * LINE)
        place = f.at(self.out, start * a.o_t)
        fetch(f, rows, place, valid, WIDTH, a.value_width, a.o_t, a.o_d, one)
        turn(f, out, LINE, rows, s.row_bytes, WIDTH, a.value_width)
        grad = self.tile_part("grad", tile, s.row_floats * LINE)
        self.keep_stats(start, valid, tile, grad, out)
        f.fill_bytes(out, 0, a.columns * (s.group * LINE))

    def tile(self, start: LLVMValue, k0: LLVMValue, tile: LLVMValue, count: LLVMValue) -> None:
        f, a, s = self.f, self.a, self.s
        query, grad, result = (
            self.tile_part(name, tile, s.row_floats * LINE) for name in ("query", "grad", "result")
        )
        weights, slopes = (self.tile_part(n, tile, LINE) for n in ("weights", "slopes"))
        stats = load_tile(f, self.tile_part("stats", tile, 3 * LINE), LINE, 3)
        step = AttentionStep(s.row_bytes, 4, LINE)
        with f.loop(0, count, ROWS) as panel:
            at = (k0 + panel.index) * s.row_bytes
            place = panel.index * SCORE_STEP
            found = product(f, f.at(self.keys, at), query, a.width, step, zeros(f, ROWS))
            store_tile(f, found, f.at(weights, place), SCORE_STEP)
            found = product(f, f.at(self.values, at), grad, a.value_width, step, zeros(f, ROWS))
            store_tile(f, found, f.at(slopes, place), SCORE_STEP)
            self._weigh(start, k0, panel.index, weights, slopes, stats)
        step = AttentionStep(4, s.row_bytes, SCORE_STEP)
        with f.loop(0, a.columns) as group:
            place = f.at(result, group.index * (s.group * LINE))
            left = f.at(self.keys, k0 * s.row_bytes + group.index * (s.group * 4))
            before = load_tile(f, place, LINE, s.group)
            store_tile(f, product(f, left, slopes, count, step, before), place, LINE)

    def _weigh(
        self,
        start: LLVMValue,
        k0: LLVMValue,
        row: LLVMValue,
        weights: LLVMValue,
        slopes: LLVMValue,
        stats: list[list[LLVMValue]],
    ) -> None:
        """Scores of ROWS keys become weights, gradients of weights become slopes."""
        f, s = self.f, self.s
        top, inverse, delta = stats
        factor = f.splat(single(f, self.a.scale * LOG2_E), LANES)
        queries = f.splat(f.convert("trunc", start, I32), LANES) + f.lanes(I32.vector(LANES))
        last = f.splat(f.convert("trunc", self.a.queries, I32), LANES)
        with f.loop(0, ROWS, 1, at_least_once=True) as loop:
            at = (row + loop.index) * SCORE_STEP
            number = f.splat(f.convert("trunc", k0 + row + loop.index, I32), LANES)
            for v in range(VECTORS):
                place = f.at(f.at(weights, at), v * VECTOR.nbytes)
                score = f.mul_add(f.load(VECTOR, place), factor, -top[v])
                if s.mask is not None:
                    mask = f.at(self.part("mask"), (row + loop.index) * LINE + v * VECTOR.nbytes)
                    score = score + f.load(VECTOR, mask)
                weight = exp2(f, score) * inverse[v]
                if s.causal:
                    weight = f.select(number <= queries + v * LANES, weight, 0.0)
                if s.mask is not None:  # nobody filled the mask beyond the last query
                    weight = f.select(queries + v * LANES < last, weight, 0.0)
                f.store(weight, place)
                place = f.at(f.at(slopes, at), v * VECTOR.nbytes)
                f.store(weight * (f.load(VECTOR, place) - delta[v]), place)

    def gather(self, q0: LLVMValue, k0: LLVMValue, panel: LLVMValue, tiles: LLVMValue) -> None:
        """What all queries of the block add to the gradients of ROWS keys and values."""
        f, a, s = self.f, self.a, self.s
        first = self._first_tile(q0, k0 + panel)
        count = (tiles - first) * WIDTH
        at = (k0 + panel) * s.row_bytes
        scores = panel * SCORE_STEP + first * LINE
        skipped = first * (WIDTH * s.row_bytes)
        for target, source, rows, columns in (
            (self.grad_keys, "slopes", "query_rows", a.width),
            (self.grad_values, "weights", "grad_rows", a.value_width),
        ):
            operands = [f.at(self.part(source), scores), f.at(self.part(rows), skipped)]
            f.call("gather", VOID, [f.at(target, at), *operands, count, columns])
