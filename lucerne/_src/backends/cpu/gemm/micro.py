"""Micro-kernels: a tile of sums held in registers while k runs.

    void kernel(K, A, B, columns, flags, args, row, column, next)

computes the tile at (row, column) of the result, `columns` of it valid, from K steps. `flags`:
ADD_TO_SUMS adds what earlier blocks of k left, LAST applies the epilogue and stores results (else
the sums are stored). `next` points at memory that will be needed soon: it is prefetched.

Two forms: *packed* reads panels [k][height] and [k][columns]; *in place* reads A through its
strides, three rows for each pointer, and B either packed or by rows of the matrix under a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I64, PTR
from lucerne._src.backends.cpu.gemm.args import Args
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue, Tile
from lucerne._src.backends.cpu.gemm.kinds import TILE_VECTORS, GemmKind, masked, store_masked
from lucerne._src.backends.cpu.runtime.code import Job, compiled

ADD_TO_SUMS, LAST = 1, 2
_UNROLL = 4
_STEPS_AHEAD = 8
_PARAMS: list[Any] = [
    ("K", I64), ("A", PTR, "noalias"), ("B", PTR, "noalias"), ("columns", I64), ("flags", I64),
    ("args", PTR), ("row", I64), ("column", I64), ("next", PTR),
]  # fmt: skip


@dataclass(frozen=True)
class GemmTile:
    """Which micro-kernel: its height, its width in vectors, and where the operands come from."""

    kind: GemmKind
    height: int
    vectors: int = TILE_VECTORS
    a_packed: bool = True
    b_packed: bool = True

    @property
    def key(self) -> tuple[Any, ...]:
        return (*self.kind.key, self.height, self.vectors, self.a_packed, self.b_packed)


def micro_job(form: GemmTile, epilogue: Epilogue = PLAIN) -> Job:
    """A micro-kernel's key and writer: to be compiled beside others."""
    key = ("gemm.micro", *form.key, epilogue.key)
    return key, lambda m: write_micro_kernel(m, form, epilogue)


def micro_kernel(form: GemmTile, epilogue: Epilogue = PLAIN) -> int:
    """The address of a micro-kernel."""
    return compiled(*micro_job(form, epilogue))["kernel"]


def write_micro_kernel(m: Module, form: GemmTile, epilogue: Epilogue) -> None:
    with m.function("kernel", _PARAMS) as f:
        _Writer(f, form, epilogue).write()


class _Writer:
    def __init__(self, f: LLVMFunction, form: GemmTile, epilogue: Epilogue) -> None:
        self.f, self.form, self.kind, self.epilogue = f, form, form.kind, epilogue
        self.k, self.a, self.b, self.columns, self.flags, place, row, column, self.next = f.args
        self.args = Args(f, place)
        lanes = self.kind.lanes
        masks = [f.low_mask(self.columns - lanes * j, lanes) for j in range(form.vectors)]
        self.tile = Tile(f, self.kind, self.args, row, column, masks, lanes)

    def write(self) -> None:
        f, tile = self.f, self.tile
        spilled = self.epilogue.stores or not self.epilogue.inline
        self.spill = f.stack(self._spill_bytes()) if spilled else None
        c_row = self.args.C_ROW
        size = self.kind.result.size
        results = f.at(self.args.C, (tile.row * c_row + tile.column) * size)
        self._prefetch_rows(results, c_row * size, size, 3)
        others = self.epilogue.ahead(tile)
        if others:
            with f.if_(f.compare("ne", self.flags & LAST, 0)):
                for x in others:
                    self._prefetch_rows(x.start, x.step, x.size, 2)
        sums = self._accumulate()
        with f.if_(f.compare("ne", self.flags & ADD_TO_SUMS, 0)) as before:
            before.give(*self._plus_stored(sums))
        with before.else_():
            before.give(*sums)
        if not self.kind.narrows and self.epilogue is PLAIN:
            self._store_sums(before.results)
            return
        with f.if_(f.compare("ne", self.flags & LAST, 0)) as last:
            self._store_results(before.results, results, c_row * size)
        with last.else_():
            self._store_sums(before.results)

    def _spill_bytes(self) -> int:
        return self.form.height * self.form.vectors * self.kind.vector.nbytes

    def _prefetch_rows(self, place: LLVMValue, step: LLVMValue, size: int, level: int) -> None:
        """The rows of a tensor under the tile, with elements of `size` bytes."""
        width = self.form.vectors * self.kind.lanes * size
        for i in range(self.form.height):
            row = self.f.at(place, step * i)
            for at in range(0, width, 64):
                self.f.prefetch(self.f.at(row, at), level)

    # ---- the loop over k ---------------------------------------------------------------------

    def _accumulate(self) -> list[LLVMValue]:
        f, form = self.f, self.form
        start = [f.zero(self.kind.vector)] * (form.height * form.vectors)
        if not form.a_packed:
            return self._accumulate_in_place(start)
        whole = self.k & -_UNROLL
        with f.loop(0, whole, _UNROLL, [self.a, self.b, *start]) as loop:
            # The next panel of B is read a line at a time while this one is used.
            f.prefetch(f.at(self.next, loop.index * (64 // _UNROLL)), 2)
            state = loop.carried
            for _ in range(_UNROLL):
                state = self._packed_step(state)
            loop.next(*state)
        with f.loop(whole, self.k, 1, loop.results) as rest:
            rest.next(*self._packed_step(rest.carried))
        return rest.results[2:]

    def _packed_step(self, state: list[LLVMValue]) -> list[LLVMValue]:
        f, form, size = self.f, self.form, self.kind.sums.size
        a, b, sums = state[0], state[1], state[2:]
        columns = self._packed_columns(b)
        made = []
        for i in range(form.height):
            left = f.splat(f.load(self.kind.sums, f.at(a, i * size)), self.kind.lanes)
            made += self._row(left, columns, sums, i)
        return [
            f.at(a, form.height * size),
            f.at(b, form.vectors * self.kind.vector.nbytes),
            *made,
        ]

    def _packed_columns(self, b: LLVMValue) -> list[LLVMValue]:
        f, wide = self.f, self.kind.vector
        return [f.load(wide, f.at(b, j * wide.nbytes)) for j in range(self.form.vectors)]

    def _row(
        self, left: LLVMValue, columns: list[LLVMValue], sums: list[LLVMValue], i: int
    ) -> list[LLVMValue]:
        n = self.form.vectors
        return [self.kind.multiply_add(self.f, left, columns[j], sums[i * n + j]) for j in range(n)]

    def _accumulate_in_place(self, start: list[LLVMValue]) -> list[LLVMValue]:
        """A through its strides. One pointer serves three rows: [p], [p + step], [p + 2 step]."""
        f, form, size = self.f, self.form, self.kind.source.size
        row_step, k_step = self.args.A_ROW * size, self.args.A_K * size
        b_step = (
            f.constant(form.vectors * self.kind.vector.nbytes)
            if form.b_packed
            else self.args.B_K * size
        )
        groups = [f.at(self.a, row_step * i) for i in range(0, form.height, 3)]
        self.steps = row_step, k_step, b_step
        state = [*groups, self.b, *start]
        if form.vectors <= TILE_VECTORS or form.b_packed:
            return self._in_place_loop(state, whole=False)
        # More vectors than mask registers: masks only where the matrix ends.
        width = form.vectors * self.kind.lanes
        with f.if_(f.compare("eq", self.columns, width)) as branch:
            branch.give(*self._in_place_loop(state, whole=True))
        with branch.else_():
            branch.give(*self._in_place_loop(state, whole=False))
        return branch.results

    def _in_place_loop(self, state: list[LLVMValue], whole: bool) -> list[LLVMValue]:
        f, form = self.f, self.form
        row_step, k_step, b_step = self.steps
        groups = -(-form.height // 3)
        with f.loop(0, self.k, 1, state) as loop:
            rows, b = loop.carried[:groups], loop.carried[groups]
            sums = loop.carried[groups + 1 :]
            columns = self._packed_columns(b) if form.b_packed else self._columns(b, whole)
            if whole:
                self._prefetch_ahead(b, b_step)
            made = []
            for i in range(form.height):
                left = self.kind.broadcast(f, f.at(rows[i // 3], row_step * (i % 3)))
                made += self._row(left, columns, sums, i)
            loop.next(*[f.at(p, k_step) for p in rows], f.at(b, b_step), *made)
        return loop.results[groups + 1 :]

    def _columns(self, b: LLVMValue, whole: bool) -> list[LLVMValue]:
        nbytes = self.kind.lanes * self.kind.source.size
        masks = [None] * self.form.vectors if whole else self.tile.masks
        return [
            self.kind.load(self.f, self.f.at(b, j * nbytes), mask) for j, mask in enumerate(masks)
        ]

    def _prefetch_ahead(self, b: LLVMValue, step: LLVMValue) -> None:
        """Wide forms read B once: its rows are asked for some steps early."""
        later = self.f.at(b, step * _STEPS_AHEAD)
        width = self.form.vectors * self.kind.lanes * self.kind.source.size
        for at in range(0, width, 64):
            self.f.prefetch(self.f.at(later, at), 3)

    # ---- after k -----------------------------------------------------------------------------

    def _sums_place(self) -> tuple[LLVMValue, LLVMValue]:
        row = self.args.SUMS_ROW
        size = self.kind.sums.size
        start = (self.tile.row * row + self.tile.column) * size
        return self.f.at(self.args.SUMS, start), row * size

    def _tiles(
        self, place: LLVMValue, step: LLVMValue, nbytes: int
    ) -> list[tuple[int, int, LLVMValue]]:
        return [
            (i, j, self.f.at(self.f.at(place, step * i), j * nbytes))
            for i in range(self.form.height)
            for j in range(self.form.vectors)
        ]

    def _plus_stored(self, sums: list[LLVMValue]) -> list[LLVMValue]:
        f, wide, n = self.f, self.kind.vector, self.form.vectors
        return [
            sums[i * n + j] + masked(f, wide, at, self.tile.masks[j])
            for i, j, at in self._tiles(*self._sums_place(), wide.nbytes)
        ]

    def _store_sums(self, sums: list[LLVMValue]) -> None:
        n = self.form.vectors
        for i, j, at in self._tiles(*self._sums_place(), self.kind.vector.nbytes):
            store_masked(self.f, sums[i * n + j], at, self.tile.masks[j])

    def _store_results(self, sums: list[LLVMValue], place: LLVMValue, step: LLVMValue) -> None:
        f, n, tile = self.f, self.form.vectors, self.tile
        nbytes = self.kind.lanes * self.kind.result.size
        if self.epilogue.stores:
            self._run_tail(sums)
            return
        ready = self.epilogue.prepare(tile)
        if self.spill is None:
            for i, j, at in self._tiles(place, step, nbytes):
                done = self.epilogue.apply(tile, ready, sums[i * n + j], tile.row + i, j)
                self.kind.store(f, done, at, tile.masks[j])
            return
        wide = self.kind.vector.nbytes
        for index, v in enumerate(sums):
            f.store(v, f.at(self.spill, index * wide), align=64)
        with f.loop(0, self.form.height, 1, [place, self.spill], at_least_once=True) as loop:
            at, kept = loop.carried
            for j in range(n):
                v = f.load(self.kind.vector, f.at(kept, j * wide), align=64)
                done = self.epilogue.apply(tile, ready, v, tile.row + loop.index, j)
                self.kind.store(f, done, f.at(at, j * nbytes), tile.masks[j])
            loop.next(f.at(at, step), f.at(kept, n * wide))

    def _run_tail(self, sums: list[LLVMValue]) -> None:
        """An epilogue that stores: over the rows of spilled sums, wide forms vector by vector."""
        f, n, tile = self.f, self.form.vectors, self.tile
        wide, lanes = self.kind.vector.nbytes, self.kind.lanes
        assert self.spill is not None
        for index, v in enumerate(sums):
            f.store(v, f.at(self.spill, index * wide), align=64)
        if n <= TILE_VECTORS:
            ready = self.epilogue.prepare(tile)
            with f.loop(0, self.form.height, 1, [self.spill], at_least_once=True) as loop:
                kept = loop.carried[0]
                for j in range(n):
                    v = f.load(self.kind.vector, f.at(kept, j * wide), align=64)
                    self.epilogue.apply(tile, ready, v, tile.row + loop.index, j)
                loop.next(f.at(kept, n * wide))
            return
        with f.loop(0, n, at_least_once=True) as across:
            start = across.index * lanes
            part = replace(
                tile, column=tile.column + start, masks=[f.low_mask(self.columns - start, lanes)]
            )
            ready = self.epilogue.prepare(part)
            first = f.at(self.spill, across.index * wide)
            with f.loop(0, self.form.height, 1, [first], at_least_once=True) as loop:
                v = f.load(self.kind.vector, loop.carried[0], align=64)
                self.epilogue.apply(part, ready, v, tile.row + loop.index, 0)
                loop.next(f.at(loop.carried[0], n * wide))
