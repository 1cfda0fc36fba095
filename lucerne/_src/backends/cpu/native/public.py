"""Public functions and methods in front of Python: a call seen before runs without it.

A `Public` object stands for a Python function (`torch.relu`, `TensorLayout.view`, `F.linear`). Its
key is the function and its arguments: metas of tensors, types of floats (values, once a float was
seen to decide something), values of everything else. Python watches the first call of a kind
(`specialize`); when all it did was one kernel (or a chain of views) on the arguments, the table
gets a Call: which plan, and where the plan's arguments come from. Any other call goes to the
Python function, which the table can be told as well.

A Call is a block of words: plan (0: always Python), number of the plan's arguments, the tuple of
constants, whether it writes over an argument, which one, which of several results is wanted (-1:
all of them), then per argument of the plan the place in the call, or -1: the constant at the same
place.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I1, I64, PTR, Module
from lucerne._src.backends.cpu.native.dispatch import NOT_MINE, not_mine
from lucerne._src.backends.cpu.native.keys import MAX_KEY, address, word
from lucerne._src.backends.cpu.native.layout import TUPLE_ITEMS, VAR_SIZE, Public, TensorLayout
from lucerne._src.backends.cpu.native.objects import (
    drop,
    field,
    is_null,
    known,
    not_null,
    take,
    type_of,
)

CALL_PLAN, CALL_COUNT, CALL_CONSTANTS, CALL_OVER, CALL_TARGET, CALL_PICK, CALL_MAP = range(7)
MAX_ARGUMENTS = 16
_COUNT_BITS = (1 << 63) - 1


def write_public(m: Module) -> None:
    _write_words(m)
    _write_key(m)
    _write_follow(m)
    params = [("callable", PTR), ("args", PTR), ("flags", I64), ("names", PTR)]
    with m.function("public_call", params, PTR) as f:
        callable, args, flags, names = f.args
        key = f.stack(MAX_KEY * 8)
        count = f.bits("and", flags, _COUNT_BITS)
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            watcher = known(f, "watcher")
            with f.if_(not_null(f, watcher)):
                f.ret(f.call("ask", PTR, [watcher, callable, args, count, names]))
            f.ret(f.call("call_python_function", PTR, [callable, args, flags, names]))
        words = f.call("public_key", I64, [callable, args, count, names, key])
        with f.if_(words < 0):
            f.ret(f.call("call_python_function", PTR, [callable, args, flags, names]))
        call = f.call("look_up", PTR, [key, words])
        with f.if_(is_null(f, call)):
            f.ret(f.call("ask", PTR, [known(f, "observe"), callable, args, count, names]))
        with f.if_(not_null(f, word(f, call, CALL_PLAN, PTR))):
            result = f.call("follow", PTR, [call, args])
            with f.if_(f.compare("ne", result, f.convert("inttoptr", f.constant(NOT_MINE), PTR))):
                f.ret(result)
        f.ret(f.call("call_python_function", PTR, [callable, args, flags, names]))
    with m.function("call_python_function", params, PTR, internal=True) as f:
        callable, args, flags, names = f.args
        function = field(f, callable, Public.FUNCTION)
        f.ret(f.call("PyObject_Vectorcall", PTR, [function, args, flags, names]))
    # ask(somebody, callable, ...): what somebody, a Python function, makes of the call
    params = [("somebody", PTR), ("callable", PTR), ("args", PTR), ("count", I64), ("names", PTR)]
    with m.function("ask", params, PTR, internal=True) as f:
        somebody, callable, args, count, names = f.args
        given = f.call("PyTuple_New", PTR, [f.call("all_arguments", I64, [count, names])])
        with f.if_(is_null(f, given)):
            f.ret(f.zero(PTR))
        with f.loop(0, field(f, given, VAR_SIZE, I64)) as loop:
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            take(f, x)
            f.store(x, f.at(f.at(given, TUPLE_ITEMS), loop.index, I64), align=8)
        shown = f.select(is_null(f, names), known(f, "none"), names)
        null = f.zero(PTR)
        result = f.call(
            "PyObject_CallFunctionObjArgs",
            PTR,
            [somebody, callable, given, shown, null],
            more_after=1,
        )
        drop(f, given)
        f.ret(result)
    _write_descriptor(m)
    _write_entering(m)


def _write_words(m: Module) -> None:
    params = [("x", PTR), ("key", PTR), ("at", I64), ("by_value", I1)]
    with m.function("argument_word", params, I64, internal=True) as f:
        x, key, at, by_value = f.args
        cls = type_of(f, x)
        with f.if_(f.call("is_tensor", I1, [cls])):
            f.store(field(f, x, TensorLayout.META), f.at(key, at, I64), align=8)
            f.ret(at + 1)
        is_float = f.compare("eq", cls, known(f, "float"))
        with f.if_(f.bits("and", is_float, f.bits("xor", by_value, True))):
            f.store(cls, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        f.ret(f.call("static_word", I64, [x, key, at]))
    with m.function("all_arguments", [("count", I64), ("names", PTR)], I64, internal=True) as f:
        count, names = f.args
        with f.if_(is_null(f, names)):
            f.ret(count)
        f.ret(count + field(f, names, VAR_SIZE, I64))


def _write_key(m: Module) -> None:
    params = [("callable", PTR), ("args", PTR), ("count", I64), ("names", PTR), ("key", PTR)]
    with m.function("public_key", params, I64, internal=True) as f:
        callable, args, count, names, key = f.args
        total = f.call("all_arguments", I64, [count, names])
        with f.if_(total > MAX_ARGUMENTS):
            f.ret(f.constant(-1))
        values = field(f, callable, Public.BY_VALUE, I64)
        by_value = f.compare("ne", values, 0)
        f.store(address(f, callable) ^ known(f, "cast", I64), key, align=8)
        # Keys made before floats went in by value are no keys of today's calls
        f.store(count | (values << 32), f.at(key, 8), align=8)
        with f.loop(0, total, carry=[f.constant(2)]) as loop:
            (at,) = loop.carried
            with f.if_(f.bits("or", at < 0, at > MAX_KEY - 4)):
                f.ret(f.constant(-1))
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            loop.next(f.call("argument_word", I64, [x, key, at, by_value]))
        (at,) = loop.results
        named = total - count
        with f.if_(f.bits("or", at < 0, at + named > MAX_KEY)):
            f.ret(f.constant(-1))
        with f.loop(0, named) as loop:
            name = f.load(PTR, f.at(f.at(names, TUPLE_ITEMS), loop.index, I64), align=8)
            f.store(name, f.at(key, at + loop.index, I64), align=8)
        f.ret(at + named)


def _write_follow(m: Module) -> None:
    """`follow(call, args)`: gather the plan's arguments and run it."""
    with m.function("pick", [("made", PTR), ("which", I64)], PTR, internal=True) as f:
        made, which = f.args
        none_made = f.bits("or", is_null(f, made), f.compare("eq", made, not_mine(f)))
        with f.if_(f.bits("or", which < 0, none_made)):
            f.ret(made)
        wanted = f.load(PTR, f.at(f.at(made, TUPLE_ITEMS), which, I64), align=8)
        take(f, wanted)
        drop(f, made)
        f.ret(wanted)
    with m.function("follow", [("call", PTR), ("args", PTR)], PTR, internal=True) as f:
        call, args = f.args
        gathered = f.stack(MAX_ARGUMENTS * 8)
        constants = word(f, call, CALL_CONSTANTS, PTR)
        count = word(f, call, CALL_COUNT)
        with f.loop(0, count) as loop:
            source = f.load(I64, f.at(call, (loop.index + CALL_MAP) * 8), align=8)
            with f.if_(source >= 0) as b:
                b.give(f.load(PTR, f.at(args, source, I64), align=8))
            with b.else_():
                b.give(f.load(PTR, f.at(f.at(constants, TUPLE_ITEMS), loop.index, I64), align=8))
            f.store(b.results[0], f.at(gathered, loop.index, I64), align=8)
        plan = word(f, call, CALL_PLAN, PTR)
        with f.if_(f.compare("eq", word(f, call, CALL_OVER), 0)):
            made = f.call("finish", PTR, [plan, gathered, count])
            f.ret(f.call("pick", PTR, [made, word(f, call, CALL_PICK)]))
        target = f.load(PTR, f.at(args, word(f, call, CALL_TARGET), I64), align=8)
        f.ret(f.call("finish_over", PTR, [plan, gathered, count, target]))


def _write_descriptor(m: Module) -> None:
    params = [("self", PTR), ("object", PTR), ("type", PTR)]
    with m.function("public_get", params, PTR) as f:
        me, object, _ = f.args
        nothing = f.bits("or", is_null(f, object), f.compare("eq", object, known(f, "none")))
        with f.if_(nothing):
            take(f, me)
            f.ret(me)
        f.ret(f.call("PyMethod_New", PTR, [me, object]))
    fastcall = [("self", PTR), ("args", PTR), ("count", I64)]
    # make_public(type, function): a public function; never freed
    with m.function("make_public", fastcall, PTR) as f:
        _, args, _ = f.args
        made = f.call("PyType_GenericAlloc", PTR, [f.word(args, 0, PTR), 0])
        with f.if_(not_null(f, made)):
            function = f.word(args, 1, PTR)
            take(f, function)
            f.store(function, f.at(made, Public.FUNCTION), align=8)
            f.store(f.symbol("public_call"), f.at(made, Public.VECTORCALL), align=8)
            take(f, made)
        f.ret(made)


def _write_entering(m: Module) -> None:
    fastcall = [("self", PTR), ("args", PTR), ("count", I64)]
    # remember_call(callable, arguments, names or None, call address, key address) -> slot or -1
    with m.function("remember_call", fastcall, PTR) as f:
        _, args, _ = f.args
        callable, given, names = (f.word(args, i, PTR) for i in range(3))
        call = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 3, PTR)])
        key = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 4, PTR)])
        total = field(f, given, VAR_SIZE, I64)
        with f.if_(f.compare("eq", names, known(f, "none"))) as b:
            b.give(f.zero(PTR), total + 0)
        with b.else_():
            b.give(f.at(names, 0), total - field(f, names, VAR_SIZE, I64))
        names, count = b.results
        items = f.at(given, TUPLE_ITEMS)
        words = f.call("public_key", I64, [callable, items, count, names, key])
        f.ret(f.call("enter", PTR, [key, words, call]))


__all__ = ["CALL_MAP", "MAX_ARGUMENTS", "write_public"]
