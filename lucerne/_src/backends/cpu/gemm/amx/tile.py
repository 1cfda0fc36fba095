"""AMX tile kernels: 32 x 32 sums in four tile registers, and the task that runs them over a block.

Sums leave the tile registers through memory only, so each finished tile waits in a scratch square
of 4 KB; its epilogue (convert, bias, store) is done inside the k loop of the *next* tile, a row
after each tile product, while the tile unit is busy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I1, I8, I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.amx.cut import cut_row
from lucerne._src.backends.cpu.gemm.amx.float32 import WHOLE_SUMS, write_whole_sums
from lucerne._src.backends.cpu.gemm.amx.pack import PANEL, STEP, STEP_BYTES, TILE
from lucerne._src.backends.cpu.gemm.args import Args
from lucerne._src.backends.cpu.gemm.epilogue import Epilogue, Tile
from lucerne._src.backends.cpu.gemm.kinds import GemmKind, store_masked
from lucerne._src.backends.cpu.gemm.pack import transposed
from lucerne._src.backends.cpu.runtime.code import compiled

SCRATCH = 4 * TILE
_LANES = 16
_RESULT_ROWS_AHEAD = 3
_ROWS_AHEAD, _ROWS_AHEAD_TURNED = {1: 2, 3: 3}, 16
"""Rows of A that are asked for early beside each tile, by parts; and those cut there. Turned
products have few tiles beside each other, so each cuts more."""
_PRODUCTS = 24
"""Tile products of a step, in three parts."""
PANELS_AT_ONCE = 4
"""Panels of A in parts that lie beside each other: so many are packed in one go if its rows are not
along k, because more of a row of the matrix is read then."""
FEWEST_CUTTING = -(-PANEL // _ROWS_AHEAD[3])
"""Tiles beside each other that a panel takes to be cut beside them."""
_ROWS_AT_ONCE = 4
"""Rows that a long epilogue goes through side by side."""
Range = tuple[LLVMValue, LLVMValue]
Rows = Callable[[int], None] | None
_TASK: list[Any] = [("args", PTR), ("chunk", I64), ("thread", I64)]


def amx_task(kind: GemmKind, epilogue: Epilogue, parts: int = 1, turned: bool = False) -> int:
    """The address of the task that multiplies one block.

    `turned`: what is multiplied are the operands in the other order, so that tiles of sums are
    transposed before their epilogue (see `Wide`).
    """
    key = ("gemm.amx.task", *kind.key, epilogue.key, parts, turned)
    return compiled(key, lambda m: _write(m, kind, epilogue, parts, turned))["amx_task"]


def _write(m: Module, kind: GemmKind, epilogue: Epilogue, parts: int, turned: bool) -> None:
    size = [0] * 64
    size[0] = 1
    for t in range(8):
        size[16 + 2 * t], size[48 + t] = STEP, 16
    text = ", ".join(f"i8 {b}" for b in size)
    m.constant("tile_sizes", "[64 x i8]", f"[{text}]")
    for other, deferred in itertools.product((False, True), (False, True)):
        in_place, cutting = (other, False) if parts == 1 else (False, other)
        beside = rows_per_step(epilogue, parts)
        _write_kernel(m, kind, epilogue, _Form(in_place, deferred, parts, cutting, turned, beside))
    _write_finish(m, kind, epilogue)
    if not _is_short(epilogue):
        _write_finish_rows(m, kind, epilogue)
    if parts > 1:
        write_whole_sums(m)
    if turned:
        _write_turn_sums(m, kind)
    if epilogue.ends_panels:
        _write_end_panel(m, epilogue)
    after = _After(rows_per_step(epilogue, parts), epilogue.ends_panels)
    _write_task(m, kind, parts, turned, after)


def rows_per_step(epilogue: Epilogue, parts: int) -> int:
    """Rows of an earlier tile that are finished beside 64 bytes of k: many of them where that is
    little work, so that it can be done beside a short k too."""
    if parts == 1:
        return 4
    return 16 if _is_short(epilogue) else 8


def _is_short(epilogue: Epilogue) -> bool:
    """Whether the code of an epilogue is written out for each row of a step."""
    return epilogue.inline or not epilogue.stores


def _amx(f: LLVMFunction, name: str, *arguments: LLVMValue) -> None:
    f.call(f"llvm.x86.{name}", VOID, list(arguments))


def _register(f: LLVMFunction, n: int) -> LLVMValue:
    return f.constant(n, I8)


# ---- one tile ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Whether A is read where it is, and whether an earlier tile is finished on the way.

    `cutting`: some rows of the next panel of A are cut in parts beside each tile.
    """

    in_place: bool
    deferred: bool
    parts: int = 1
    cutting: bool = False
    turned: bool = False
    rows_per_step: int = 0
    """Rows of an earlier tile that are finished beside 64 bytes of k."""

    @property
    def rows_ahead(self) -> int:
        return _ROWS_AHEAD_TURNED if self.turned else _ROWS_AHEAD[self.parts]

    @property
    def cut_after(self) -> dict[int, int]:
        """Tile products of a step after which a row is cut, and which."""
        each = _PRODUCTS / self.rows_ahead
        return {int((u + 0.5) * each): u for u in range(self.rows_ahead)}

    @property
    def finish_after(self) -> dict[int, int]:
        """Tile products of a step after which a row is finished, and which."""
        each = (4 if self.parts == 1 else _PRODUCTS) / self.rows_per_step
        return {int((r + 1) * each) - 1: r for r in range(self.rows_per_step)}

    @property
    def name(self) -> str:
        return f"kernel{int(self.in_place)}{int(self.deferred)}{int(self.cutting)}"


_PARAMS: list[Any] = [
    ("steps", I64), ("A", PTR), ("B", PTR), ("scratch", PTR), ("add", I64), ("ahead", PTR),
    ("ahead_step", I64), ("wanted", PTR), ("wanted_step", I64), ("into", PTR), ("left", I64),
    ("args", PTR), ("row", I64), ("column", I64),
]  # fmt: skip
_DEFERRED: list[Any] = [("earlier", PTR), ("earlier_row", I64), ("earlier_column", I64)]


def _write_kernel(m: Module, kind: GemmKind, epilogue: Epilogue, form: _Form) -> None:
    params = _PARAMS + (_DEFERRED if form.deferred else [])
    with m.function(form.name, params, internal=True) as f:
        steps, a, b, scratch, add, ahead, ahead_step, c, c_step = f.args[:9]
        into, left, place, row, column = f.args[9 : len(_PARAMS)]
        deferred = f.args[len(_PARAMS) :]
        args = Args(f, place)
        a_step = args.A_ROW * kind.source.size
        finish = None
        if form.deferred and _is_short(epilogue):
            finish = _Finish(f, kind, epilogue, args, deferred, None)
        with f.if_(f.compare("ne", add, 0)) as start:
            for t in range(4):
                _amx(f, "tileloadd64", _register(f, t), f.at(scratch, t * TILE), f.constant(STEP))
        with start.else_():
            for t in range(4):
                _amx(f, "tilezero", _register(f, t))
        others = epilogue.ahead(Tile(f, kind, args, row, column, [None, None], _LANES))

        lines = 1 if form.parts == 1 else 2
        finish_after = form.finish_after
        cut_after = form.cut_after if form.cutting else {}

        def step(
            index: LLVMValue, places: list[LLVMValue], finish: Rows = None
        ) -> tuple[LLVMValue, LLVMValue]:
            a, b = places

            def between(number: int) -> None:
                if finish is not None and number in finish_after:
                    finish(finish_after[number])
                if number in cut_after:
                    u = cut_after[number]
                    read = f.at(ahead, ahead_step * u + index * (lines * STEP))
                    to = f.at(into, index * (STEP_BYTES * form.parts) + u * STEP)
                    cut_row(f, read, to, left - index * PANEL if form.turned else None)

            _multiply(f, kind, form, a, b, a_step, between)
            later = ahead_step * PANEL if form.cutting else 0
            for u in range(form.rows_ahead):
                for n in range(lines):
                    line_ahead = ahead_step * u + later + (index * lines + n) * STEP
                    f.prefetch(f.at(ahead, line_ahead), 2)
            for u in range(_RESULT_ROWS_AHEAD):
                line = (index * _RESULT_ROWS_AHEAD + u) & (PANEL - 1)
                for at in range(0, PANEL * kind.result.size, 64):
                    f.prefetch(f.at(f.at(c, line * c_step), at), 2)
                for x in others:
                    for at in range(0, PANEL * x.size, 64):
                        f.prefetch(f.at(f.at(x.start, line * x.step), at), 2)
            step_bytes = STEP_BYTES * form.parts
            return f.at(a, STEP if form.in_place else step_bytes), f.at(b, step_bytes)

        first: LLVMValue | int = 0
        if form.deferred:
            first = PANEL // form.rows_per_step
            with f.loop(0, first, 1, [a, b], at_least_once=True) as loop:
                now = loop.index * form.rows_per_step

                def finish_row(n: int, now: LLVMValue = now) -> None:
                    if finish is not None:
                        finish.rows([now + n])
                    elif n % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                        first_row = now + (n - _ROWS_AT_ONCE + 1)
                        f.call("finish_rows", VOID, [place, *deferred, first_row])

                loop.next(*step(loop.index, loop.carried, finish_row))
            a, b = loop.results
        with f.loop(first, steps, 1, [a, b]) as loop:
            loop.next(*step(loop.index, loop.carried))
        for t in range(4):
            _amx(f, "tilestored64", _register(f, t), f.at(scratch, t * TILE), f.constant(STEP))


def _multiply(
    f: LLVMFunction,
    kind: GemmKind,
    form: _Form,
    a: LLVMValue,
    b: LLVMValue,
    a_step: LLVMValue,
    between: Callable[[int], None],
) -> None:
    """64 bytes of k: two tiles of A (4, 5) times two of B (6, 7) onto sums 0 to 3.

    `between(n)` writes other work after product number n: the tile unit is busy for long.
    """
    dot = "tdpbf16ps" if kind.source.is_float else "tdpbssd"
    done = itertools.count()

    def load_a(half: int, part: int = 0) -> None:
        if form.in_place:
            place, step = f.at(a, a_step * (16 * half)), a_step
        else:
            place, step = f.at(a, half * TILE + part * STEP_BYTES), f.constant(STEP)
        _amx(f, "tileloadd64", _register(f, 4 + half), place, step)

    def load_b(half: int, part: int = 0) -> None:
        place = f.at(b, half * TILE + part * STEP_BYTES)
        _amx(f, "tileloadd64", _register(f, 6 + half), place, f.constant(STEP))

    def multiply(row: int, column: int) -> None:
        sums = _register(f, 2 * row + column)
        _amx(f, dot, sums, _register(f, 4 + row), _register(f, 6 + column))
        between(next(done))

    # Of the nine products of parts six count, the smallest first: last x leading, middle x leading,
    # middle x middle, leading x middle, leading x last, and the leading ones. In this order few
    # tiles are loaded twice, and a number times one is that number, bit by bit. Turned, A and B
    # change roles, and the sums are the same.
    if form.turned:
        _multiply_turned(load_a, load_b, multiply)
        return
    load_a(0, form.parts - 1)
    load_b(0)
    multiply(0, 0)
    load_a(1, form.parts - 1)
    multiply(1, 0)
    load_b(1)
    multiply(0, 1)
    multiply(1, 1)
    if form.parts == 1:
        return
    for side, part in (("a", 1), ("b", 1), ("a", 0), ("b", 2), ("b", 0)):
        for half in range(2):
            (load_b if side == "b" else load_a)(half, part)
            for other in range(2):
                multiply(*((other, half) if side == "b" else (half, other)))


def _multiply_turned(
    load_a: Callable[[int, int], None],
    load_b: Callable[[int, int], None],
    multiply: Callable[[int, int], None],
) -> None:
    """The six products with the parts of A and B in each other's place."""
    load_b(0, 2)
    load_a(0, 0)
    multiply(0, 0)
    load_b(1, 2)
    multiply(0, 1)
    load_a(1, 0)
    multiply(1, 0)
    multiply(1, 1)
    for side, part in (("b", 1), ("a", 1), ("b", 0), ("a", 2), ("a", 0)):
        for half in range(2):
            (load_b if side == "b" else load_a)(half, part)
            for other in range(2):
                multiply(*((other, half) if side == "b" else (half, other)))


class _Finish:
    """The epilogue of the tile in a scratch square, row by row."""

    def __init__(
        self,
        f: LLVMFunction,
        kind: GemmKind,
        epilogue: Epilogue,
        args: Args,
        where: list[LLVMValue],
        columns: LLVMValue | None,
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

    def rows(self, rows: list[LLVMValue]) -> None:
        f, wide = self.f, self.kind.sums.vector(_LANES)
        vectors = []
        for r in rows:
            base = f.at(self.scratch, f.bits("lshr", r, 4) * (2 * TILE) + (r & 15) * STEP)
            for j in range(2):
                v = f.load(wide, f.at(base, j * TILE), align=64)
                vectors.append((v, self.tile.row + r, j))
        done = self.epilogue.apply_all(self.tile, self.ready, vectors)
        if not self.epilogue.stores:
            for n, r in enumerate(rows):
                self._store(done[2 * n : 2 * n + 2], f.at(self.c, r * self.step))

    def _store(self, done: list[LLVMValue], place: LLVMValue) -> None:
        f, kind = self.f, self.kind
        if kind.narrows:
            joined = kind.narrow(f, f.shuffle(done[0], done[1], range(PANEL)))
            store_masked(f, joined, place, self.mask)
            return
        for j in range(2):
            store_masked(f, done[j], f.at(place, j * _LANES * kind.result.size), self.masks[j])


def _write_finish(m: Module, kind: GemmKind, epilogue: Epilogue) -> None:
    params: list[Any] = [
        ("args", PTR), ("scratch", PTR), ("row", I64), ("column", I64), ("rows", I64),
        ("columns", I64),
    ]  # fmt: skip
    with m.function("finish", params, internal=True) as f:
        place, scratch, row, column, rows, columns = f.args
        done = _Finish(f, kind, epilogue, Args(f, place), [scratch, row, column], columns)
        with f.loop(0, rows) as loop:
            done.rows([loop.index])


def _write_finish_rows(m: Module, kind: GemmKind, epilogue: Epilogue) -> None:
    """Some rows of a whole tile: long epilogues are written once, and called."""
    params: list[Any] = [
        ("args", PTR), ("scratch", PTR), ("row", I64), ("column", I64), ("r", I64),
    ]  # fmt: skip
    with m.function("finish_rows", params, internal=True) as f:
        place, scratch, row, column, r = f.args
        finish = _Finish(f, kind, epilogue, Args(f, place), [scratch, row, column], None)
        finish.rows([r + n for n in range(_ROWS_AT_ONCE)])


def _write_turn_sums(m: Module, kind: GemmKind) -> None:
    """`turn_sums(scratch)`: transpose the 32 x 32 sums of a tile."""
    with m.function("turn_sums", [("scratch", PTR)], internal=True) as f:
        wide = kind.sums.vector(_LANES)

        def square(t: int) -> list[LLVMValue]:
            at = f.at(f.args[0], t * TILE)
            return transposed(f, [f.load(wide, f.at(at, n * STEP), align=64) for n in range(16)])

        def put(t: int, square: list[LLVMValue]) -> None:
            for n, v in enumerate(square):
                f.store(v, f.at(f.args[0], t * TILE + n * STEP), align=64)

        for t in (0, 3):
            put(t, square(t))
        upper, lower = square(1), square(2)
        put(2, upper)
        put(1, lower)


# ---- a block ----------------------------------------------------------------------------------


def _write_end_panel(m: Module, epilogue: Epilogue) -> None:
    params: list[Any] = [("args", PTR), ("row", I64), ("first", I64), ("stop", I64)]
    with m.function("end_panel", params, internal=True) as f:
        place, row, first, stop = f.args
        epilogue.end_panel(f, Args(f, place), row, (first, stop))


@dataclass(frozen=True)
class _After:
    """What a task has to know of its epilogue."""

    rows_per_step: int
    ends_panels: bool


def _write_task(m: Module, kind: GemmKind, parts: int, turned: bool, after: _After) -> None:
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
        own_place = space
        if parts > 1:  # behind the panels of A
            panels = f.select(args.is_set("WHOLE_SPACE"), f.constant(0), PANELS_AT_ONCE)
            own_place = f.at(space, panels * args.K_BLOCK * (PANEL * parts))
        columns = _Columns(
            f.select(own, own_place, args.PACKED_B),
            f.select(own, start, args.PANEL_START),
            f.select(own, end - start, args.PANEL_STOP - args.PANEL_START),
        )
        own_b = [args.place, start, end, columns.place, columns.first, columns.count]
        if parts == 1:
            with f.if_(own):
                f.call_at(args.PACK_COLUMNS, VOID, [*own_b, f.constant(0), args.K_ROOM])
            # Only a last panel that is not whole is packed beside a B of its own: see the plan.
            own_bytes = columns.count * args.K_ROOM * PANEL
            space = f.at(space, f.select(own, own_bytes, 0))
        whole = args.M // PANEL
        placed = f.select(args.is_set("A_IN_PLACE"), f.minimum(stop, whole), first)
        room = args.K_ROOM
        with f.loop(0, room, args.K_BLOCK, at_least_once=True) as blocks:
            k = blocks.index
            count = f.minimum(args.K_BLOCK, room - k)
            if parts > 1:
                with f.if_(own):
                    f.call_at(args.PACK_COLUMNS, VOID, [*own_b, k, k + count])
            packed_from = f.maximum(first, placed)
            with f.if_(args.is_set("WHOLE_SPACE")) as packed:
                whole_a = f.at(args.WORKSPACE, args.WHOLE_OFFSET + args.THREAD * args.WHOLE_SPACE)
                packed.give(f.at(whole_a, k * args.PANELS * (PANEL * parts)), f.constant(0))
            with packed.else_():
                if parts == 1:
                    given = [args.place, k, count, packed_from, stop, space, packed_from]
                    f.call_at(args.KERNEL_TALLER, VOID, given)
                packed.give(space, packed_from)
            place, origin = packed.results
            pieces = _Pieces(place, scratch, columns, placed, origin)
            around = (first, stop), (start, end)
            block = _Block(f, kind, args, pieces, *around, parts, turned, after)
            with f.if_(f.compare("eq", k + count, room)) as last:
                block.multiply(k, count, final=True)
            with last.else_():
                block.multiply(k, count, final=False)
        _amx(f, "tilerelease")


@dataclass(frozen=True)
class _Columns:
    """Packed columns: where, from which panel on, how many panels."""

    place: LLVMValue
    first: LLVMValue
    count: LLVMValue


@dataclass(frozen=True)
class _Pieces:
    """What a task works on: packed rows of A from panel `packed_from`, scratch, packed columns;
    panels before `placed` are read where they are."""

    space: LLVMValue
    scratch: LLVMValue
    columns: _Columns
    placed: LLVMValue
    packed_from: LLVMValue


class _Block:
    """The loops of a task over the tiles of its block, for one block of k (in bytes)."""

    def __init__(
        self,
        f: LLVMFunction,
        kind: GemmKind,
        args: Args,
        pieces: _Pieces,
        rows: Range,
        columns: Range,
        parts: int,
        turned: bool,
        after: _After,
    ) -> None:
        self.f, self.kind, self.args, self.pieces, self.parts = f, kind, args, pieces, parts
        self.rows, self.columns, self.turned = rows, columns, turned
        self.after = after
        self.rows_ahead = _Form(False, False, parts, turned=turned).rows_ahead

    def multiply(self, k: LLVMValue, count: LLVMValue, final: bool) -> None:
        f, args = self.f, self.args
        nothing, zero = f.zero(PTR), f.constant(0)
        # Carried: the tile whose epilogue is still to be done, or no scratch at all.
        with f.loop(*self.rows, carry=[nothing, zero, zero] if final else []) as down:
            if self.parts > 1:
                self._pack(k, count, down.index)
            with f.loop(*self.columns, carry=down.carried) as across:
                waiting = self._tile(k, count, down.index, across.index, across.carried)
                across.next(*waiting)
            if final and self.after.ends_panels:
                self._finish_waiting(across.results)
                columns = [j * PANEL for j in self.columns]
                f.call("end_panel", VOID, [args.place, down.index * PANEL, *columns])
                down.next(nothing, zero, zero)
            else:
                down.next(*across.results)
        if final:
            self._finish_waiting(down.results)

    def _finish_waiting(self, waiting: list[LLVMValue]) -> None:
        with self.f.if_(self.f.compare("ne", waiting[0], self.f.zero(PTR))):
            self.f.call("finish", VOID, [self.args.place, *waiting, PANEL, PANEL])

    def _pack(self, k: LLVMValue, count: LLVMValue, i: LLVMValue) -> None:
        """A panel of A in parts is packed when it is needed, if that was not done before."""
        f, args = self.f, self.args
        number = i - self.rows[0]
        group = f.select(args.is_set("A_HOW"), f.constant(PANELS_AT_ONCE), 1)
        done = f.compare("gt", number, 0) & self._cuts(k, count, i)
        done = done | f.compare("ne", number & (group - 1), 0) | args.is_set("WHOLE_SPACE")
        with f.if_(f.bits("xor", done, True)):
            stop = f.minimum(i + group, self.rows[1])
            given = [args.place, k, count, i, stop, self._panel(count, i), i]
            f.call_at(args.KERNEL_TALLER, VOID, given)

    def _cuts(self, k: LLVMValue, count: LLVMValue, i: LLVMValue) -> LLVMValue:
        """Whether panel i is cut beside the tiles of the one before it."""
        f, args = self.f, self.args
        within = f.compare("lt", i, f.minimum(self.rows[1], args.M // PANEL))
        whole_steps = f.compare("le", k + count, args.K * 2)
        if self.turned:  # rows are cut up to their end
            whole_steps = f.constant(True, I1)
        enough = f.compare("ge", self.columns[1] - self.columns[0], -(-PANEL // self.rows_ahead))
        plain = args.is_unset("WHOLE_SPACE") & args.is_unset("A_HOW")
        return within & whole_steps & enough & plain

    def _panel(self, count: LLVMValue, i: LLVMValue) -> LLVMValue:
        """Where panel i stands if not all are packed before: in few places, in turn."""
        at = ((i - self.rows[0]) & (PANELS_AT_ONCE - 1)) * count * (PANEL * self.parts)
        return self.f.at(self.pieces.space, at)

    def _tile(
        self, k: LLVMValue, count: LLVMValue, i: LLVMValue, j: LLVMValue, waiting: list[LLVMValue]
    ) -> list[LLVMValue]:
        f, args, size = self.f, self.args, self.kind.source.size
        row, column = i * PANEL, j * PANEL
        first_k = f.compare("eq", k, 0)
        only = f.compare("eq", count, args.K_ROOM)
        number = (j - self.columns[0]) + (i - self.rows[0]) * args.BLOCK_COLUMNS
        pieces, columns = self.pieces, self.pieces.columns
        scratch = f.at(pieces.scratch, f.select(only, number & 1, number) * SCRATCH)
        depth = PANEL * self.parts
        own_block = args.is_set("OWN_B") if self.parts > 1 else f.constant(0, I1)
        earlier = f.select(own_block, f.constant(0), k * columns.count)
        b = f.at(columns.place, (earlier + (j - columns.first) * count) * depth)
        a_row = args.A_ROW * size
        there = f.at(args.A, row * a_row + k * (2 if self.parts > 1 else 1))
        packed = f.at(pieces.space, (i - pieces.packed_from) * count * depth)
        in_place = f.compare("lt", i, pieces.placed)
        # Read early, two rows for each tile: the next panel where A is in place, else the rows of
        # this panel that will be packed for the next block of k.
        before = j - self.columns[0]
        later = f.select(in_place, a_row * PANEL, count) + before * a_row * 2
        ahead, ahead_step, into, cuts = f.at(there, later), a_row, f.zero(PTR), in_place
        if self.parts > 1:  # the next panel, packed or as it lies
            whole = args.is_set("WHOLE_SPACE")
            packed = f.select(whole, packed, self._panel(count, i))
            ahead = f.select(whole, f.at(packed, count * depth), f.at(there, a_row * PANEL))
            ahead_step = f.select(whole, count * 2, a_row)
            first = f.minimum(before * self.rows_ahead, PANEL - self.rows_ahead)
            ahead = f.at(ahead, first * ahead_step)
            into = f.at(self._panel(count, i + 1), first * STEP)
            few = f.compare("lt", before, -(-PANEL // self.rows_ahead))
            cuts = few & self._cuts(k, count, i + 1)
        add = f.select(first_k, f.constant(0), 1)
        steps = f.bits("lshr", count, 6)
        target = scratch
        if self.parts > 1:  # the sums of each block of k begin at zero: they stay small and exact
            beside = f.at(pieces.scratch, args.SUMS_SPACE - SCRATCH)
            target, add = f.select(first_k, scratch, beside), f.constant(0)
        result_row = args.C_ROW * self.kind.result.size
        there_row, there_column = (column, row) if self.turned else (row, column)
        wanted, wanted_step = f.at(args.C, there_row * result_row), result_row
        wanted = f.at(wanted, there_column * self.kind.result.size)
        if self.parts > 1 and not waiting:  # a later block of k writes results: the sums come next
            wanted, wanted_step = f.at(scratch, SCRATCH), f.constant(2 * STEP)
        left = args.K - f.bits("lshr", k, 1)
        rest = [b, target, add, ahead, ahead_step, wanted, wanted_step, into, left, args.place]
        rest += [there_row, there_column]

        def run(deferred: list[LLVMValue]) -> None:
            late = bool(deferred)
            if self.parts > 1:
                forms = _Form(False, late, self.parts, True), _Form(False, late, self.parts)
                condition, rows = cuts, packed
            else:
                forms = _Form(True, late), _Form(False, late)
                condition, rows = in_place, there
            with f.if_(condition) as branch:
                f.call(forms[0].name, VOID, [steps, rows, *rest, *deferred])
            with branch.else_():
                f.call(forms[1].name, VOID, [steps, packed, *rest, *deferred])

        if not waiting:
            run([])
            self._add_up(scratch, target, first_k)
            return []
        with f.if_(f.compare("ne", waiting[0], f.zero(PTR))) as busy:
            run(waiting)
        with busy.else_():
            run([])
        self._add_up(scratch, target, first_k)
        if self.parts > 1:
            f.call(WHOLE_SUMS, VOID, [args.place, scratch, row, column])
        if self.turned:
            f.call("turn_sums", VOID, [scratch])
        return self._finish_now_or_later(steps, scratch, there_row, there_column)

    def _add_up(self, sums: LLVMValue, block: LLVMValue, first_k: LLVMValue) -> None:
        """Add the sums of a block of k to those of the blocks before it."""
        f = self.f
        if self.parts == 1:
            return
        wide = self.kind.sums.vector(_LANES)
        with (
            f.if_(f.bits("xor", first_k, True)),
            f.loop(0, SCRATCH, 4 * STEP, at_least_once=True) as loop,
        ):
            for n in range(4):
                place = f.at(sums, loop.index + n * STEP)
                more = f.load(wide, f.at(block, loop.index + n * STEP), align=64)
                f.store(f.load(wide, place, align=64) + more, place, align=64)

    def _finish_now_or_later(
        self, steps: LLVMValue, scratch: LLVMValue, row: LLVMValue, column: LLVMValue
    ) -> list[LLVMValue]:
        """Whole tiles wait for the next one, if its loop is long enough."""
        f, args = self.f, self.args
        height, width = (args.N, args.M) if self.turned else (args.M, args.N)
        rows = f.minimum(height - row, PANEL)
        columns = f.minimum(width - column, PANEL)
        full = f.compare("eq", rows + columns, 2 * PANEL)
        long = f.compare("ge", steps, PANEL // self.after.rows_per_step)
        with f.if_(f.bits("and", full, long)) as later:
            later.give(scratch)
        with later.else_():
            f.call("finish", VOID, [args.place, scratch, row, column, rows, columns])
            later.give(f.zero(PTR))
        return [later.results[0], row, column]
