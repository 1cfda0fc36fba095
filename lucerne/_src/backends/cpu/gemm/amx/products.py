"""Products with AMX tiles: bfloat16 (sums in float32), int8 (in int32), float32 in three parts.

    for each block of columns:
        pack it, all k                               (tasks of some panels)
        for each block of rows and columns:          (tasks, `amx_tile.py`)
            for each block of k: pack A where it is not usable in place, run tile kernels

float32 in parts takes three times the room of bfloat16, so more is packed in the tasks: blocks of B
that are used for many rows, and each panel of A beside the tiles of the one before it.

The argument struct and the handling of batches are those of `driver.py`; k is counted in bytes.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import HOST, WRITES_ONLY
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.amx.cut import A_DENSE, A_TURNED, B_DENSE, B_TURNED
from lucerne._src.backends.cpu.gemm.amx.pack import (
    NARROW,
    PANEL,
    STEP,
    Wide,
    pack_panel,
    write_amx_packing,
)
from lucerne._src.backends.cpu.gemm.amx.tile import (
    FEWEST_CUTTING,
    PANELS_AT_ONCE,
    SCRATCH,
    amx_task,
)
from lucerne._src.backends.cpu.gemm.args import Args, in_order
from lucerne._src.backends.cpu.gemm.driver import (
    PARALLEL_BATCH,
    PARALLEL_PRODUCT,
    SERIAL,
    filled_args,
    write_batch_task,
    write_entries,
    write_select_batch,
)
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import GemmKind
from lucerne._src.backends.cpu.gemm.plan import GemmProduct, Planned, batch_words
from lucerne._src.backends.cpu.runtime.code import Code, compiled, is_listed
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS, threads
from lucerne._src.base.changed import changed
from lucerne._src.base.config import config

_TASK: list[Any] = [("args", PTR), ("chunk", I64), ("thread", I64)]
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_SHORT_STRIDE = 4096
_TILE_BYTES = 2 * STEP
_PACKED_BLOCK_BYTES = 16 << 20
_OWN_B_BYTES = 512 << 10
_COLUMN_BLOCK = 2048
_SERIAL_FLOPS, _LARGE_FLOPS = 3e6, 1e9
_PARTS_FLOPS, _PARTS_REUSE, _PARTS_SHORT_REUSE = 5e6, 64, 50
"""Cutting numbers pays when each is used often enough: a little less if k is one block."""
_FEW_TURNED = 48
"""With fewer rows a weight is not used often enough to be worth cutting."""
_ALONE_FLOPS = 5e7
"""Products in parts below this: one task for each thread, which packs all it needs itself. What one
core has written comes to another more slowly than it is packed a second time."""
_ALONE_AGAIN = 2
"""All tasks together may pack so many times what there is."""
_MOST_WHOLE = 12 << 20
_OWN_B_PANELS = 16
_PARTS_K_BYTES, _PARTS_ROWS, _PARTS_COLUMNS = 768, 1024, 384


@cache
def has_amx() -> bool:
    """Whether the processor has tiles, and the system lets this process use them."""
    if not HOST.has("amx_tile", "amx_bf16", "amx_int8") or not HOST.has_avx512:
        return False
    if WRITES_ONLY:  # what is written asks where it runs
        return True
    asked = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(asked == 0)


def amx_driver(kind: GemmKind, wide: Wide = NARROW) -> Code:
    key = ("gemm.amx", *kind.key, wide.a, wide.b, wide.parts, wide.turned)
    return compiled(key, lambda m: _write(m, kind, wide))


# ---- code -------------------------------------------------------------------------------------


def _write(m: Module, kind: GemmKind, wide: Wide) -> None:
    write_amx_packing(m, kind, wide)
    unit = unit_of(kind, wide)
    a_size, b_size = (unit * (2 if w else 1) for w in (wide.a, wide.b))
    _write_pack_columns(m, unit, b_size, wide.parts)
    _write_pack_task(m)
    _write_pack_rows(m, unit, a_size, wide.parts)
    _write_pack_whole(m, wide.parts)
    for parallel in (False, True):
        _write_product(m, parallel, wide.parts)
    write_select_batch(m, kind, a_size, b_size, turned=wide.turned)
    write_batch_task(m)
    write_entries(m)
    _write_prepack(m, wide.parts)


def unit_of(kind: GemmKind, wide: Wide) -> int:
    """Bytes of an element in the tiles."""
    return 2 if wide.parts > 1 else kind.source.size


def _k_blocks(f: LLVMFunction, args: Args) -> Any:
    return f.loop(0, args.K_ROOM, args.K_BLOCK, at_least_once=True)


def _write_pack_task(m: Module) -> None:
    """Some column panels of B, into the buffer that all threads read."""
    with m.function("pack_task", _TASK, internal=True) as f:
        args = Args(f, f.args[0])
        start, end = args.PANEL_START, args.PANEL_STOP
        first = start + f.args[1] * args.PACK_GROUP
        stop = f.minimum(first + args.PACK_GROUP, end)
        given = [args.place, first, stop, args.PACKED_B, start, end - start, 0, args.K_ROOM]
        f.call("pack_columns", VOID, given)


def _write_pack_columns(m: Module, size: int, step: int, parts: int) -> None:
    """Column panels of B, some blocks of k, into a buffer of `panels` panels from `origin` on.

    `size`, `step`: bytes of an element in the tiles and in memory.
    """
    params: list[Any] = [
        ("args", PTR), ("first", I64), ("stop", I64), ("target", PTR), ("origin", I64),
        ("panels", I64), ("k_first", I64), ("k_stop", I64),
    ]  # fmt: skip
    with m.function("pack_columns", params) as f:
        args = Args(f, f.args[0])
        first, stop, target, origin, panels, k_first, k_stop = f.args[1:]
        b_k, b_col, columns = args.B_K * step, args.B_COL * step, args.N
        with f.loop(k_first, k_stop, args.K_BLOCK, at_least_once=True) as blocks:
            k = blocks.index
            room = f.minimum(args.K_BLOCK, args.K_ROOM - k)
            count = f.minimum(room, args.K * size - k)

            def place(panel: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
                column = panel * PANEL
                offset = ((k - k_first) * panels + (panel - origin) * room) * (PANEL * parts)
                return column, f.minimum(columns - column, PANEL), f.at(target, offset)

            with (
                f.if_(args.is_set("B_HOW")) as turned,
                _tiles(f, room) as (tile, steps),
                f.loop(first, stop) as loop,
            ):
                column, valid, to = place(loop.index)
                source = f.at(args.B, ((k + tile) // size) * b_k + column * step)
                to = f.at(to, tile * (PANEL * parts))
                pack_panel(f, B_TURNED, source, b_k, to, valid, count - tile, steps)
            with turned.else_(), f.loop(first, stop) as loop:
                column, valid, to = place(loop.index)
                source = f.at(args.B, column * b_col + k * (step // size))
                pack_panel(f, B_DENSE, source, b_col, to, valid, count, room)


def _write_pack_rows(m: Module, size: int, step: int, parts: int) -> None:
    """Row panels of A for one block of k: called by tasks by address."""
    params: list[Any] = [
        ("args", PTR), ("k", I64), ("room", I64), ("first", I64), ("stop", I64), ("space", PTR),
        ("origin", I64),
    ]  # fmt: skip
    with m.function("pack_rows", params) as f:
        place, k, room, first, stop, space, origin = f.args
        args = Args(f, place)
        count = f.minimum(room, args.K * size - k)
        a_row, a_k = args.A_ROW * step, args.A_K * step

        def at(panel: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
            row = panel * PANEL
            to = f.at(space, (panel - origin) * room * (PANEL * parts))
            return row, f.minimum(args.M - row, PANEL), to

        with (
            f.if_(args.is_set("A_HOW")) as turned,
            _tiles(f, room) as (tile, steps),
            f.loop(first, stop) as loop,
        ):
            row, valid, to = at(loop.index)
            source = f.at(args.A, ((k + tile) // size) * a_k + row * step)
            to = f.at(to, tile * (PANEL * parts))
            pack_panel(f, A_TURNED, source, a_k, to, valid, count - tile, steps)
        with turned.else_(), f.loop(first, stop) as loop:
            row, valid, to = at(loop.index)
            source = f.at(args.A, row * a_row + k * (step // size))
            pack_panel(f, A_DENSE, source, a_row, to, valid, count, room)


def _write_pack_whole(m: Module, parts: int) -> None:
    """Some row panels of A, all blocks of k: done once, before the tasks that multiply."""
    with m.function("pack_whole_task", _TASK, internal=True) as f:
        args = Args(f, f.args[0])
        first = f.args[1] * args.WHOLE_GROUP
        stop = f.minimum(first + args.WHOLE_GROUP, args.PANELS)
        whole = f.at(args.WORKSPACE, args.WHOLE_OFFSET + args.THREAD * args.WHOLE_SPACE)
        with _k_blocks(f, args) as blocks:
            k = blocks.index
            room = f.minimum(args.K_BLOCK, args.K_ROOM - k)
            space = f.at(whole, k * args.PANELS * (PANEL * parts))
            f.call("pack_rows", VOID, [args.place, k, room, first, stop, space, 0])


class _tiles:
    """`with _tiles(f, room) as (tile, steps)`: k in short pieces, each for all panels in turn, so
    that rows of the matrix are read along."""

    def __init__(self, f: LLVMFunction, room: LLVMValue) -> None:
        self.f, self.room = f, room
        self.loop = f.loop(0, room, _TILE_BYTES)

    def __enter__(self) -> tuple[LLVMValue, LLVMValue]:
        tile = self.loop.__enter__().index
        return tile, self.f.minimum(self.room - tile, _TILE_BYTES)

    def __exit__(self, *problem: Any) -> None:
        self.loop.__exit__(*problem)


def _column_blocks(f: LLVMFunction, args: Args) -> Any:
    return f.loop(0, args.COLUMN_PANELS, args.COLUMN_BLOCK)


def _set_block(f: LLVMFunction, args: Args, start: LLVMValue) -> LLVMValue:
    stop = f.minimum(start + args.COLUMN_BLOCK, args.COLUMN_PANELS)
    args.set("PANEL_START", start)
    args.set("PANEL_STOP", stop)
    return stop - start


def _write_product(m: Module, parallel: bool, parts: int) -> None:
    name = "product_parallel" if parallel else "product_serial"
    with m.function(name, [("args", PTR)], internal=True) as f:
        args = Args(f, f.args[0])

        def run(task: LLVMValue, count: LLVMValue) -> None:
            if parallel:
                f.call("lucerne_pfor", VOID, [task, args.place, count])
                return
            with f.loop(0, count) as loop:
                f.call_at(task, VOID, [args.place, loop.index, args.THREAD])

        base = args.PACKED_B
        with f.if_(args.is_set("WHOLE_SPACE")):
            run(f.symbol("pack_whole_task"), f.ceil_div(args.PANELS, args.WHOLE_GROUP))
        with _column_blocks(f, args) as blocks:
            panels = _set_block(f, args, blocks.index)
            with f.if_(args.is_set("B_READY")) as ready:
                args.set("PACKED_B", f.at(base, blocks.index * args.K_ROOM * (PANEL * parts)))
            with ready.else_(), f.if_(args.is_unset("OWN_B")):
                run(f.symbol("pack_task"), f.ceil_div(panels, args.PACK_GROUP))
            run(args.KERNEL, f.ceil_div(panels, args.BLOCK_COLUMNS) * args.ROW_BLOCKS)
        args.set("PACKED_B", base)


def _write_prepack(m: Module, parts: int) -> None:
    """Pack all of B into the output: [packed] [B] [workspace] [extra]."""
    with m.function("prepack", [("block", PTR)], I64) as f:
        args = filled_args(f, f.args[0], {"B": 1, "space": 2, "extra": 3})
        args.set("B", args.BASE_B)
        with _column_blocks(f, args) as blocks:
            panels = _set_block(f, args, blocks.index)
            args.set("PACKED_B", f.at(args.BASE_C, blocks.index * args.K_ROOM * (PANEL * parts)))
            count = f.ceil_div(panels, args.PACK_GROUP)
            f.call("lucerne_pfor", VOID, [f.symbol("pack_task"), args.place, count])
        f.ret(0)


# ---- plans ------------------------------------------------------------------------------------


def amx_takes(p: GemmProduct) -> bool:
    """Whether tiles suit a product: large enough, and each operand dense one way."""
    if min(p.m, p.n) < 8 or p.k < 16 or p.flops < 1e5:
        return False
    return 1 in (p.a_row, p.a_k) and 1 in (p.b_k, p.b_col) and has_amx()


def parts_work() -> bool:
    """Whether this machine multiplies float32 numbers in three parts, and may."""
    return config.float32_parts and has_amx() and HOST.has("avx512_bf16")


def parts_take(p: GemmProduct) -> bool:
    """Whether a float32 product is large enough to be worth cutting its numbers in three."""
    if not parts_work():
        return False
    reuse = _PARTS_SHORT_REUSE if 2 * p.k <= _PARTS_K_BYTES else _PARTS_REUSE
    large = p.m * p.n >= reuse * (p.m + p.n) and p.k >= 64 and p.flops >= _PARTS_FLOPS
    return large and amx_takes(p)


def turned_takes(p: GemmProduct) -> bool:
    """Whether it is worth the while to take a right operand that lies along k for the left one: a
    weight that meets few rows (see `IN_PARTS_TURNED`)."""
    if not parts_work():
        return False
    few = _FEW_TURNED <= p.m <= _PARTS_COLUMNS and 2 * p.m <= p.n
    large = p.k >= 64 and p.flops >= _PARTS_FLOPS
    along = p.a_k == 1 and p.b_k == 1 and not p.batch
    return few and large and along and amx_takes(p)


_ADDRESSES: weakref.WeakKeyDictionary[Epilogue, dict[Any, tuple[int, int, int]]] = (
    weakref.WeakKeyDictionary()
)
"""As `plan._KERNELS`, which see."""


def _addresses(kind: GemmKind, epilogue: Epilogue, wide: Wide) -> tuple[int, int, int]:
    """Of the task that multiplies a block, and what packs rows and columns."""
    known, key = _ADDRESSES.setdefault(epilogue, {}), (*kind.key, *vars(wide).values())
    if key not in known or is_listed():
        code = amx_driver(kind, wide)
        task = amx_task(kind, epilogue, wide.parts, wide.turned)
        known[key] = task, code["pack_rows"], code["pack_columns"]
    return known[key]


def amx_plan(
    kind: GemmKind,
    p: GemmProduct,
    epilogue: Epilogue = PLAIN,
    *,
    b_ready: bool = False,
    wide: Wide = NARROW,
) -> Planned:
    assert has_amx(), "tiles need the system's permission"
    c_row, e_row = p.c_row, p.e_row
    if wide.turned:
        assert not p.batch, p
        assert not b_ready, p
        p = changed(p, m=p.n, n=p.m, a_row=p.b_col, a_k=p.b_k, b_k=p.a_k, b_col=p.a_row)
    size, depth = unit_of(kind, wide), PANEL * wide.parts
    room = -(-p.k * size // STEP) * STEP
    k_block, row_most, column_most = (_blocks if wide.parts == 1 else _split_blocks)(p.k, room)
    panels, column_panels = -(-p.m // PANEL), -(-p.n // PANEL)
    in_place = p.a_k == 1 and p.k * size % STEP == 0 and p.a_row * size < _SHORT_STRIDE
    in_place = in_place and not wide.a
    parallel = _parallel(p)
    # What ends panels wants long rows.
    long_rows = epilogue.ends_panels and column_panels * room * depth <= _OWN_B_BYTES
    if long_rows:
        column_most = column_panels * PANEL
    # In parts a block of columns of a short k is used right after it was packed.
    short = wide.parts > 1 and k_block == room
    column_block = min(column_panels, (column_most if short else _COLUMN_BLOCK) // PANEL)
    while column_block > 1 and column_block * room * depth > _PACKED_BLOCK_BYTES:
        column_block = -(-column_block // 2)
    alone = wide.parts > 1 and not b_ready and parallel == PARALLEL_PRODUCT
    alone = alone and p.flops < _ALONE_FLOPS
    own_b = in_place and not b_ready and k_block == room and parallel == PARALLEL_PRODUCT
    if own_b and column_panels >= 2 * threads():
        rows, across = panels, _own_columns(column_panels, room)
        column_block = column_panels
    else:
        own_b = False
        rows, across = min(panels, row_most // PANEL), min(column_block, column_most // PANEL)
        most = rows, across, column_block, long_rows
        if alone:
            rows, across = _task_panels(panels, *most, threads())
            packed = -(-panels // rows) * -(-column_panels // across) * (rows + across)
            alone = packed <= _ALONE_AGAIN * (panels + column_panels)
        if not alone:
            wanted = 2 * threads() if parallel == PARALLEL_PRODUCT else 1
            if wide.turned:  # the first panel of a task is not cut beside tiles: few are better
                wanted = min(wanted, threads())
            rows, across = _task_panels(panels, *most, wanted)
    # In parts a task with many rows packs each block of B when it comes to it: it stays near.
    own_parts = wide.parts > 1 and not b_ready and k_block < room and rows >= _OWN_B_PANELS
    own_parts = own_parts or alone
    owners = MAX_THREADS if parallel == PARALLEL_BATCH else 1
    tiles = 2 if k_block == room else rows * across
    sums_space = (tiles + (wide.parts > 1)) * SCRATCH
    b_space = 0 if b_ready or own_b or own_parts else column_block * room * depth
    a_panels = PANELS_AT_ONCE if wide.parts > 1 else rows  # in parts, used in turn
    a_space = sums_space + (across * room if own_b else a_panels * k_block) * depth
    if own_b:
        a_space += k_block * PANEL  # the last panel of A, if it is not whole
    # Each block of columns would pack A again: better once before, if it stays near and cannot be
    # done beside the tiles.
    again = p.n > across * PANEL and (p.a_k != 1 or across < FEWEST_CUTTING)
    whole = wide.parts > 1 and again and not alone and panels * room * depth <= _MOST_WHOLE
    whole_space = panels * room * depth if whole else 0
    whole_offset = b_space * owners
    if whole_space:
        a_space = sums_space
    if own_parts:
        a_space += across * k_block * depth
    a_offset = whole_offset + whole_space * owners
    kernel, pack_rows, pack_columns = _addresses(kind, epilogue, wide)
    words = {
        "M": p.m, "N": p.n, "K": p.k, "K_ROOM": room,
        "A_ROW": p.a_row, "A_K": p.a_k, "B_K": p.b_k, "B_COL": p.b_col, "C_ROW": c_row,
        "E_ROW": e_row, "PANELS": panels, "COLUMN_PANELS": column_panels,
        "BLOCK_ROWS": rows, "ROW_BLOCKS": -(-panels // rows), "BLOCK_COLUMNS": across,
        "K_BLOCK": k_block, "COLUMN_BLOCK": column_block,
        "PACK_GROUP": max(1, min(4, column_block // (4 * threads()))),
        "KERNEL": kernel, "KERNEL_TALLER": pack_rows, "PACK_COLUMNS": pack_columns,
        "OWN_B": int(own_b or own_parts),
        "A_IN_PLACE": int(in_place), "B_READY": int(b_ready),
        "A_HOW": int(p.a_k != 1), "B_HOW": int(p.b_k != 1),
        "A_OFFSET": a_offset, "A_SPACE": a_space, "B_OFFSET": 0, "B_SPACE": b_space,
        "SUMS_OFFSET": -1, "SUMS_SPACE": sums_space,
        "WHOLE_OFFSET": whole_offset, "WHOLE_SPACE": whole_space,
        "WHOLE_GROUP": max(1, min(4, panels // (4 * threads()))),
        "PARALLEL": parallel, "BATCHES": p.batches, "BATCH_DIMS": len(p.batch),
        "BATCH_GROUP": max(1, int(_SERIAL_FLOPS // p.flops)),
    } | batch_words(p)  # fmt: skip
    listed = in_order(words)
    workers = 1 if parallel == SERIAL else MAX_THREADS
    return Planned(listed, a_offset + a_space * workers, column_panels * room * depth)


def _task_panels(
    panels: int, rows: int, across: int, column_block: int, long_rows: bool, wanted: int
) -> tuple[int, int]:
    """Panels of rows and columns of a task, at most these, if there are to be so many tasks."""
    while -(-panels // rows) * -(-column_block // across) < wanted and rows * across > 1:
        if across >= rows and not (long_rows and rows > 1):
            across = -(-across // 2)
        else:
            rows = -(-rows // 2)
    return rows, across


def _own_columns(column_panels: int, room: int) -> int:
    """Panels of B that a task packs for itself: equal parts that stay in the second cache."""
    most = max(1, _OWN_B_BYTES // (room * PANEL))
    each = 2 * threads()
    tasks = -(-column_panels // (most * each)) * each
    return -(-column_panels // tasks)


def _blocks(k: int, room: int) -> tuple[int, int, int]:
    """Bytes of k, rows and columns of a block: what is used again stays in the second cache."""
    if room <= 2048:
        return room, 1024, max(256, min(1152, (1 << 19) // k // PANEL * PANEL))
    if room < _SHORT_STRIDE:
        return room, 256, 384
    count = -(-room // 512)
    return -(-room // STEP // count) * STEP, 256, 384


def _split_blocks(k: int, room: int) -> tuple[int, int, int]:
    """The same for elements in three parts: a block of B (six bytes an element) stays in the second
    cache, and is used by many rows before the next one comes.

    Shorter blocks of k, for which a panel of A would stay in the first, measured slower: sums leave
    the tiles after each block.
    """
    count = -(-room // _PARTS_K_BYTES)
    return -(-room // STEP // count) * STEP, _PARTS_ROWS, _PARTS_COLUMNS


def _parallel(p: GemmProduct) -> int:
    if p.flops * p.batches < _SERIAL_FLOPS or threads() == 1:
        return SERIAL
    if p.batches == 1 or p.flops >= _LARGE_FLOPS:
        return PARALLEL_PRODUCT
    return PARALLEL_PRODUCT if p.batches < 4 and p.flops > 1e8 else PARALLEL_BATCH
