"""Machine code that calls a program on tensors: one foreign call from Python to the results.

It belongs to the module of the eager fast path, whose functions on tensors it uses.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I1,
    I8,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.native.keys import any_of, is_known
from lucerne._src.backends.cpu.native.layout import (
    TUPLE_ITEMS,
    VAR_SIZE,
    MemoryLayout,
    StorageLayout,
    TensorLayout,
)
from lucerne._src.backends.cpu.native.objects import (
    call_python,
    drop,
    field,
    is_null,
    known,
    not_null,
    take,
    type_of,
)
from lucerne._src.backends.cpu.native.plans import LETTERS
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.state import set_word, word


def write_launch(m: Module) -> None:
    S.write_state_code(m, internal=True)
    _write_admit(m)
    _write_apart(m)
    _write_kept(m)
    _write_results(m)
    _write_numbers(m)
    _write_segments(m)
    _write_check(m)
    _write_launch(m)


def _item(f: LLVMFunction, items: LLVMValue, index: object) -> LLVMValue:
    return f.load(PTR, f.at(f.at(items, TUPLE_ITEMS), index, I64), align=8)


def _not(f: LLVMFunction, condition: LLVMValue) -> LLVMValue:
    return f.bits("xor", condition, True)


def _none(f: LLVMFunction) -> None:
    """Answer None: the caller takes the complete way."""
    none = known(f, "none")
    take(f, none)
    f.ret(none)


def _write_admit(m: Module) -> None:
    """`program_admit(state, items, start)`: look at the arguments of a tuple, the first of which is
    argument `start`, and note where their bytes are. False at the first that is not as expected."""
    params = [("state", PTR), ("items", PTR), ("start", I64)]
    with m.function("program_admit", params, I1, internal=True) as f:
        state, items, start = f.args
        table = f.at(word(f, state, S.ARGUMENT_TABLE, PTR), start * (S.ARGUMENT_WORDS * 8))
        found = f.at(word(f, state, S.FOUND, PTR), start, I64)
        with f.loop(0, field(f, items, VAR_SIZE, I64)) as loop:
            x = _item(f, items, loop.index)
            record = f.at(table, loop.index * (S.ARGUMENT_WORDS * 8))
            kind = type_of(f, x)
            with f.if_(_not(f, f.call("is_tensor", I1, [kind]))):
                f.ret(f.constant(False, I1))
            wanted = word(f, record, S.ARGUMENT_CLASS, PTR)
            with f.if_(not_null(f, wanted)), f.if_(f.compare("ne", kind, wanted)):
                f.ret(f.constant(False, I1))
            meta = word(f, record, S.ARGUMENT_META, PTR)
            with f.if_(f.compare("ne", field(f, x, TensorLayout.META), meta)):
                f.ret(f.constant(False, I1))
            expected = word(f, record, S.ARGUMENT_GRAD)
            with f.if_(f.compare("ne", expected, 2)):
                needs = f.call("needs_grad", I64, [x])
                with f.if_(f.compare("ne", needs, expected)):
                    f.ret(f.constant(False, I1))
            with f.if_(f.compare("ne", word(f, record, S.ARGUMENT_WRITTEN), 0)):
                storage = field(f, x, TensorLayout.STORAGE)
                with f.if_(not_null(f, storage)):
                    odd = f.load(I8, f.at(storage, StorageLayout.INFERENCE))
                    with f.if_(f.compare("ne", odd, 0)):
                        f.ret(f.constant(False, I1))
            size = word(f, record, S.ARGUMENT_SIZE)
            data = f.call("data_of", I64, [x, size])
            with f.if_(f.compare("eq", data, 0)):  # a tensor of a transform: it has no bytes
                f.ret(f.constant(False, I1))
            set_word(f, found, loop.index, data)
        f.ret(f.constant(True, I1))


def _write_apart(m: Module) -> None:
    """`program_apart(state)`: no argument that is written shares memory with another one (unless
    both are of one group). Only those that have moved since the last call are looked at."""
    with m.function("program_apart", [("state", PTR)], I1, internal=True) as f:
        [state] = f.args
        with f.if_(f.compare("eq", word(f, state, S.WRITTEN), 0)):
            f.ret(f.constant(True, I1))
        count = word(f, state, S.ARGUMENTS)
        bases, found = word(f, state, S.BASES, PTR), word(f, state, S.FOUND, PTR)
        with f.loop(0, count) as loop:
            moved = f.compare("ne", word(f, bases, loop.index), word(f, found, loop.index))
            with f.if_(moved):
                alone = f.call("program_alone", I1, [state, loop.index])
                with f.if_(_not(f, alone)):
                    f.ret(f.constant(False, I1))
        f.ret(f.constant(True, I1))
    params = [("state", PTR), ("mine", I64)]
    with m.function("program_alone", params, I1, internal=True) as f:
        state, mine = f.args
        found, spans, groups, writes = (
            word(f, state, k, PTR) for k in (S.FOUND, S.SPANS, S.GROUPS, S.WRITES)
        )
        start, group, written = (word(f, table, mine) for table in (found, groups, writes))
        stop = start + word(f, spans, mine)
        with f.if_(f.compare("eq", start, stop)):
            f.ret(f.constant(True, I1))
        with f.loop(0, word(f, state, S.ARGUMENTS), carry=[f.constant(0)]) as loop:
            i = loop.index  # no branch in here: all of it in vectors
            begin, size, theirs = (word(f, table, i) for table in (found, spans, groups))
            bad = f.bits("or", written, word(f, writes, i))
            for condition in (
                f.compare("ult", begin, stop),
                f.compare("ult", start, begin + size),
                any_of(f, f.compare("ne", group, theirs), f.compare("eq", group, 0)),
                f.compare("ne", i, mine),
                f.compare("ne", size, 0),
            ):
                bad = f.bits("and", bad, f.convert("zext", condition, I64))
            loop.next(f.bits("or", loop.carried[0], bad))
        f.ret(f.compare("eq", loop.results[0], 0))


def _write_kept(m: Module) -> None:
    """`program_weights(state, first)`: for each weight of the first tuple that may have a packed
    copy, whether the copy still holds. 0, or -1 with an error set."""
    params = [("state", PTR), ("first", PTR)]
    with m.function("program_weights", params, I64, internal=True) as f:
        state, first = f.args
        with f.loop(0, word(f, state, S.KEPT)) as loop:
            record = f.at(word(f, state, S.KEPT_TABLE, PTR), loop.index * (S.KEPT_WORDS * 8))
            number = word(f, record, S.KEPT_ARGUMENT)
            with f.if_(number < field(f, first, VAR_SIZE, I64)) as b:
                t = _item(f, first, number)
                at = word(f, word(f, state, S.FOUND, PTR), number)
                b.give(f.call("program_weight", I64, [record, t, at]))
            with b.else_():  # not among those that stay: its copy is not looked after
                packed = f.compare("eq", word(f, record, S.KEPT_STAGE), S.PACKED)
                b.give(f.select(packed, f.constant(S.PLAIN), -1))
            with f.if_(b.results[0] >= 0):
                done = f.call("program_repack", I64, [state, loop.index, b.results[0]])
                with f.if_(f.compare("ne", done, 0)):
                    f.ret(f.constant(-1))
        f.ret(f.constant(0))
    # program_repack(state, which, stage): let Python do it; 0, or -1 with an error set
    params = [("state", PTR), ("which", I64), ("stage", I64)]
    with m.function("program_repack", params, I64, internal=True) as f:
        state, *numbers = f.args
        which, stage = (f.call("PyLong_FromLongLong", PTR, [x]) for x in numbers)
        done = call_python(f, word(f, state, S.REPACK, PTR), which, stage)
        drop(f, which)
        drop(f, stage)
        with f.if_(is_null(f, done)):
            f.ret(f.constant(-1))
        drop(f, done)
        f.ret(f.constant(0))
    # program_weight(record, t, address): the stage that Python has to bring it to, or -1
    params = [("record", PTR), ("t", PTR), ("at", I64)]
    with m.function("program_weight", params, I64, internal=True) as f:
        record, t, at = f.args
        stage = word(f, record, S.KEPT_STAGE)
        with f.if_(f.compare("eq", stage, S.NEVER)):
            f.ret(f.constant(-1))
        away = f.select(f.compare("eq", stage, S.PACKED), f.constant(S.PLAIN), -1)
        storage = f.call("own_storage", PTR, [t])
        with f.if_(is_null(f, storage)):
            f.call("PyErr_Clear", VOID, [])
            f.ret(away)
        memory = field(f, storage, StorageLayout.BUFFER)
        with f.if_(is_null(f, memory)):
            f.ret(away)
        with f.if_(_not(f, is_known(f, type_of(f, memory), "memory_type"))):
            f.ret(away)
        with f.if_(f.compare("ne", field(f, memory, MemoryLayout.EXPORTED, I64), 0)):
            f.ret(away)
        now = (
            (S.KEPT_WRITES, field(f, memory, MemoryLayout.WRITES, I64)),
            (S.KEPT_VERSION, field(f, storage, StorageLayout.VERSION, I64)),
            (S.KEPT_ADDRESS, at),
        )
        changed = any_of(f, *(f.compare("ne", word(f, record, k), v) for k, v in now))
        with f.if_(changed):
            for k, v in now:
                set_word(f, record, k, v)
            with f.if_(f.compare("eq", stage, S.PACKED)):
                f.ret(f.constant(S.SEEN))
            set_word(f, record, S.KEPT_STAGE, f.constant(S.SEEN))
            f.ret(f.constant(-1))
        f.ret(f.select(f.compare("eq", stage, S.SEEN), f.constant(S.PACKED), -1))


def _write_results(m: Module) -> None:
    """`program_results(state)`: a tuple of fresh tensors, their places noted; null: no memory."""
    with m.function("program_results", [("state", PTR)], PTR, internal=True) as f:
        [state] = f.args
        count = word(f, state, S.RESULTS)
        found = f.at(word(f, state, S.FOUND, PTR), word(f, state, S.ARGUMENTS), I64)
        table = word(f, state, S.RESULT_TABLE, PTR)
        made = f.call("PyTuple_New", PTR, [count])
        with f.if_(is_null(f, made)):
            f.ret(made)
        with f.loop(0, count) as loop:
            record = f.at(table, loop.index * (S.RESULT_WORDS * 8))
            meta, nbytes = word(f, record, S.RESULT_META, PTR), word(f, record, S.RESULT_BYTES)
            t = f.call("block_tensor", PTR, [meta, nbytes])
            with f.if_(is_null(f, t)):
                drop(f, made)
                f.ret(f.zero(PTR))
            set_word(f, f.at(made, TUPLE_ITEMS), loop.index, t)
            set_word(f, found, loop.index, field(f, t, TensorLayout.DATA, I64))
        f.ret(made)


def _write_numbers(m: Module) -> None:
    """`program_numbers(state, numbers)`: write the call's numbers. 0, or 1: one does not fit."""
    with m.function("program_numbers", [("state", PTR), ("numbers", PTR)], I64, internal=True) as f:
        state, numbers = f.args
        table = word(f, state, S.NUMBER_TABLE, PTR)
        with f.loop(0, word(f, state, S.NUMBER_COUNT)) as loop:
            record = f.at(table, loop.index * (S.NUMBER_WORDS * 8))
            x = _item(f, numbers, word(f, record, S.NUMBER_INDEX))
            letter, place = word(f, record, S.NUMBER_LETTER), word(f, record, S.NUMBER_PLACE, PTR)
            with f.if_(f.compare("eq", letter, LETTERS["c"])) as b:
                for part, k in (("Real", 0), ("Imag", 8)):
                    f.store(f.call(f"PyComplex_{part}AsDouble", F64, [x]), f.at(place, k), align=8)
                with f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))):
                    f.call("PyErr_Clear", VOID, [])
                    f.ret(f.constant(1))
            with (
                b.else_(),
                f.if_(f.compare("ne", f.call("number", I64, [x, letter, place]), 0)),
            ):
                f.ret(f.constant(1))
        f.ret(f.constant(0))


def _write_segments(m: Module) -> None:
    """`program_steps(state)`: run all. 0, or -1 with an error set."""
    with m.function("program_steps", [("state", PTR)], I64, internal=True) as f:
        [state] = f.args
        table = word(f, state, S.SEGMENTS, PTR)
        with f.loop(0, word(f, state, S.SEGMENT_COUNT)) as loop:
            segment = f.at(table, loop.index * (S.SEGMENT_WORDS * 8))
            bounds = [word(f, segment, k) for k in (S.SEGMENT_FIRST, S.SEGMENT_LAST)]
            with f.if_(f.compare("ne", word(f, segment, S.SEGMENT_RELEASE), 0)) as r:
                thread = f.call("PyEval_SaveThread", PTR, [])
                failed = f.call("program_run", I64, [state, *bounds])
                f.call("PyEval_RestoreThread", VOID, [thread])
                r.give(failed)
            with r.else_():
                r.give(f.call("program_run", I64, [state, *bounds]))
            with f.if_(r.results[0] >= 0):
                f.call("program_tell", I64, [state, f.constant(S.FAILED), r.results[0]])
                f.ret(f.constant(-1))
            host = word(f, segment, S.SEGMENT_HOST)
            with f.if_(host >= 0):
                told = f.call("program_tell", I64, [state, f.constant(S.HOST_STEP), host])
                with f.if_(f.compare("ne", told, 0)):
                    f.ret(f.constant(-1))
        f.ret(f.constant(0))
    # program_tell(state, which, step): call one of the Python functions; 0, or -1
    params = [("state", PTR), ("which", I64), ("step", I64)]
    with m.function("program_tell", params, I64, internal=True) as f:
        state, which, step = f.args
        number = f.call("PyLong_FromLongLong", PTR, [step])
        done = call_python(f, word(f, state, which, PTR), number, word(f, state, S.GIVEN, PTR))
        drop(f, number)
        with f.if_(is_null(f, done)):
            f.ret(f.constant(-1))
        drop(f, done)
        f.ret(f.constant(0))


def _write_check(m: Module) -> None:
    """`program_check(state, check)`: run the program `check` on results of the call that has run,
    and count an alarm if its number is not 0, or it could not be run."""
    params = [("state", PTR), ("check", PTR)]
    with m.function("program_check", params, VOID, internal=True) as f:
        state, check = f.args
        nbytes = word(f, check, S.SCRATCH)
        with f.if_(f.compare("ne", word(f, check, S.BUSY), 0)):
            _alarm(f, state)
        scratch = f.call("lucerne_alloc", PTR, [nbytes])
        with f.if_(is_null(f, scratch)):
            _alarm(f, state)
        number, chosen = word(f, state, S.CHECK_NUMBER), word(f, state, S.CHECK_RESULTS, PTR)
        results = f.at(word(f, state, S.FOUND, PTR), word(f, state, S.ARGUMENTS), I64)
        found = word(f, check, S.FOUND, PTR)
        set_word(f, found, 0, number)
        with f.loop(1, word(f, check, S.ARGUMENTS)) as loop:
            place = word(f, results, word(f, chosen, loop.index - 1))
            set_word(f, found, loop.index, place)
        set_word(f, found, word(f, check, S.BUFFERS) - 1, scratch)
        f.call("program_move", VOID, [check])
        set_word(f, check, S.BUSY, f.constant(1))
        failed = f.call("program_steps", I64, [check])
        set_word(f, check, S.BUSY, f.constant(0))
        f.call("lucerne_free", VOID, [scratch, nbytes])
        with f.if_(f.compare("ne", failed, 0)):
            f.call("PyErr_Clear", VOID, [])
            _alarm(f, state)
        value = f.load(F32, word(f, state, S.CHECK_NUMBER, PTR), align=4)
        with f.if_(f.compare("ne", value, 0.0)):  # (nan as well)
            _alarm(f, state)


def _alarm(f: LLVMFunction, state: LLVMValue) -> None:
    set_word(f, state, S.ALARMS, word(f, state, S.ALARMS) + 1)
    f.ret()


def _write_launch(m: Module) -> None:
    """`launch_program(state, first, second, numbers)`: a tuple of the results, or None when some
    argument is not as expected. The arguments are the items of both tuples."""
    fastcall = [("self", PTR), ("args", PTR), ("count", I64)]
    with m.function("launch_program", fastcall, PTR) as f:
        _, args, _ = f.args
        state = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 0, PTR)])
        first, second, numbers = given = [f.word(args, i, PTR) for i in (1, 2, 3)]
        with f.if_(any_of(f, *(_not(f, is_known(f, type_of(f, x), "tuple")) for x in given))):
            _none(f)
        one, two, three = (field(f, x, VAR_SIZE, I64) for x in (first, second, numbers))
        wrong = any_of(
            f,
            f.compare("ne", one + two, word(f, state, S.ARGUMENTS)),
            f.compare("ne", three, word(f, state, S.NUMBERS)),
            f.compare("ne", word(f, state, S.BUSY), 0),
        )
        with f.if_(wrong):
            _none(f)
        for items, start in ((first, f.constant(0)), (second, one)):
            with f.if_(_not(f, f.call("program_admit", I1, [state, items, start]))):
                _none(f)
        with f.if_(_not(f, f.call("program_apart", I1, [state]))):
            _none(f)
        with f.if_(f.compare("ne", f.call("program_numbers", I64, [state, numbers]), 0)):
            _none(f)
        set_word(f, state, S.GIVEN, numbers)
        f.ret(f.call("program_call", PTR, [state, first, second]))
    params = [("state", PTR), ("first", PTR), ("second", PTR)]
    with m.function("program_call", params, PTR, internal=True) as f:
        state, first, second = f.args
        nbytes = word(f, state, S.SCRATCH)
        scratch = f.call("lucerne_alloc", PTR, [nbytes])
        with f.if_(is_null(f, scratch)):
            _none(f)
        results = f.call("program_results", PTR, [state])
        with f.if_(is_null(f, results)):  # the complete way gives memory back before it gives up
            f.call("PyErr_Clear", VOID, [])
            f.call("lucerne_free", VOID, [scratch, nbytes])
            _none(f)
        last = word(f, state, S.BUFFERS) - 1
        set_word(f, word(f, state, S.FOUND, PTR), last, scratch)
        f.call("program_move", VOID, [state])
        f.call("program_count_writes", VOID, [state, first, second])
        set_word(f, state, S.BUSY, f.constant(1))
        ready = f.call("program_weights", I64, [state, first])
        with f.if_(f.compare("eq", ready, 0)) as b:
            b.give(f.call("program_steps", I64, [state]))
        with b.else_():
            b.give(f.constant(-1))
        check = word(f, state, S.CHECK, PTR)
        with f.if_(not_null(f, check)), f.if_(f.compare("eq", b.results[0], 0)):
            f.call("program_check", VOID, [state, check])
        set_word(f, state, S.BUSY, f.constant(0))
        f.call("lucerne_free", VOID, [scratch, nbytes])
        with f.if_(f.compare("ne", b.results[0], 0)):
            drop(f, results)
            f.ret(f.zero(PTR))
        f.ret(results)
    with m.function("program_count_writes", params, VOID, internal=True) as f:
        state, first, second = f.args
        split = field(f, first, VAR_SIZE, I64)
        table, none = word(f, state, S.WRITTEN_TABLE, PTR), known(f, "none")
        with f.loop(0, word(f, state, S.WRITTEN)) as loop:
            number = word(f, table, loop.index)
            with f.if_(number < split) as b:
                b.give(_item(f, first, number))
            with b.else_():
                b.give(_item(f, second, number - split))
            f.call("note_write", VOID, [b.results[0], none])


__all__ = ["write_launch"]
