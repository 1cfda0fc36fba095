"""Keys of calls and the table of what is known for them.

A key is a run of words: the op or function, then per argument the meta of a tensor, the type of a
number, the value of a static integer, the identity of a dtype or string, the items of a tuple.
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
from lucerne._src.backends.cpu.native.layout import (
    LIST_ITEMS,
    SLICE_PARTS,
    TUPLE_ITEMS,
    VAR_SIZE,
    TensorLayout,
)
from lucerne._src.backends.cpu.native.objects import field, is_null, known, not_null, type_of
from lucerne._src.base.config import config

TABLE_BITS = max(1, (config.known_calls - 1).bit_length())
ENTRY_WORDS = 4
"""An entry: hash, plan, key, number of key words."""
MAX_KEY = 48

# The words of an op's info: the op, number of parameters, then one letter of `kinds` per byte.
INFO_OP, INFO_COUNT, INFO_KINDS = 0, 1, 2

_BY_IDENTITY = ("none", "true", "false", "ellipsis")
_IDENTITY_TYPES = ("str", "dtype", "device_class", "layout", "memory_format", "bool")
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


def any_of(f: LLVMFunction, *conditions: LLVMValue) -> LLVMValue:
    """Whether one of the conditions holds."""
    found = conditions[0]
    for c in conditions[1:]:
        found = f.bits("or", found, c)
    return found


def is_known(f: LLVMFunction, a: LLVMValue, name: str) -> LLVMValue:
    """Whether a pointer is the known object of this name."""
    return f.compare("eq", a, known(f, name))


def word(f: LLVMFunction, base: LLVMValue, index: object, type: object = I64) -> LLVMValue:
    """Word `index` (a number or a value) of a block of words."""
    return f.load(type, f.at(base, index, I64), align=8)  # type: ignore[arg-type]


def address(f: LLVMFunction, pointer: LLVMValue) -> LLVMValue:
    return f.convert("ptrtoint", pointer, I64)


def write_keys(m: Module) -> None:
    """`static_word(x, key, at)`: write the words of a static value, answer the next place or -1."""
    with m.function("is_tensor", [("cls", PTR)], I1, internal=True) as f:
        (cls,) = f.args
        f.ret(any_of(f, is_known(f, cls, "tensor_type"), is_known(f, cls, "plain_type")))
    params = [("x", PTR), ("key", PTR), ("at", I64)]
    with m.function("static_word", params, I64, internal=True) as f:
        x, key, at = f.args
        cls = type_of(f, x)
        with f.if_(is_known(f, cls, "int")):
            value = f.call("PyLong_AsLongLong", I64, [x])
            # -1 is itself, or says that the number is too large: Python decides then
            with (
                f.if_(f.compare("eq", value, -1)),
                f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))),
            ):
                f.call("PyErr_Clear", VOID, [])
                f.ret(f.constant(-1))
            # Odd, for addresses are even; one bit goes, so what needs all 64 is Python's as well
            doubled = value << 1
            with f.if_(f.compare("ne", f.bits("ashr", doubled, 1), value)):
                f.ret(f.constant(-1))
            f.store(doubled | 1, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        same = [is_known(f, x, n) for n in _BY_IDENTITY] + [
            is_known(f, cls, n) for n in _IDENTITY_TYPES
        ]
        with f.if_(any_of(f, *same)):
            f.store(x, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        with f.if_(is_known(f, cls, "float")):
            value = f.call("PyFloat_AsDouble", F64, [x])
            f.store(cls, f.at(key, at, I64), align=8)
            f.store(value, f.at(key, at + 1, I64), align=8)
            f.ret(at + 2)
        with f.if_(is_known(f, cls, "slice")):
            f.store(cls, f.at(key, at, I64), align=8)
            place = at + 1
            for part in SLICE_PARTS:
                with f.if_(any_of(f, place < 0, place > MAX_KEY - 4)):
                    f.ret(f.constant(-1))
                place = f.call("static_word", I64, [field(f, x, part), key, place])
            f.ret(place)
        with f.if_(f.call("is_sequence", I1, [cls])):
            f.ret(f.call("tuple_words", I64, [x, key, at, f.constant(0, I1)]))
        f.ret(f.constant(-1))
    with m.function("is_sequence", [("cls", PTR)], I1, internal=True) as f:
        (cls,) = f.args
        f.ret(any_of(f, *(is_known(f, cls, n) for n in ("tuple", "list", "size"))))
    params = [("x", PTR), ("key", PTR), ("at", I64), ("tensors", I1)]
    with m.function("tuple_words", params, I64, internal=True) as f:
        x, key, at, tensors = f.args
        size = field(f, x, VAR_SIZE, I64)
        with f.if_(size > MAX_KEY // 3):
            f.ret(f.constant(-1))
        cls = type_of(f, x)
        f.store(cls, f.at(key, at, I64), align=8)
        f.store(size, f.at(key, at + 1, I64), align=8)
        with f.if_(is_known(f, cls, "list")) as items:
            items.give(f.load(PTR, f.at(x, LIST_ITEMS), align=8))
        with items.else_():
            items.give(f.at(x, TUPLE_ITEMS))
        with f.loop(0, size, carry=[at + 2]) as loop:
            (place,) = loop.carried
            with f.if_(f.compare("lt", place, 0)):
                f.ret(f.constant(-1))
            with f.if_(place > MAX_KEY - 4):
                f.ret(f.constant(-1))
            item = f.load(PTR, f.at(items.results[0], loop.index, I64), align=8)
            with f.if_(tensors) as b:
                b.give(f.call("tensor_word", I64, [item, key, place]))
            with b.else_():
                b.give(f.call("static_word", I64, [item, key, place]))
            loop.next(*b.results)
        f.ret(loop.results[0])
    params = [("x", PTR), ("key", PTR), ("at", I64)]
    with m.function("tensor_word", params, I64, internal=True) as f:
        x, key, at = f.args
        cls = type_of(f, x)
        with f.if_(f.call("is_tensor", I1, [cls])):
            f.store(field(f, x, TensorLayout.META), f.at(key, at, I64), align=8)
            f.ret(at + 1)
        number = [is_known(f, cls, n) for n in ("float", "int", "bool")]
        with f.if_(any_of(f, *number)):
            f.store(cls, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        with f.if_(is_known(f, x, "none")):
            f.store(x, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        f.ret(f.constant(-1))
    _write_key_of(m)
    _write_table(m)


def _write_key_of(m: Module) -> None:
    """`key_of(info, args, count, key)`: all words of a call; how many, or -1: not keyable."""
    params = [("info", PTR), ("args", PTR), ("count", I64), ("key", PTR)]
    with m.function("key_of", params, I64, internal=True) as f:
        info, args, count, key = f.args
        f.store(word(f, info, INFO_OP) ^ known(f, "cast", I64), key, align=8)
        kinds = f.at(info, INFO_KINDS * 8)
        with f.loop(0, count, carry=[f.constant(1)]) as loop:
            (at,) = loop.carried
            with f.if_(any_of(f, at < 0, at > MAX_KEY - 4)):
                f.ret(f.constant(-1))
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            kind = f.load(I8, f.at(kinds, loop.index))
            static = f.compare("eq", kind, ord("s"))
            listed = f.compare("eq", kind, ord("l"))
            is_tuple = is_known(f, type_of(f, x), "tuple")
            with f.if_(is_tuple) as b:
                with f.if_(any_of(f, static, listed)) as allowed:
                    allowed.give(f.call("tuple_words", I64, [x, key, at, listed]))
                with allowed.else_():
                    allowed.give(f.constant(-1))
                b.give(*allowed.results)
            with b.else_():
                with f.if_(static) as s:
                    s.give(f.call("static_word", I64, [x, key, at]))
                with s.else_():
                    plain = any_of(
                        f, f.compare("eq", kind, ord("t")), f.compare("eq", kind, ord("n"))
                    )
                    with f.if_(plain) as p:
                        p.give(f.call("tensor_word", I64, [x, key, at]))
                    with p.else_():
                        p.give(f.constant(-1))
                    s.give(*p.results)
                b.give(*s.results)
            loop.next(*b.results)
        f.ret(loop.results[0])
    with m.function("hash_of", [("key", PTR), ("count", I64)], I64, internal=True) as f:
        key, count = f.args
        with f.loop(0, count, carry=[f.constant(0)]) as loop:
            mixed = (loop.carried[0] ^ word(f, key, loop.index)) * f.constant(_HASH)
            loop.next(mixed ^ f.bits("lshr", mixed, 29))
        f.ret(loop.results[0])
    # first_of(hash): the first of the two entries where a key may stand
    with m.function("first_of", [("hash", I64)], PTR, internal=True) as f:
        (hash,) = f.args
        pair = f.bits("lshr", hash, 64 - TABLE_BITS) & -2
        f.ret(f.at(f.symbol("table"), pair * (ENTRY_WORDS * 8)))


def _write_table(m: Module) -> None:
    m.variable("table", f"[{ENTRY_WORDS << TABLE_BITS} x i64]", align=64, shown=True)
    # holds(entry, hash, key, words): whether this entry has the key
    params = [("place", PTR), ("hash", I64), ("key", PTR), ("words", I64)]
    with m.function("holds", params, I1, internal=True) as f:
        entry, hash, key, words = f.args
        same = f.bits(
            "and",
            f.compare("eq", word(f, entry, 0), hash),
            f.compare("eq", word(f, entry, 3), words),
        )
        with f.if_(f.bits("xor", same, True)):
            f.ret(f.constant(0, I1))
        stored = word(f, entry, 2, PTR)
        with f.loop(0, words) as loop:
            differs = f.compare("ne", word(f, stored, loop.index), word(f, key, loop.index))
            with f.if_(differs):
                f.ret(f.constant(0, I1))
        f.ret(f.constant(1, I1))
    # look_up(key, words): what the table has for a key, or null
    with m.function("look_up", [("key", PTR), ("words", I64)], PTR, internal=True) as f:
        key, words = f.args
        hash = f.call("hash_of", I64, [key, words])
        first = f.call("first_of", PTR, [hash])
        for way in range(2):
            entry = f.at(first, way * ENTRY_WORDS * 8)
            with f.if_(f.call("holds", I1, [entry, hash, key, words])):
                f.ret(word(f, entry, 1, PTR))
        f.ret(f.zero(PTR))
    # enter(key, words, value): put something into the table; answers its slot, -1 without a key
    params = [("key", PTR), ("words", I64), ("value", PTR)]
    with m.function("enter", params, PTR, internal=True) as f:
        key, words, value = f.args
        with f.if_(words < 0):
            f.ret(f.call("PyLong_FromLongLong", PTR, [f.constant(-1)]))
        hash = f.call("hash_of", I64, [key, words])
        first = f.call("first_of", PTR, [hash])
        free = is_null(f, word(f, first, 1, PTR))
        mine = f.compare("eq", word(f, first, 0), hash)
        entry = f.select(any_of(f, free, mine), first, f.at(first, ENTRY_WORDS * 8))
        for i, v in enumerate((hash, value, key, words)):
            f.store(v, f.at(entry, i * 8), align=8)
        place = (address(f, entry) - address(f, f.symbol("table"))) // (ENTRY_WORDS * 8)
        f.ret(f.call("PyLong_FromLongLong", PTR, [place]))
