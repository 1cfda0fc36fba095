"""The driver of large matrix products: one piece of code for all shapes of a kind.

    for each block of columns, for each block of k:
        pack that block of B                 (tasks of some panels)
        for each block of rows and columns:  (tasks)
            pack the block of A into the thread's own buffer, run micro-kernels

B's block lies in one buffer that is used again and again, so packing costs no memory traffic beyond
the cache. Batches run such products one after the other, or one per task. All sizes come from the
argument struct (`args.py`), filled by plans (`plan.py`); micro-kernels are called by address.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F64, I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.args import PLANNED, SIZE, Args
from lucerne._src.backends.cpu.gemm.kinds import GemmKind
from lucerne._src.backends.cpu.gemm.micro import ADD_TO_SUMS, LAST
from lucerne._src.backends.cpu.gemm.pack import COPY, GATHER, TURN, pack, write_packing
from lucerne._src.backends.cpu.runtime.code import Code, Job, compiled

SERIAL, PARALLEL_PRODUCT, PARALLEL_BATCH = 0, 1, 2
_TASK: list[Any] = [("args", PTR), ("chunk", I64), ("thread", I64)]
_COPY_TILE = 32
"""Steps of k copied for several panels in turn, so that whole rows of the matrix are read."""

ENTRIES: dict[str, dict[str, int]] = {
    # Words of the block: operands, epilogue tensor, workspace, numbers, extra.
    "product": {"A": 1, "B": 2, "space": 3, "extra": 4},
    "product_swapped": {"A": 2, "B": 1, "space": 3, "extra": 4},
    "linear": {"A": 1, "B": 2, "E": 3, "space": 4, "extra": 5},
    "add_product": {"E": 1, "A": 2, "B": 3, "space": 4, "extra": 5},
    "add_scaled_product": {"E": 1, "A": 2, "B": 3, "space": 4, "BETA": 5, "ALPHA": 7, "extra": 9},
}
MOST_TENSORS = 12
"""Tensors of a fused graph, results and operands together."""
FUSED = {f"fused{n}": n for n in range(2, MOST_TENSORS + 1)}
"""Entries of fused graphs with so many tensors. After the planned words stand the places of A, B, C
and E among the tensors and their byte offsets, then the words of the tail (tail.py)."""
SLOTS = "ABCE"
RUN = "run"
"""What all entries call with the argument struct; so do kernels with an entry of their own."""


def driver_job(kind: GemmKind) -> Job:
    """The driver's key and writer: to be compiled beside others."""
    return ("gemm.driver", *kind.key), lambda m: write_driver(m, kind)


def driver(kind: GemmKind) -> Code:
    return compiled(*driver_job(kind))


def write_driver(m: Module, kind: GemmKind) -> None:
    write_packing(m, kind)
    _write_pack_task(m, kind)
    _write_compute_task(m, kind)
    for parallel in (False, True):
        _write_product(m, kind, parallel)
    write_select_batch(m, kind)
    write_batch_task(m)
    write_entries(m)
    _write_prepack(m, kind)


# ---- geometry ---------------------------------------------------------------------------------


def _rounded_k(f: LLVMFunction, kind: GemmKind, k: LLVMValue) -> LLVMValue:
    return (k + (kind.lanes - 1)) & -kind.lanes


def _first_row(f: LLVMFunction, args: Args, panel: LLVMValue) -> LLVMValue:
    """The first TALLER panels have one row more."""
    return panel * args.HEIGHT + f.minimum(panel, args.TALLER)


def _rows_of(f: LLVMFunction, args: Args, panel: LLVMValue) -> LLVMValue:
    return args.HEIGHT + f.convert("zext", f.compare("lt", panel, args.TALLER), I64)


# ---- tasks ------------------------------------------------------------------------------------


def _write_pack_task(m: Module, kind: GemmKind) -> None:
    """Pack some column panels of the current block of B."""
    with m.function("pack_task", _TASK, internal=True) as f:
        args = Args(f, f.args[0])
        origin, target = args.get("PANEL_START PACKED_B")
        first = origin + f.args[1] * args.PACK_GROUP
        stop = f.minimum(first + args.PACK_GROUP, args.PANEL_STOP)
        b, k_start, k_count = args.get("B K_START K_COUNT")
        b_k, b_col, columns = args.get("B_K B_COL N")
        stride = _rounded_k(f, kind, k_count) * (kind.columns * kind.sums.size)
        size = kind.source.size

        def place(panel: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
            start = panel * kind.columns
            valid = f.minimum(columns - start, kind.columns)
            return f.at(target, (panel - origin) * stride), valid

        with (
            f.if_(f.compare("eq", args.B_HOW, COPY)) as copied,
            f.loop(0, k_count, _COPY_TILE) as tile,
        ):
            steps = f.minimum(k_count - tile.index, _COPY_TILE)
            row = f.at(b, (k_start + tile.index) * b_k * size)
            with f.loop(first, stop) as loop:
                to, valid = place(loop.index)
                source = f.at(row, loop.index * (kind.columns * size))
                to = f.at(to, tile.index * (kind.columns * kind.sums.size))
                pack(f, COPY, source, size, b_k * size, to, kind.columns, valid, steps)
        with copied.else_(), f.loop(first, stop) as loop:
            to, valid = place(loop.index)
            source = f.at(b, (loop.index * kind.columns * b_col + k_start * b_k) * size)
            given = source, b_col * size, b_k * size, to, kind.columns, valid, k_count
            _turn_or_gather(f, args.B_HOW, given)


def _turn_or_gather(f: LLVMFunction, how: LLVMValue, given: tuple[Any, ...]) -> None:
    with f.if_(f.compare("eq", how, TURN)) as turned:
        pack(f, TURN, *given)
    with turned.else_():
        pack(f, GATHER, *given)


def _write_compute_task(m: Module, kind: GemmKind) -> None:
    """One block of rows times one block of columns, for the current block of k."""
    with m.function("compute_task", _TASK, internal=True) as f:
        args = Args(f, f.args[0])
        chunk, thread = f.args[1], f.args[2]
        space = f.at(args.PACKED_A, thread * args.A_SPACE)
        row_blocks = args.ROW_BLOCKS
        first = (chunk % row_blocks) * args.BLOCK_ROWS
        stop = f.minimum(first + args.BLOCK_ROWS, args.PANELS)
        start = args.PANEL_START + (chunk // row_blocks) * args.BLOCK_COLUMNS
        end = f.minimum(start + args.BLOCK_COLUMNS, args.PANEL_STOP)
        with f.if_(args.is_unset("A_IN_PLACE")):
            _pack_rows(f, kind, args, space, first, stop)
        _multiply_block(f, kind, args, space, (first, stop), (start, end))


def _pack_rows(
    f: LLVMFunction, kind: GemmKind, args: Args, space: LLVMValue, first: LLVMValue, stop: LLVMValue
) -> None:
    """Row panels `first` to `stop` of the current block of A, into the thread's buffer."""
    a, a_row, a_k, k_start, k_count = args.get("A A_ROW A_K K_START K_COUNT")
    size, rounded = kind.source.size, _rounded_k(f, kind, k_count)
    origin = _first_row(f, args, first)

    def place(panel: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
        row = _first_row(f, args, panel)
        to = f.at(space, (row - origin) * rounded * kind.sums.size)
        return row, _rows_of(f, args, panel), to

    with (
        f.if_(f.compare("eq", args.A_HOW, COPY)) as copied,
        f.loop(0, k_count, _COPY_TILE) as tile,
    ):
        steps = f.minimum(k_count - tile.index, _COPY_TILE)
        source = f.at(a, (k_start + tile.index) * a_k * size)
        with f.loop(first, stop) as loop:
            row, height, to = place(loop.index)
            source_row = f.at(source, row * size)
            to = f.at(to, tile.index * height * kind.sums.size)
            pack(f, COPY, source_row, size, a_k * size, to, height, height, steps)
    with copied.else_(), f.loop(first, stop) as loop:
        row, height, to = place(loop.index)
        source = f.at(a, (row * a_row + k_start * a_k) * size)
        given = source, a_row * size, a_k * size, to, height, height, k_count
        _turn_or_gather(f, args.A_HOW, given)


def _multiply_block(
    f: LLVMFunction,
    kind: GemmKind,
    args: Args,
    space: LLVMValue,
    rows: tuple[LLVMValue, LLVMValue],
    columns: tuple[LLVMValue, LLVMValue],
) -> None:
    """Micro-kernels over a block: a panel of B stays in the first cache, A in the second."""
    a, b, packed_b, k_start, k_count = args.get("A B PACKED_B K_START K_COUNT")
    a_row, a_k, b_k, count = args.get("A_ROW A_K B_K N")
    rounded = _rounded_k(f, kind, k_count)
    a_in_place, b_in_place = args.is_set("A_IN_PLACE"), args.is_set("B_IN_PLACE")
    low, tall, taller = args.get("KERNEL KERNEL_TALLER TALLER")
    size, wide = kind.source.size, kind.sums.size
    add = f.select(f.compare("gt", k_start, 0), f.constant(ADD_TO_SUMS), 0)
    flags = add | f.select(f.compare("ne", args.K_LAST, 0), f.constant(LAST), 0)
    origin = _first_row(f, args, rows[0])
    # While a panel of B is used by each panel of A, the next panel of B is read bit by bit.
    panel_bytes = rounded * (kind.columns * wide)
    share = (k_count * 16) & -64
    with f.loop(*columns) as across:
        column = across.index * kind.columns
        valid = f.minimum(count - column, kind.columns)
        there = f.at(b, (k_start * b_k + column) * size)
        panel = f.at(packed_b, (across.index - args.PANEL_START) * panel_bytes)
        right = f.select(b_in_place, there, panel)
        following = f.at(right, panel_bytes)
        with f.loop(*rows) as down:
            row = _first_row(f, args, down.index)
            kernel = f.select(f.compare("lt", down.index, taller), tall, low)
            there = f.at(a, (row * a_row + k_start * a_k) * size)
            left = f.select(a_in_place, there, f.at(space, (row - origin) * rounded * wide))
            ahead = f.at(following, (down.index - rows[0]) * share)
            f.call_at(
                kernel,
                VOID,
                [k_count, left, right, valid, flags, args.place, row, column, ahead],
            )


# ---- one product ------------------------------------------------------------------------------


def _write_product(m: Module, kind: GemmKind, parallel: bool) -> None:
    name = "product_parallel" if parallel else "product_serial"
    with m.function(name, [("args", PTR)], internal=True) as f:
        args = Args(f, f.args[0])

        def run(task: str, count: LLVMValue) -> None:
            if parallel:
                f.call("lucerne_pfor", VOID, [f.symbol(task), args.place, count])
                return
            with f.loop(0, count) as loop:
                f.call(task, VOID, [args.place, loop.index, args.THREAD])

        base = args.PACKED_B
        with _blocks(f, args) as (panels, k_start):
            with f.if_(args.is_set("B_READY")) as ready:
                args.set("PACKED_B", _ready_place(f, kind, args, base, k_start))
            with ready.else_(), f.if_(args.is_unset("B_IN_PLACE")):
                run("pack_task", f.ceil_div(panels, args.PACK_GROUP))
            run("compute_task", f.ceil_div(panels, args.BLOCK_COLUMNS) * args.ROW_BLOCKS)
        args.set("PACKED_B", base)


def _ready_place(
    f: LLVMFunction, kind: GemmKind, args: Args, base: LLVMValue, k_start: LLVMValue
) -> LLVMValue:
    """Where a block of a B that was packed whole stands: blocks of columns, in them blocks of k."""
    start, stop = args.get("PANEL_START PANEL_STOP")
    before = start * _rounded_k(f, kind, args.K) + (stop - start) * k_start
    return f.at(base, before * (kind.columns * kind.sums.size))


class _blocks:
    """`with _blocks(f, args) as (panels, k_start)`: loops over column blocks and blocks of k."""

    def __init__(self, f: LLVMFunction, args: Args) -> None:
        self.f, self.args = f, args

    def __enter__(self) -> tuple[LLVMValue, LLVMValue]:
        f, args = self.f, self.args
        self.across = f.loop(0, args.COLUMN_PANELS, args.COLUMN_BLOCK)
        start = self.across.__enter__().index
        stop = f.minimum(start + args.COLUMN_BLOCK, args.COLUMN_PANELS)
        args.set("PANEL_START", start)
        args.set("PANEL_STOP", stop)
        # k = 0 runs one empty block: results are the epilogue of zeros.
        self.along = f.loop(0, args.K, args.K_BLOCK, at_least_once=True)
        k = self.along.__enter__().index
        count = f.minimum(args.K_BLOCK, args.K - k)
        args.set("K_START", k)
        args.set("K_COUNT", count)
        args.set("K_LAST", f.convert("zext", f.compare("eq", k + count, args.K), I64))
        return stop - start, k

    def __exit__(self, *problem: Any) -> None:
        self.along.__exit__(*problem)
        self.across.__exit__(*problem)


# ---- batches and entries ----------------------------------------------------------------------


def write_select_batch(
    m: Module, kind: GemmKind, a_size: int = 0, b_size: int = 0, *, turned: bool = False
) -> None:
    """Set the pointers of matrix number `batch`, for work on thread `thread`.

    `a_size`, `b_size`: bytes of an element in memory, where it isn't that of the kind. `turned`:
    the operands change places.
    """
    params: list[Any] = [("args", PTR), ("batch", I64), ("thread", I64)]
    with m.function("select_batch", params, internal=True) as f:
        args, batch, thread = Args(f, f.args[0]), f.args[1], f.args[2]
        zero = f.constant(0)
        dims = args.BATCH_DIMS
        with f.loop(0, dims, 1, [batch, zero, zero, zero, zero]) as loop:
            rest, *offsets = loop.carried
            place = f.at(args.at("SIZE0"), (dims - 1 - loop.index) * 40)
            size, *steps = [f.word(place, i) for i in range(5)]
            index = f.unsigned("rem", rest, size)
            moved = [o + index * s for o, s in zip(offsets, steps, strict=True)]
            loop.next(f.unsigned("div", rest, size), *moved)
        own = kind.source.size
        sizes = {"A": a_size or own, "B": b_size or own, "C": kind.result.size, "E": own}
        bases = "BACE" if turned else "ABCE"
        for name, base, offset in zip("ABCE", bases, loop.results[1:], strict=True):
            step = offset * sizes[name]
            args.set(name, f.at(getattr(args, f"BASE_{base}"), step))
        space = args.WORKSPACE
        args.set("THREAD", thread)
        args.set("BATCH", batch)
        args.set("PACKED_A", f.at(space, args.A_OFFSET))
        with f.if_(args.is_set("B_READY")) as ready:
            args.set("PACKED_B", args.B)
        with ready.else_():
            args.set("PACKED_B", f.at(space, args.B_OFFSET + thread * args.B_SPACE))
        kept = f.compare("lt", args.SUMS_OFFSET, 0)
        apart = f.at(space, args.SUMS_OFFSET + thread * args.SUMS_SPACE)
        args.set("SUMS", f.select(kept, args.C, apart))
        args.set("SUMS_ROW", f.select(kept, args.C_ROW, args.N))


def write_batch_task(m: Module) -> None:
    """Some products of a batch, each by one thread: the task has an argument struct of its own."""
    with m.function("batch_task", _TASK, internal=True) as f:
        shared, chunk, thread = f.args
        own = f.stack(SIZE)
        f.copy_bytes(own, shared, SIZE)
        args = Args(f, own)
        first = chunk * args.BATCH_GROUP
        with f.loop(first, f.minimum(first + args.BATCH_GROUP, args.BATCHES)) as loop:
            f.call("select_batch", VOID, [own, loop.index, thread])
            f.call("product_serial", VOID, [own])


def write_entries(m: Module) -> None:
    for name, words in ENTRIES.items():
        with m.function(name, [("block", PTR)], I64) as f:
            args = filled_args(f, f.args[0], words)
            f.call(RUN, VOID, [args.place])
            f.ret(0)
    _write_fused(m)
    for name, tensors in FUSED.items():
        with m.function(name, [("block", PTR)], I64) as f:
            f.call("run_fused", VOID, [f.args[0], f.at(f.args[0], tensors * 8)])
            f.ret(0)
    _write_run(m)


def _write_fused(m: Module) -> None:
    """A fused graph; `space` is where the block's word of the workspace stands."""
    with m.function("run_fused", [("block", PTR), ("space", PTR)], internal=True) as f:
        block, space = f.args
        args = Args(f, f.stack(SIZE))
        f.copy_bytes(args.place, f.at(space, 8), len(PLANNED) * 8)
        slots = f.at(space, 8 + len(PLANNED) * 8)
        args.set("WORKSPACE", f.word(space, 0, PTR))
        for i, name in enumerate(SLOTS):
            args.set(f"BASE_{name}", pointer_of(f, block, slots, i))
        args.set("BLOCK", block)
        args.set("TAIL", f.at(slots, 2 * len(SLOTS) * 8))
        f.call(RUN, VOID, [args.place])


def pointer_of(f: LLVMFunction, block: LLVMValue, slots: LLVMValue, i: int) -> LLVMValue:
    """Where the first element of A, B, C or E is, by the words of a fused graph."""
    start = f.word(f.at(block, f.word(slots, i) * 8), 0, PTR)
    return f.at(start, f.word(slots, len(SLOTS) + i))


def _write_run(m: Module) -> None:
    with m.function(RUN, [("args", PTR)]) as f:
        args = Args(f, f.args[0])
        with f.if_(f.compare("eq", args.PARALLEL, PARALLEL_BATCH)) as branch:
            chunks = f.ceil_div(args.BATCHES, args.BATCH_GROUP)
            f.call("lucerne_pfor", VOID, [f.symbol("batch_task"), args.place, chunks])
        with branch.else_(), f.loop(0, args.BATCHES) as loop:
            f.call("select_batch", VOID, [args.place, loop.index, 0])
            with f.if_(f.compare("eq", args.PARALLEL, PARALLEL_PRODUCT)) as together:
                f.call("product_parallel", VOID, [args.place])
            with together.else_():
                f.call("product_serial", VOID, [args.place])


def filled_args(f: LLVMFunction, block: LLVMValue, words: dict[str, int]) -> Args:
    """The argument struct on this call's stack."""
    args = Args(f, f.stack(SIZE))
    f.copy_bytes(args.place, f.at(block, words["extra"] * 8), len(PLANNED) * 8)
    args.set("BASE_C", f.word(block, 0, PTR))
    args.set("WORKSPACE", f.word(block, words["space"], PTR))
    for name in "ABE":
        source = f.word(block, words[name], PTR) if name in words else f.zero(PTR)
        args.set(f"BASE_{name}", source)
    for name in ("BETA", "ALPHA"):
        if name in words:
            args.set(name, f.word(block, words[name], F64))
    return args


def _write_prepack(m: Module, kind: GemmKind) -> None:
    """Pack all of B into the buffer that is the output: [packed] [B] [workspace] [extra]."""
    with m.function("prepack", [("block", PTR)], I64) as f:
        args = filled_args(f, f.args[0], {"B": 1, "space": 2, "extra": 3})
        args.set("B", args.BASE_B)
        with _blocks(f, args) as (panels, k_start):
            args.set("PACKED_B", _ready_place(f, kind, args, args.BASE_C, k_start))
            count = f.ceil_div(panels, args.PACK_GROUP)
            f.call("lucerne_pfor", VOID, [f.symbol("pack_task"), args.place, count])
        f.ret(0)
