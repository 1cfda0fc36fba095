"""Products that are not worth packing: tiny matrices, batches of them, vectors.

*Direct*: micro-kernels read both operands where they are (B by rows). With up to four rows of A the
tile is wide instead of high: B is read once, in long runs, which is all that counts then.
*Dots*: both operands lie along k (x @ w.T): tiles of sums of products along vectors, whose lanes
are added at the end.

Tasks are groups of matrices, or parts of one. They share [C, A, B, E, extra, beta, alpha, block,
tail].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F64, I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.args import PLANNED, SIZE, Args
from lucerne._src.backends.cpu.gemm.driver import ENTRIES, FUSED, SLOTS, pointer_of
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue, Tile
from lucerne._src.backends.cpu.gemm.kinds import GemmKind
from lucerne._src.backends.cpu.gemm.micro import LAST
from lucerne._src.backends.cpu.runtime.code import Code, compiled

Range = tuple[LLVMValue, LLVMValue]
Matrix = Callable[..., None]
_C, _A, _B, _E, _EXTRA, _BETA, _ALPHA, _BLOCK, _TAIL = range(9)
_SHARED = 9 * 8
_TASK: list[Any] = [("shared", PTR), ("chunk", I64), ("thread", I64)]
_NEEDED = "A_ROW A_K B_K C_ROW E_ROW"
"""Words of the plan that micro-kernels and epilogues read."""


def direct(kind: GemmKind) -> Code:
    """Entries that run micro-kernels in place; one code for all shapes of a kind."""
    return compiled(("gemm.direct", *kind.key), lambda m: write_small(m, kind, _direct_matrix))


@dataclass(frozen=True)
class Dots:
    """A tile of rows x columns sums, each along its own vectors.

    `width`: columns of a panel, more than those of a tile where a tail wants whole vectors.
    """

    rows: int
    columns: int
    width: int


def dots_form(kind: GemmKind, rows: int, columns: int, epilogue: Epilogue = PLAIN) -> Dots:
    """The tile for so many rows and columns: eight sums in flight at least, up to 24 where that
    leaves little of a tile unused. Rows of A come from a farther cache than the few of B at hand,
    so a tile is wide rather than high."""
    if rows == 1:
        high, across = 1, 8
    elif rows in (4, 7, 8) or (columns <= 16 and -columns % 8 > -columns % 4):
        high, across = 4, 4
    else:
        high, across = min(3, rows), 8
    across = min(across, kind.lanes)
    return Dots(high, across, kind.lanes if epilogue.stores else across)


def dots(kind: GemmKind, form: Dots, epilogue: Epilogue = PLAIN) -> Code:
    """Entries of the dot-product form."""
    key = ("gemm.dots", *kind.key, form.rows, form.columns, epilogue.key)

    def write(m: Module) -> None:
        _write_dot_tile(m, kind, form, epilogue)
        write_small(m, kind, lambda f, kind, *rest: _dots_matrix(f, kind, form, *rest))

    return compiled(key, write)


def write_small(m: Module, kind: GemmKind, matrix: Matrix) -> None:
    """Entries around `matrix`, which writes the product of one matrix, or of a part of it."""
    _write_task(m, kind, matrix)
    for name, words in ENTRIES.items():
        _write_entry(m, name, words)
    _write_fused(m)
    for name, tensors in FUSED.items():
        with m.function(name, [("block", PTR)], I64) as f:
            f.call("run_fused", VOID, [f.args[0], f.at(f.args[0], (tensors + 1) * 8)])
            f.ret(0)
    _write_run(m)


def _write_fused(m: Module) -> None:
    """A fused graph: the places of its tensors are words (see `driver.FUSED`)."""
    with m.function("run_fused", [("block", PTR), ("extra", PTR)], internal=True) as f:
        block, extra = f.args
        shared = f.stack(_SHARED)
        slots = f.at(extra, len(PLANNED) * 8)
        places = {"A": _A, "B": _B, "C": _C, "E": _E}
        for i, name in enumerate(SLOTS):
            f.store(pointer_of(f, block, slots, i), f.at(shared, places[name] * 8))
        f.store(extra, f.at(shared, _EXTRA * 8))
        f.store(block, f.at(shared, _BLOCK * 8))
        f.store(f.at(slots, 2 * len(SLOTS) * 8), f.at(shared, _TAIL * 8))
        f.call("run", VOID, [shared])


def _write_run(m: Module) -> None:
    with m.function("run", [("shared", PTR)], internal=True) as f:
        shared = f.args[0]
        plan = Args(f, f.word(shared, _EXTRA, PTR))
        chunks = f.ceil_div(plan.BATCHES, plan.BATCH_GROUP) * plan.ROW_BLOCKS * plan.COLUMN_BLOCKS
        with f.if_(plan.is_set("PARALLEL")) as branch:
            f.call("lucerne_pfor", VOID, [f.symbol("task"), shared, chunks])
        with branch.else_(), f.loop(0, chunks) as loop:
            f.call("task", VOID, [shared, loop.index, 0])


def _write_entry(m: Module, name: str, words: dict[str, int]) -> None:
    with m.function(name, [("block", PTR)], I64) as f:
        block = f.args[0]
        shared = f.stack(_SHARED)
        extra = f.at(block, words["extra"] * 8)
        given = [(_C, 0), (_A, words["A"]), (_B, words["B"]), (_E, words.get("E", 0))]
        for to, at in given:
            f.store(f.word(block, at, PTR), f.at(shared, to * 8))
        f.store(extra, f.at(shared, _EXTRA * 8))
        for to, number in ((_BETA, "BETA"), (_ALPHA, "ALPHA")):
            if number in words:
                f.store(f.word(block, words[number], F64), f.at(shared, to * 8))
        f.call("run", VOID, [shared])
        f.ret(0)


def _write_task(m: Module, kind: GemmKind, matrix: Matrix) -> None:
    """A group of matrices, and of each some panels of rows and columns."""
    with m.function("task", _TASK, internal=True) as f:
        shared, chunk, _ = f.args
        plan = Args(f, f.word(shared, _EXTRA, PTR))
        args = Args(f, f.stack(SIZE))
        for name in _NEEDED.split():
            args.set(name, getattr(plan, name))
        args.set("SUMS_ROW", plan.C_ROW)
        for name, at in (("BETA", _BETA), ("ALPHA", _ALPHA)):
            args.set(name, f.word(shared, at, F64))
        for name, at in (("BLOCK", _BLOCK), ("TAIL", _TAIL)):
            args.set(name, f.word(shared, at, PTR))
        across, down = plan.COLUMN_BLOCKS, plan.ROW_BLOCKS
        batch_chunk, inside = chunk // (across * down), chunk % (across * down)
        columns = _part(f, inside % across, plan.BLOCK_COLUMNS, plan.COLUMN_PANELS)
        rows = _part(f, inside // across, plan.BLOCK_ROWS, plan.PANELS)
        first = batch_chunk * plan.BATCH_GROUP
        with f.loop(first, f.minimum(first + plan.BATCH_GROUP, plan.BATCHES)) as loop:
            offsets = _batch_offsets(f, plan, loop.index)
            sizes = (kind.source.size, kind.source.size, kind.result.size, kind.source.size)
            for name, at, offset, size in zip(
                "ABCE", (_A, _B, _C, _E), offsets, sizes, strict=True
            ):
                args.set(name, f.at(f.word(shared, at, PTR), offset * size))
            args.set("BATCH", loop.index)
            args.set("SUMS", args.C)  # read by micro-kernels whose sums are the results
            matrix(f, kind, TaskWords(plan, args), rows, columns)


def _part(f: LLVMFunction, index: LLVMValue, size: LLVMValue, whole: LLVMValue) -> Range:
    return index * size, f.minimum((index + 1) * size, whole)


@dataclass(frozen=True)
class TaskWords:
    """The plan's words (shared) and a task's own argument struct."""

    plan: Args
    own: Args


def _batch_offsets(f: LLVMFunction, plan: Args, batch: LLVMValue) -> list[LLVMValue]:
    """Elements to go from the first matrix to number `batch`, of A, B, C and E."""
    dims = plan.BATCH_DIMS
    last = f.at(plan.at("SIZE0"), (dims - 1) * 40)
    zero = [f.constant(0)] * 4
    with f.if_(f.compare("gt", dims, 1)) as several:
        with f.loop(0, dims, 1, [batch, last, *zero], at_least_once=True) as loop:
            rest, place, *offsets = loop.carried
            index = f.unsigned("rem", rest, f.word(place, 0))
            moved = [o + index * f.word(place, 1 + i) for i, o in enumerate(offsets)]
            loop.next(f.unsigned("div", rest, f.word(place, 0)), f.at(place, -40), *moved)
        several.give(*loop.results[2:])
    with several.else_():
        # With no batch at all the number is 0, and so is every offset.
        several.give(*[batch * getattr(plan, f"STEP_{x}0") for x in "ABCE"])
    return several.results


# ---- direct -----------------------------------------------------------------------------------


def _direct_matrix(
    f: LLVMFunction, kind: GemmKind, pair: TaskWords, rows: Range, columns: Range
) -> None:
    """Tiles of one matrix, in the order in which what is used again is the smaller operand."""

    def both(outer: Range, inner: Range, swap: bool) -> None:
        with f.loop(*outer) as first, f.loop(*inner) as second:
            i, j = (first.index, second.index) if swap else (second.index, first.index)
            _direct_tile(f, kind, pair, i, j)

    with f.if_(pair.plan.is_set("ROWS_OUTSIDE")) as order:
        both(rows, columns, swap=True)
    with order.else_():
        both(columns, rows, swap=False)


def _direct_tile(
    f: LLVMFunction, kind: GemmKind, pair: TaskWords, i: LLVMValue, j: LLVMValue
) -> None:
    plan, args = pair.plan, pair.own
    k, n, a_row, width, height, taller = plan.get("K N A_ROW TILE_COLUMNS HEIGHT TALLER")
    size = kind.source.size
    row, column = i * height + f.minimum(i, taller), j * width
    kernel = f.select(f.compare("lt", i, taller), plan.KERNEL_TALLER, plan.KERNEL)
    left, right = f.at(args.A, row * a_row * size), f.at(args.B, column * size)
    valid = f.minimum(n - column, width)
    f.call_at(kernel, VOID, [k, left, right, valid, LAST, args.place, row, column, right])


# ---- dots -------------------------------------------------------------------------------------


def _dots_matrix(
    f: LLVMFunction, kind: GemmKind, form: Dots, pair: TaskWords, rows: Range, columns: Range
) -> None:
    plan, args = pair.plan, pair.own
    k, m, n, a_row, b_col = plan.get("K M N A_ROW B_COL")
    size = kind.source.size
    with f.loop(*columns) as across:
        column = across.index * form.width
        right = f.at(args.B, column * b_col * size)
        with f.loop(*rows) as down:
            row = down.index * form.rows
            left = f.at(args.A, row * a_row * size)
            given = [k, left, a_row * size, right, b_col * size]
            f.call("dot_tile", VOID, [*given, m, n, args.place, row, column])


def _write_dot_tile(m: Module, kind: GemmKind, form: Dots, epilogue: Epilogue) -> None:
    """One tile: rows and columns beyond the matrix repeat its last ones and are not stored."""
    params: list[Any] = [
        ("K", I64), ("A", PTR), ("a_step", I64), ("B", PTR), ("b_step", I64), ("M", I64),
        ("N", I64), ("args", PTR), ("row", I64), ("column", I64),
    ]  # fmt: skip
    with m.function("dot_tile", params, internal=True) as f:
        k, a, a_step, b, b_step, rows, columns, place, row, column = f.args
        left = _edges(f, a, a_step, form.rows, rows - row)
        ends, start = (rows, columns), (row, column)
        if not epilogue.stores:
            right = _edges(f, b, b_step, form.columns, columns - column)
            sums = _dot_loops(f, kind, form, k, left, right)
            _store_dots(f, kind, form, epilogue, sums, Args(f, place), ends, start)
            return
        kept = f.stack(form.rows * form.width * kind.sums.size)
        stop = f.minimum(columns - column, form.width)
        with f.loop(0, stop, form.columns) as tiles:
            right = _edges(
                f, f.at(b, tiles.index * b_step), b_step, form.columns, stop - tiles.index
            )
            sums = _dot_loops(f, kind, form, k, left, right)
            for i in range(form.rows):
                v = lane_sums(f, sums[i * form.columns : (i + 1) * form.columns])
                f.store(v, f.at(kept, (tiles.index + i * form.width) * kind.sums.size))
        _finish_dots(f, kind, form, epilogue, kept, Args(f, place), ends, start)


def _finish_dots(
    f: LLVMFunction,
    kind: GemmKind,
    form: Dots,
    epilogue: Epilogue,
    kept: LLVMValue,
    args: Args,
    ends: tuple[LLVMValue, LLVMValue],
    start: tuple[LLVMValue, LLVMValue],
) -> None:
    """Rows of whole vectors of sums through an epilogue that stores."""
    row, column = start
    valid = f.low_mask(ends[1] - column, form.width)
    tile = Tile(f, kind, args, row, column, [valid], form.width)
    ready = epilogue.prepare(tile)
    with f.loop(0, f.minimum(ends[0] - row, form.rows)) as loop:
        place = f.at(kept, loop.index * (form.width * kind.sums.size))
        v = f.load(kind.sums.vector(form.width), place)
        epilogue.apply(tile, ready, v, row + loop.index, 0)


def _edges(
    f: LLVMFunction, start: LLVMValue, step: LLVMValue, count: int, valid: LLVMValue
) -> list[LLVMValue]:
    return [f.at(start, f.minimum(f.constant(i), valid - 1) * step) if i else start
            for i in range(count)]  # fmt: skip


def _dot_loops(
    f: LLVMFunction,
    kind: GemmKind,
    form: Dots,
    k: LLVMValue,
    left: list[LLVMValue],
    right: list[LLVMValue],
) -> list[LLVMValue]:
    lanes, size = kind.lanes, kind.source.size

    def step(at: LLVMValue, sums: list[LLVMValue], mask: LLVMValue | None) -> list[LLVMValue]:
        along = at * size
        rows = [kind.load(f, f.at(p, along), mask) for p in left]
        made = list(sums)
        for j, p in enumerate(right):
            v = kind.load(f, f.at(p, along), mask)
            for i, x in enumerate(rows):
                at_ = i * form.columns + j
                made[at_] = kind.multiply_add(f, x, v, made[at_])
        return made

    whole = k & -lanes
    start = [f.zero(kind.vector)] * (form.rows * form.columns)
    with f.loop(0, whole, lanes, start) as loop:
        loop.next(*step(loop.index, loop.carried, None))
    with f.if_(f.compare("lt", whole, k)) as rest:
        rest.give(*step(whole, loop.results, f.low_mask(k - whole, lanes)))
    with rest.else_():
        rest.give(*loop.results)
    return rest.results


def _store_dots(
    f: LLVMFunction,
    kind: GemmKind,
    form: Dots,
    epilogue: Epilogue,
    sums: list[LLVMValue],
    args: Args,
    ends: tuple[LLVMValue, LLVMValue],
    start: tuple[LLVMValue, LLVMValue],
) -> None:
    row, column = start
    valid = f.low_mask(ends[1] - column, form.columns)
    tile = Tile(f, kind, args, row, column, [valid], form.columns)
    ready = epilogue.prepare(tile)
    for i in range(form.rows):
        v = lane_sums(f, sums[i * form.columns : (i + 1) * form.columns])
        inside = f.minimum(row + i, ends[0] - 1)  # rows beyond have no place in E either
        v = epilogue.apply(tile, ready, v, inside, 0)
        size = kind.result.size
        place = f.at(args.C, ((row + i) * args.C_ROW + column) * size)
        left = f.select(f.compare("lt", row + i, ends[0]), ends[1] - column, 0)
        kind.store(f, v, place, f.low_mask(left, form.columns))


def lane_sums(f: LLVMFunction, vectors: list[LLVMValue]) -> LLVMValue:
    """A vector of the sums of each vector's lanes, by a fixed tree."""
    lanes = vectors[0].type.lanes
    while lanes > len(vectors):
        half = lanes // 2
        vectors = [
            f.shuffle(v, None, range(half)) + f.shuffle(v, None, range(half, lanes))
            for v in vectors
        ]
        lanes = half
    distance = lanes // 2
    while distance:
        low = [x if not x & distance else lanes + x - distance for x in range(lanes)]
        high = [x + distance if not x & distance else lanes + x for x in range(lanes)]
        vectors = [
            f.shuffle(u, v, low) + f.shuffle(u, v, high)
            for u, v in zip(vectors[:distance], vectors[distance:], strict=True)
        ]
        distance //= 2
    return vectors[0]
