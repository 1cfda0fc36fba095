"""The words that machine code reads of a program, and the code that needs nothing but them.

Buffers are numbered: arguments, results, then the scratch memory (the arena, and behind it the
workspace that the kernels share, which run one after another). Every word of a block that points
into a buffer has a patch: where it is, and the offset in the buffer. When a buffer has moved since
the last call its patches are applied again; parameters and (mostly) scratch memory stay where they
are, so that a call writes few words.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import HOST

_MONOTONIC, _UPTIME_RAW = 1, 8
"""Clocks of Linux, and of macOS."""

# Words of the state. Tables are given by their address.
(
    STEPS, BUFFERS, BASES, FOUND, FIRST, PATCHES, STATUS, DETAIL, BUSY, SEGMENTS, SEGMENT_COUNT,
    SCRATCH, ARGUMENTS, ARGUMENT_TABLE, RESULTS, RESULT_TABLE, NUMBERS, NUMBER_COUNT, NUMBER_TABLE,
    WRITTEN, WRITTEN_TABLE, SPANS, GROUPS, WRITES, KEPT, KEPT_TABLE, HOST_STEP, FAILED, REPACK,
    GIVEN, TIMES, CHECK, CHECK_NUMBER, CHECK_RESULTS, ALARMS, STATE_WORDS,
) = range(36)  # fmt: skip
"""SCRATCH: bytes. SPANS, GROUPS, WRITES: of each argument its bytes, the group of arguments it may
share memory with (0: none), and 1 if it is written. BUSY: a call runs, perhaps without Python's
lock. HOST_STEP, FAILED, REPACK: the Python functions called for steps without machine code, after a
failure, to change a kept weight. GIVEN: the tuple of the call's numbers, while it runs. TIMES: 0,
or where to write when each step begins and ends. CHECK: 0, or the state of a program that is run
after each call: it writes the number at CHECK_NUMBER, and reads results, whose numbers are at
CHECK_RESULTS. ALARMS: how often that was not 0."""

STEP_WORDS = 2
"""Entry, block."""
TIME_WORDS = 2
"""Nanoseconds of the clock of `time.perf_counter_ns`: begin, end."""
PATCH_WORDS = 2
"""Address of the word, offset in the buffer."""
SEGMENT_FIRST, SEGMENT_LAST, SEGMENT_RELEASE, SEGMENT_HOST, SEGMENT_WORDS = range(5)
"""Steps first..last-1 run in machine code, without Python's lock if RELEASE; then step HOST (if
not -1) by Python."""
(
    ARGUMENT_META, ARGUMENT_SIZE, ARGUMENT_GRAD, ARGUMENT_WRITTEN, ARGUMENT_CLASS, ARGUMENT_WORDS,
) = range(6)  # fmt: skip
"""Meta, bytes of an element, whether it needs a gradient (2: either), whether it is written, its
class (0: any)."""
RESULT_META, RESULT_BYTES, RESULT_WORDS = range(3)
NUMBER_INDEX, NUMBER_LETTER, NUMBER_PLACE, NUMBER_WORDS = range(4)
(
    KEPT_ARGUMENT, KEPT_WRITES, KEPT_VERSION, KEPT_ADDRESS, KEPT_STAGE, KEPT_WORDS,
) = range(6)  # fmt: skip
PLAIN, SEEN, PACKED, NEVER = range(4)
"""Stages of a kept weight: it can't be kept now; it was used once since it changed; a packed copy
is in use; it is never packed."""


def word(f: LLVMFunction, base: LLVMValue, index: object, type: object = I64) -> LLVMValue:
    """Word `index` of a run of words."""
    return f.load(type, f.at(base, index, I64), align=8)  # type: ignore[arg-type]


def set_word(f: LLVMFunction, base: LLVMValue, index: object, value: LLVMValue) -> None:
    f.store(value, f.at(base, index, I64), align=8)


def _write_clock(m: Module) -> None:
    """`program_clock()`: the time, as `time.perf_counter_ns` tells it."""
    with m.function("program_clock", [], I64, internal=True) as f:
        if HOST.system == "darwin":
            f.ret(f.call("clock_gettime_nsec_np", I64, [f.constant(_UPTIME_RAW, I32)]))
            return
        found = f.stack(16)
        f.call("clock_gettime", I32, [f.constant(_MONOTONIC, I32), found])
        f.ret(word(f, found, 0) * 1_000_000_000 + word(f, found, 1))


def _note_time(f: LLVMFunction, state: LLVMValue, index: LLVMValue) -> None:
    """Write the time into the table, if there is one."""
    times = word(f, state, TIMES, PTR)
    with f.if_(f.compare("ne", word(f, state, TIMES), 0)):
        set_word(f, times, index, f.call("program_clock", I64, []))


def write_state_code(m: Module, *, internal: bool = False) -> None:
    """`program_move(state)`: apply the patches of the buffers that have moved.

    `program_run(state, first, last)`: run these steps; -1, or the number of the one that failed.
    """
    _write_clock(m)
    with m.function("program_move", [("state", PTR)], internal=internal) as f:
        [state] = f.args
        bases, found = word(f, state, BASES, PTR), word(f, state, FOUND, PTR)
        first, patches = word(f, state, FIRST, PTR), word(f, state, PATCHES, PTR)
        with f.loop(0, word(f, state, BUFFERS)) as buffers:
            b = buffers.index
            now = word(f, found, b)
            with f.if_(f.compare("ne", now, word(f, bases, b))):
                set_word(f, bases, b, now)
                with f.loop(word(f, first, b), word(f, first, b + 1)) as loop:
                    patch = f.at(patches, loop.index * (PATCH_WORDS * 8))
                    f.store(now + word(f, patch, 1), word(f, patch, 0, PTR), align=8)
    params = [("state", PTR), ("first", I64), ("last", I64)]
    with m.function("program_run", params, I64, internal=internal) as f:
        state, first, last = f.args
        steps = word(f, state, STEPS, PTR)
        with f.loop(first, last) as loop:
            step = f.at(steps, loop.index * (STEP_WORDS * 8))
            block = word(f, step, 1, PTR)
            _note_time(f, state, loop.index * TIME_WORDS)
            status = f.call_at(word(f, step, 0, PTR), I64, [block])
            _note_time(f, state, loop.index * TIME_WORDS + 1)
            with f.if_(f.compare("ne", status, 0)):
                set_word(f, state, STATUS, status)
                set_word(f, state, DETAIL, word(f, block, 0))
                f.ret(loop.index)
        f.ret(f.constant(-1))
