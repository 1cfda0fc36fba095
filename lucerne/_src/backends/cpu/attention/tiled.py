"""The forward pass in bfloat16 on matrix tiles (AMX): the same walk as in `forward`.

    scores[key][query] = keys @ query.T        A: rows of keys as they are; B: pairs of columns
    result[column][query] += values.T @ weights   A: values turned once per task; B: pairs of keys

Products take bfloat16 and sum in float32; between them scores become weights in float32. A tile of
B holds two consecutive rows side by side in one 32-bit word, so weights of two keys are rounded and
joined lane by lane. All four tiles of a product of 32 x 32 stay in registers.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention.forward import State, Task, write_entry
from lucerne._src.backends.cpu.attention.micro import (
    LANES,
    LINE,
    VECTOR,
    VECTORS,
    WIDTH,
    exp2,
    larger,
    load_tile,
    turn,
    write_turn,
)
from lucerne._src.backends.cpu.attention.plan import (
    AttentionScratch,
    AttentionStructure,
    AttentionWords,
    steps,
)
from lucerne._src.backends.cpu.attention.rows import write_deliver, write_mask_rows
from lucerne._src.backends.cpu.emit.builder import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I16

SIDE = 32
"""Rows and columns of one product; also the bfloat16 numbers of a tile's row."""
KEYS = 128
"""Keys of one block of scores."""
ROW_BYTES = 2112
MOST_WIDTH = 512
MASK_STEP = (KEYS + LANES) * 4
_MINUS_INF = float("-inf")
_TILE_ROWS, _TILE_BYTES = 16, 64

NUMBERS = (
    "scale", "heads", "sharing", "queries", "keys", "width", "value_width", "parts", "part",
    "tasks", "scratch", "key_step", "value_step", "at_query", "at_result", "at_keys", "at_pairs",
    "at_values", *steps("q", "bht"), *steps("k", "bht"), *steps("v", "bht"), *steps("o", "bht"),
    *steps("m", "bhtd"),
)  # fmt: skip


def words(masked: bool) -> AttentionWords:
    inputs = ["out", "stats", "query", "key", "value", *(["mask"] if masked else [])]
    return AttentionWords(inputs, NUMBERS)


def scratch(masked: bool) -> AttentionScratch:
    made = AttentionScratch()
    made.add("rows", WIDTH * ROW_BYTES)
    made.add("scores", KEYS * LINE)
    made.add("weights", KEYS // 2 * LINE)
    if masked:
        made.add("mask_rows", WIDTH * MASK_STEP)
        made.add("mask", MASK_STEP // 4 * LINE)
    return made


def sizes(masked: bool, keys: int, width: int, value_width: int) -> dict[str, int]:
    """The words that follow from sizes alone: steps and places in scratch."""
    wide, tall = -(-width // SIDE) * SIDE, -(-value_width // SIDE) * SIDE
    long = -(-keys // SIDE) * SIDE
    found = {"key_step": wide * 2, "value_step": long * 2 + 64}
    at = scratch(masked).size
    for name, nbytes in (
        ("at_query", wide // 2 * LINE),
        ("at_result", tall * LINE),
        ("at_keys", long * wide * 2),
        ("at_pairs", long // 2 * tall * 4),
        ("at_values", tall * found["value_step"]),
    ):
        found[name] = at
        at += -(-nbytes // 64) * 64
    return {**found, "scratch": at}


def write(m: Module, s: AttentionStructure) -> None:
    """`i64 attend(ptr block)`."""
    write_turn(m)
    write_deliver(m, s.type, ROW_BYTES)
    if s.mask is not None:
        write_mask_rows(m, s.mask, MASK_STEP)
    _write_copy(m)
    _write_pairs(m)
    _write_product(m, "product", fresh=True)
    _write_product(m, "add_product", fresh=False)
    sides = [0] * 64
    sides[0] = 1
    for t in range(8):
        sides[16 + 2 * t], sides[48 + t] = _TILE_BYTES, _TILE_ROWS
    m.constant("tile_sizes", "[64 x i8]", f"[{', '.join(f'i8 {b}' for b in sides)}]")
    masked = s.mask is not None
    _TileTask(m, s, words(masked), scratch(masked)).write()
    write_entry(m, words(masked))


def _write_copy(m: Module) -> None:
    """`copy(target, target_step, source, rows, all_rows, width, row_step)`: rows of 16-bit numbers,
    filled up with zeros to whole rows of the target and to `all_rows`."""
    params = [
        ("target", PTR), ("target_step", I64), ("source", PTR), ("rows", I64), ("all_rows", I64),
        ("width", I64), ("row_step", I64),
    ]  # fmt: skip
    wide = I16.vector(SIDE)
    with m.function("copy", params, internal=True) as f:
        target, target_step, source, rows, all_rows, width, row_step = f.args
        with f.loop(0, rows) as row:
            read, write = f.at(source, row.index * row_step), f.at(target, row.index * target_step)
            with f.loop(0, width, SIDE) as loop:
                mask = f.low_mask(width - loop.index, SIDE)
                v = f.masked_load(wide, f.at(read, loop.index, I16), mask)
                f.store(v, f.at(write, loop.index, I16))
        left = f.maximum(all_rows - rows, 0)
        f.fill_bytes(f.at(target, rows * target_step), 0, left * target_step)


def _write_pairs(m: Module) -> None:
    """`pairs(target, target_step, source, rows, width, row_step)`: two rows of 16-bit numbers side
    by side in rows of 32-bit words; after the last row come zeros, up to SIDE rows in all."""
    params = [
        ("target", PTR), ("target_step", I64), ("source", PTR), ("rows", I64), ("width", I64),
        ("row_step", I64),
    ]  # fmt: skip
    wide = I16.vector(LANES)
    with m.function("pairs", params, internal=True) as f:
        target, target_step, source, rows, width, row_step = f.args
        with f.loop(0, f.ceil_div(rows, SIDE) * SIDE, 2) as row:
            read = f.at(source, row.index * row_step)
            write = f.at(target, (row.index // 2) * target_step)
            with f.loop(0, width, LANES) as loop:
                halves = []
                for r in range(2):
                    inside = f.select(row.index + r < rows, width - loop.index, 0)
                    place = f.at(f.at(read, row_step * r), loop.index, I16)
                    v = f.masked_load(wide, place, f.low_mask(inside, LANES))
                    halves.append(f.convert("zext", v, I32))
                f.store(halves[0] | halves[1] << 16, f.at(write, loop.index, I32))


def _amx(f: LLVMFunction, name: str, *args: LLVMValue) -> None:
    f.call(f"llvm.x86.{name}", VOID, list(args))


def _write_product(m: Module, name: str, *, fresh: bool) -> None:
    """`product(target, left, left_step, right, count)`: SIDE x SIDE sums over `count` tiles."""
    params = [("target", PTR), ("left", PTR), ("left_step", I64), ("right", PTR), ("count", I64)]
    with m.function(name, params, internal=True) as f:
        target, left, left_step, right, count = f.args
        line = f.constant(LINE)
        places = [
            f.at(target, i * _TILE_ROWS * LINE + j * _TILE_BYTES)
            for i in range(2)
            for j in range(2)
        ]
        registers = [f.constant(t, I8) for t in range(8)]
        for register, place in zip(registers[:4], places, strict=True):
            if fresh:
                _amx(f, "tilezero", register)
            else:
                _amx(f, "tileloadd64", register, place, line)
        with f.loop(0, count, 1, [left, right], at_least_once=True) as loop:
            a, b = loop.carried
            lower = f.at(a, left_step * _TILE_ROWS)
            for t, operand, step in (
                (4, a, left_step), (5, lower, left_step), (6, b, line),
                (7, f.at(b, _TILE_BYTES), line),
            ):  # fmt: skip
                _amx(f, "tileloadd64", registers[t], operand, step)
            for t in range(4):
                operands = [registers[t], registers[4 + t // 2], registers[6 + t % 2]]
                _amx(f, "tdpbf16ps", *operands)
            loop.next(f.at(a, _TILE_BYTES), f.at(b, _TILE_ROWS * LINE))
        for register, place in zip(registers[:4], places, strict=True):
            _amx(f, "tilestored64", register, place, line)


class _TileTask(Task):
    """Products by the matrix tiles of the processor."""

    keys_at_once = KEYS
    mask_step = MASK_STEP

    def _copy_keys(self, count: LLVMValue) -> None:
        """Keys as they are; values turned: [column][key]."""
        f, a = self.f, self.a
        self.row_bytes = ROW_BYTES
        _amx(f, "ldtilecfg", f.symbol("tile_sizes"))
        self.query, self.result = f.at(self.base, a.at_query), f.at(self.base, a.at_result)
        self.keys, self.values = f.at(self.base, a.at_keys), f.at(self.base, a.at_values)
        self.tall = f.ceil_div(a.value_width, SIDE) * SIDE
        self.factors = f.splat(self.factor, LANES)
        whole = f.ceil_div(count, SIDE) * SIDE
        args = [self.keys, a.key_step, self.key_from, count, whole, a.width, a.k_t]
        f.call("copy", VOID, args)
        pairs, step = f.at(self.base, a.at_pairs), self.tall * 4
        args = [pairs, step, self.value_from, count, a.value_width, a.v_t]
        f.call("pairs", VOID, args)
        turn(f, self.values, a.value_step, pairs, step, whole // 2, self.tall)

    def _end(self) -> None:
        _amx(self.f, "tilerelease")

    def _take_query(self, q0: LLVMValue, valid: LLVMValue) -> None:
        f, a = self.f, self.a
        rows, source = self._part("rows"), f.at(self.query_from, q0 * a.q_t)
        f.call("copy", VOID, [rows, ROW_BYTES, source, valid, WIDTH, a.width, a.q_t])
        turn(f, self.query, LINE, rows, ROW_BYTES, WIDTH, a.key_step // 4)
        f.fill_bytes(self.result, 0, self.tall * LINE)

    def _block(
        self, q0: LLVMValue, k0: LLVMValue, count: LLVMValue, limits: list[LLVMValue], state: State
    ) -> State:
        f, a = self.f, self.a
        top, sums = state
        whole = f.ceil_div(count, SIDE) * SIDE
        with f.loop(0, whole, SIDE) as part:
            left = f.at(self.keys, (k0 + part.index) * a.key_step)
            target = f.at(self._part("scores"), part.index * LINE)
            steps_ = a.key_step // _TILE_BYTES
            f.call("product", VOID, [target, left, a.key_step, self.query, steps_])
        lowest = [f.constant(_MINUS_INF, VECTOR)] * VECTORS
        new, base, shrink = self._new_base(top, self._scaled(k0, whole, limits, lowest))
        with f.loop(0, self.tall) as loop:
            self._multiply_line(f.at(self.result, loop.index * LINE), shrink)
        sums = self._weights(whole, base, [x * y for x, y in zip(sums, shrink, strict=True)])
        with f.loop(0, self.tall, SIDE) as part:
            left = f.at(self.values, part.index * a.value_step + k0 * 2)
            target = f.at(self.result, part.index * LINE)
            args = [target, left, a.value_step, self._part("weights"), whole // SIDE]
            f.call("add_product", VOID, args)
        return new, sums

    def _scaled(
        self, k0: LLVMValue, count: LLVMValue, limits: list[LLVMValue], top: list[LLVMValue]
    ) -> list[LLVMValue]:
        """Scores times the scale, plus the mask, hidden beyond the limits; the largest so far."""
        f = self.f
        masks = self._part("mask") if self.s.mask is not None else None
        with f.loop(0, count, 1, top) as loop:
            line = f.at(self._part("scores"), loop.index * LINE)
            number = f.splat(f.convert("trunc", k0 + loop.index, I32), LANES)
            made = []
            for v in range(VECTORS):
                at = v * VECTOR.nbytes
                score = f.load(VECTOR, f.at(line, at)) * self.factors
                if masks is not None:
                    score = score + f.load(VECTOR, f.at(masks, loop.index * LINE + at))
                score = f.select(number <= limits[v], score, _MINUS_INF)
                f.store(score, f.at(line, at))
                made.append(larger(f, loop.carried[v], score))
            loop.next(*made)
        return loop.results

    def _weights(
        self, count: LLVMValue, base: list[LLVMValue], sums: list[LLVMValue]
    ) -> list[LLVMValue]:
        """Weights of two keys at a time, rounded and joined; their sums."""
        f, bits = self.f, I32.vector(LANES)
        with f.loop(0, count, 2, sums) as loop:
            line = f.at(self._part("scores"), loop.index * LINE)
            scores = load_tile(f, line, LINE, 2)
            made = list(loop.carried)
            target = f.at(self._part("weights"), (loop.index // 2) * LINE)
            for v in range(VECTORS):
                pair = [exp2(f, row[v] - base[v]) for row in scores]
                made[v] = made[v] + (pair[0] + pair[1])
                low, high = (f.bitcast(x, bits) + 0x8000 for x in pair)
                joined = f.bits("lshr", low, 16) | (high & -65536)
                f.store(joined, f.at(target, v * VECTOR.nbytes))
            loop.next(*made)
        return loop.results
