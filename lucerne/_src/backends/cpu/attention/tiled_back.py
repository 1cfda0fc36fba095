"""The backward pass on matrix tiles (AMX): the same walk as in `backward`, in squares of 32 x 32.

    scores[key][query]  = keys @ query.T         A: rows of keys;      B: queries, along the columns
    changes[key][query] = values @ grad.T        A: rows of values;    B: gradients, likewise
    weights, slopes     = ...                    in float32, then rounded: A, and slopes as B too
    grad_value += weights @ grad                 A: weights;           B: gradients, along queries
    grad_key   += slopes @ query                 A: slopes;            B: queries, along queries
    grad_query.T += keys.T @ slopes              A: keys turned;       B: slopes

A task is one head of the keys, as there: the result does not depend on the number of threads.
Operands are rounded to bfloat16, sums and everything between products are float32. (float32 in
three parts, as convolutions do it, was tried: no faster here than vectors, which have the operands
in registers already.)
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention import backward
from lucerne._src.backends.cpu.attention.forward import write_entry
from lucerne._src.backends.cpu.attention.micro import (
    LANES,
    LINE,
    LOG2_E,
    VECTOR,
    VECTORS,
    WIDTH,
    exp2,
    load_tile,
    turn,
)
from lucerne._src.backends.cpu.attention.plan import (
    AttentionScratch,
    AttentionStructure,
    AttentionWords,
    single,
)
from lucerne._src.backends.cpu.attention.rows import fetch, write_row_code
from lucerne._src.backends.cpu.attention.tile_forms import (
    SIDE,
    STEP,
    STEP_BYTES,
    TILE,
    begin_tiles,
    end_tiles,
    multiply,
    rounded,
    store_pair,
    store_row,
    to_pairs,
    to_rows,
    write_forms,
)
from lucerne._src.backends.cpu.emit.builder import F32, I32, LLVMValue, Module

TILES = 4
QUERIES = KEYS = TILES * SIDE
"""Queries and keys of one pair of blocks."""
MASK_STEP = (KEYS + LANES) * 4
SCORE_STEP = QUERIES * 2
"""Bytes from key to key of weights and slopes, as A."""

PLACES = (
    "wide", "tall", "whole", "turned_step", "at_keys", "at_values", "at_turned", "at_grad_keys",
    "at_grad_values", "at_query_pairs", "at_query_turned", "at_grad_pairs", "at_grad_turned",
)  # fmt: skip
"""`wide`, `tall`: columns of keys and of values; `whole`: keys; all filled up to 32. Then places in
a thread's scratch."""
NUMBERS = (*backward.NUMBERS, *PLACES)


def words(masked: bool) -> AttentionWords:
    pointers = backward.words(masked)
    names = [n for n in pointers.place if n in pointers.pointers and n != "workspace"]
    return AttentionWords(names, NUMBERS)


def scratch(s: AttentionStructure) -> AttentionScratch:
    """The parts of fixed size."""
    made = AttentionScratch()
    made.add("rows", WIDTH * s.row_bytes)
    made.add("turned", s.row_floats * LINE)
    made.add("out_turned", s.row_floats * LINE)
    made.add("result", TILES * s.row_floats * LINE)
    made.add("scores", SIDE * LINE)
    made.add("changes", SIDE * LINE)
    for name in ("weights", "slopes"):
        made.add(name, KEYS * SCORE_STEP)
    made.add("slope_pairs", TILES * TILES * STEP_BYTES)
    made.add("stats", TILES * 3 * LINE)
    if s.mask is not None:
        made.add("mask_rows", WIDTH * MASK_STEP)
        made.add("mask", MASK_STEP // 4 * LINE)
    return made


def sizes(s: AttentionStructure, keys: int, width: int, value_width: int) -> dict[str, int]:
    """The words that follow from sizes alone; `scratch`: bytes of a thread."""
    wide, tall, whole = (-(-n // SIDE) * SIDE for n in (width, value_width, keys))
    found = {"wide": wide, "tall": tall, "whole": whole, "turned_step": whole * 2 + STEP}
    at = scratch(s).size
    for name, nbytes in (
        ("at_keys", whole * wide * 2),
        ("at_values", whole * tall * 2),
        ("at_turned", wide * found["turned_step"]),
        ("at_grad_keys", whole * s.row_bytes),
        ("at_grad_values", whole * s.row_bytes),
        ("at_query_pairs", wide // SIDE * TILES * STEP_BYTES),
        ("at_query_turned", wide // SIDE * TILES * STEP_BYTES),
        ("at_grad_pairs", tall // SIDE * TILES * STEP_BYTES),
        ("at_grad_turned", tall // SIDE * TILES * STEP_BYTES),
    ):
        found[name] = at
        at += -(-nbytes // 64) * 64
    return {**found, "scratch": at}


def write(m: Module, s: AttentionStructure) -> None:
    """`i64 attend_back(ptr block)`."""
    assert (SIDE, QUERIES) == (WIDTH, backward.QUERIES), (
        "vectors are as wide as on all machines with tiles"
    )
    write_row_code(m, s, MASK_STEP)
    write_forms(m)
    found = words(s.mask is not None)
    _TileTask(m, s, found, scratch(s)).write()
    write_entry(m, found, "attend_back")


class _TileTask(backward.BackwardTask):
    """Products of tiles, operands in bfloat16."""

    keys_at_once = KEYS
    panel = SIDE
    mask_step = MASK_STEP

    def begin(self) -> None:
        begin_tiles(self.f)
        self._take_keys()

    def end(self) -> None:
        end_tiles(self.f)

    def _take_keys(self) -> None:
        """Keys and values as A, keys turned as well, 32 at a time; empty gradients."""
        f, a, s = self.f, self.a, self.s
        self.keys, self.values = f.at(self.base, a.at_keys), f.at(self.base, a.at_values)
        self.turned = f.at(self.base, a.at_turned)
        self.grad_keys = f.at(self.base, a.at_grad_keys)
        self.grad_values = f.at(self.base, a.at_grad_values)
        self.key_step, self.value_step = a.wide * 2, a.tall * 2
        key = f.at(a.key, self.b * a.k_b + self.shared * a.k_h)
        value = f.at(a.value, self.b * a.v_b + self.shared * a.v_h)
        rows, across = self.part("rows"), self.part("turned")
        one = f.constant(1.0, F32)
        with f.loop(0, a.keys, SIDE) as loop:
            k = loop.index
            valid = f.minimum(a.keys - k, SIDE)
            fetch(f, rows, f.at(key, k * a.k_t), valid, SIDE, a.width, a.k_t, a.k_d, one)
            place = f.at(self.keys, k * self.key_step)
            given = [rows, s.row_bytes, SIDE, a.wide]
            to_rows(f, place, self.key_step, *given)
            turn(f, across, LINE, rows, s.row_bytes, SIDE, a.wide)
            given = [across, LINE, a.wide, SIDE]
            to_rows(f, f.at(self.turned, k * 2), a.turned_step, *given)
            fetch(f, rows, f.at(value, k * a.v_t), valid, SIDE, a.value_width, a.v_t, a.v_d, one)
            place = f.at(self.values, k * self.value_step)
            given = [rows, s.row_bytes, SIDE, a.tall]
            to_rows(f, place, self.value_step, *given)
        f.fill_bytes(self.grad_keys, 0, a.whole * s.row_bytes)
        f.fill_bytes(self.grad_values, 0, a.whole * s.row_bytes)

    def prepare(self, q0: LLVMValue, tile: LLVMValue) -> None:
        """A tile of queries and of gradients as B, both ways; delta and the statistics."""
        f, a, s = self.f, self.a, self.s
        start = q0 + tile * SIDE
        valid = f.minimum(a.queries - start, SIDE)
        rows, across = self.part("rows"), self.part("turned")
        one = f.constant(1.0, F32)
        for source, width, wide, step, item, pairs, turned in (
            (self.query, a.width, a.wide, a.q_t, a.q_d, a.at_query_pairs, a.at_query_turned),
            (self.grad, a.value_width, a.tall, a.g_t, a.g_d, a.at_grad_pairs, a.at_grad_turned),
        ):
            fetch(f, rows, f.at(source, start * step), valid, SIDE, width, step, item, one)
            place = f.at(f.at(self.base, pairs), tile * STEP_BYTES)
            given = [rows, s.row_bytes, SIDE, wide]
            to_pairs(f, place, TILES * STEP_BYTES, *given)
            turn(f, across, LINE, rows, s.row_bytes, SIDE, wide)
            place = f.at(f.at(self.base, turned), tile * (wide // SIDE) * STEP_BYTES)
            to_pairs(f, place, 0, across, LINE, wide, SIDE)
        out = self.part("out_turned")  # beside the gradients, which were turned last
        place = f.at(self.out, start * a.o_t)
        fetch(f, rows, place, valid, SIDE, a.value_width, a.o_t, a.o_d, one)
        turn(f, out, LINE, rows, s.row_bytes, SIDE, a.value_width)
        self.keep_stats(start, valid, tile, across, out)
        f.fill_bytes(self.tile_part("result", tile, s.row_floats * LINE), 0, a.wide * LINE)

    def tile(self, start: LLVMValue, k0: LLVMValue, tile: LLVMValue, count: LLVMValue) -> None:
        f, a, s = self.f, self.a, self.s
        stats = load_tile(f, self.tile_part("stats", tile, 3 * LINE), LINE, 3)
        limits = self._limits(start)
        query = f.at(f.at(self.base, a.at_query_turned), tile * (a.wide // SIDE) * STEP_BYTES)
        grad = f.at(f.at(self.base, a.at_grad_turned), tile * (a.tall // SIDE) * STEP_BYTES)
        scores, changes = self.part("scores"), self.part("changes")
        with f.loop(0, count, SIDE) as panel:
            key = k0 + panel.index
            left = f.at(self.keys, key * self.key_step)
            given = [self.key_step, query, a.wide // SIDE, 0]
            multiply(f, scores, LINE, left, *given)
            left = f.at(self.values, key * self.value_step)
            given = [self.value_step, grad, a.tall // SIDE, 0]
            multiply(f, changes, LINE, left, *given)
            self._weigh(key, panel.index, tile, stats, limits)
        pairs = self.tile_part("slope_pairs", tile, TILES * STEP_BYTES)
        result = self.tile_part("result", tile, s.row_floats * LINE)
        with f.loop(0, a.wide, SIDE) as loop:
            left = f.at(self.turned, loop.index * a.turned_step + k0 * 2)
            given = [a.turned_step, pairs, f.ceil_div(count, SIDE), 1]
            multiply(f, f.at(result, loop.index * LINE), LINE, left, *given)

    def _limits(self, start: LLVMValue) -> list[LLVMValue]:
        """The last key each query sees; none for those beyond the last query."""
        f, a = self.f, self.a
        first = f.splat(f.convert("trunc", start, I32), LANES) + f.lanes(I32.vector(LANES))
        last = f.splat(f.convert("trunc", a.keys - 1, I32), LANES)
        queries = f.splat(f.convert("trunc", a.queries, I32), LANES)
        found = []
        for v in range(VECTORS):
            own = first + v * LANES
            limit = f.minimum(own, last) if self.s.causal else last
            found.append(f.select(own < queries, limit, f.splat(f.constant(-1, I32), LANES)))
        return found

    def _weigh(
        self,
        key: LLVMValue,
        row: LLVMValue,
        tile: LLVMValue,
        stats: list[list[LLVMValue]],
        limits: list[LLVMValue],
    ) -> None:
        """Scores of 32 keys become weights, gradients of weights slopes; both rounded."""
        f = self.f
        factor = f.splat(single(f, self.a.scale * LOG2_E), LANES)
        across = row * SCORE_STEP + tile * STEP
        weights, slopes = (f.at(self.part(n), across) for n in ("weights", "slopes"))
        pairs = self.tile_part("slope_pairs", tile, TILES * STEP_BYTES)
        pairs = f.at(pairs, (row // SIDE) * STEP_BYTES)
        with f.loop(0, SIDE, 2, at_least_once=True) as loop:
            made = []
            for r in range(2):
                here = loop.index + r
                number = f.splat(f.convert("trunc", key + here, I32), LANES)
                hide = row + here
                two = [self._vector(v, here, hide, factor, stats, limits, number) for v in (0, 1)]
                bits = [[rounded(f, x) for x in both] for both in two]
                made.append([slope for _, slope in bits])
                store_row(f, bits[0][0], bits[1][0], f.at(weights, here * SCORE_STEP))
                store_row(f, made[r][0], made[r][1], f.at(slopes, here * SCORE_STEP))
            for v in range(VECTORS):
                place = f.at(pairs, (loop.index // 2) * STEP + v * TILE)
                store_pair(f, made[0][v], made[1][v], place)

    def _vector(
        self,
        v: int,
        here: LLVMValue,
        hide: LLVMValue,
        factor: LLVMValue,
        stats: list[list[LLVMValue]],
        limits: list[LLVMValue],
        number: LLVMValue,
    ) -> tuple[LLVMValue, LLVMValue]:
        """Weight and slope of one key and 16 queries."""
        f = self.f
        top, inverse, delta = stats
        at = here * LINE + v * VECTOR.nbytes
        score = f.mul_add(f.load(VECTOR, f.at(self.part("scores"), at)), factor, -top[v])
        if self.s.mask is not None:
            place = f.at(self.part("mask"), hide * LINE + v * VECTOR.nbytes)
            score = score + f.load(VECTOR, place)
        weight = f.select(number <= limits[v], exp2(f, score) * inverse[v], 0.0)
        return weight, weight * (f.load(VECTOR, f.at(self.part("changes"), at)) - delta[v])

    def gather(self, q0: LLVMValue, k0: LLVMValue, panel: LLVMValue, tiles: LLVMValue) -> None:
        """What all queries of the block add to the gradients of 32 keys and values."""
        f, a, s = self.f, self.a, self.s
        first = self._first_tile(q0, k0 + panel)
        scores = panel * SCORE_STEP + first * STEP
        at = (k0 + panel) * s.row_bytes
        for target, name, pairs, columns in (
            (self.grad_keys, "slopes", a.at_query_pairs, a.wide),
            (self.grad_values, "weights", a.at_grad_pairs, a.tall),
        ):
            left = f.at(self.part(name), scores)
            right = f.at(f.at(self.base, pairs), first * STEP_BYTES)
            with f.loop(0, columns, SIDE) as loop:
                place = f.at(f.at(target, at), loop.index * 4)
                columns_at = f.at(right, loop.index * (TILES * STEP_BYTES // SIDE))
                given = [SCORE_STEP, columns_at, tiles - first, 1]
                multiply(f, place, s.row_bytes, left, *given)
