"""What the fast path writes down for autograd, and the views it makes."""

from __future__ import annotations

from lucerne.backends.cpu.eager import plans as P
from lucerne.backends.cpu.eager.keys import address, any_of, is_known, word
from lucerne.backends.cpu.eager.layout import TUPLE_ITEMS, VAR_SIZE, Storage, Tensor
from lucerne.backends.cpu.eager.objects import (
    call_python,
    drop,
    field,
    is_null,
    known,
    set_field,
    take,
    type_of,
)
from lucerne.backends.cpu.emit.builder import I1, I32, I64, PTR, VOID, Function, Module, Value
from lucerne.backends.cpu.emit.types import I8

LINE_CACHE = 64


def write_records(m: Module) -> None:
    _write_record(m)
    _write_view(m)


def _write_record(m: Module) -> None:
    """`record(plan, args, mask, t)`: hang a record on a result. 0, or -1 with an error set.

    The record is a list: [op, arguments, autos, mask, versions, meta of the result, the bare
    result or None, place]. Arguments that backward does not read are replaced by their metas.
    """
    params = [("plan", PTR), ("args", PTR), ("mask", I64), ("t", PTR)]
    with m.function("record", params, I64, internal=True) as f:
        plan, args, mask, t = f.args
        count = word(f, plan, P.ARGUMENTS)
        saved = f.load(I64, f.at(plan, (mask + P.SAVE_MASKS) * 8), align=8)
        kept = f.call("PyTuple_New", PTR, [count])
        autos = f.call("PyTuple_New", PTR, [count])
        versions = f.call("PyTuple_New", PTR, [count])
        made = f.call("PyList_New", PTR, [8])
        ends = [is_null(f, x) for x in (kept, autos, versions, made)]
        with f.if_(any_of(f, *ends)):
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
        op = word(f, plan, P.OP, PTR)
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
        for number_of, item in enumerate((op, kept, autos, number, versions, meta, bare, place)):
            f.store(item, f.at(items, number_of * 8), align=8)
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
        with f.if_(any_of(f, is_null(f, auto), f.compare("ne", pending, 0))):
            f.ret(f.constant(0))
        at = f.load(I64, f.symbol("grad_fn_offset"), align=8)
        maker = f.load(PTR, f.at(auto, at), align=8)
        f.ret(f.convert("zext", is_known(f, maker, "none"), I64))
    with m.function("bare_result", [("plan", PTR), ("t", PTR)], PTR, internal=True) as f:
        plan, t = f.args
        saves = word(f, plan, P.FLAGS) & P.SAVES_RESULT
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


def _write_user_line(m: Module) -> None:
    """`user_line()`: (code, line) of the caller when its code is known to be the user's, else what
    the Python function says. Known code objects stand in a small table, put there by Python."""
    m.variable("user_codes", f"[{LINE_CACHE} x ptr]", shown=True)
    m.variable("record_lines", "i64", "1", shown=True)
    with m.function("user_line", [], PTR, internal=True) as f:
        wanted = f.load(I64, f.symbol("record_lines"), align=8)
        frame = f.call("PyEval_GetFrame", PTR, [])
        with f.if_(any_of(f, f.compare("eq", wanted, 0), is_null(f, frame))):
            none = known(f, "none")
            take(f, none)
            f.ret(none)
        code = f.call("PyFrame_GetCode", PTR, [frame])
        slot = f.bits("lshr", address(f, code), 5) & (LINE_CACHE - 1)
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
    """`make_view(plan, args, mask, grad)`: another reading of args[0]'s storage.

    Its record is (source, steps, version, whether gradients were off).
    """
    params = [("plan", PTR), ("args", PTR), ("mask", I64), ("grad", I1)]
    with m.function("make_view", params, PTR, internal=True) as f:
        plan, args, mask, grad = f.args
        source = f.load(PTR, args, align=8)
        storage = f.call("own_storage", PTR, [source])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        t = f.call("new_tensor", PTR, [word(f, plan, P.OUT_META, PTR)])
        with f.if_(is_null(f, t)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, t, Tensor.STORAGE, storage)
        set_field(
            f, t, Tensor.OFFSET, field(f, source, Tensor.OFFSET, I64) + word(f, plan, P.DELTA)
        )
        version = f.call("PyLong_FromLongLong", PTR, [field(f, storage, Storage.VERSION, I64)])
        step = word(f, plan, P.STEP, PTR)
        off = f.select(grad, known(f, "false"), known(f, "true"))
        four = f.constant(4)
        record = f.call("PyTuple_Pack", PTR, [four, source, step, version, off], more_after=1)
        drop(f, version)
        with f.if_(is_null(f, record)):
            drop(f, t)
            f.ret(f.zero(PTR))
        set_field(f, t, Tensor.VIEW, record)
        set_field(f, t, Tensor.FLAGS, f.constant(Tensor.PENDING_VIEW))
        f.call("track", VOID, [t])
        # Its base may come to need gradients by a write: `needs_grad` looks when it was written.
        set_field(f, t, Tensor.SEEN_VERSION, field(f, storage, Storage.VERSION, I64))
        with f.if_(f.compare("ne", mask, 0)):
            recorded = f.call("record", I64, [plan, args, mask, t])
            with f.if_(f.compare("ne", recorded, 0)):
                drop(f, t)
                f.ret(f.zero(PTR))
        f.ret(t)
