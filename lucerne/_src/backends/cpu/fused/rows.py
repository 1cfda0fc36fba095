"""The functions of a fused program: element-wise work and folds over rows, in one kernel.

A unit of work (a row, or a strip of columns: see `layout`) is computed in the passes of its
schedule; statistics stay in registers between them. Sizes and strides are words of the block, so
one piece of code serves all shapes of a kind.
"""

from __future__ import annotations

from collections.abc import Callable

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.fused.frame import FusedFrame, FusedWords
from lucerne._src.backends.cpu.fused.layout import ALONG, SCRATCH_BYTES
from lucerne._src.backends.cpu.fused.monoids import restore, save
from lucerne._src.backends.cpu.fused.passes import Schedule
from lucerne._src.backends.cpu.fused.program import Fold, FusedExpr
from lucerne._src.backends.cpu.fused.side_by_side import ROWS, run_side_by_side
from lucerne._src.backends.cpu.fused.unit import Unit, run_together


def write(m: Module, schedule: Schedule, words: FusedWords) -> None:
    """All functions of the kernel."""
    if schedule.layout.splits > 1:
        _write_split(m, schedule, words)
    else:
        _write_whole(m, schedule, words)


def _write_whole(m: Module, schedule: Schedule, words: FusedWords) -> None:
    """Units do not depend on each other: chunks of units, each from first pass to last."""
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        block, chunk, _ = f.args
        frame = FusedFrame(f, schedule, words, block)
        if schedule.in_scratch:
            frame.scratch = f.stack(SCRATCH_BYTES)
        start = chunk * frame["chunk"]
        stop = f.minimum(start + frame["chunk"], frame["units"])
        if schedule.in_groups:
            _groups(frame, start, stop)
        else:
            with f.loop(start, stop) as loop:
                _each_part(frame, loop.index, lambda unit, _: run_together([unit]))
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        chunks = f.word(block, words.at["chunks"])
        with f.if_(chunks > 1) as several:
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
        with several.else_():
            f.call("task", VOID, [block, 0, 0])
        f.ret(0)


def _groups(frame: FusedFrame, start: LLVMValue, stop: LLVMValue) -> None:
    """A few rows at a time: one computes while the others wait for their folds.

    What is missing in the last group is its last row again, by the same thread with the same
    results.
    """
    f, rare = frame.f, frame.schedule.rare
    count = 2 if rare is None else ROWS
    with f.loop(start, stop, count) as loop:
        rows = [loop.index, *(f.minimum(loop.index + n, stop - 1) for n in range(1, count))]
        units = [Unit(frame, _at_row(frame, row), 1, None) for row in rows]
        if rare is None:
            run_together(units)
        else:
            run_side_by_side(units, *rare)


def _each_part(
    frame: FusedFrame, number: LLVMValue, emit: Callable[[Unit, LLVMValue], None]
) -> None:
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

    def moved(by: LLVMValue) -> list[LLVMValue]:
        steps = [frame.step(k, loop_number) for k in range(len(pointers))]
        return [
            p if isinstance(s, int) else f.at(p, by * s)
            for p, s in zip(pointers, steps, strict=True)
        ]

    with f.if_(left >= layout.width) as whole:
        emit(Unit(frame, moved(column), layout.unroll, None), f.constant(0))
    with whole.else_(), f.loop(0, left, layout.lanes) as parts:
        emit(Unit(frame, moved(column + parts.index), 1, left - parts.index), parts.index)


def _at_row(frame: FusedFrame, row: LLVMValue) -> list[LLVMValue]:
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


def _write_split(m: Module, schedule: Schedule, words: FusedWords) -> None:
    """Long folds: every pass is a job of its own over pieces, combined before the next one."""
    for number, walk in enumerate(schedule.passes):
        _write_piece(m, schedule, words, number)
        needed = schedule.only_when(walk)
        if needed is not None:
            _write_question(m, schedule, words, number, needed)
    with m.function("combine", [("block", PTR), ("pass", I64)], internal=True) as f:
        _combine_all(f, schedule, words)
    with m.function("rows", [("block", PTR)], internal=True) as f:
        frame = FusedFrame(f, schedule, words, f.args[0])
        with f.loop(0, frame["units"]) as loop:

            def finish(unit: Unit, shift: LLVMValue) -> None:
                _restore_stats(unit, loop.index, shift, len(schedule.passes))
                unit.write_rows()

            _each_part(frame, loop.index, finish)
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        for number, walk in enumerate(schedule.passes):
            if schedule.only_when(walk) is None:
                _run_pieces(f, schedule, words, number)
                continue
            with f.if_(f.call(f"needed{number}", I64, [block]) > 0):
                _run_pieces(f, schedule, words, number)
        if schedule.row_results:
            f.call("rows", VOID, [block])
        f.ret(0)


def _run_pieces(f: LLVMFunction, schedule: Schedule, words: FusedWords, number: int) -> None:
    block = f.args[0]
    chunks = f.word(block, words.at["chunks"])
    f.call("lucerne_pfor", VOID, [f.symbol(f"piece{number}"), block, chunks])
    if schedule.passes[number].folds:
        f.call("combine", VOID, [block, number])


def _write_question(
    m: Module, schedule: Schedule, words: FusedWords, number: int, condition: FusedExpr
) -> None:
    """Whether any unit needs a pass; its folds are what they are without it."""
    with m.function(f"needed{number}", [("block", PTR)], I64, internal=True) as f:
        answer = f.stack(8)
        f.store(f.constant(0), answer)
        frame = FusedFrame(f, schedule, words, f.args[0])
        with f.loop(0, frame["units"]) as loop:

            def ask(unit: Unit, shift: LLVMValue) -> None:
                _restore_stats(unit, loop.index, shift, number)
                for u, states in enumerate(unit.untouched(schedule.passes[number])):
                    for fold, state in zip(schedule.passes[number].folds, states, strict=True):
                        save(f, state, _slots(unit, "stat", fold, loop.index, shift, u))
                with f.if_(unit.is_anywhere(condition)):
                    f.store(f.constant(1), answer)

            _each_part(frame, loop.index, ask)
        f.ret(f.load(I64, answer))


def _write_piece(m: Module, schedule: Schedule, words: FusedWords, number: int) -> None:
    walk = schedule.passes[number]
    params = [("block", PTR), ("chunk", I64), ("tid", I64)]
    with m.function(f"piece{number}", params, internal=True) as f:
        frame = FusedFrame(f, schedule, words, f.args[0])
        which, piece = f.args[1] // frame["splits"], f.args[1] % frame["splits"]
        start = piece * frame["split_size"]

        def run(unit: Unit, shift: LLVMValue) -> None:
            stop = f.minimum(start + frame["split_size"], unit.frame_size(0))
            _restore_stats(unit, which, shift, number)
            states = unit.run_pass(number, walk, start, stop)
            for u, per_fold in enumerate(states):
                for fold, state in zip(walk.folds, per_fold, strict=True):
                    save(f, state, _slots(unit, "partial", fold, f.args[1], shift, u))

        _each_part(frame, which, run)


def _slots(
    unit: Unit, area: str, fold: Fold, slot: LLVMValue, shift: LLVMValue, u: int
) -> list[LLVMValue]:
    """Where the state of a fold is kept in the workspace, component by component."""
    frame, f = unit.frame, unit.f
    inside = (shift + u * unit.layout.lanes) * 8
    return [
        f.at(frame.place_in_workspace((area, fold, c), slot), inside)
        for c in range(len(frame.monoids[fold].types))
    ]


def _restore_stats(unit: Unit, which: LLVMValue, shift: LLVMValue, number: int) -> None:
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


def _combine_all(f: LLVMFunction, schedule: Schedule, words: FusedWords) -> None:
    """Partial states of all pieces of each unit in order, for the folds of one pass."""
    frame = FusedFrame(f, schedule, words, f.args[0])
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


def _combine(unit: Unit, fold: Fold, which: LLVMValue, shift: LLVMValue, lanes: int) -> None:
    f, frame = unit.f, unit.frame
    m = frame.monoids[fold]
    first = which * frame["splits"]
    with f.loop(0, frame["splits"], 1, m.start(f, lanes)) as pieces:
        places = _slots(unit, "partial", fold, first + pieces.index, shift, 0)
        pieces.next(*m.merge(f, pieces.carried, restore(f, m, lanes, places)))
    save(f, pieces.results, _slots(unit, "stat", fold, which, shift, 0))
