"""The native dispatcher: from an op and its arguments to a plan, and the plan's run.

`core(info, args, count)` turns the arguments into key words (the meta of a tensor, the type of a
number, the value of a static integer, the identity of a dtype or string), looks the key up, runs
the plan. It answers a new reference, null with a Python error set, or NOT_MINE: somebody else has
to do it (no plan yet, an unusual argument, interpreters watching). Everything it does not take is
done by the Python path, which is complete.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I1,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I8
from lucerne._src.backends.cpu.native import plans as P
from lucerne._src.backends.cpu.native.keys import MAX_KEY, any_of, is_known, word, write_keys
from lucerne._src.backends.cpu.native.layout import (
    TUPLE_ITEMS,
    VAR_SIZE,
    MemoryLayout,
    StorageLayout,
    TensorLayout,
)
from lucerne._src.backends.cpu.native.objects import (
    KNOWN,
    call_python,
    drop,
    field,
    is_null,
    known,
    not_null,
    set_field,
    take,
    type_of,
)
from lucerne._src.backends.cpu.native.records import ODD, write_records

NOT_MINE = 1

_NO_ROOM = -12
"""A status: there was no memory to work in, and the error says so already."""
GRAD_ON, UNUSUAL = 1, 2
"""Bits of the mode word: gradients are recorded; somebody wants to see every call."""


def write_dispatch(m: Module) -> None:
    write_keys(m)
    write_records(m)
    _write_kernel(m)
    _write_core(m)
    _write_entry_points(m)


# ---- kernels ----------------------------------------------------------------------------------


def _write_kernel(m: Module) -> None:
    with m.function("data_of", [("t", PTR), ("size", I64)], I64, internal=True) as f:
        t, size = f.args
        storage = field(f, t, TensorLayout.STORAGE)
        with f.if_(is_null(f, storage)):
            f.ret(field(f, t, TensorLayout.DATA, I64))
        start = field(f, storage, StorageLayout.ADDRESS, I64)
        with f.if_(f.compare("eq", start, 0)):
            f.ret(f.constant(0))
        f.ret(start + field(f, t, TensorLayout.OFFSET, I64) * size)
    _write_fill(m)
    # enter_block(plan, block): the call itself (without the GIL when it is long)
    with m.function("enter_block", [("plan", PTR), ("block", PTR)], I64, internal=True) as f:
        plan, block = f.args
        entry = word(f, plan, P.ENTRY, PTR)
        with f.if_(f.compare("ne", word(f, plan, P.RELEASE), 0)) as r:
            thread = f.call("PyEval_SaveThread", PTR, [])
            status = f.call_at(entry, I64, [block])
            f.call("PyEval_RestoreThread", VOID, [thread])
            r.give(status)
        with r.else_():
            r.give(f.call_at(entry, I64, [block]))
        f.ret(r.results[0])
    # run_in_room(plan, block, nbytes): the same with workspace; apart, as most plans need none
    params = [("plan", PTR), ("block", PTR), ("nbytes", I64)]
    apart = "nounwind noinline"
    with m.function("run_in_room", params, I64, internal=True, attributes=apart) as f:
        plan, block, nbytes = f.args
        space = f.call("lucerne_alloc", PTR, [nbytes])
        with f.if_(is_null(f, space)):
            f.call("refuse_room", PTR, [nbytes])
            f.ret(f.constant(_NO_ROOM))
        at = word(f, plan, P.NUMBERS_AT) - 1
        f.store(space, f.at(block, at, I64), align=8)
        status = f.call("enter_block", I64, [plan, block])
        f.call("lucerne_free", VOID, [space, nbytes])
        f.ret(status)
    # run_block(plan, block): either; small enough to become part of its callers
    with m.function("run_block", [("plan", PTR), ("block", PTR)], I64, internal=True) as f:
        plan, block = f.args
        nbytes = word(f, plan, P.WORKSPACE)
        with f.if_(f.compare("ne", nbytes, 0)):
            f.ret(f.call("run_in_room", I64, [plan, block, nbytes]))
        f.ret(f.call("enter_block", I64, [plan, block]))
    # failed(plan, status, block): tell Python why; always leaves an error set
    params = [("plan", PTR), ("status", I64), ("block", PTR)]
    with m.function("failed", params, VOID, internal=True) as f:
        plan, status, block = f.args
        with f.if_(f.compare("eq", status, _NO_ROOM)):  # it has been said
            f.ret()
        code = f.call("PyLong_FromLongLong", PTR, [status])
        detail = f.call("PyLong_FromLongLong", PTR, [word(f, block, 0)])
        done = call_python(f, word(f, plan, P.FAIL, PTR), code, detail)
        with f.if_(not_null(f, done)):
            drop(f, done)
            f.call("PyErr_NoMemory", PTR, [])
        drop(f, code)
        drop(f, detail)
    _write_run_kernel(m)
    _write_run_over(m)


def _write_fill(m: Module) -> None:
    """`fill(plan, args, block)`: template, pointers, numbers. 0, or 1: a number does not fit, or a
    tensor has no bytes (it belongs to a capture or a transform of another thread)."""
    params = [("plan", PTR), ("args", PTR), ("block", PTR)]
    with m.function("fill", params, I64, internal=True) as f:
        plan, args, block = f.args
        words = word(f, plan, P.WORDS)
        template = word(f, plan, P.TEMPLATE, PTR)
        with f.loop(0, words) as loop:
            f.store(word(f, template, loop.index), f.at(block, loop.index, I64), align=8)
        first = f.at(plan, P.DESCRIPTORS * 8)
        inputs = word(f, plan, P.INPUTS)
        start = [word(f, plan, P.OUTPUTS), word(f, plan, P.NUMBERS_AT)]
        with f.loop(0, inputs, carry=start) as loop:
            pointer_at, number_at = loop.carried
            d = f.at(first, loop.index * (P.DESCRIPTOR_WORDS * 8))
            given = f.load(PTR, f.at(args, word(f, d, 0), I64), align=8)
            place = word(f, d, 1)
            with f.if_(place >= 0) as b:
                b.give(f.load(PTR, f.at(f.at(given, TUPLE_ITEMS), place, I64), align=8))
            with b.else_():
                b.give(given)
            (x,) = b.results
            letter = word(f, d, 3)
            with f.if_(f.compare("eq", letter, 0)) as t:
                address = f.call("data_of", I64, [x, word(f, d, 2)])
                with f.if_(f.compare("eq", address, 0)):
                    f.ret(f.constant(1))
                f.store(address, f.at(block, pointer_at, I64), align=8)
                t.give(pointer_at + 1, number_at)
            with t.else_():
                bad = f.call("number", I64, [x, letter, f.at(block, number_at, I64)])
                with f.if_(f.compare("ne", bad, 0)):
                    f.ret(f.constant(1))
                bits = word(f, d, 2)
                with (
                    f.if_(f.compare("ne", bits, 0)),
                    f.if_(f.call("outside", I1, [word(f, block, number_at), bits])),
                ):
                    f.ret(f.constant(1))
                t.give(pointer_at + 0, number_at + 2)
            loop.next(*t.results)
        f.ret(f.constant(0))
    # outside(value, bits): whether integers of so many bits do not hold it (see P.DESCRIPTORS)
    with m.function("outside", [("value", I64), ("bits", I64)], I1, internal=True) as f:
        value, bits = f.args
        with f.if_(bits > 0):
            left = 64 - bits
            f.ret(f.compare("ne", f.bits("ashr", value << left, left), value))
        size = f.select(value < 0, 0 - value, value)
        f.ret(f.compare("ne", f.bits("lshr", size, 0 - bits), 0))
    params = [("x", PTR), ("letter", I64), ("place", PTR)]
    with m.function("number", params, I64, internal=True) as f:
        x, letter, place = f.args
        with f.if_(f.compare("eq", letter, P.LETTERS["i"])) as b:
            f.store(f.call("PyLong_AsLongLong", I64, [x]), place, align=8)
        with b.else_():
            with f.if_(is_known(f, type_of(f, x), "int")) as whole:
                # An int that no type of integers holds is refused, even beside floats: by Python
                value = f.call("PyLong_AsLongLong", I64, [x])
                with (
                    f.if_(f.compare("eq", value, -1)),
                    f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))),
                ):
                    f.call("PyErr_Clear", VOID, [])
                    f.ret(f.constant(1))
                f.store(f.convert("sitofp", value, F64), place, align=8)
            with whole.else_():
                f.store(f.call("PyFloat_AsDouble", F64, [x]), place, align=8)
        minus_one = f.compare("eq", f.load(I64, place, align=8), -1)
        float_minus_one = f.compare("eq", f.load(F64, place, align=8), -1.0)
        with (
            f.if_(any_of(f, minus_one, float_minus_one)),
            f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))),
        ):
            f.call("PyErr_Clear", VOID, [])
            f.ret(f.constant(1))
        f.ret(f.constant(0))


def _write_run_kernel(m: Module) -> None:
    """`run_kernel(plan, args, mask)`: fresh results."""
    params = [("plan", PTR), ("args", PTR), ("mask", I64)]
    with m.function("run_kernel", params, PTR, internal=True) as f:
        plan, args, mask = f.args
        block = f.stack(P.MAX_WORDS * 8)
        outs = f.stack(P.MAX_OUTPUTS * 8)
        bad = f.call("fill", I64, [plan, args, block])
        with f.if_(f.compare("ne", bad, 0)):
            f.ret(f.convert("inttoptr", f.constant(NOT_MINE), PTR))
        count = word(f, plan, P.OUTPUTS)
        with f.loop(0, count) as loop:
            i = loop.index
            meta = f.load(PTR, f.at(plan, (i + P.OUT_META) * 8), align=8)
            nbytes = f.load(I64, f.at(plan, (i + P.OUT_NBYTES) * 8), align=8)
            t = f.call("block_tensor", PTR, [meta, nbytes])
            with f.if_(is_null(f, t)):
                f.call("drop_all", VOID, [outs, i])
                f.ret(f.zero(PTR))
            f.store(t, f.at(outs, i, I64), align=8)
            f.store(field(f, t, TensorLayout.DATA), f.at(block, i, I64), align=8)
        status = f.call("run_block", I64, [plan, block])
        with f.if_(f.compare("ne", status, 0)):  # Python does it again: it knows what to say
            f.call("drop_all", VOID, [outs, count])
            f.ret(f.convert("inttoptr", f.constant(NOT_MINE), PTR))
        first = f.load(PTR, outs, align=8)
        with f.if_(f.compare("ne", mask, 0)):
            recorded = f.call("record", I64, [plan, args, mask, outs, count])
            with f.if_(f.compare("ne", recorded, 0)):
                f.call("drop_all", VOID, [outs, count])
                f.ret(f.zero(PTR))
        with f.if_(f.compare("eq", count, 1)):
            f.ret(first)
        made = f.call("PyTuple_New", PTR, [count])
        with f.loop(0, count) as loop:
            item = f.load(PTR, f.at(outs, loop.index, I64), align=8)
            f.store(item, f.at(f.at(made, TUPLE_ITEMS), loop.index, I64), align=8)
        f.ret(made)
    with m.function("drop_all", [("outs", PTR), ("count", I64)], VOID, internal=True) as f:
        outs, count = f.args
        with f.loop(0, count) as loop:
            drop(f, f.load(PTR, f.at(outs, loop.index, I64), align=8))


def _write_run_over(m: Module) -> None:
    """`run_over(plan, args, target)`: in place."""
    params = [("plan", PTR), ("args", PTR), ("target", PTR)]
    with m.function("run_over", params, PTR, internal=True) as f:
        plan, args, target = f.args
        block = f.stack(P.MAX_WORDS * 8)
        mine = f.constant(NOT_MINE)
        storage = f.call("own_storage", PTR, [target])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        odd = f.load(I8, f.at(storage, StorageLayout.INFERENCE))
        fits = f.compare("eq", field(f, target, TensorLayout.META), word(f, plan, P.OUT_META, PTR))
        alone = f.compare("ne", f.call("shares", I64, [plan, args, target]), 0)
        pointwise = f.compare("eq", word(f, plan, P.FLAGS) & P.POINTWISE, 0)
        wrong = any_of(f, f.compare("ne", odd, 0), f.bits("xor", fits, True), alone, pointwise)
        with f.if_(wrong):
            f.ret(f.convert("inttoptr", mine, PTR))
        bad = f.call("fill", I64, [plan, args, block])
        with f.if_(f.compare("ne", bad, 0)):
            f.ret(f.convert("inttoptr", mine, PTR))
        size = word(f, plan, P.DESCRIPTORS + 2)
        written = f.call("data_of", I64, [target, size])
        with f.if_(f.compare("eq", written, 0)):
            f.ret(f.convert("inttoptr", mine, PTR))
        f.store(written, block, align=8)
        status = f.call("run_block", I64, [plan, block])
        with f.if_(f.compare("ne", status, 0)):
            f.call("failed", VOID, [plan, status, block])
            f.ret(f.zero(PTR))
        version = field(f, storage, StorageLayout.VERSION, I64) + 1
        set_field(f, storage, StorageLayout.VERSION, version)
        memory = field(f, storage, StorageLayout.BUFFER)
        with f.if_(is_known(f, type_of(f, memory), "memory_type")):
            writes = field(f, memory, MemoryLayout.WRITES, I64) + 1
            set_field(f, memory, MemoryLayout.WRITES, writes)
        saved = f.compare("ne", f.load(I8, f.at(storage, StorageLayout.SAVED)), 0)
        with f.if_(saved):  # a backward pass may have to name the line that wrote here
            place = f.call("user_line", PTR, [])
            with f.if_(is_null(f, place)):
                f.ret(f.zero(PTR))
            old = field(f, storage, StorageLayout.WRITER)
            set_field(f, storage, StorageLayout.WRITER, place)
            with f.if_(not_null(f, old)):
                drop(f, old)
        take(f, target)
        f.ret(target)
    # shares(plan, args, target): whether another argument lies in the target's memory (a tensor
    # without a storage has a block of its own; `.data` is another storage over the same memory)
    with m.function("shares", params, I64, internal=True) as f:
        plan, args, target = f.args
        memory = field(f, field(f, target, TensorLayout.STORAGE), StorageLayout.BUFFER)
        with f.loop(0, word(f, plan, P.ARGUMENTS)) as loop:
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            plain = f.call("is_tensor", I1, [type_of(f, x)])
            with f.if_(f.bits("and", plain, f.compare("ne", x, target))):
                storage = field(f, x, TensorLayout.STORAGE)
                with (
                    f.if_(not_null(f, storage)),
                    f.if_(f.compare("eq", field(f, storage, StorageLayout.BUFFER), memory)),
                ):
                    f.ret(f.constant(1))
        f.ret(f.constant(0))


# ---- the core ---------------------------------------------------------------------------------


def _write_core(m: Module) -> None:
    params = [("info", PTR), ("args", PTR), ("count", I64)]
    with m.function("find", params, PTR, internal=True) as f:
        info, args, count = f.args
        key = f.stack(MAX_KEY * 8)
        words = f.call("key_of", I64, [info, args, count, key])
        with f.if_(words < 0):
            f.ret(f.zero(PTR))
        f.ret(f.call("look_up", PTR, [key, words]))
    _write_grad_mask(m)
    with m.function("usual", [], I1, internal=True) as f:
        thread = f.call("PyThreadState_Get", PTR, [])
        mine = f.compare("eq", thread, known(f, "owner_thread"))
        calm = f.compare("eq", known(f, "mode", I64) & UNUSUAL, 0)
        f.ret(f.bits("and", mine, calm))
    with m.function("core", params, PTR, internal=True) as f:
        info, args, count = f.args
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            f.ret(not_mine(f))
        plan = f.call("find", PTR, [info, args, count])
        with f.if_(is_null(f, plan)):
            f.ret(not_mine(f))
        f.ret(f.call("finish", PTR, [plan, args, count]))
    params.append(("target", PTR))
    with m.function("core_over", params, PTR, internal=True) as f:
        info, args, count, target = f.args
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            f.ret(not_mine(f))
        plan = f.call("find", PTR, [info, args, count])
        with f.if_(is_null(f, plan)):
            f.ret(not_mine(f))
        f.ret(f.call("finish_over", PTR, [plan, args, count, target]))
    _write_finish(m)


def not_mine(f: LLVMFunction) -> LLVMValue:
    """The answer that sends a call to the Python path."""
    return f.convert("inttoptr", f.constant(NOT_MINE), PTR)


def _write_grad_mask(m: Module) -> None:
    # grad_mask(args, count): which arguments need a gradient; -1: more than the masks hold
    with m.function("grad_mask", [("args", PTR), ("count", I64)], I64, internal=True) as f:
        args, count = f.args
        with f.loop(0, count, carry=[f.constant(0), f.constant(0)]) as loop:
            mask, odd = loop.carried
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, x)])) as b:
                bit = f.bits("shl", f.call("needs_grad", I64, [x]), loop.index)
                b.give(f.bits("or", mask, bit), f.bits("or", odd, f.call("is_odd", I64, [x])))
            with b.else_():
                with f.if_(is_known(f, type_of(f, x), "tuple")) as t:
                    found = f.call("tuple_needs_grad", I64, [x])
                    bit = f.bits("shl", found & 1, loop.index)
                    t.give(f.bits("or", mask, bit), f.bits("or", odd, f.bits("lshr", found, 1)))
                with t.else_():
                    t.give(mask, odd)
                b.give(*t.results)
            loop.next(*b.results)
        mask, odd = loop.results
        strange = f.bits("and", f.compare("ne", mask, 0), f.compare("ne", odd, 0))
        f.ret(f.select(strange, mask | ODD, mask))
    # is_odd(x): only the complete path may record it: a view of memory that was written to since,
    # or memory made in inference mode
    with m.function("is_odd", [("x", PTR)], I64, internal=True) as f:
        (x,) = f.args
        storage = field(f, x, TensorLayout.STORAGE)
        with f.if_(is_null(f, storage)):
            f.ret(f.constant(0))
        now = field(f, storage, StorageLayout.VERSION, I64)
        unseen = f.compare("ne", now, field(f, x, TensorLayout.SEEN_VERSION, I64))
        written = f.bits("and", f.compare("ne", now, 0), unseen)
        stale = f.bits("and", not_null(f, field(f, x, TensorLayout.VIEW)), written)
        inference = f.compare("ne", f.load(I8, f.at(storage, StorageLayout.INFERENCE)), 0)
        f.ret(f.convert("zext", any_of(f, stale, inference), I64))
    # tuple_needs_grad(x): 1 if a tensor in it needs a gradient, and 2 if one is odd
    with m.function("tuple_needs_grad", [("x", PTR)], I64, internal=True) as f:
        (x,) = f.args
        with f.loop(0, field(f, x, VAR_SIZE, I64), carry=[f.constant(0)]) as loop:
            (found,) = loop.carried
            item = f.load(PTR, f.at(f.at(x, TUPLE_ITEMS), loop.index, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, item)])) as b:
                odd = f.bits("shl", f.call("is_odd", I64, [item]), 1)
                b.give(f.bits("or", f.bits("or", found, f.call("needs_grad", I64, [item])), odd))
            with b.else_():
                b.give(found)
            loop.next(*b.results)
        f.ret(loop.results[0])


def _write_finish(m: Module) -> None:
    """What the core does once it has the plan."""
    params = [("plan", PTR), ("args", PTR), ("count", I64)]
    with m.function("finish", params, PTR, internal=True) as f:
        plan, args, count = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        needs = f.call("grad_mask", I64, [args, count])
        beyond = f.bits("and", needs, -(1 << P.MAX_GRAD_ARGUMENTS))
        mask = f.bits("or", f.bits("and", needs, word(f, plan, P.DERIVABLE)), beyond)
        grad_on = f.compare("ne", known(f, "mode", I64) & GRAD_ON, 0)
        flags = word(f, plan, P.FLAGS)
        view = f.compare("ne", flags & P.VIEW, 0)
        with f.if_(grad_on) as b:
            recordable = f.compare("ne", flags & P.RECORDS, 0)
            fits = f.compare("ult", mask, 1 << P.MAX_GRAD_ARGUMENTS)
            good = any_of(f, f.compare("eq", needs, 0), f.bits("and", recordable, fits))
            # An op that is differentiable, but not in an argument that needs it: the function that
            # was remembered may do something else then (attention with a mask in training).
            derivable = word(f, plan, P.DERIVABLE)
            other = f.bits("and", needs, f.bits("xor", derivable, -1))
            lost = f.bits("and", f.compare("ne", other, 0), f.compare("ne", derivable, 0))
            good = f.bits("and", good, f.bits("xor", lost, True))
            with f.if_(f.bits("xor", good, True)):
                f.ret(away)
            b.give(mask + 0)
        with b.else_():
            # a view of what needs a gradient, made without grad, is a leaf of its own: Python's
            with f.if_(f.bits("and", view, f.compare("ne", needs, 0))):
                f.ret(away)
            b.give(f.constant(0))
        unrecorded = f.compare("eq", b.results[0], 0)
        only_recorded = f.compare("ne", flags & P.ONLY_RECORDED, 0)
        with f.if_(f.bits("and", unrecorded, only_recorded)):
            f.ret(away)
        with f.if_(view):
            f.ret(f.call("make_view", PTR, [plan, args, b.results[0], grad_on]))
        f.ret(f.call("run_kernel", PTR, [plan, args, b.results[0]]))
    params.append(("target", PTR))
    with m.function("finish_over", params, PTR, internal=True) as f:
        plan, args, count, target = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        plain = f.call("is_tensor", I1, [type_of(f, target)])
        viewed = not_null(f, field(f, target, TensorLayout.VIEW))
        first = f.compare("ne", target, f.load(PTR, args, align=8))
        with f.if_(any_of(f, f.bits("xor", plain, True), viewed, first)):
            f.ret(away)
        grad_on = f.compare("ne", known(f, "mode", I64) & GRAD_ON, 0)
        needs = f.compare("ne", f.call("grad_mask", I64, [args, count]), 0)
        with f.if_(f.bits("and", grad_on, needs)):
            f.ret(away)
        f.ret(f.call("run_over", PTR, [plan, args, target]))


def _write_entry_points(m: Module) -> None:
    m.variable("op_native_offset", "i64", "0", shown=True)
    m.variable("target_offset", "i64", "0", shown=True)
    fastcall = [("self", PTR), ("args", PTR), ("count", I64)]
    # run(op, args, out=None): what every public function calls
    with m.function("run", fastcall, PTR) as f:
        _, args, count = f.args
        op, given = f.word(args, 0, PTR), f.word(args, 1, PTR)
        info = f.load(PTR, f.at(op, f.load(I64, f.symbol("op_native_offset"), align=8)), align=8)
        with f.if_(any_of(f, is_null(f, info), is_known(f, info, "none"))):
            f.ret(f.call("call_slow_run", PTR, [args, count]))
        words = f.call("PyLong_AsVoidPtr", PTR, [info])
        items = f.at(given, TUPLE_ITEMS)
        size = field(f, given, VAR_SIZE, I64)
        with f.if_(count > 2) as b:
            out = f.word(args, 2, PTR)
            with f.if_(is_known(f, out, "none")) as n:
                n.give(f.call("core", PTR, [words, items, size]))
            with n.else_():
                with f.if_(is_known(f, type_of(f, out), "in_place_type")) as o:
                    at = f.load(I64, f.symbol("target_offset"), align=8)
                    target = f.load(PTR, f.at(out, at), align=8)
                    o.give(f.call("core_over", PTR, [words, items, size, target]))
                with o.else_():
                    o.give(f.convert("inttoptr", f.constant(NOT_MINE), PTR))
                n.give(*o.results)
            b.give(*n.results)
        with b.else_():
            b.give(f.call("core", PTR, [words, items, size]))
        (result,) = b.results
        with f.if_(f.compare("ne", result, f.convert("inttoptr", f.constant(NOT_MINE), PTR))):
            f.ret(result)
        f.ret(f.call("call_slow_run", PTR, [args, count]))
    with m.function("call_slow_run", [("args", PTR), ("count", I64)], PTR, internal=True) as f:
        args, count = f.args
        f.ret(f.call("PyObject_Vectorcall", PTR, [known(f, "slow_run"), args, count, f.zero(PTR)]))
    # remember(op, args, plan address, key bytes): Python enters a plan; answers the table slot
    with m.function("remember", fastcall, PTR) as f:
        _, args, _ = f.args
        op, given = f.word(args, 0, PTR), f.word(args, 1, PTR)
        info = f.load(PTR, f.at(op, f.load(I64, f.symbol("op_native_offset"), align=8)), align=8)
        words = f.call("PyLong_AsVoidPtr", PTR, [info])
        plan = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 2, PTR)])
        key = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 3, PTR)])
        size = field(f, given, VAR_SIZE, I64)
        count = f.call("key_of", I64, [words, f.at(given, TUPLE_ITEMS), size, key])
        f.ret(f.call("enter", PTR, [key, count, plan]))
    # set_mode(gradients are recorded, unusual, number of the cast): the state of the owner thread.
    # The number is small and goes into the keys of calls: each cast has entries of its own.
    with m.function("set_mode", fastcall, PTR) as f:
        _, args, _ = f.args
        thread = f.call("PyThreadState_Get", PTR, [])
        with f.if_(f.compare("eq", thread, known(f, "owner_thread"))):
            grad, unusual = (is_known(f, f.word(args, i, PTR), "true") for i in range(2))
            bits = f.select(grad, GRAD_ON, f.constant(0)) | f.select(
                unusual, UNUSUAL, f.constant(0)
            )
            f.store(bits, f.at(f.symbol("known"), _known_at("mode")), align=8)
            cast = f.call("PyLong_AsSsize_t", I64, [f.word(args, 2, PTR)])
            f.store(cast, f.at(f.symbol("known"), _known_at("cast")), align=8)
        none = known(f, "none")
        take(f, none)
        f.ret(none)
    # claim_thread(): this thread is the one the fast path serves
    with m.function("claim_thread", fastcall, PTR) as f:
        thread = f.call("PyThreadState_Get", PTR, [])
        f.store(thread, f.at(f.symbol("known"), _known_at("owner_thread")), align=8)
        none = known(f, "none")
        take(f, none)
        f.ret(none)


def _known_at(name: str) -> int:
    return KNOWN.index(name) * 8
