"""float32 products by AMX tiles, and the micro-kernel that convolutions share.

A tile instruction multiplies bfloat16 and adds in float32, sixteen times as fast as vectors do. A
float32 number is exactly the sum of three bfloat16 numbers (8 + 8 + 8 bits), a large one, a middle
one 2^-8 of it or less and a small one 2^-16 of it:

    x w  =  xl wl  +  (xl wm + xm wl)  +  (xm wm + xl ws + xs wl)  +  less than 2^-23 of x w

Six products a number instead of one, and still more than twice as fast. What is left out is less
than what a float32 product rounds off, and a tile adds 32 products in chains of 16 before they
meet the sum, so results are as near to the exact ones as those of vector kernels, or nearer.
bfloat16 tensors need the first product only.

Tiles read numbers below 2^-126 as zero. A number from 2^127.99 on has no such parts, and neither
has an infinity: who splits numbers raises a flag, and then another kernel computes everything anew
(see `launch.make_kernel`).

The micro-kernel makes 32 x 32 sums from rows of A (64 bytes of k each, by a pointer for every 16
rows) and tiles of B (k in pairs, 32 columns):

    void tiles(a0, a1, b, out, job, add, next)

over RUNS runs of STEPS x 32 numbers of k each; run r of A starts OFFSET[r] bytes on, B goes on and
on. `out` holds 32 rows of 128 bytes; `add` says whether they are added to. `next` points at memory
that is needed soon: for each step an eighth of what a step reads of B is asked for there.

Gradients of weights read B from anywhere in long columns of k (see `tiled_weight`): with `slides`
run r of B starts at an offset too, and the two halves and the parts of B are apart.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.conv.launch import words
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F32, I8, I16, I32, I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.code import compiled

ROWS, LANES, STEP, TILE = 16, 16, 64, 1024
SIDE = 2 * ROWS
"""Rows and columns of a block of sums."""
DEPTH = 32
"""Numbers of k that one tile takes."""
AHEAD = 8
"""So many calls together ask for what the next ones need."""
OUT_ROW = SIDE * 4
OUT_BYTES = SIDE * OUT_ROW

TILE_JOB = words("RUNS STEPS ROW_STEP PART")
"""Words of a job: runs, tiles of k in each, bytes to the next row of A and to its next part; then
the byte offsets of the runs."""
TILE_OFFSETS = len(TILE_JOB)
SLIDE_JOB = [*TILE_JOB, *words("HALF_B PART_B")]
"""The same for B that slides; then pairs of byte offsets, of A and of B."""
SLIDE_OFFSETS = len(SLIDE_JOB)
_PARAMS: list[Any] = [
    ("a0", PTR), ("a1", PTR), ("b", PTR), ("out", PTR), ("job", PTR), ("add", I64),
    ("next", PTR),
]  # fmt: skip
_WIDE, _BITS = F32.vector(LANES), I32.vector(LANES)
_HALVES = I16.vector(2 * LANES)
_TOP, _HALF = -65536, 32768
_LARGEST = 3.38e38


def amx(f: LLVMFunction, name: str, *arguments: LLVMValue) -> None:
    f.call(f"llvm.x86.{name}", VOID, list(arguments))


def begin_tiles(f: LLVMFunction) -> None:
    """Eight registers of 16 rows of 64 bytes."""
    m = f.module
    size = [0] * 64
    size[0] = 1
    for t in range(8):
        size[16 + 2 * t], size[48 + t] = STEP, ROWS
    m.constant("tile_sizes", "[64 x i8]", f"[{', '.join(f'i8 {b}' for b in size)}]")
    amx(f, "ldtilecfg", f.symbol("tile_sizes"))


def end_tiles(f: LLVMFunction) -> None:
    amx(f, "tilerelease")


# ---- numbers in parts ------------------------------------------------------------------------


def parts_of(f: LLVMFunction, v: LLVMValue, count: int) -> list[LLVMValue]:
    """A vector of floats as `count` vectors whose sum it is, each with 16 low bits that are zero:
    three parts are exact, one part is the nearest bfloat16."""
    found: list[LLVMValue] = []
    for k in range(count):
        bits = f.bitcast(v, _BITS)
        if k < 2:
            bits = (bits + f.constant(_HALF, _BITS)) & f.constant(_TOP, _BITS)
        found.append(bits)
        if k + 1 < count:
            v = v - f.bitcast(bits, _WIDE)
    return found


def has_no_parts(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """Lanes that are infinite, not a number, or too large."""
    size = f.intrinsic("llvm.fabs", _WIDE, [v])
    return f.compare("uge", size, f.constant(_LARGEST, _WIDE))


def joined(f: LLVMFunction, low: LLVMValue, high: LLVMValue) -> LLVMValue:
    """The high halves of two vectors, one after the other: 32 bfloat16 numbers."""
    odd = range(1, 4 * LANES, 2)
    return f.shuffle(f.bitcast(low, _HALVES), f.bitcast(high, _HALVES), odd)


def paired(f: LLVMFunction, first: LLVMValue, second: LLVMValue) -> LLVMValue:
    """The high halves of two vectors in turn: what a tile of B has in a row."""
    return f.bits("lshr", first, f.constant(16, _BITS)) | second


class Splitter:
    """Stores numbers as parts, and notes whether one had none."""

    def __init__(self, f: LLVMFunction, parts: int) -> None:
        self.f, self.parts = f, parts
        self.none = f.zero(f.compare("eq", f.zero(_BITS), f.zero(_BITS)).type)

    def row(
        self, low: LLVMValue, high: LLVMValue, place: LLVMValue, step: Any, wrong: LLVMValue
    ) -> LLVMValue:
        """32 numbers along k into a row of A; parts are `step` bytes apart."""
        f = self.f
        pair = zip(parts_of(f, low, self.parts), parts_of(f, high, self.parts), strict=True)
        for k, (a, b) in enumerate(pair):
            f.store(joined(f, a, b), f.at(place, step * k), align=2)
        return wrong | has_no_parts(f, low) | has_no_parts(f, high)

    def pair(
        self, first: LLVMValue, second: LLVMValue, place: LLVMValue, step: Any, wrong: LLVMValue
    ) -> LLVMValue:
        """Two rows of k, 16 columns each, into a row of a tile of B."""
        f = self.f
        both = zip(parts_of(f, first, self.parts), parts_of(f, second, self.parts), strict=True)
        for k, (a, b) in enumerate(both):
            f.store(paired(f, a, b), f.at(place, step * k), align=64)
        return wrong | has_no_parts(f, first) | has_no_parts(f, second)

    def tell(self, wrong: LLVMValue, flag: LLVMValue) -> None:
        """Raise the flag if one lane was wrong."""
        f = self.f
        with f.if_(f.fold("or", wrong)):
            f.atomic_store(f.constant(1), flag, "monotonic")


# ---- the micro-kernel -------------------------------------------------------------------------


def tiles_code(parts: int, slides: bool = False) -> int:
    """The address of the micro-kernel for operands in so many parts."""
    key = ("conv.tiles", parts, slides)
    return compiled(key, lambda m: (_write_sliding if slides else _write)(m, parts))["tiles"]


class _Sums:
    """The block of sums in registers 0 to 3: from memory or zero, and back to memory."""

    def __init__(self, f: LLVMFunction, out: LLVMValue, add: LLVMValue) -> None:
        self.f = f
        self.places = [f.at(out, i * ROWS * OUT_ROW + j * STEP) for i in range(2) for j in range(2)]
        with f.if_(f.compare("ne", add, 0)) as more:
            for t, place in enumerate(self.places):
                amx(f, "tileloadd64", _register(f, t), place, f.constant(OUT_ROW))
        with more.else_():
            for t in range(4):
                amx(f, "tilezero", _register(f, t))

    def store(self) -> None:
        f = self.f
        for t, place in enumerate(self.places):
            amx(f, "tilestored64", _register(f, t), place, f.constant(OUT_ROW))


def _write(m: Module, parts: int) -> None:
    with m.function("tiles", _PARAMS) as f:
        a0, a1, b, out, job, add, ahead = f.args
        runs, steps, row_step, part = (f.word(job, k) for k in range(TILE_OFFSETS))
        sums = _Sums(f, out, add)
        step_bytes = 2 * TILE * parts
        with f.loop(0, runs, 1, [b, ahead]) as run:
            offset = f.load(I64, f.at(job, (run.index + TILE_OFFSETS) * 8))
            rows = [f.at(a, offset) for a in (a0, a1)]
            with f.loop(0, steps, 1, [*rows, *run.carried]) as loop:
                a0, a1, b, ahead = loop.carried
                for at in range(0, step_bytes // AHEAD, 64):
                    f.prefetch(f.at(ahead, at), 2)
                columns = [[f.at(b, (2 * k + j) * TILE) for j in range(2)] for k in range(parts)]
                _multiply(f, parts, (a0, a1), columns, row_step, part)
                moved = f.at(ahead, step_bytes // AHEAD)
                loop.next(f.at(a0, STEP), f.at(a1, STEP), f.at(b, step_bytes), moved)
            run.next(*loop.results[2:])
        sums.store()


def _write_sliding(m: Module, parts: int) -> None:
    with m.function("tiles", _PARAMS) as f:
        a0, a1, b, out, job, add, _ = f.args
        runs, steps, row_step, part, half_b, part_b = (f.word(job, k) for k in range(SLIDE_OFFSETS))
        sums = _Sums(f, out, add)
        with f.loop(0, runs) as run:
            offsets = f.at(job, (run.index * 2 + SLIDE_OFFSETS) * 8)
            by_a, by_b = f.word(offsets, 0), f.word(offsets, 1)
            first = [f.at(a0, by_a), f.at(a1, by_a), f.at(b, by_b)]
            with f.loop(0, steps, 1, first) as loop:
                one, two, column = loop.carried
                columns = [
                    [f.at(f.at(column, part_b * k), half_b * j) for j in range(2)]
                    for k in range(parts)
                ]
                _multiply(f, parts, (one, two), columns, row_step, part)
                loop.next(f.at(one, STEP), f.at(two, STEP), f.at(column, TILE))
        sums.store()


def _register(f: LLVMFunction, n: int) -> LLVMValue:
    return f.constant(n, I8)


def _multiply(
    f: LLVMFunction,
    parts: int,
    rows: tuple[LLVMValue, LLVMValue],
    columns: list[list[LLVMValue]],
    row_step: LLVMValue,
    part: LLVMValue,
) -> None:
    """32 numbers of k: rows in registers 4 and 5, columns in 6 and 7, sums in 0 to 3."""

    def load_a(which: int, half: int) -> None:
        place = f.at(rows[half], part * which)
        amx(f, "tileloadd64", _register(f, 4 + half), place, row_step)

    def load_b(which: int, half: int) -> None:
        place = columns[which][half]
        amx(f, "tileloadd64", _register(f, 6 + half), place, f.constant(STEP))

    def multiply(i: int, j: int) -> None:
        amx(f, "tdpbf16ps", *(_register(f, n) for n in (2 * i + j, 4 + i, 6 + j)))

    def new_columns(which: int) -> None:
        for half in range(2):
            load_b(which, half)
            multiply(0, half)
            multiply(1, half)

    def new_rows(which: int) -> None:
        for half in range(2):
            load_a(which, half)
            multiply(half, 0)
            multiply(half, 1)

    load_a(0, 0)
    load_a(0, 1)
    if parts == 1:
        new_columns(0)
        return
    new_columns(2)
    new_columns(1)
    new_columns(0)
    new_rows(2)
    new_rows(1)
    new_columns(1)
