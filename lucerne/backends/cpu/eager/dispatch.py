"""The native dispatcher: from an op and its arguments to a plan, and the plan's run.

`core(info, args, count)` turns the arguments into key words (the meta of a tensor, the type of a
number, the value of a static integer, the identity of a dtype or string), looks the key up, runs
the plan. It answers a new reference, null with a Python error set, or NOT_MINE: somebody else has
to do it (no plan yet, an unusual argument, interpreters watching). Everything it does not take is
done by the Python path, which is complete.
"""

from __future__ import annotations

from lucerne.backends.cpu.eager import plans as P
from lucerne.backends.cpu.eager.layout import (
    LIST_ITEMS,
    SLICE_PARTS,
    TUPLE_ITEMS,
    VAR_SIZE,
    Storage,
    Tensor,
)
from lucerne.backends.cpu.eager.objects import (
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
from lucerne.backends.cpu.emit.builder import F64, I1, I64, PTR, VOID, Function, Module, Value
from lucerne.backends.cpu.emit.types import I8, I32

TABLE_BITS = 12
ENTRY_WORDS = 4
"""An entry: hash, plan, key, number of key words."""
MAX_KEY = 48
NOT_MINE = 1

# The words of an op's info: the op, number of parameters, then one letter of `kinds` per byte.
INFO_OP, INFO_COUNT, INFO_KINDS = 0, 1, 2

GRAD_ON, UNUSUAL = 1, 2
"""Bits of the mode word: gradients are recorded; somebody wants to see every call."""

_BY_IDENTITY = ("none", "true", "false", "ellipsis")
_IDENTITY_TYPES = ("str", "dtype", "device_class", "layout", "memory_format", "bool")
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


def write_dispatch(m: Module) -> None:
    m.variable("table", f"[{ENTRY_WORDS << TABLE_BITS} x i64]", align=64, shown=True)
    _write_key(m)
    _write_record(m)
    _write_view(m)
    _write_kernel(m)
    _write_core(m)
    _write_entry_points(m)


def _any(f: Function, *conditions: Value) -> Value:
    found = conditions[0]
    for c in conditions[1:]:
        found = f.bits("or", found, c)
    return found


def _is(f: Function, a: Value, name: str) -> Value:
    return f.compare("eq", a, known(f, name))


def _word(f: Function, base: Value, index: object, type: object = I64) -> Value:
    """Word `index` (a number or a value) of a block of words."""
    return f.load(type, f.at(base, index, I64), align=8)  # type: ignore[arg-type]


def _address(f: Function, pointer: Value) -> Value:
    return f.convert("ptrtoint", pointer, I64)


# ---- keys -------------------------------------------------------------------------------------


def _write_key(m: Module) -> None:
    """`static_word(x, key, at)`: write the words of a static value, answer the next place or -1."""
    with m.function("is_tensor", [("cls", PTR)], I1, internal=True) as f:
        (cls,) = f.args
        f.ret(_any(f, _is(f, cls, "tensor_type"), _is(f, cls, "plain_type")))
    params = [("x", PTR), ("key", PTR), ("at", I64)]
    with m.function("static_word", params, I64, internal=True) as f:
        x, key, at = f.args
        cls = type_of(f, x)
        with f.if_(_is(f, cls, "int")):
            value = f.call("PyLong_AsLongLong", I64, [x])
            failed = f.compare("eq", value, -1)
            with f.if_(failed):  # -1 itself, or too large: let Python decide
                with f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))):
                    f.call("PyErr_Clear", VOID, [])
                    f.ret(f.constant(-1))
            f.store((value << 1) | 1, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        same = [_is(f, x, n) for n in _BY_IDENTITY] + [_is(f, cls, n) for n in _IDENTITY_TYPES]
        with f.if_(_any(f, *same)):
            f.store(x, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        with f.if_(_is(f, cls, "float")):
            value = f.call("PyFloat_AsDouble", F64, [x])
            f.store(cls, f.at(key, at, I64), align=8)
            f.store(value, f.at(key, at + 1, I64), align=8)
            f.ret(at + 2)
        with f.if_(_is(f, cls, "slice")):
            f.store(cls, f.at(key, at, I64), align=8)
            place = at + 1
            for part in SLICE_PARTS:
                with f.if_(_any(f, place < 0, place > MAX_KEY - 4)):
                    f.ret(f.constant(-1))
                place = f.call("static_word", I64, [field(f, x, part), key, place])
            f.ret(place)
        with f.if_(f.call("is_sequence", I1, [cls])):
            f.ret(f.call("tuple_words", I64, [x, key, at, f.constant(0, I1)]))
        f.ret(f.constant(-1))
    with m.function("is_sequence", [("cls", PTR)], I1, internal=True) as f:
        (cls,) = f.args
        f.ret(_any(f, *(_is(f, cls, n) for n in ("tuple", "list", "size"))))
    params = [("x", PTR), ("key", PTR), ("at", I64), ("tensors", I1)]
    with m.function("tuple_words", params, I64, internal=True) as f:
        x, key, at, tensors = f.args
        size = field(f, x, VAR_SIZE, I64)
        with f.if_(size > MAX_KEY // 3):
            f.ret(f.constant(-1))
        cls = type_of(f, x)
        f.store(cls, f.at(key, at, I64), align=8)
        f.store(size, f.at(key, at + 1, I64), align=8)
        with f.if_(_is(f, cls, "list")) as items:
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
            f.store(field(f, x, Tensor.META), f.at(key, at, I64), align=8)
            f.ret(at + 1)
        number = [_is(f, cls, n) for n in ("float", "int", "bool")]
        with f.if_(_any(f, *number)):
            f.store(cls, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        with f.if_(_is(f, x, "none")):
            f.store(x, f.at(key, at, I64), align=8)
            f.ret(at + 1)
        f.ret(f.constant(-1))
    _write_key_of(m)


def _write_key_of(m: Module) -> None:
    """`key_of(info, args, count, key)`: all words of a call; how many, or -1: not keyable."""
    params = [("info", PTR), ("args", PTR), ("count", I64), ("key", PTR)]
    with m.function("key_of", params, I64, internal=True) as f:
        info, args, count, key = f.args
        f.store(_word(f, info, INFO_OP), key, align=8)
        kinds = f.at(info, INFO_KINDS * 8)
        with f.loop(0, count, carry=[f.constant(1)]) as loop:
            (at,) = loop.carried
            with f.if_(_any(f, at < 0, at > MAX_KEY - 4)):
                f.ret(f.constant(-1))
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            kind = f.load(I8, f.at(kinds, loop.index))
            static = f.compare("eq", kind, ord("s"))
            listed = f.compare("eq", kind, ord("l"))
            is_tuple = _is(f, type_of(f, x), "tuple")
            with f.if_(is_tuple) as b:
                with f.if_(_any(f, static, listed)) as allowed:
                    allowed.give(f.call("tuple_words", I64, [x, key, at, listed]))
                with allowed.else_():
                    allowed.give(f.constant(-1))
                b.give(*allowed.results)
            with b.else_():
                with f.if_(static) as s:
                    s.give(f.call("static_word", I64, [x, key, at]))
                with s.else_():
                    plain = _any(
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
            mixed = (loop.carried[0] ^ _word(f, key, loop.index)) * f.constant(_HASH)
            loop.next(mixed ^ f.bits("lshr", mixed, 29))
        f.ret(loop.results[0])
    with m.function("slot_of", [("hash", I64)], PTR, internal=True) as f:
        (hash,) = f.args
        place = f.bits("lshr", hash, 64 - TABLE_BITS)
        f.ret(f.at(f.symbol("table"), place * (ENTRY_WORDS * 8)))


# ---- autograd records -------------------------------------------------------------------------


def _write_record(m: Module) -> None:
    """`record(plan, args, mask, t)`: hang a record on a result. 0, or -1 with an error set.

    The record is a list: [op, arguments, autos, mask, versions, meta of the result, the bare
    result or None, place]. Arguments that backward does not read are replaced by their metas.
    """
    params = [("plan", PTR), ("args", PTR), ("mask", I64), ("t", PTR)]
    with m.function("record", params, I64, internal=True) as f:
        plan, args, mask, t = f.args
        count = _word(f, plan, P.ARGUMENTS)
        saved = f.load(I64, f.at(plan, (mask + P.SAVE_MASKS) * 8), align=8)
        kept = f.call("PyTuple_New", PTR, [count])
        autos = f.call("PyTuple_New", PTR, [count])
        versions = f.call("PyTuple_New", PTR, [count])
        made = f.call("PyList_New", PTR, [8])
        ends = [is_null(f, x) for x in (kept, autos, versions, made)]
        with f.if_(_any(f, *ends)):
            f.ret(f.constant(-1))
        with f.loop(0, count) as loop:
            i = loop.index
            x = f.load(PTR, f.at(args, i, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, x)])) as b:
                auto = field(f, x, Tensor.AUTO)
                _place(f, autos, i, f.select(is_null(f, auto), known(f, "none"), auto))
                bit = f.bits("and", f.bits("lshr", saved, i), 1)
                with f.if_(f.compare("ne", bit, 0)) as s:
                    storage = f.call("own_storage", PTR, [x])
                    with f.if_(is_null(f, storage)):
                        f.ret(f.constant(-1))
                    f.store(f.constant(1, I8), f.at(storage, Storage.SAVED))
                    version = f.call(
                        "PyLong_FromLongLong", PTR, [field(f, storage, Storage.VERSION, I64)]
                    )
                    f.store(version, f.at(f.at(versions, TUPLE_ITEMS), i, I64), align=8)
                    _place(f, kept, i, x)
                with s.else_():
                    _place(f, versions, i, known(f, "none"))
                    leaf = f.compare("ne", f.call("is_leaf", I64, [x]), 0)
                    _place(f, kept, i, f.select(leaf, x, field(f, x, Tensor.META)))
            with b.else_():
                _place(f, autos, i, known(f, "none"))
                _place(f, versions, i, known(f, "none"))
                _place(f, kept, i, x)
        items = f.load(PTR, f.at(made, VAR_SIZE + 8), align=8)
        op = _word(f, plan, P.OP, PTR)
        take(f, op)
        meta = field(f, t, Tensor.META)
        take(f, meta)
        bare = f.call("bare_result", PTR, [plan, t])
        with f.if_(is_null(f, bare)):
            f.ret(f.constant(-1))
        place = f.call("user_line", PTR, [])
        with f.if_(is_null(f, place)):
            f.ret(f.constant(-1))
        number = f.call("PyLong_FromLongLong", PTR, [mask])
        for i, item in enumerate((op, kept, autos, number, versions, meta, bare, place)):
            f.store(item, f.at(items, i * 8), align=8)
        set_field(f, t, Tensor.AUTO, made)
        flags = field(f, t, Tensor.FLAGS, I64) | Tensor.PENDING_AUTO
        set_field(f, t, Tensor.FLAGS, flags)
        f.call("track", VOID, [t])
        f.ret(f.constant(0))
    # is_leaf(x): gradients end here, so the record needs the tensor itself
    m.variable("grad_fn_offset", "i64", "0", shown=True)
    with m.function("is_leaf", [("x", PTR)], I64, internal=True) as f:
        (x,) = f.args
        auto = field(f, x, Tensor.AUTO)
        pending = field(f, x, Tensor.FLAGS, I64) & Tensor.PENDING_AUTO
        with f.if_(_any(f, is_null(f, auto), f.compare("ne", pending, 0))):
            f.ret(f.constant(0))
        at = f.load(I64, f.symbol("grad_fn_offset"), align=8)
        maker = f.load(PTR, f.at(auto, at), align=8)
        f.ret(f.convert("zext", _is(f, maker, "none"), I64))
    with m.function("bare_result", [("plan", PTR), ("t", PTR)], PTR, internal=True) as f:
        plan, t = f.args
        saves = _word(f, plan, P.FLAGS) & P.SAVES_RESULT
        with f.if_(f.compare("eq", saves, 0)):
            none = known(f, "none")
            take(f, none)
            f.ret(none)
        storage = f.call("own_storage", PTR, [t])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        f.store(f.constant(1, I8), f.at(storage, Storage.SAVED))
        made = f.call("new_tensor", PTR, [field(f, t, Tensor.META)])
        with f.if_(is_null(f, made)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, made, Tensor.STORAGE, storage)
        set_field(f, made, Tensor.OFFSET, field(f, t, Tensor.OFFSET, I64))
        f.ret(made)
    _write_user_line(m)


def _place(f: Function, tuple: Value, index: Value, item: Value) -> None:
    take(f, item)
    f.store(item, f.at(f.at(tuple, TUPLE_ITEMS), index, I64), align=8)


LINE_CACHE = 64


def _write_user_line(m: Module) -> None:
    """`user_line()`: (code, line) of the caller when its code is known to be the user's, else what
    the Python function says. Known code objects stand in a small table, put there by Python."""
    m.variable("user_codes", f"[{LINE_CACHE} x ptr]", shown=True)
    m.variable("record_lines", "i64", "1", shown=True)
    with m.function("user_line", [], PTR, internal=True) as f:
        wanted = f.load(I64, f.symbol("record_lines"), align=8)
        frame = f.call("PyEval_GetFrame", PTR, [])
        with f.if_(_any(f, f.compare("eq", wanted, 0), is_null(f, frame))):
            none = known(f, "none")
            take(f, none)
            f.ret(none)
        code = f.call("PyFrame_GetCode", PTR, [frame])
        slot = f.bits("lshr", _address(f, code), 5) & (LINE_CACHE - 1)
        mine = f.load(PTR, f.at(f.symbol("user_codes"), slot * 8), align=8)
        with f.if_(f.compare("eq", mine, code)):
            line = f.call("PyFrame_GetLineNumber", I32, [frame])
            number = f.call("PyLong_FromLongLong", PTR, [f.convert("sext", line, I64)])
            pair = f.call("PyTuple_New", PTR, [2])
            f.store(code, f.at(pair, TUPLE_ITEMS), align=8)
            f.store(number, f.at(pair, TUPLE_ITEMS + 8), align=8)
            f.ret(pair)
        drop(f, code)
        f.ret(call_python(f, known(f, "user_place")))


# ---- views ------------------------------------------------------------------------------------


def _write_view(m: Module) -> None:
    """`make_view(plan, args, mask)`: another reading of args[0]'s storage."""
    params = [("plan", PTR), ("args", PTR), ("mask", I64)]
    with m.function("make_view", params, PTR, internal=True) as f:
        plan, args, mask = f.args
        source = f.load(PTR, args, align=8)
        storage = f.call("own_storage", PTR, [source])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        t = f.call("new_tensor", PTR, [_word(f, plan, P.OUT_META, PTR)])
        with f.if_(is_null(f, t)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, t, Tensor.STORAGE, storage)
        set_field(f, t, Tensor.OFFSET, field(f, source, Tensor.OFFSET, I64) + _word(f, plan, P.DELTA))
        version = f.call("PyLong_FromLongLong", PTR, [field(f, storage, Storage.VERSION, I64)])
        step = _word(f, plan, P.STEP, PTR)
        three = f.constant(3)
        record = f.call("PyTuple_Pack", PTR, [three, source, step, version], more_after=1)
        drop(f, version)
        with f.if_(is_null(f, record)):
            drop(f, t)
            f.ret(f.zero(PTR))
        set_field(f, t, Tensor.VIEW, record)
        set_field(f, t, Tensor.FLAGS, f.constant(Tensor.PENDING_VIEW))
        f.call("track", VOID, [t])
        with f.if_(is_null(f, field(f, source, Tensor.AUTO))) as b:
            b.give(f.call("note_view", I64, [storage, t]))
        with b.else_():
            with f.if_(f.compare("ne", mask, 0)) as r:
                r.give(f.call("record", I64, [plan, args, mask, t]))
            with r.else_():
                r.give(f.constant(0))
            b.give(*r.results)
        with f.if_(f.compare("ne", b.results[0], 0)):
            drop(f, t)
            f.ret(f.zero(PTR))
        f.ret(t)
    # note_view(storage, t): remember a view by a weak reference; Python prunes the list at times
    with m.function("note_view", [("storage", PTR), ("t", PTR)], I64, internal=True) as f:
        storage, t = f.args
        views = field(f, storage, Storage.VIEWS)
        with f.if_(is_null(f, views)):
            f.ret(f.call("note_view_slowly", I64, [storage, t]))
        size = field(f, views, VAR_SIZE, I64)
        power = f.compare("eq", f.bits("and", size, size - 1), 0)
        with f.if_(f.bits("and", power, size >= 64)):
            f.ret(f.call("note_view_slowly", I64, [storage, t]))
        weak = f.call("PyWeakref_NewRef", PTR, [t, f.zero(PTR)])
        with f.if_(is_null(f, weak)):
            f.ret(f.constant(-1))
        status = f.call("PyList_Append", I32, [views, weak])
        drop(f, weak)
        f.ret(f.convert("sext", status, I64))
    with m.function("note_view_slowly", [("storage", PTR), ("t", PTR)], I64, internal=True) as f:
        storage, t = f.args
        done = call_python(f, known(f, "note_view"), storage, t)
        with f.if_(is_null(f, done)):
            f.ret(f.constant(-1))
        drop(f, done)
        f.ret(f.constant(0))


# ---- kernels ----------------------------------------------------------------------------------


def _write_kernel(m: Module) -> None:
    with m.function("data_of", [("t", PTR), ("size", I64)], I64, internal=True) as f:
        t, size = f.args
        storage = field(f, t, Tensor.STORAGE)
        with f.if_(is_null(f, storage)):
            f.ret(field(f, t, Tensor.DATA, I64))
        start = field(f, storage, Storage.ADDRESS, I64)
        f.ret(start + field(f, t, Tensor.OFFSET, I64) * size)
    _write_fill(m)
    # run_block(plan, block): workspace, the call itself (without the GIL when it is long)
    with m.function("run_block", [("plan", PTR), ("block", PTR)], I64, internal=True) as f:
        plan, block = f.args
        nbytes = _word(f, plan, P.WORKSPACE)
        entry = _word(f, plan, P.ENTRY, PTR)
        with f.if_(f.compare("ne", nbytes, 0)) as b:
            space = f.call("lucerne_alloc", PTR, [nbytes])
            at = _word(f, plan, P.NUMBERS_AT) - 1
            f.store(space, f.at(block, at, I64), align=8)
            b.give(space)
        with b.else_():
            b.give(f.zero(PTR))
        with f.if_(f.compare("ne", _word(f, plan, P.RELEASE), 0)) as r:
            thread = f.call("PyEval_SaveThread", PTR, [])
            status = f.call_at(entry, I64, [block])
            f.call("PyEval_RestoreThread", VOID, [thread])
            r.give(status)
        with r.else_():
            r.give(f.call_at(entry, I64, [block]))
        with f.if_(not_null(f, b.results[0])):
            f.call("lucerne_free", VOID, [b.results[0], nbytes])
        f.ret(r.results[0])
    # failed(plan, status, block): tell Python why; always leaves an error set
    params = [("plan", PTR), ("status", I64), ("block", PTR)]
    with m.function("failed", params, VOID, internal=True) as f:
        plan, status, block = f.args
        code = f.call("PyLong_FromLongLong", PTR, [status])
        detail = f.call("PyLong_FromLongLong", PTR, [_word(f, block, 0)])
        done = call_python(f, _word(f, plan, P.FAIL, PTR), code, detail)
        with f.if_(not_null(f, done)):
            drop(f, done)
            f.call("PyErr_NoMemory", PTR, [])
        drop(f, code)
        drop(f, detail)
    _write_run_kernel(m)


def _write_fill(m: Module) -> None:
    """`fill(plan, args, block)`: template, input pointers, numbers. 0, or 1: a number does not fit."""
    params = [("plan", PTR), ("args", PTR), ("block", PTR)]
    with m.function("fill", params, I64, internal=True) as f:
        plan, args, block = f.args
        words = _word(f, plan, P.WORDS)
        template = _word(f, plan, P.TEMPLATE, PTR)
        with f.loop(0, words) as loop:
            f.store(_word(f, template, loop.index), f.at(block, loop.index, I64), align=8)
        first = f.at(plan, P.DESCRIPTORS * 8)
        inputs = _word(f, plan, P.INPUTS)
        start = [_word(f, plan, P.OUTPUTS), _word(f, plan, P.NUMBERS_AT)]
        with f.loop(0, inputs, carry=start) as loop:
            pointer_at, number_at = loop.carried
            d = f.at(first, loop.index * (P.DESCRIPTOR_WORDS * 8))
            given = f.load(PTR, f.at(args, _word(f, d, 0), I64), align=8)
            place = _word(f, d, 1)
            with f.if_(place >= 0) as b:
                b.give(f.load(PTR, f.at(f.at(given, TUPLE_ITEMS), place, I64), align=8))
            with b.else_():
                b.give(given)
            (x,) = b.results
            letter = _word(f, d, 3)
            with f.if_(f.compare("eq", letter, 0)) as t:
                address = f.call("data_of", I64, [x, _word(f, d, 2)])
                f.store(address, f.at(block, pointer_at, I64), align=8)
                t.give(pointer_at + 1, number_at)
            with t.else_():
                bad = f.call("number", I64, [x, letter, f.at(block, number_at, I64)])
                with f.if_(f.compare("ne", bad, 0)):
                    f.ret(f.constant(1))
                t.give(pointer_at + 0, number_at + 2)
            loop.next(*t.results)
        f.ret(f.constant(0))
    params = [("x", PTR), ("letter", I64), ("place", PTR)]
    with m.function("number", params, I64, internal=True) as f:
        x, letter, place = f.args
        with f.if_(f.compare("eq", letter, P.LETTERS["i"])) as b:
            f.store(f.call("PyLong_AsLongLong", I64, [x]), place, align=8)
        with b.else_():
            f.store(f.call("PyFloat_AsDouble", F64, [x]), place, align=8)
        minus_one = f.compare("eq", f.load(I64, place, align=8), -1)
        float_minus_one = f.compare("eq", f.load(F64, place, align=8), -1.0)
        with f.if_(_any(f, minus_one, float_minus_one)):
            with f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))):
                f.call("PyErr_Clear", VOID, [])
                f.ret(f.constant(1))
        f.ret(f.constant(0))


def _write_run_kernel(m: Module) -> None:
    """`run_kernel(plan, args, mask)`: fresh results. `run_over(plan, args, target)`: in place."""
    params = [("plan", PTR), ("args", PTR), ("mask", I64)]
    with m.function("run_kernel", params, PTR, internal=True) as f:
        plan, args, mask = f.args
        block = f.stack(P.MAX_WORDS * 8)
        outs = f.stack(P.MAX_OUTPUTS * 8)
        bad = f.call("fill", I64, [plan, args, block])
        with f.if_(f.compare("ne", bad, 0)):
            f.ret(f.convert("inttoptr", f.constant(NOT_MINE), PTR))
        count = _word(f, plan, P.OUTPUTS)
        with f.loop(0, count) as loop:
            i = loop.index
            meta = f.load(PTR, f.at(plan, (i + P.OUT_META) * 8), align=8)
            nbytes = f.load(I64, f.at(plan, (i + P.OUT_NBYTES) * 8), align=8)
            t = f.call("block_tensor", PTR, [meta, nbytes])
            with f.if_(is_null(f, t)):
                f.call("drop_all", VOID, [outs, i])
                f.ret(f.zero(PTR))
            f.store(t, f.at(outs, i, I64), align=8)
            f.store(field(f, t, Tensor.DATA), f.at(block, i, I64), align=8)
        status = f.call("run_block", I64, [plan, block])
        with f.if_(f.compare("ne", status, 0)):
            f.call("failed", VOID, [plan, status, block])
            f.call("drop_all", VOID, [outs, count])
            f.ret(f.zero(PTR))
        first = f.load(PTR, outs, align=8)
        with f.if_(f.compare("ne", mask, 0)):
            recorded = f.call("record", I64, [plan, args, mask, first])
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
    params = [("plan", PTR), ("args", PTR), ("target", PTR)]
    with m.function("run_over", params, PTR, internal=True) as f:
        plan, args, target = f.args
        block = f.stack(P.MAX_WORDS * 8)
        mine = f.constant(NOT_MINE)
        storage = f.call("own_storage", PTR, [target])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        odd = f.load(I8, f.at(storage, Storage.INFERENCE))
        fits = f.compare("eq", field(f, target, Tensor.META), _word(f, plan, P.OUT_META, PTR))
        alone = f.compare("ne", f.call("shares", I64, [plan, args, target]), 0)
        pointwise = f.compare("eq", _word(f, plan, P.FLAGS) & P.POINTWISE, 0)
        wrong = _any(f, f.compare("ne", odd, 0), f.bits("xor", fits, True), alone, pointwise)
        with f.if_(wrong):
            f.ret(f.convert("inttoptr", mine, PTR))
        bad = f.call("fill", I64, [plan, args, block])
        with f.if_(f.compare("ne", bad, 0)):
            f.ret(f.convert("inttoptr", mine, PTR))
        size = _word(f, plan, P.DESCRIPTORS + 2)
        f.store(f.call("data_of", I64, [target, size]), block, align=8)
        status = f.call("run_block", I64, [plan, block])
        with f.if_(f.compare("ne", status, 0)):
            f.call("failed", VOID, [plan, status, block])
            f.ret(f.zero(PTR))
        version = field(f, storage, Storage.VERSION, I64) + 1
        set_field(f, storage, Storage.VERSION, version)
        saved = f.compare("ne", f.load(I8, f.at(storage, Storage.SAVED)), 0)
        with f.if_(saved):  # a backward pass may have to name the line that wrote here
            place = f.call("user_line", PTR, [])
            with f.if_(is_null(f, place)):
                f.ret(f.zero(PTR))
            old = field(f, storage, Storage.WRITER)
            set_field(f, storage, Storage.WRITER, place)
            with f.if_(not_null(f, old)):
                drop(f, old)
        take(f, target)
        f.ret(target)
    # shares(plan, args, target): whether another argument has the target's storage
    with m.function("shares", params, I64, internal=True) as f:
        plan, args, target = f.args
        storage = field(f, target, Tensor.STORAGE)
        with f.loop(0, _word(f, plan, P.ARGUMENTS)) as loop:
            x = f.load(PTR, f.at(args, loop.index, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, x)])):
                same = f.compare("eq", field(f, x, Tensor.STORAGE), storage)
                other = f.compare("ne", x, target)
                with f.if_(f.bits("and", same, other)):
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
    # look_up(key, words): what the table has for a key
    with m.function("look_up", [("key", PTR), ("words", I64)], PTR, internal=True) as f:
        key, words = f.args
        hash = f.call("hash_of", I64, [key, words])
        slot = f.call("slot_of", PTR, [hash])
        same = f.bits(
            "and",
            f.compare("eq", _word(f, slot, 0), hash),
            f.compare("eq", _word(f, slot, 3), words),
        )
        with f.if_(f.bits("xor", same, True)):
            f.ret(f.zero(PTR))
        stored = _word(f, slot, 2, PTR)
        with f.loop(0, words) as loop:
            differs = f.compare("ne", _word(f, stored, loop.index), _word(f, key, loop.index))
            with f.if_(differs):
                f.ret(f.zero(PTR))
        f.ret(_word(f, slot, 1, PTR))
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
                with f.if_(_is(f, type_of(f, x), "tuple")) as t:
                    t.give(f.call("tuple_needs_grad", I64, [x, mask]))
                with t.else_():
                    t.give(mask)
                b.give(*t.results, odd)
            loop.next(*b.results)
        mask, odd = loop.results
        strange = f.bits("and", f.compare("ne", mask, 0), f.compare("ne", odd, 0))
        f.ret(f.select(strange, mask | (1 << 41), mask))
    # is_odd(x): only the complete path may record it: a view of memory that was written to since,
    # or memory made in inference mode
    with m.function("is_odd", [("x", PTR)], I64, internal=True) as f:
        (x,) = f.args
        storage = field(f, x, Tensor.STORAGE)
        with f.if_(is_null(f, storage)):
            f.ret(f.constant(0))
        written = f.compare("ne", field(f, storage, Storage.VERSION, I64), 0)
        stale = f.bits("and", not_null(f, field(f, x, Tensor.VIEW)), written)
        inference = f.compare("ne", f.load(I8, f.at(storage, Storage.INFERENCE)), 0)
        f.ret(f.convert("zext", _any(f, stale, inference), I64))
    with m.function("tuple_needs_grad", [("x", PTR), ("mask", I64)], I64, internal=True) as f:
        x, mask = f.args
        with f.loop(0, field(f, x, VAR_SIZE, I64)) as loop:
            item = f.load(PTR, f.at(f.at(x, TUPLE_ITEMS), loop.index, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, item)])):
                with f.if_(f.compare("ne", f.call("needs_grad", I64, [item]), 0)):
                    f.ret(f.constant(1 << 40))
        f.ret(mask)
    with m.function("usual", [], I1, internal=True) as f:
        thread = f.call("PyThreadState_Get", PTR, [])
        mine = f.compare("eq", thread, known(f, "owner_thread"))
        calm = f.compare("eq", known(f, "mode", I64) & UNUSUAL, 0)
        f.ret(f.bits("and", mine, calm))
    with m.function("core", params, PTR, internal=True) as f:
        info, args, count = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            f.ret(away)
        plan = f.call("find", PTR, [info, args, count])
        with f.if_(is_null(f, plan)):
            f.ret(away)
        f.ret(f.call("finish", PTR, [plan, args, count]))
    # finish(plan, args, count): what the core does once it has the plan
    with m.function("finish", [("plan", PTR), *params[1:]], PTR, internal=True) as f:
        plan, args, count = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        needs = f.call("grad_mask", I64, [args, count])
        beyond = f.bits("and", needs, -(1 << P.MAX_GRAD_ARGUMENTS))
        mask = f.bits("or", f.bits("and", needs, _word(f, plan, P.DERIVABLE)), beyond)
        grad_on = f.compare("ne", known(f, "mode", I64) & GRAD_ON, 0)
        flags = _word(f, plan, P.FLAGS)
        view = f.compare("ne", flags & P.VIEW, 0)
        with f.if_(grad_on) as b:
            recordable = f.compare("ne", flags & P.RECORDS, 0)
            fits = f.compare("ult", mask, 1 << P.MAX_GRAD_ARGUMENTS)
            good = _any(f, f.compare("eq", needs, 0), f.bits("and", recordable, fits))
            with f.if_(f.bits("xor", good, True)):
                f.ret(away)
            b.give(mask + 0)
        with b.else_():
            # a view made without grad remembers that: Python writes it down
            with f.if_(view):
                f.ret(away)
            b.give(f.constant(0))
        with f.if_(view):
            f.ret(f.call("make_view", PTR, [plan, args, b.results[0]]))
        f.ret(f.call("run_kernel", PTR, [plan, args, b.results[0]]))
    params.append(("target", PTR))
    with m.function("core_over", params, PTR, internal=True) as f:
        info, args, count, target = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            f.ret(away)
        plan = f.call("find", PTR, [info, args, count])
        with f.if_(is_null(f, plan)):
            f.ret(away)
        f.ret(f.call("finish_over", PTR, [plan, args, count, target]))
    with m.function("finish_over", [("plan", PTR), *params[1:]], PTR, internal=True) as f:
        plan, args, count, target = f.args
        away = f.convert("inttoptr", f.constant(NOT_MINE), PTR)
        plain = f.call("is_tensor", I1, [type_of(f, target)])
        viewed = not_null(f, field(f, target, Tensor.VIEW))
        first = f.compare("ne", target, f.load(PTR, args, align=8))
        with f.if_(_any(f, f.bits("xor", plain, True), viewed, first)):
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
        with f.if_(_any(f, is_null(f, info), _is(f, info, "none"))):
            f.ret(f.call("call_slow_run", PTR, [args, count]))
        words = f.call("PyLong_AsVoidPtr", PTR, [info])
        items = f.at(given, TUPLE_ITEMS)
        size = field(f, given, VAR_SIZE, I64)
        with f.if_(count > 2) as b:
            out = f.word(args, 2, PTR)
            with f.if_(_is(f, out, "none")) as n:
                n.give(f.call("core", PTR, [words, items, size]))
            with n.else_():
                with f.if_(_is(f, type_of(f, out), "in_place_type")) as o:
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
    # enter(key, words, value): put something into the table; answers its slot, -1 without a key
    params = [("key", PTR), ("words", I64), ("value", PTR)]
    with m.function("enter", params, PTR, internal=True) as f:
        key, words, value = f.args
        with f.if_(words < 0):
            f.ret(f.call("PyLong_FromLongLong", PTR, [f.constant(-1)]))
        hash = f.call("hash_of", I64, [key, words])
        slot = f.call("slot_of", PTR, [hash])
        for i, v in enumerate((hash, value, key, words)):
            f.store(v, f.at(slot, i * 8), align=8)
        place = (_address(f, slot) - _address(f, f.symbol("table"))) // (ENTRY_WORDS * 8)
        f.ret(f.call("PyLong_FromLongLong", PTR, [place]))
    # set_mode(bits): the state of the owner thread
    with m.function("set_mode", fastcall, PTR) as f:
        _, args, _ = f.args
        thread = f.call("PyThreadState_Get", PTR, [])
        with f.if_(f.compare("eq", thread, known(f, "owner_thread"))):
            bits = f.call("PyLong_AsLongLong", I64, [f.word(args, 0, PTR)])
            f.store(bits, f.at(f.symbol("known"), _known_at("mode")), align=8)
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
