"""The code of fused programs: element-wise work and folds over rows, in one kernel.

`write(schedule)` makes the functions. A unit of work (a row, or a strip of columns: see `layout`)
is computed in the passes of its schedule; statistics stay in registers between them. Sizes and
strides are words of the block, so one piece of code serves all shapes of a kind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from lucerne.backends.cpu.emit.builder import F64, I32, I64, PTR, VOID, Function, Module, Value
from lucerne.backends.cpu.loops.layout import ALONG, STILL, STRIDED, UNIT, Layout
from lucerne.backends.cpu.loops.passes import Pass, Schedule, divides_by_sum_of_exponentials
from lucerne.backends.cpu.loops.program import Convert, Expr, Fold, Load, Number, Point
from lucerne.backends.cpu.loops.reduce import (
    Monoid,
    Position,
    State,
    advance,
    chosen,
    monoid,
    restore,
    save,
)
from lucerne.backends.cpu.machine import LlvmScalar
from lucerne.backends.cpu.math.number import NotTaken, Num
from lucerne.base import dtype as dt
from lucerne.ir.scalar import Value as Operand

_BLOCK_ROUNDS = 64
"""So many values are added one after the other before the sum goes to the next level."""
_ROWS_AHEAD = 16
"""How far ahead columns are asked for."""
_STACK_BYTES = (1 << 17) + 1024
"""Scratch memory of a task: what `Layout.may_keep` allows, and a vector at the end."""


class Words:
    """The fixed words of a kernel: their values here, their place in the code."""

    def __init__(self, layout: Layout) -> None:
        program = layout.program
        self.first = len(program.results) + program.inputs + 1
        self.values: list[int] = []
        self.at: dict[Any, int] = {}
        for name in ("units", "chunk", "chunks", "splits", "split_size", "strips"):
            self.add(name, getattr(layout, name))
        for n, loop in enumerate((*layout.kept, *layout.folded)):
            self.add(("size", n), loop.size)
            for k, step in enumerate(loop.steps):
                self.add(("step", n, k), step)
        for k, memory in enumerate(layout.operands):
            self.add(("offset", k), memory.offset)
        for e in program.exprs:
            if isinstance(e, Number) and not e.baked:
                self.add(e, _bits(e.value))
        self.space = 0
        if layout.splits > 1:
            slot = 8 * (1 if layout.way == ALONG else layout.width)
            self.add("slot", slot)
            for fold in program.folds:
                for c in range(2):
                    self._room(("stat", fold, c), slot * layout.units)
                    self._room(("partial", fold, c), slot * layout.units * layout.splits)

    def add(self, name: Any, value: int) -> None:
        self.at[name] = self.first + len(self.values)
        self.values.append(value)

    def _room(self, name: Any, nbytes: int) -> None:
        self.add(name, self.space)
        self.space += -(-nbytes // 64) * 64


def _bits(value: Any) -> int:
    if isinstance(value, float):
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


class Frame:
    """A function being written: its machines and the words it reads, loaded at the start."""

    def __init__(self, f: Function, schedule: Schedule, words: Words, block: Value) -> None:
        self.f, self.block, self.schedule, self.layout = f, block, schedule, schedule.layout
        self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.layout.lanes)
        self.words = words
        self._loaded: dict[Any, Value] = {}
        for name, at in words.at.items():
            is_float = isinstance(name, Number) and isinstance(name.value, float)
            self._loaded[name] = f.word(block, at, F64 if is_float else I64)
        self.pointers = [self._pointer(k, memory) for k, memory in enumerate(self.layout.operands)]
        self.workspace = f.word(block, words.first - 1, PTR)
        self.scratch: Value | None = None
        self.monoids: dict[Fold, Monoid] = {
            e: monoid(e.how, e.compute, self.layout.fold_size) for e in self.layout.program.folds
        }

    def __getitem__(self, name: Any) -> Value:
        return self._loaded[name]

    def _pointer(self, k: int, memory: Any) -> Value:
        start = self.f.word(self.block, memory.slot, PTR)
        return self.f.at(start, self[("offset", k)]) if memory.offset else start

    def step(self, k: int, n: int) -> Value | int:
        """Byte stride of operand `k` along loop number `n`."""
        loop = (*self.layout.kept, *self.layout.folded)[n]
        return 0 if self.layout.step_class(k, loop) == STILL else self[("step", n, k)]

    def place_in_workspace(self, name: Any, slot: Value) -> Value:
        return self.f.at(self.f.at(self.workspace, self[name]), slot * self["slot"])


class Unit:
    """The code of one unit of work: `count` vectors side by side when lanes run across."""

    def __init__(self, frame: Frame, pointers: list[Value], count: int, left: Value | None) -> None:
        self.frame, self.f, self.layout = frame, frame.f, frame.layout
        self.schedule, self.pointers, self.count = frame.schedule, pointers, count
        self.along = self.layout.way == ALONG
        self.mask = None if left is None else self.f.low_mask(left, self.layout.lanes)
        self.rows: list[dict[Any, Num]] = [{} for _ in range(count)]
        """Values that are the same all over a unit: scalars, or one vector of lanes each."""
        self.spread: dict[Any, Num] = {}
        """When lanes run along: those values in every lane, made before a pass."""
        kept, folded = len(self.layout.kept), len(self.layout.folded)
        self.vector_loop = kept + folded - 1 if self.along else kept - 1
        self.fold_loops = list(range(kept, kept + folded))

    # ---- values --------------------------------------------------------------------------------

    @property
    def row_machine(self) -> LlvmScalar:
        return self.frame.one if self.along else self.frame.wide

    def row(self, e: Expr, u: int) -> Num:
        """The value of an expression that does not change within the unit."""
        known = self.rows[u]
        if e not in known:
            known[e] = self._raw(
                e, self.row_machine, lambda x: self.row(x, u), self.pointers, None, u, self.mask
            )
        return _rounded(self.row_machine, known[e], e.dtype)

    def _raw(
        self,
        e: Expr,
        machine: LlvmScalar,
        get: Callable[[Expr], Num],
        pointers: list[Value],
        index: Value | None,
        u: int,
        mask: Value | None,
    ) -> Num:
        """Compute one expression, not rounded to its dtype yet; `get` gives its parts."""
        if isinstance(e, Load):
            k = len(self.layout.program.results) + self._load_number(e)
            return self._load(machine, k, e.dtype, pointers[k], index, u, mask)
        if isinstance(e, Number):
            return self._number(e, machine)
        if isinstance(e, Convert):
            return machine.to(get(e.source), e.dtype.compute)
        assert isinstance(e, Point), e
        found = _apply(e, machine, get)
        if machine.failed is not None:
            raise NotTaken("an op that may fail")
        return found

    def _load_number(self, e: Load) -> int:
        loads = [x for x in self.layout.program.exprs if isinstance(x, Load)]
        return loads.index(e)

    def _number(self, e: Number, machine: LlvmScalar) -> Num:
        compute = e.dtype.compute
        if e.baked:
            return machine.to(e.value, compute)
        kind = dt.float64 if isinstance(e.value, float) else dt.int64
        return machine.splat(self.frame.one.to(Num(kind, self.frame[e]), compute))

    def _moved(self, k: int, pointer: Value, index: Value | None, u: int) -> Value:
        """Where the first lane of operand `k` is."""
        f = self.f
        step = self.frame.step(k, self.vector_loop)
        if isinstance(step, int):
            return pointer
        at = f.constant(u * self.layout.lanes) if index is None else index
        if self.layout.step_class(k, self.layout.vector) == UNIT:
            return f.at(pointer, at * self.layout.operands[k].dtype.itemsize)
        return f.at(pointer, at * step)

    def _load(
        self,
        machine: LlvmScalar,
        k: int,
        dtype: dt.dtype,
        pointer: Value,
        index: Value | None,
        u: int,
        mask: Value | None,
    ) -> Num:
        if machine.lanes == 1:
            return machine.load(dtype, pointer)
        place = self._moved(k, pointer, index, u)
        way = self.layout.step_class(k, self.layout.vector)
        if way == STILL:
            return machine.load_splat(dtype, place)
        if way == UNIT:
            return machine.load(dtype, place, mask)
        return machine.load_strided(dtype, place, self.frame.step(k, self.vector_loop), mask)

    def _store(
        self, k: int, x: Num, pointer: Value, index: Value | None, u: int, mask: Value | None
    ) -> None:
        machine, dtype = self.frame.wide, self.layout.operands[k].dtype
        place = self._moved(k, pointer, index, u)
        if self.layout.step_class(k, self.layout.vector) == STRIDED:
            machine.store_strided(x, dtype, place, self.frame.step(k, self.vector_loop), mask)
        else:
            machine.store(x, dtype, place, mask)

    # ---- passes --------------------------------------------------------------------------------

    def run(self) -> None:
        """All passes, then the results that have one value per unit."""
        for number, walk in enumerate(self.schedule.passes):
            states = self.run_pass(number, walk, self.f.constant(0), self.frame_size(0))
            for u, per_fold in enumerate(states):
                self.finish(walk, per_fold, u)
        self.write_rows()

    def frame_size(self, level: int) -> Value:
        """The size of a folded loop."""
        return self.frame[("size", self.fold_loops[level])]

    def finish(self, walk: Pass, states: list[State], u: int) -> None:
        """The folds of a pass become values of the unit."""
        for fold, state in zip(walk.folds, states, strict=True):
            found = self.frame.monoids[fold].value(state)
            self.rows[u][fold] = self.row_machine.to(found, fold.dtype.compute)

    def write_rows(self) -> None:
        for r in self.schedule.row_results:
            k = self.layout.program.results.index(r)
            for u in range(self.count):
                x = self.row(r.expr, u)
                if self.along:
                    self.frame.one.store(x, r.memory.dtype, self.pointers[k])
                else:
                    self._store(k, x, self.pointers[k], None, u, self.mask)

    def run_pass(self, number: int, walk: Pass, start: Value, stop: Value) -> list[list[State]]:
        """One pass over the outermost folded loop from `start` to `stop`.

        Returns the states of its folds: scalars when lanes run along, else one per vector.
        """
        self.kept_now = {e for p in self.schedule.passes[:number] for e in p.keeps}
        self._prepare(walk)
        vectors = self.layout.unroll if self.along else self.count
        first = [self._starts(walk) for _ in range(vectors)]
        states = self._nest(walk, 0, self.pointers, self.f.constant(0), first, start, stop)
        if not self.along:
            return states
        merged = states
        while len(merged) > 1:
            merged = [
                self._merged(walk, a, b) for a, b in zip(merged[::2], merged[1::2], strict=True)
            ]
        return [
            [
                self.frame.monoids[fold].across(self.f, s)
                for fold, s in zip(walk.folds, merged[0], strict=True)
            ]
        ]

    def _starts(self, walk: Pass) -> list[State]:
        return [self.frame.monoids[x].start(self.f, self.layout.lanes) for x in walk.folds]

    def _merged(self, walk: Pass, a: list[State], b: list[State]) -> list[State]:
        return [
            self.frame.monoids[fold].merge(self.f, x, y)
            for fold, x, y in zip(walk.folds, a, b, strict=True)
        ]

    def _prepare(self, walk: Pass) -> None:
        """Compute what does not change within the unit before its loops begin."""
        for e in self.schedule.walk(walk.roots, self.kept_now):
            if not self.schedule.is_full(e):
                for u in range(self.count):
                    value = self.row(e, u)
                    if self.along and e not in self.spread:
                        self.spread[e] = self.frame.wide.splat(value)
            elif divides_by_sum_of_exponentials(e, self.schedule):
                assert isinstance(e, Point)
                self._prepare_reciprocal(e)

    def _prepare_reciprocal(self, e: Point) -> None:
        for u in range(self.count):
            if e not in self.rows[u]:
                total = self.row_machine.to(self.row(e.args[1], u), e.types[1])
                self.rows[u][e] = self.row_machine.reciprocal(total)
        if self.along:
            self.spread[e] = self.frame.wide.splat(self.rows[0][e])

    def _nest(
        self,
        walk: Pass,
        level: int,
        pointers: list[Value],
        position: Value,
        states: list[list[State]],
        start: Value,
        stop: Value,
    ) -> list[list[State]]:
        """The folded loops from `level` inwards."""
        last = level == len(self.fold_loops) - 1
        if last and self.along:
            return self._vector_loop(walk, pointers, position, states, start, stop)
        if last:
            return self._row_loop(walk, pointers, position, states, start, stop)
        with self.f.loop(start, stop, 1, _flat(states)) as loop:
            inner = self._advanced(pointers, level, loop.index)
            at = position * self.frame_size(level) + loop.index
            new = self._nest(
                walk, level + 1, inner, at, _shaped(loop.carried, states),
                self.f.constant(0), self.frame_size(level + 1),
            )  # fmt: skip
            loop.next(*_flat(new))
        return _shaped(loop.results, states)

    def _advanced(self, pointers: list[Value], level: int, index: Value) -> list[Value]:
        steps = [self.frame.step(k, self.fold_loops[level]) for k in range(len(pointers))]
        return [
            p if isinstance(s, int) else self.f.at(p, index * s)
            for p, s in zip(pointers, steps, strict=True)
        ]

    def _vector_loop(
        self,
        walk: Pass,
        pointers: list[Value],
        position: Value,
        states: list[list[State]],
        start: Value,
        stop: Value,
    ) -> list[list[State]]:
        """Lanes along the loop: whole rounds in blocks, then single vectors under a mask."""
        f, lanes, unroll = self.f, self.layout.lanes, self.layout.unroll
        step = lanes * unroll
        whole = start + ((stop - start) & -step)
        base = position * self.frame_size(len(self.fold_loops) - 1)

        def round_(index: Value, inner: list[list[State]]) -> list[list[State]]:
            return [
                self._visit(walk, pointers, index + u * lanes, base, 0, inner[u], None)
                for u in range(unroll)
            ]

        states = self._blocks(walk, states, start, whole, step, round_)
        with f.loop(whole, stop, lanes, _flat(states[:1])) as loop:
            mask = f.low_mask(stop - loop.index, lanes)
            now = _shaped(loop.carried, states[:1])[0]
            loop.next(*_flat([self._visit(walk, pointers, loop.index, base, 0, now, mask)]))
        return [*_shaped(loop.results, states[:1]), *states[1:]]

    def _row_loop(
        self,
        walk: Pass,
        pointers: list[Value],
        position: Value,
        states: list[list[State]],
        start: Value,
        stop: Value,
    ) -> list[list[State]]:
        """Lanes across: the innermost folded loop, one element of every column at a time."""
        level = len(self.fold_loops) - 1
        base = position * self.frame_size(level)

        def round_(index: Value, inner: list[list[State]]) -> list[list[State]]:
            here = self._advanced(pointers, level, index)
            self._fetch_ahead(here)
            return [
                self._visit(walk, here, None, base + index, u, inner[u], self.mask)
                for u in range(self.count)
            ]

        return self._blocks(walk, states, start, stop, 1, round_)

    def _fetch_ahead(self, pointers: list[Value]) -> None:
        """Ask for rows to come: a strip is too narrow for the processor to foresee them."""
        lines = self.count * self.layout.lanes
        for k, memory in enumerate(self.layout.operands):
            step = self.frame.step(k, self.fold_loops[-1])
            if k < len(self.layout.program.results) or isinstance(step, int):
                continue
            if self.layout.step_class(k, self.layout.vector) == UNIT:
                ahead = self.f.at(pointers[k], step * _ROWS_AHEAD)
                for at in range(0, lines * memory.dtype.itemsize, 64):
                    self.f.prefetch(self.f.at(ahead, at))

    def _blocks(
        self,
        walk: Pass,
        states: list[list[State]],
        start: Value,
        stop: Value,
        step: int,
        round_: Callable[[Value, list[list[State]]], list[list[State]]],
    ) -> list[list[State]]:
        """A loop in blocks, each folded from nothing: long sums stay accurate."""
        f = self.f
        if not walk.folds:
            with f.loop(start, stop, step) as plain:
                round_(plain.index, states)
            return states
        with f.loop(start, stop, step * _BLOCK_ROUNDS, _flat(states)) as blocks:
            end = f.minimum(blocks.index + step * _BLOCK_ROUNDS, stop)
            fresh = [self._starts(walk) for _ in states]
            with f.loop(blocks.index, end, step, _flat(fresh), at_least_once=True) as loop:
                loop.next(*_flat(round_(loop.index, _shaped(loop.carried, states))))
            before, found = _shaped(blocks.carried, states), _shaped(loop.results, states)
            blocks.next(
                *_flat([self._merged(walk, a, b) for a, b in zip(before, found, strict=True)])
            )
        return _shaped(blocks.results, states)

    # ---- one vector ----------------------------------------------------------------------------

    def _visit(
        self,
        walk: Pass,
        pointers: list[Value],
        index: Value | None,
        base: Value,
        u: int,
        states: list[State],
        mask: Value | None,
    ) -> list[State]:
        """Compute, keep, write and fold one vector of elements."""
        spot = _Spot(self, pointers, index, base, u, mask)
        for e in walk.keeps:
            spot.keep(e)
        for r in walk.results:
            k = self.layout.program.results.index(r)
            self._store(k, spot.raw(r.expr), pointers[k], index, u, mask)
        found = []
        for fold, state in zip(walk.folds, states, strict=True):
            m = self.frame.monoids[fold]
            place = spot.position(m.index) if isinstance(m, Position) else None
            new = m.lift(self.f, spot.value(fold.source), place)
            if mask is not None and self.along:
                new = chosen(self.f, mask, new, m.start(self.f, self.layout.lanes))
            found.append(advance(self.f, m, state, new))
        return found


class _Spot:
    """One vector of elements inside a pass."""

    def __init__(
        self,
        unit: Unit,
        pointers: list[Value],
        index: Value | None,
        base: Value,
        u: int,
        mask: Value | None,
    ) -> None:
        self.unit, self.pointers, self.index, self.base = unit, pointers, index, base
        self.u, self.mask = u, mask
        self.known: dict[Expr, Num] = {}

    def value(self, e: Expr) -> Num:
        """The value of an expression in every lane, as its dtype holds it."""
        unit = self.unit
        if not unit.schedule.is_full(e):
            return unit.spread[e] if unit.along else unit.row(e, self.u)
        return _rounded(unit.frame.wide, self.raw(e), e.dtype)

    def raw(self, e: Expr) -> Num:
        unit, wide = self.unit, self.unit.frame.wide
        if not unit.schedule.is_full(e):
            return self.value(e)
        if e in self.known:
            return self.known[e]
        if e in unit.kept_now:
            found = self._kept(e)
        elif divides_by_sum_of_exponentials(e, unit.schedule):
            assert isinstance(e, Point)
            scale = unit.spread[e] if unit.along else unit.rows[self.u][e]
            found = wide.mul(wide.to(self.value(e.args[0]), e.types[0]), scale)
        else:
            found = unit._raw(e, wide, self.value, self.pointers, self.index, self.u, self.mask)
        self.known[e] = found
        return found

    def position(self, type: Any) -> Value:
        """Where in the folded axes each lane is."""
        f, lanes = self.unit.f, self.unit.layout.lanes
        at = self.base if self.index is None else self.base + self.index
        first = f.splat(f.convert("trunc", at, I32) if type is I32 else at, lanes)
        return first if self.index is None else first + f.lanes(type.vector(lanes))

    # ---- kept values ---------------------------------------------------------------------------

    def keep(self, e: Expr) -> None:
        unit, x = self.unit, self.raw(e)
        result = unit.schedule.in_result.get(e)
        if result is not None:
            k = unit.layout.program.results.index(result)
            unit._store(k, x, self.pointers[k], self.index, self.u, self.mask)
            return
        unit.f.store(x.re, self._scratch(e))

    def _kept(self, e: Expr) -> Num:
        unit = self.unit
        result = unit.schedule.in_result.get(e)
        if result is not None:
            k = unit.layout.program.results.index(result)
            return unit._load(
                unit.frame.wide, k, e.dtype, self.pointers[k], self.index, self.u, self.mask
            )
        from_memory = unit.frame.wide
        return from_memory.load(e.dtype.compute, self._scratch(e))

    def _scratch(self, e: Expr) -> Value:
        """The place of this vector among the kept values of the unit."""
        unit, f = self.unit, self.unit.f
        assert unit.frame.scratch is not None
        count = len(unit.schedule.in_scratch)
        slot = unit.schedule.in_scratch.index(e)
        width = unit.layout.lanes
        if self.index is None:  # position by position, all columns of the strip
            at = (self.base * (unit.count * count) + (self.u * count + slot)) * width
        else:  # vector by vector, interleaved when several values are kept
            at = (self.base + self.index) * count + slot * width
        return f.at(unit.frame.scratch, at * e.dtype.compute.itemsize)


def _rounded(machine: LlvmScalar, x: Num, dtype: dt.dtype) -> Num:
    return x if dtype.compute is dtype else machine.rounded(x, dtype)


def _apply(e: Point, machine: LlvmScalar, get: Callable[[Expr], Num]) -> Num:
    """Run the body of an element-wise op."""
    operands: list[Any] = []
    for a, type in zip(e.args, e.types, strict=True):
        if not isinstance(a, Expr):
            operands.append(a)
            continue
        x = machine.to(get(a), type)
        if e.common is not None and a.dtype is not e.common:
            x = machine.rounded(x, e.common)
        operands.append(Operand(machine, x))
    names = [p.name for p in e.op.params if p.keyword_only]
    count = len(e.op.params) - len(names)
    result = e.op.body(*operands[:count], **dict(zip(names, operands[count:], strict=True)))
    return machine.to(result.raw if type_is_operand(result) else result, e.dtype.compute)


def type_is_operand(x: Any) -> bool:
    return type(x) is Operand


def _flat(states: list[list[State]]) -> list[Value]:
    return [v for per_fold in states for state in per_fold for v in state]


def _shaped(values: list[Value], like: list[list[State]]) -> list[list[State]]:
    feed = iter(values)
    return [[[next(feed) for _ in state] for state in per_fold] for per_fold in like]


# ---- functions ----------------------------------------------------------------------------------


def write(m: Module, schedule: Schedule, words: Words) -> None:
    """All functions of the kernel."""
    if schedule.layout.splits > 1:
        _write_split(m, schedule, words)
    else:
        _write_whole(m, schedule, words)


def _write_whole(m: Module, schedule: Schedule, words: Words) -> None:
    """Units do not depend on each other: chunks of units, each from first pass to last."""
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        block, chunk, _ = f.args
        frame = Frame(f, schedule, words, block)
        if schedule.in_scratch:
            frame.scratch = f.stack(_STACK_BYTES)
        start = chunk * frame["chunk"]
        stop = f.minimum(start + frame["chunk"], frame["units"])
        with f.loop(start, stop) as loop:
            _each_part(frame, loop.index, lambda unit, _: unit.run())
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        chunks = f.word(block, words.at["chunks"])
        with f.if_(chunks > 1) as several:
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
        with several.else_():
            f.call("task", VOID, [block, 0, 0])
        f.ret(0)


def _each_part(frame: Frame, number: Value, emit: Callable[[Unit, Value], None]) -> None:
    """Place the pointers at a unit and write its code: once, or for whole and partial strips."""
    f, layout = frame.f, frame.layout
    row, strip = number, f.constant(0)
    if layout.way != ALONG:
        row, strip = number // frame["strips"], number % frame["strips"]
    pointers = _at_row(frame, row)
    if layout.way == ALONG:
        emit(Unit(frame, pointers, 1, None), f.constant(0))
        return
    loop_number = len(layout.kept) - 1
    column = strip * layout.width
    left = frame[("size", loop_number)] - column

    def moved(by: Value) -> list[Value]:
        steps = [frame.step(k, loop_number) for k in range(len(pointers))]
        return [
            p if isinstance(s, int) else f.at(p, by * s)
            for p, s in zip(pointers, steps, strict=True)
        ]

    with f.if_(left >= layout.width) as whole:
        emit(Unit(frame, moved(column), layout.unroll, None), f.constant(0))
    with whole.else_(), f.loop(0, left, layout.lanes) as parts:
        emit(Unit(frame, moved(column + parts.index), 1, left - parts.index), parts.index)


def _at_row(frame: Frame, row: Value) -> list[Value]:
    """Pointers at a row: its number is taken apart into the indices of the leading loops."""
    f, layout = frame.f, frame.layout
    pointers = list(frame.pointers)
    rest = row
    for n in reversed(range(len(layout.lead))):
        index = rest
        if n:
            size = frame[("size", n)]
            index, rest = rest % size, rest // size
        for k in range(len(pointers)):
            step = frame.step(k, n)
            if not isinstance(step, int):
                pointers[k] = f.at(pointers[k], index * step)
    return pointers


def _write_split(m: Module, schedule: Schedule, words: Words) -> None:
    """Long folds: every pass is a job of its own over pieces, combined before the next one."""
    for number in range(len(schedule.passes)):
        _write_piece(m, schedule, words, number)
    with m.function("combine", [("block", PTR), ("pass", I64)], internal=True) as f:
        _combine_all(f, schedule, words)
    with m.function("rows", [("block", PTR)], internal=True) as f:
        frame = Frame(f, schedule, words, f.args[0])
        with f.loop(0, frame["units"]) as loop:

            def finish(unit: Unit, shift: Value) -> None:
                _restore_stats(unit, loop.index, shift, len(schedule.passes))
                unit.write_rows()

            _each_part(frame, loop.index, finish)
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        for number in range(len(schedule.passes)):
            chunks = f.word(block, words.at["chunks"])
            f.call("lucerne_pfor", VOID, [f.symbol(f"piece{number}"), block, chunks])
            if schedule.passes[number].folds:
                f.call("combine", VOID, [block, number])
        if schedule.row_results:
            f.call("rows", VOID, [block])
        f.ret(0)


def _write_piece(m: Module, schedule: Schedule, words: Words, number: int) -> None:
    walk = schedule.passes[number]
    params = [("block", PTR), ("chunk", I64), ("tid", I64)]
    with m.function(f"piece{number}", params, internal=True) as f:
        frame = Frame(f, schedule, words, f.args[0])
        which, piece = f.args[1] // frame["splits"], f.args[1] % frame["splits"]
        start = piece * frame["split_size"]

        def run(unit: Unit, shift: Value) -> None:
            stop = f.minimum(start + frame["split_size"], unit.frame_size(0))
            _restore_stats(unit, which, shift, number)
            states = unit.run_pass(number, walk, start, stop)
            for u, per_fold in enumerate(states):
                for fold, state in zip(walk.folds, per_fold, strict=True):
                    save(f, state, _slots(unit, "partial", fold, f.args[1], shift, u))

        _each_part(frame, which, run)


def _slots(unit: Unit, area: str, fold: Fold, slot: Value, shift: Value, u: int) -> list[Value]:
    """Where the state of a fold is kept in the workspace, component by component."""
    frame, f = unit.frame, unit.f
    inside = (shift + u * unit.layout.lanes) * 8
    return [
        f.at(frame.place_in_workspace((area, fold, c), slot), inside)
        for c in range(len(frame.monoids[fold].types))
    ]


def _restore_stats(unit: Unit, which: Value, shift: Value, number: int) -> None:
    """The folds of earlier passes, read back as values of the unit."""
    lanes = 1 if unit.along else unit.layout.lanes
    for walk in unit.schedule.passes[:number]:
        for u in range(unit.count):
            states = [
                restore(
                    unit.f, unit.frame.monoids[x], lanes, _slots(unit, "stat", x, which, shift, u)
                )
                for x in walk.folds
            ]
            unit.finish(walk, states, u)


def _combine_all(f: Function, schedule: Schedule, words: Words) -> None:
    """Partial states of all pieces of each unit in order, for the folds of one pass."""
    frame = Frame(f, schedule, words, f.args[0])
    for number, walk in enumerate(schedule.passes):
        if not walk.folds:
            continue
        with f.if_(f.compare("eq", f.args[1], number)), f.loop(0, frame["units"]) as units:
            width = 1 if schedule.layout.way == ALONG else schedule.layout.width
            lanes = 1 if width == 1 else schedule.layout.lanes
            unit = Unit(frame, frame.pointers, 1, None)
            with f.loop(0, width, lanes) as part:
                for fold in walk.folds:
                    _combine(unit, fold, units.index, part.index, lanes)


def _combine(unit: Unit, fold: Fold, which: Value, shift: Value, lanes: int) -> None:
    f, frame = unit.f, unit.frame
    m = frame.monoids[fold]
    first = which * frame["splits"]
    with f.loop(0, frame["splits"], 1, m.start(f, lanes)) as pieces:
        places = _slots(unit, "partial", fold, first + pieces.index, shift, 0)
        pieces.next(*m.merge(f, pieces.carried, restore(f, m, lanes, places)))
    save(f, pieces.results, _slots(unit, "stat", fold, which, shift, 0))
