"""The code of one unit of work of a fused program: a row, or a strip of columns (see `layout`)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise.apply import apply_point, rounded_to
from lucerne._src.backends.cpu.emit.builder import I32, I64, LLVMValue
from lucerne._src.backends.cpu.fused.frame import FusedFrame
from lucerne._src.backends.cpu.fused.layout import ALONG, STILL, STRIDED, UNIT
from lucerne._src.backends.cpu.fused.monoids import PositionFold, State, advance, chosen
from lucerne._src.backends.cpu.fused.passes import FusedPass, divides_by_sum_of_exponentials
from lucerne._src.backends.cpu.fused.program import (
    NOWHERE,
    Convert,
    FusedExpr,
    FusedNumber,
    FusedOp,
    Load,
)
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import NotTaken, Num, constant
from lucerne._src.backends.cpu.random.counted_words import two_vectors
from lucerne._src.base import dtype as dt

_BLOCK_ROUNDS = 64
"""So many values are added one after the other before the sum goes to the next level."""
_ROWS_AHEAD = 16
"""How far ahead rows of a strip are asked for."""


class Unit:
    """The code of one unit of work: `count` vectors side by side when lanes run across."""

    def __init__(
        self, frame: FusedFrame, pointers: list[LLVMValue], count: int, left: LLVMValue | None
    ) -> None:
        self.frame, self.f, self.layout = frame, frame.f, frame.layout
        self.schedule, self.pointers, self.count = frame.schedule, pointers, count
        self.along = self.layout.way == ALONG
        self.mask = None if left is None else self.f.low_mask(left, self.layout.lanes)
        self.rows: list[dict[Any, Num]] = [{} for _ in range(count)]
        """Values that are the same all over a unit: scalars, or one vector of lanes each."""
        self.row_words: dict[Any, Num] = {}
        self.pass_words: dict[Any, Num] = {}
        """Random words that were made for a vector together with those of its neighbour."""
        self.part = 0
        """Which of the vectors of a round is written."""
        self.spread: dict[Any, Num] = {}
        """When lanes run along: those values in every lane, made before a pass."""
        self.scratch_row = self.f.constant(0)
        """When lanes run along: where the values of this row that are kept begin, in elements."""
        kept, folded = len(self.layout.kept), len(self.layout.folded)
        self.vector_loop = kept + folded - 1 if self.along else kept - 1
        self.fold_loops = list(range(kept, kept + folded))

    # ---- values --------------------------------------------------------------------------------

    @property
    def known(self) -> tuple[list[dict[Any, Num]], dict[Any, Num], dict[Any, Num]]:
        """The values that were made so far, outside of loops."""
        return [dict(row) for row in self.rows], dict(self.row_words), dict(self.spread)

    @known.setter
    def known(self, values: tuple[list[dict[Any, Num]], dict[Any, Num], dict[Any, Num]]) -> None:
        self.rows, self.row_words, self.spread = values

    @property
    def row_machine(self) -> LlvmScalar:
        return self.frame.one if self.along else self.frame.wide

    def row(self, e: FusedExpr, u: int) -> Num:
        """The value of an expression that does not change within the unit."""
        known = self.rows[u]
        if e in self.frame.still:
            known[e] = self.row_machine.splat(self.frame.still[e])
        if e not in known:
            if self._is_paired(e):
                known[e] = self._word(e, self.row_words, u, lambda x: self.row(x, u), None, u)
            else:
                known[e] = self._raw(
                    e, self.row_machine, lambda x: self.row(x, u), self.pointers, None, u, self.mask
                )
        return rounded_to(self.row_machine, known[e], e.dtype)

    def _raw(
        self,
        e: FusedExpr,
        machine: LlvmScalar,
        get: Callable[[FusedExpr], Num],
        pointers: list[LLVMValue],
        index: LLVMValue | None,
        u: int,
        mask: LLVMValue | None,
    ) -> Num:
        """Compute one expression, not rounded to its dtype yet; `get` gives its parts."""
        if isinstance(e, Load):
            k = len(self.layout.program.results) + self._load_number(e)
            return self._load(machine, k, e.dtype, pointers[k], index, u, mask)
        if isinstance(e, FusedNumber):
            return self.frame.number(e, machine)
        if isinstance(e, Convert):
            return machine.to(get(e.source), e.dtype.compute)
        assert isinstance(e, FusedOp), e
        found = apply_point(e, machine, get)
        if machine.failed is not None:
            raise NotTaken("an op that may fail")
        return found

    def _is_paired(self, e: FusedExpr) -> bool:
        """Whether it is a random word, of which two come out at a time."""
        if not isinstance(e, FusedOp) or e.op.qualified != "counted_word":
            return False
        wide = not self.along or self.schedule.is_full(e)
        return wide and self.layout.starts_even(self._operand(e.args[0]))

    def _operand(self, e: Load) -> int:
        return len(self.layout.program.results) + self._load_number(e)

    def _word(
        self,
        e: FusedExpr,
        made: dict[Any, Num],
        number: int,
        get: Callable[[FusedExpr], Num],
        index: LLVMValue | None,
        u: int,
        pointers: list[LLVMValue] | None = None,
    ) -> Num:
        """The random words of vector `number` of a round; those of the next are made with it."""
        assert isinstance(e, FusedOp)
        if number % 2 and (e, number) in made:
            return made[e, number]
        k = self._operand(e.args[0])
        pointer = (pointers or self.pointers)[k]
        at = self._distance(self.frame.one, k, self._moved(k, pointer, index, u), None, 0)
        keys = [get(x) for x in e.args[1:]]
        found, made[e, number + 1] = two_vectors(self.f, self.frame.wide, at, keys)
        return found

    def _load_number(self, e: Load) -> int:
        loads = [x for x in self.layout.program.exprs if isinstance(x, Load)]
        return loads.index(e)

    def _moved(self, k: int, pointer: LLVMValue, index: LLVMValue | None, u: int) -> LLVMValue:
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
        pointer: LLVMValue,
        index: LLVMValue | None,
        u: int,
        mask: LLVMValue | None,
    ) -> Num:
        if self.layout.operands[k].slot == NOWHERE:
            return self._distance(machine, k, pointer, index, u)
        if machine.lanes == 1:
            return machine.load(dtype, pointer)
        place = self._moved(k, pointer, index, u)
        way = self.layout.step_class(k, self.layout.vector)
        if way == STILL:
            return machine.load_splat(dtype, place)
        if way == UNIT:
            return machine.load(dtype, place, mask)
        return machine.load_strided(dtype, place, self.frame.step(k, self.vector_loop), mask)

    def _distance(
        self, machine: LlvmScalar, k: int, pointer: LLVMValue, index: LLVMValue | None, u: int
    ) -> Num:
        """How many elements operand `k`, which is not in memory, has gone from its start."""
        f, lanes, dtype = self.f, machine.lanes, self.layout.operands[k].dtype
        place = pointer if lanes == 1 else self._moved(k, pointer, index, u)
        start = f.convert("ptrtoint", self.frame.block, I64)
        size = dtype.itemsize.bit_length() - 1
        kind = I32 if dtype is dt.int32 else I64

        def narrow(x: LLVMValue) -> LLVMValue:
            return f.convert("trunc", x, I32) if kind is I32 else x

        at = narrow((f.convert("ptrtoint", place, I64) - start) >> size)
        if lanes == 1:
            return Num(dtype, at)
        first = f.splat(at, lanes)
        way = self.layout.step_class(k, self.layout.vector)
        if way == STILL:
            return Num(dtype, first)
        steps = f.lanes(kind.vector(lanes))
        if way != UNIT:
            step = self.frame.step(k, self.vector_loop)
            assert isinstance(step, LLVMValue)
            steps = steps * f.splat(narrow(step >> size), lanes)
        return Num(dtype, first + steps)

    def _store(
        self,
        k: int,
        x: Num,
        pointer: LLVMValue,
        index: LLVMValue | None,
        u: int,
        mask: LLVMValue | None,
    ) -> None:
        machine, dtype = self.frame.wide, self.layout.operands[k].dtype
        place = self._moved(k, pointer, index, u)
        if self.layout.step_class(k, self.layout.vector) == STRIDED:
            machine.store_strided(x, dtype, place, self.frame.step(k, self.vector_loop), mask)
        else:
            machine.store(x, dtype, place, mask)

    # ---- passes --------------------------------------------------------------------------------

    def frame_size(self, level: int) -> LLVMValue:
        """The size of a folded loop."""
        return self.frame[("size", self.fold_loops[level])]

    def finish(self, walk: FusedPass, states: list[State], u: int) -> None:
        """The folds of a pass become values of the unit."""
        for fold, state in zip(walk.folds, states, strict=True):
            found = self.frame.monoids[fold].value(self.f, state)
            self.rows[u][fold] = self.row_machine.to(found, fold.dtype.compute)

    def leave_out(self, condition: FusedExpr, walks: list[FusedPass]) -> None:
        """Go on without walks, where the condition for them is known not to hold."""
        lanes = 1 if self.along else self.layout.lanes
        for known in self.rows:
            known[condition] = constant(self.f, False, dt.bool_, lanes)
        for walk in walks:
            for u, states in enumerate(self.untouched(walk)):
                self.finish(walk, states, u)

    def untouched(self, walk: FusedPass) -> list[list[State]]:
        """The states of a pass that walked over nothing."""
        lanes = 1 if self.along else self.layout.lanes
        return [self._starts(walk, lanes) for _ in range(self.count)]

    def write_rows(self) -> None:
        results = self.schedule.row_results
        # A result may lie over an input: everything is computed before anything is stored.
        computed = [[self.row(r.expr, u) for u in range(self.count)] for r in results]
        for r, values in zip(results, computed, strict=True):
            k = self.layout.program.results.index(r)
            for u, x in enumerate(values):
                if self.along:
                    self.frame.one.store(x, r.memory.dtype, self.pointers[k])
                else:
                    self._store(k, x, self.pointers[k], None, u, self.mask)

    def run_pass(
        self, number: int, walk: FusedPass, start: LLVMValue, stop: LLVMValue
    ) -> list[list[State]]:
        """One pass over the outermost folded loop from `start` to `stop`.

        Returns the states of its folds: scalars when lanes run along, else one per vector.
        """
        self.kept_now = {e for p in self.schedule.passes[:number] for e in p.keeps}
        self._prepare(walk)
        needed = self.schedule.only_when(walk)
        if needed is None:
            return self._walked(walk, start, stop)
        with self.f.if_(self.is_anywhere(needed)) as branch:
            states = self._walked(walk, start, stop)
            branch.give(*_flat(states))
        with branch.else_():
            branch.give(*_flat(self.untouched(walk)))
        return _shaped(branch.results, states)

    def _walked(self, walk: FusedPass, start: LLVMValue, stop: LLVMValue) -> list[list[State]]:
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

    def is_anywhere(self, condition: FusedExpr) -> LLVMValue:
        """Whether a condition holds in the unit, which has one value of it for each column."""
        found = None
        for u in range(self.count):
            here = self.row(condition, u).re
            if self.mask is not None:  # beyond the last column nothing is read, and zeros are odd
                here = self.f.bits("and", here, self.mask)
            found = here if found is None else self.f.bits("or", found, here)
        assert found is not None
        return found if self.along else self.f.fold("or", found)

    def _starts(self, walk: FusedPass, lanes: int = 0) -> list[State]:
        count = lanes or self.layout.lanes
        return [self.frame.monoids[x].start(self.f, count) for x in walk.folds]

    def _merged(self, walk: FusedPass, a: list[State], b: list[State]) -> list[State]:
        return [
            self.frame.monoids[fold].merge(self.f, x, y)
            for fold, x, y in zip(walk.folds, a, b, strict=True)
        ]

    def _prepare(self, walk: FusedPass) -> None:
        """Compute what does not change within the unit before its loops begin."""
        for e in self.schedule.walk(walk.roots, self.kept_now):
            if not self.schedule.is_full(e):
                for u in range(self.count):
                    value = self.row(e, u)
                    if self.along and e not in self.spread:
                        self.spread[e] = self.frame.wide.splat(value)
            elif divides_by_sum_of_exponentials(e, self.schedule):
                assert isinstance(e, FusedOp)
                self._prepare_reciprocal(e)

    def _prepare_reciprocal(self, e: FusedOp) -> None:
        for u in range(self.count):
            if e not in self.rows[u]:
                total = self.row_machine.to(self.row(e.args[1], u), e.types[1])
                self.rows[u][e] = self.row_machine.reciprocal(total)
        if self.along:
            self.spread[e] = self.frame.wide.splat(self.rows[0][e])

    def _nest(
        self,
        walk: FusedPass,
        level: int,
        pointers: list[LLVMValue],
        position: LLVMValue,
        states: list[list[State]],
        start: LLVMValue,
        stop: LLVMValue,
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

    def _advanced(self, pointers: list[LLVMValue], level: int, index: LLVMValue) -> list[LLVMValue]:
        steps = [self.frame.step(k, self.fold_loops[level]) for k in range(len(pointers))]
        return [
            p if isinstance(s, int) else self.f.at(p, index * s)
            for p, s in zip(pointers, steps, strict=True)
        ]

    def _vector_loop(
        self,
        walk: FusedPass,
        pointers: list[LLVMValue],
        position: LLVMValue,
        states: list[list[State]],
        start: LLVMValue,
        stop: LLVMValue,
    ) -> list[list[State]]:
        """Lanes along the loop: whole rounds in blocks, then single vectors under a mask."""
        f, lanes, unroll = self.f, self.layout.lanes, self.layout.unroll
        step = lanes * unroll
        whole = start + ((stop - start) & -step)
        size = self.frame_size(len(self.fold_loops) - 1)
        base = position * size
        if self.schedule.in_scratch:
            self.scratch_row = position * ((size + (lanes - 1)) & -lanes)

        def round_(index: LLVMValue, inner: list[list[State]]) -> list[list[State]]:
            self.pass_words = {}
            return [
                self._visit(walk, pointers, index + u * lanes, base, 0, inner[u], None, u)
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
        walk: FusedPass,
        pointers: list[LLVMValue],
        position: LLVMValue,
        states: list[list[State]],
        start: LLVMValue,
        stop: LLVMValue,
    ) -> list[list[State]]:
        """Lanes across: the innermost folded loop, one element of every column at a time."""
        level = len(self.fold_loops) - 1
        base = position * self.frame_size(level)
        ahead = self._rows_ahead(stop - start)

        def round_(index: LLVMValue, inner: list[list[State]]) -> list[list[State]]:
            here = self._advanced(pointers, level, index)
            self._fetch(self._advanced(here, level, ahead))
            self.pass_words = {}
            return [
                self._visit(walk, here, None, base + index, u, inner[u], self.mask, u)
                for u in range(self.count)
            ]

        return self._blocks(walk, states, start, stop, 1, round_)

    def _rows_ahead(self, count: LLVMValue) -> LLVMValue:
        """How far ahead of a row others are asked for; of few rows none is."""
        return self.f.select(count > _ROWS_AHEAD, _ROWS_AHEAD, self.f.constant(0))

    def _fetch(self, pointers: list[LLVMValue]) -> None:
        """Ask for rows to come: a strip is too narrow for the processor to foresee them."""
        lines = self.count * self.layout.lanes
        for k, memory in enumerate(self.layout.operands):
            step = self.frame.step(k, self.fold_loops[-1])
            if k < len(self.layout.program.results) or isinstance(step, int):
                continue
            if memory.slot == NOWHERE:
                continue
            if self.layout.step_class(k, self.layout.vector) == UNIT:
                for at in range(0, lines * memory.dtype.itemsize, 64):
                    self.f.prefetch(self.f.at(pointers[k], at))

    def _blocks(
        self,
        walk: FusedPass,
        states: list[list[State]],
        start: LLVMValue,
        stop: LLVMValue,
        step: int,
        round_: Callable[[LLVMValue, list[list[State]]], list[list[State]]],
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
        walk: FusedPass,
        pointers: list[LLVMValue],
        index: LLVMValue | None,
        base: LLVMValue,
        u: int,
        states: list[State],
        mask: LLVMValue | None,
        part: int = 0,
    ) -> list[State]:
        """Compute, keep, write and fold one vector of elements: number `part` of a round."""
        self.part = part
        spot = _Spot(self, pointers, index, base, u, mask)
        for e in walk.keeps:
            spot.keep(e)
        # A result may lie over an input, or over a value that was kept there until now: everything
        # is computed before anything is stored.
        computed = [spot.raw(r.expr) for r in walk.results]
        sources = [spot.value(fold.source) for fold in walk.folds]
        for r, x in zip(walk.results, computed, strict=True):
            k = self.layout.program.results.index(r)
            self._store(k, x, pointers[k], index, u, mask)
        found = []
        for fold, source, state in zip(walk.folds, sources, states, strict=True):
            m = self.frame.monoids[fold]
            place = spot.position(m.index) if isinstance(m, PositionFold) else None
            new = m.lift(self.f, source, place)
            if mask is not None and self.along:
                new = chosen(self.f, mask, new, m.start(self.f, self.layout.lanes))
            found.append(advance(self.f, m, state, new))
        return found


def run_together(units: list[Unit]) -> None:
    """All passes of some units side by side, then the results that have one value per unit.

    What only a rare unit needs is code apart: the others have neither its walks nor its choices.
    """
    first = units[0]
    f, schedule = first.f, first.schedule
    count = len(schedule.passes)
    if schedule.rare is None:
        run_passes(units, range(count))
        write_all_rows(units)
        return
    number, condition = schedule.rare
    run_passes(units, range(number))
    anywhere = [unit.is_anywhere(condition) for unit in units]
    with f.if_(functools.reduce(lambda a, b: f.bits("or", a, b), anywhere)) as rare, scope(units):
        run_passes(units, range(number, count))
        write_all_rows(units)
    with rare.else_(), scope(units):
        for unit in units:
            unit.leave_out(condition, schedule.passes[number:])
        write_all_rows(units)


@contextlib.contextmanager
def scope(units: Sequence[Unit]) -> Iterator[None]:
    """One side of a branch: what is known only inside is forgotten at its end."""
    before = [unit.known for unit in units]
    yield
    for unit, known in zip(units, before, strict=True):
        unit.known = known


def run_passes(units: Sequence[Unit], numbers: range) -> None:
    """Passes of units side by side, whose folds become values of the units."""
    for number in numbers:
        walk = units[0].schedule.passes[number]
        for unit in units:
            states = unit.run_pass(number, walk, unit.f.constant(0), unit.frame_size(0))
            for u, per_fold in enumerate(states):
                unit.finish(walk, per_fold, u)


def write_all_rows(units: Sequence[Unit]) -> None:
    """The results that have one value for a unit."""
    for unit in units:
        unit.write_rows()


class _Spot:
    """One vector of elements inside a pass."""

    def __init__(
        self,
        unit: Unit,
        pointers: list[LLVMValue],
        index: LLVMValue | None,
        base: LLVMValue,
        u: int,
        mask: LLVMValue | None,
    ) -> None:
        self.unit, self.pointers, self.index, self.base = unit, pointers, index, base
        self.u, self.mask = u, mask
        self.known: dict[FusedExpr, Num] = {}

    def value(self, e: FusedExpr) -> Num:
        """The value of an expression in every lane, as its dtype holds it."""
        unit = self.unit
        if not unit.schedule.is_full(e):
            return unit.spread[e] if unit.along else unit.row(e, self.u)
        return rounded_to(unit.frame.wide, self.raw(e), e.dtype)

    def raw(self, e: FusedExpr) -> Num:
        unit, wide = self.unit, self.unit.frame.wide
        if not unit.schedule.is_full(e):
            return self.value(e)
        if e in self.known:
            return self.known[e]
        if e in unit.kept_now:
            found = self._kept(e)
        elif divides_by_sum_of_exponentials(e, unit.schedule):
            assert isinstance(e, FusedOp)
            scale = unit.spread[e] if unit.along else unit.rows[self.u][e]
            found = self._divided(e, scale)
        elif unit._is_paired(e):
            found = unit._word(
                e, unit.pass_words, unit.part, self.value, self.index, self.u, self.pointers
            )
        else:
            found = unit._raw(e, wide, self.value, self.pointers, self.index, self.u, self.mask)
        self.known[e] = found
        return found

    def _divided(self, e: FusedOp, scale: Num) -> Num:
        """A quotient from the reciprocal of its divisor, corrected once: as exact as a division."""
        wide, f = self.unit.frame.wide, self.unit.f
        above = wide.to(self.value(e.args[0]), e.types[0])
        below = wide.to(self.value(e.args[1]), e.types[1])
        near = wide.mul(above, scale)
        left = f.fma(f.neg(near.re), below.re, above.re)
        return Num(near.dtype, f.fma(left, scale.re, near.re))

    def position(self, type: Any) -> LLVMValue:
        """Where in the folded axes each lane is."""
        f, lanes = self.unit.f, self.unit.layout.lanes
        at = self.base if self.index is None else self.base + self.index
        first = f.splat(f.convert("trunc", at, I32) if type is I32 else at, lanes)
        return first if self.index is None else first + f.lanes(type.vector(lanes))

    # ---- kept values ---------------------------------------------------------------------------

    def keep(self, e: FusedExpr) -> None:
        unit, x = self.unit, self.raw(e)
        result = unit.schedule.in_result.get(e)
        if result is not None:
            k = unit.layout.program.results.index(result)
            unit._store(k, x, self.pointers[k], self.index, self.u, self.mask)
            return
        unit.f.store(x.re, self._scratch(e))

    def _kept(self, e: FusedExpr) -> Num:
        unit = self.unit
        result = unit.schedule.in_result.get(e)
        if result is not None:
            k = unit.layout.program.results.index(result)
            return unit._load(
                unit.frame.wide, k, e.dtype, self.pointers[k], self.index, self.u, self.mask
            )
        from_memory = unit.frame.wide
        return from_memory.load(e.dtype.compute, self._scratch(e))

    def _scratch(self, e: FusedExpr) -> LLVMValue:
        """The place of this vector among the kept values of the unit."""
        unit, f = self.unit, self.unit.f
        assert unit.frame.scratch is not None
        count = len(unit.schedule.in_scratch)
        slot = unit.schedule.in_scratch.index(e)
        width = unit.layout.lanes
        if self.index is None:  # position by position, all columns of the strip
            at = (self.base * (unit.count * count) + (self.u * count + slot)) * width
        else:  # vector by vector, those of several values side by side: a row is whole vectors
            at = (unit.scratch_row + self.index) * count + slot * width
        return f.at(unit.frame.scratch, at * e.dtype.compute.itemsize)


def _flat(states: list[list[State]]) -> list[LLVMValue]:
    return [v for per_fold in states for state in per_fold for v in state]


def _shaped(values: list[LLVMValue], like: list[list[State]]) -> list[list[State]]:
    feed = iter(values)
    return [[[next(feed) for _ in state] for state in per_fold] for per_fold in like]
