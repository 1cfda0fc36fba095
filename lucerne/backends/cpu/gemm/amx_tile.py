"""AMX tile kernels: 32 x 32 sums in four tile registers, and the task that runs them over a block.

Sums leave the tile registers through memory only, so each finished tile waits in a scratch square
of 4 KB; its epilogue (convert, bias, store) is done inside the k loop of the *next* tile, four rows
a step, while the tile unit is busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne.backends.cpu.emit.builder import Function, Module, Value
from lucerne.backends.cpu.emit.types import I8, I64, PTR, VOID
from lucerne.backends.cpu.gemm.amx_pack import PANEL, STEP, STEP_BYTES, TILE
from lucerne.backends.cpu.gemm.args import Args
from lucerne.backends.cpu.gemm.epilogue import Epilogue, Tile
from lucerne.backends.cpu.gemm.kinds import Kind, store_masked
from lucerne.backends.cpu.runtime.code import compiled

SCRATCH = 4 * TILE
_LANES = 16
_ROWS_PER_STEP = 4
_DEFER_STEPS = PANEL // _ROWS_PER_STEP
_RESULT_ROWS_AHEAD = 3
Range = tuple[Value, Value]
_TASK: list[Any] = [("args", PTR), ("chunk", I64), ("thread", I64)]


def amx_task(kind: Kind, epilogue: Epilogue) -> int:
    """The address of the task that multiplies one block."""
    key = ("gemm.amx.task", *kind.key, epilogue.key)
    return compiled(key, lambda m: _write(m, kind, epilogue))["amx_task"]


def _write(m: Module, kind: Kind, epilogue: Epilogue) -> None:
    size = [0] * 64
    size[0] = 1
    for t in range(8):
        size[16 + 2 * t], size[48 + t] = STEP, 16
    text = ", ".join(f"i8 {b}" for b in size)
    m.constant("tile_sizes", "[64 x i8]", f"[{text}]")
    for in_place in (False, True):
        for deferred in (False, True):
            _write_kernel(m, kind, epilogue, _Form(in_place, deferred))
    _write_finish(m, kind, epilogue)
    _write_task(m, kind)


def _amx(f: Function, name: str, *arguments: Value) -> None:
    f.call(f"llvm.x86.{name}", VOID, list(arguments))


def _register(f: Function, n: int) -> Value:
    return f.constant(n, I8)


# ---- one tile ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Whether A is read where it is, and whether an earlier tile is finished on the way."""

    in_place: bool
    deferred: bool

    @property
    def name(self) -> str:
        return f"kernel{int(self.in_place)}{int(self.deferred)}"


_PARAMS: list[Any] = [
    ("steps", I64), ("A", PTR), ("B", PTR), ("scratch", PTR), ("add", I64), ("ahead", PTR),
    ("args", PTR), ("row", I64), ("column", I64),
]  # fmt: skip
_DEFERRED: list[Any] = [("earlier", PTR), ("earlier_row", I64), ("earlier_column", I64)]


def _write_kernel(m: Module, kind: Kind, epilogue: Epilogue, form: _Form) -> None:
    params = _PARAMS + (_DEFERRED if form.deferred else [])
    with m.function(form.name, params, internal=True) as f:
        steps, a, b, scratch, add, ahead, place, row, column = f.args[:9]
        args = Args(f, place)
        a_step = args.A_ROW * kind.source.size
        finish = None
        if form.deferred:
            finish = _Finish(f, kind, epilogue, args, f.args[9:], None)
        with f.if_(f.compare("ne", add, 0)) as start:
            for t in range(4):
                _amx(f, "tileloadd64", _register(f, t), f.at(scratch, t * TILE), f.constant(STEP))
        with start.else_():
            for t in range(4):
                _amx(f, "tilezero", _register(f, t))
        c_step = args.C_ROW * kind.result.size
        c = f.at(args.C, row * c_step + column * kind.result.size)

        def step(index: Value, a: Value, b: Value) -> tuple[Value, Value]:
            _multiply(f, kind, form, a, b, a_step)
            for u in range(2):
                f.prefetch(f.at(ahead, a_step * u + index * STEP), 2)
            for u in range(_RESULT_ROWS_AHEAD):
                line = (index * _RESULT_ROWS_AHEAD + u) & (PANEL - 1)
                f.prefetch(f.at(c, line * c_step), 2)
            return f.at(a, STEP if form.in_place else STEP_BYTES), f.at(b, STEP_BYTES)

        first: Value | int = 0
        if finish is not None:
            with f.loop(0, _DEFER_STEPS, 1, [a, b], at_least_once=True) as loop:
                loop.next(*step(loop.index, *loop.carried))
                for u in range(_ROWS_PER_STEP):
                    finish.row(loop.index * _ROWS_PER_STEP + u)
            (a, b), first = loop.results, _DEFER_STEPS
        with f.loop(first, steps, 1, [a, b]) as loop:
            loop.next(*step(loop.index, *loop.carried))
        for t in range(4):
            _amx(f, "tilestored64", _register(f, t), f.at(scratch, t * TILE), f.constant(STEP))


def _multiply(f: Function, kind: Kind, form: _Form, a: Value, b: Value, a_step: Value) -> None:
    """64 bytes of k: two tiles of A (4, 5) times two of B (6, 7) onto sums 0 to 3."""
    dot = "tdpbf16ps" if kind.source.is_float else "tdpbssd"

    def load_a(t: int, half: int) -> None:
        if form.in_place:
            _amx(f, "tileloadd64", _register(f, t), f.at(a, a_step * (16 * half)), a_step)
        else:
            _amx(f, "tileloadd64", _register(f, t), f.at(a, half * TILE), f.constant(STEP))

    def load_b(t: int, half: int) -> None:
        _amx(f, "tileloadd64", _register(f, t), f.at(b, half * TILE), f.constant(STEP))

    def multiply(c: int, x: int, y: int) -> None:
        _amx(f, dot, _register(f, c), _register(f, x), _register(f, y))

    load_a(4, 0)
    load_b(6, 0)
    multiply(0, 4, 6)
    load_a(5, 1)
    multiply(2, 5, 6)
    load_b(7, 1)
    multiply(1, 4, 7)
    multiply(3, 5, 7)


class _Finish:
    """The epilogue of the tile in a scratch square, row by row."""

    def __init__(
        self,
        f: Function,
        kind: Kind,
        epilogue: Epilogue,
        args: Args,
        where: list[Value],
        columns: Value | None,
    ) -> None:
        self.f, self.kind, self.epilogue = f, kind, epilogue
        self.scratch, first, column = where
        self.mask = None if columns is None else f.low_mask(columns, PANEL)
        masks = [
            None if columns is None else f.low_mask(columns - _LANES * j, _LANES) for j in range(2)
        ]
        self.masks = masks
        self.tile = Tile(f, kind, args, first, column, masks, _LANES)
        self.ready = epilogue.prepare(self.tile)
        self.step = args.C_ROW * kind.result.size
        self.c = f.at(args.C, first * self.step + column * kind.result.size)

    def row(self, r: Value) -> None:
        f, wide = self.f, self.kind.sums.vector(_LANES)
        half = f.bits("lshr", r, 4)
        base = f.at(self.scratch, half * (2 * TILE) + (r & 15) * STEP)
        done = [
            self.epilogue.apply(
                self.tile, self.ready, f.load(wide, f.at(base, j * TILE), align=64),
                self.tile.row + r, j,
            )
            for j in range(2)
        ]  # fmt: skip
        self._store(done, f.at(self.c, r * self.step))

    def _store(self, done: list[Value], place: Value) -> None:
        f, kind = self.f, self.kind
        if kind.narrows:
            joined = kind.narrow(f, f.shuffle(done[0], done[1], range(PANEL)))
            store_masked(f, joined, place, self.mask)
            return
        for j in range(2):
            store_masked(f, done[j], f.at(place, j * _LANES * kind.result.size), self.masks[j])


def _write_finish(m: Module, kind: Kind, epilogue: Epilogue) -> None:
    params: list[Any] = [
        ("args", PTR), ("scratch", PTR), ("row", I64), ("column", I64), ("rows", I64),
        ("columns", I64),
    ]  # fmt: skip
    with m.function("finish", params, internal=True) as f:
        place, scratch, row, column, rows, columns = f.args
        done = _Finish(f, kind, epilogue, Args(f, place), [scratch, row, column], columns)
        with f.loop(0, rows) as loop:
            done.row(loop.index)


# ---- a block ----------------------------------------------------------------------------------


def _write_task(m: Module, kind: Kind) -> None:
    """Panels of A times panels of B: A outside, so that results are written along rows."""
    with m.function("amx_task", _TASK) as f:
        _amx(f, "ldtilecfg", f.symbol("tile_sizes"))
        args = Args(f, f.args[0])
        chunk, thread = f.args[1:]
        scratch = f.at(args.PACKED_A, thread * args.A_SPACE)
        space = f.at(scratch, args.SUMS_SPACE)
        row_blocks = args.ROW_BLOCKS
        first = (chunk % row_blocks) * args.BLOCK_ROWS
        stop = f.minimum(first + args.BLOCK_ROWS, args.PANELS)
        start = args.PANEL_START + (chunk // row_blocks) * args.BLOCK_COLUMNS
        end = f.minimum(start + args.BLOCK_COLUMNS, args.PANEL_STOP)
        own = args.is_set("OWN_B")
        columns = _Columns(
            f.select(own, space, args.PACKED_B),
            f.select(own, start, args.PANEL_START),
            f.select(own, end - start, args.PANEL_STOP - args.PANEL_START),
        )
        with f.if_(own):
            given = [args.place, start, end, columns.place, columns.first, columns.count]
            f.call_at(args.PACK_COLUMNS, VOID, given)
        # Only a last panel that is not whole is packed beside a B of its own: see the plan.
        own_bytes = columns.count * args.K_ROOM * PANEL
        space = f.at(space, f.select(own, own_bytes, 0))
        whole = args.M // PANEL
        placed = f.select(args.is_set("A_IN_PLACE"), f.minimum(stop, whole), first)
        room = args.K_ROOM
        with f.loop(0, room, args.K_BLOCK, at_least_once=True) as blocks:
            k = blocks.index
            count = f.minimum(args.K_BLOCK, room - k)
            packed_from = f.maximum(first, placed)
            given = [args.place, k, count, packed_from, stop, space, packed_from]
            f.call_at(args.KERNEL_TALLER, VOID, given)
            parts = _Parts(space, scratch, columns, placed, packed_from)
            block = _Block(f, kind, args, parts, (first, stop), (start, end))
            with f.if_(f.compare("eq", k + count, room)) as last:
                block.multiply(k, count, final=True)
            with last.else_():
                block.multiply(k, count, final=False)
        _amx(f, "tilerelease")


@dataclass(frozen=True)
class _Columns:
    """Packed columns: where, from which panel on, how many panels."""

    place: Value
    first: Value
    count: Value


@dataclass(frozen=True)
class _Parts:
    """What a task works on: packed rows of A from panel `packed_from`, scratch, packed columns;
    panels before `placed` are read where they are."""

    space: Value
    scratch: Value
    columns: _Columns
    placed: Value
    packed_from: Value


class _Block:
    """The loops of a task over the tiles of its block, for one block of k (in bytes)."""

    def __init__(
        self, f: Function, kind: Kind, args: Args, parts: _Parts, rows: Range, columns: Range
    ) -> None:
        self.f, self.kind, self.args, self.parts = f, kind, args, parts
        self.rows, self.columns = rows, columns

    def multiply(self, k: Value, count: Value, final: bool) -> None:
        f, args = self.f, self.args
        nothing, zero = f.zero(PTR), f.constant(0)
        # Carried: the tile whose epilogue is still to be done, or no scratch at all.
        with f.loop(*self.rows, carry=[nothing, zero, zero] if final else []) as down:
            with f.loop(*self.columns, carry=down.carried) as across:
                waiting = self._tile(k, count, down.index, across.index, across.carried)
                across.next(*waiting)
            down.next(*across.results)
        if final:
            with f.if_(f.compare("ne", down.results[0], nothing)):
                f.call("finish", VOID, [args.place, *down.results, PANEL, PANEL])

    def _tile(
        self, k: Value, count: Value, i: Value, j: Value, waiting: list[Value]
    ) -> list[Value]:
        f, args, size = self.f, self.args, self.kind.source.size
        row, column = i * PANEL, j * PANEL
        first_k = f.compare("eq", k, 0)
        only = f.compare("eq", count, args.K_ROOM)
        number = (j - self.columns[0]) + (i - self.rows[0]) * args.BLOCK_COLUMNS
        parts, columns = self.parts, self.parts.columns
        scratch = f.at(parts.scratch, f.select(only, number & 1, number) * SCRATCH)
        b = f.at(columns.place, (k * columns.count + (j - columns.first) * count) * PANEL)
        a_row = args.A_ROW * size
        there = f.at(args.A, row * a_row + k)
        packed = f.at(parts.space, (i - parts.packed_from) * count * PANEL)
        in_place = f.compare("lt", i, parts.placed)
        # Read early, two rows for each tile: the next panel where A is in place, else the rows of
        # this panel that will be packed for the next block of k.
        later = f.select(in_place, a_row * PANEL, count) + (j - self.columns[0]) * a_row * 2
        ahead = f.at(there, later)
        add = f.select(first_k, f.constant(0), 1)
        steps = f.bits("lshr", count, 6)
        rest = [b, scratch, add, ahead, args.place, row, column]

        def run(deferred: list[Value]) -> None:
            with f.if_(in_place) as branch:
                name = _Form(True, bool(deferred)).name
                f.call(name, VOID, [steps, there, *rest, *deferred])
            with branch.else_():
                name = _Form(False, bool(deferred)).name
                f.call(name, VOID, [steps, packed, *rest, *deferred])

        if not waiting:
            run([])
            return []
        with f.if_(f.compare("ne", waiting[0], f.zero(PTR))) as busy:
            run(waiting)
        with busy.else_():
            run([])
        return self._finish_now_or_later(steps, scratch, row, column)

    def _finish_now_or_later(
        self, steps: Value, scratch: Value, row: Value, column: Value
    ) -> list[Value]:
        """Whole tiles wait for the next one, if its loop is long enough."""
        f, args = self.f, self.args
        rows = f.minimum(args.M - row, PANEL)
        columns = f.minimum(args.N - column, PANEL)
        full = f.compare("eq", rows + columns, 2 * PANEL)
        long = f.compare("ge", steps, _DEFER_STEPS)
        with f.if_(f.bits("and", full, long)) as later:
            later.give(scratch)
        with later.else_():
            f.call("finish", VOID, [args.place, scratch, row, column, rows, columns])
            later.give(f.zero(PTR))
        return [later.results[0], row, column]
