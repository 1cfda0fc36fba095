"""What the fast path writes down for autograd, and the views it makes."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I8
from lucerne._src.backends.cpu.native import plans as P
from lucerne._src.backends.cpu.native.keys import address, any_of, is_known, word
from lucerne._src.backends.cpu.native.layout import (
    TUPLE_ITEMS,
    VAR_SIZE,
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
    set_field,
    take,
    type_of,
)

LINE_CACHE = 64
PLACE_CACHE = 256
"""How many places of the users' calls are kept as objects; the last one made in a slot stays."""
ODD = 1 << 41
"""Bit of `grad_mask`: an argument that only the complete path may record."""


def write_records(m: Module) -> None:
    _write_order(m)
    _write_record(m)
    _write_autos(m)
    _write_view(m)


def _write_order(m: Module) -> None:
    """`next_in_order()`: one more than at the last call. Records and nodes share the numbers."""
    m.variable("order", "i64", "0")
    with m.function("order_number", [], PTR, internal=True) as f:
        last = f.load(I64, f.symbol("order"), align=8)
        f.store(last + 1, f.symbol("order"), align=8)
        f.ret(f.call("PyLong_FromLongLong", PTR, [last]))
    params = [("self", PTR), ("args", PTR), ("count", I64)]
    with m.function("next_in_order", params, PTR) as f:
        f.ret(f.call("order_number", PTR, []))


def _write_record(m: Module) -> None:
    """`record(plan, args, mask, outs, made)`: hang a record on results. 0, or -1 with an error set.

    The record is a list: [op, arguments, autos, mask, versions, meta of the result, the bare
    result or None, place, number]. Arguments that backward does not read are replaced by their
    metas.
    An argument that is a list of tensors has a tuple in each of these places. A call with several
    results has tuples of metas and bare results, and each result holds a list [record, number].
    """
    _write_argument(m)
    params = [("plan", PTR), ("args", PTR), ("mask", I64), ("outs", PTR), ("many", I64)]
    with m.function("record", params, I64, internal=True) as f:
        plan, args, mask, outs, many = f.args
        count = word(f, plan, P.ARGUMENTS)
        saved = f.load(I64, f.at(plan, (mask + P.SAVE_MASKS) * 8), align=8)
        kept = f.call("PyTuple_New", PTR, [count])
        autos = f.call("PyTuple_New", PTR, [count])
        versions = f.call("PyTuple_New", PTR, [count])
        made = f.call("PyList_New", PTR, [9])
        ends = [is_null(f, x) for x in (kept, autos, versions, made)]
        with f.if_(any_of(f, *ends)):
            f.ret(f.constant(-1))
        lists = word(f, plan, P.LISTS)
        with f.loop(0, count) as loop:
            i = loop.index
            x = f.load(PTR, f.at(args, i, I64), align=8)
            given = [x, i, kept, autos, versions]
            listed = f.bits("and", f.bits("lshr", lists, i), 1)
            with f.if_(f.compare("ne", listed, 0)) as b:
                b.give(f.call("record_list", I64, given))
            with b.else_():
                bit = f.bits("and", f.bits("lshr", saved, i), 1)
                b.give(f.call("record_argument", I64, [*given, bit]))
            with f.if_(f.compare("ne", b.results[0], 0)):
                f.ret(f.constant(-1))
        items = f.load(PTR, f.at(made, VAR_SIZE + 8), align=8)
        op = word(f, plan, P.OP, PTR)
        take(f, op)
        metas = f.call("result_metas", PTR, [outs, many])
        bare = f.call("bare_results", PTR, [plan, outs, many])
        place = f.call("user_line", PTR, [])
        wanted = f.call("PyLong_FromLongLong", PTR, [mask])
        number = f.call("order_number", PTR, [])
        with f.if_(any_of(f, *(is_null(f, x) for x in (metas, bare, place, wanted, number)))):
            f.ret(f.constant(-1))
        parts = (op, kept, autos, wanted, versions, metas, bare, place, number)
        for k, item in enumerate(parts):
            f.store(item, f.at(items, k * 8), align=8)
        f.ret(f.call("hang", I64, [plan, made, outs, many]))
    _write_hang(m)
    _write_results(m)
    # is_leaf(x): gradients end here, so the record needs the tensor itself
    m.variable("grad_fn_offset", "i64", "0", shown=True)
    with m.function("is_leaf", [("x", PTR)], I64, internal=True) as f:
        (x,) = f.args
        auto = field(f, x, TensorLayout.AUTO)
        pending = field(f, x, TensorLayout.FLAGS, I64) & TensorLayout.PENDING_AUTO
        with f.if_(any_of(f, is_null(f, auto), f.compare("ne", pending, 0))):
            f.ret(f.constant(0))
        at = f.load(I64, f.symbol("grad_fn_offset"), align=8)
        maker = f.load(PTR, f.at(auto, at), align=8)
        f.ret(f.convert("zext", is_known(f, maker, "none"), I64))
    # bare_result(t, saved): a result without its history if its number says so, else None
    with m.function("bare_result", [("t", PTR), ("saved", I64)], PTR, internal=True) as f:
        t, saved = f.args
        with f.if_(f.compare("eq", saved, 0)):
            none = known(f, "none")
            take(f, none)
            f.ret(none)
        storage = f.call("own_storage", PTR, [t])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        f.store(f.constant(1, I8), f.at(storage, StorageLayout.SAVED))
        made = f.call("new_tensor", PTR, [field(f, t, TensorLayout.META)])
        with f.if_(is_null(f, made)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, made, TensorLayout.STORAGE, storage)
        set_field(f, made, TensorLayout.OFFSET, field(f, t, TensorLayout.OFFSET, I64))
        f.ret(made)
    _write_user_line(m)


def _write_argument(m: Module) -> None:
    """`record_argument(x, i, kept, autos, versions, saved)`, `record_list(x, i, ...)`: fill the
    places of one argument. 0, or -1 with an error set."""
    params = [("x", PTR), ("i", I64), ("kept", PTR), ("autos", PTR), ("versions", PTR)]
    with m.function("record_argument", [*params, ("saved", I64)], I64, internal=True) as f:
        x, i, kept, autos, versions, saved = f.args
        none = known(f, "none")
        with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, x)]), True)):
            _place(f, autos, i, none)
            _place(f, versions, i, none)
            _place(f, kept, i, x)
            f.ret(f.constant(0))
        auto = field(f, x, TensorLayout.AUTO)
        _place(f, autos, i, f.select(is_null(f, auto), none, auto))
        with f.if_(f.compare("eq", saved, 0)):
            _place(f, versions, i, none)
            leaf = f.compare("ne", f.call("is_leaf", I64, [x]), 0)
            _place(f, kept, i, f.select(leaf, x, field(f, x, TensorLayout.META)))
            f.ret(f.constant(0))
        storage = f.call("own_storage", PTR, [x])
        with f.if_(is_null(f, storage)):
            f.ret(f.constant(-1))
        f.store(f.constant(1, I8), f.at(storage, StorageLayout.SAVED))
        version = f.call(
            "PyLong_FromLongLong", PTR, [field(f, storage, StorageLayout.VERSION, I64)]
        )
        with f.if_(is_null(f, version)):
            f.ret(f.constant(-1))
        f.store(version, f.at(f.at(versions, TUPLE_ITEMS), i, I64), align=8)
        _place(f, kept, i, x)
        f.ret(f.constant(0))
    # a list is never saved as a whole (such plans are not recorded here); items that need no
    # gradient have no auto
    with m.function("record_list", params, I64, internal=True) as f:
        x, i, kept, autos, versions = f.args
        none = known(f, "none")
        size = field(f, x, VAR_SIZE, I64)
        things = f.call("PyTuple_New", PTR, [size])
        states = f.call("PyTuple_New", PTR, [size])
        with f.if_(any_of(f, is_null(f, things), is_null(f, states))):
            f.ret(f.constant(-1))
        with f.loop(0, size) as loop:
            j = loop.index
            item = f.load(PTR, f.at(f.at(x, TUPLE_ITEMS), j, I64), align=8)
            with f.if_(f.call("is_tensor", I1, [type_of(f, item)])) as b:
                needs = f.compare("ne", f.call("needs_grad", I64, [item]), 0)
                _place(f, states, j, f.select(needs, field(f, item, TensorLayout.AUTO), none))
                leaf = f.compare("ne", f.call("is_leaf", I64, [item]), 0)
                _place(f, things, j, f.select(leaf, item, field(f, item, TensorLayout.META)))
            with b.else_():
                _place(f, states, j, none)
                _place(f, things, j, item)
        f.store(things, f.at(f.at(kept, TUPLE_ITEMS), i, I64), align=8)
        f.store(states, f.at(f.at(autos, TUPLE_ITEMS), i, I64), align=8)
        _place(f, versions, i, none)
        f.ret(f.constant(0))


def _write_hang(m: Module) -> None:
    """`hang(plan, record, outs, many)`: the record becomes the history of the results that can
    have one. Takes the reference of the record. 0, or -1 with an error set."""
    with m.function("set_history", [("t", PTR), ("record", PTR)], VOID, internal=True) as f:
        t, record = f.args
        set_field(f, t, TensorLayout.AUTO, record)
        flags = field(f, t, TensorLayout.FLAGS, I64) | TensorLayout.PENDING_AUTO
        set_field(f, t, TensorLayout.FLAGS, flags)
        f.call("track", VOID, [t])
    params = [("plan", PTR), ("record", PTR), ("outs", PTR), ("many", I64)]
    with m.function("hang", params, I64, internal=True) as f:
        plan, record, outs, many = f.args
        with f.if_(f.compare("eq", many, 1)):
            f.call("set_history", VOID, [f.load(PTR, outs, align=8), record])
            f.ret(f.constant(0))
        smooth = word(f, plan, P.SMOOTH)
        with f.loop(0, many) as loop:
            bit = f.bits("and", f.bits("lshr", smooth, loop.index), 1)
            with f.if_(f.compare("ne", bit, 0)):
                part = f.call("PyList_New", PTR, [2])
                number = f.call("PyLong_FromLongLong", PTR, [loop.index])
                with f.if_(any_of(f, is_null(f, part), is_null(f, number))):
                    f.ret(f.constant(-1))
                items = f.load(PTR, f.at(part, VAR_SIZE + 8), align=8)
                take(f, record)
                f.store(record, items, align=8)
                f.store(number, f.at(items, 8), align=8)
                f.call(
                    "set_history", VOID, [f.load(PTR, f.at(outs, loop.index, I64), align=8), part]
                )
        drop(f, record)
        f.ret(f.constant(0))


def _write_autos(m: Module) -> None:
    """`autos_of(args)`: for each argument that needs a gradient its history as it stands, else
    None; for a tuple a tuple of these. None for all: only nodes can tell this call's history."""
    with m.function("auto_of", [("x", PTR)], PTR, internal=True) as f:
        (x,) = f.args
        with f.if_(f.call("is_tensor", I1, [type_of(f, x)])):
            needs = f.compare("ne", f.call("needs_grad", I64, [x]), 0)
            f.ret(f.select(needs, field(f, x, TensorLayout.AUTO), known(f, "none")))
        f.ret(known(f, "none"))
    with m.function("autos_in", [("x", PTR), ("deep", I1)], PTR, internal=True) as f:
        x, deep = f.args
        size = field(f, x, VAR_SIZE, I64)
        made = f.call("PyTuple_New", PTR, [size])
        with f.if_(is_null(f, made)):
            f.ret(made)
        with f.loop(0, size) as loop:
            item = f.load(PTR, f.at(f.at(x, TUPLE_ITEMS), loop.index, I64), align=8)
            inner = f.bits("and", deep, is_known(f, type_of(f, item), "tuple"))
            with f.if_(inner) as b:
                found = f.call("autos_in", PTR, [item, f.constant(0, I1)])
                with f.if_(is_null(f, found)):
                    f.ret(found)
                f.store(found, f.at(f.at(made, TUPLE_ITEMS), loop.index, I64), align=8)
            with b.else_():
                _place(f, made, loop.index, f.call("auto_of", PTR, [item]))
        f.ret(made)
    with m.function("autos_of", [("self", PTR), ("args", PTR), ("count", I64)], PTR) as f:
        _, args, _ = f.args
        given = f.word(args, 0, PTR)
        size = field(f, given, VAR_SIZE, I64)
        mask = f.call("grad_mask", I64, [f.at(given, TUPLE_ITEMS), size])
        with f.if_(f.compare("ne", f.bits("and", mask, f.constant(ODD)), 0)):
            none = known(f, "none")
            take(f, none)
            f.ret(none)
        f.ret(f.call("autos_in", PTR, [given, f.constant(1, I1)]))
    # t._record = list: what `record` hangs on results, written by Python
    with m.function("set_record", [("t", PTR), ("value", PTR), ("closure", PTR)], I32) as f:
        t, value, _ = f.args
        old = field(f, t, TensorLayout.AUTO)
        take(f, value)
        f.call("set_history", VOID, [t, value])
        # A view just made: its history is that of its memory now (as `make_view` notes it).
        storage = field(f, t, TensorLayout.STORAGE)
        is_view = f.bits("and", not_null(f, storage), not_null(f, field(f, t, TensorLayout.VIEW)))
        with f.if_(is_view):
            set_field(
                f, t, TensorLayout.SEEN_VERSION, field(f, storage, StorageLayout.VERSION, I64)
            )
        with f.if_(not_null(f, old)):
            drop(f, old)
        f.ret(f.constant(0, I32))


def _write_results(m: Module) -> None:
    """`result_metas(outs, many)` and `bare_results(plan, outs, many)`: new references."""
    with m.function("result_metas", [("outs", PTR), ("many", I64)], PTR, internal=True) as f:
        outs, many = f.args
        with f.if_(f.compare("eq", many, 1)):
            meta = field(f, f.load(PTR, outs, align=8), TensorLayout.META)
            take(f, meta)
            f.ret(meta)
        made = f.call("PyTuple_New", PTR, [many])
        with f.if_(is_null(f, made)):
            f.ret(made)
        with f.loop(0, many) as loop:
            t = f.load(PTR, f.at(outs, loop.index, I64), align=8)
            _place(f, made, loop.index, field(f, t, TensorLayout.META))
        f.ret(made)
    params = [("plan", PTR), ("outs", PTR), ("many", I64)]
    with m.function("bare_results", params, PTR, internal=True) as f:
        plan, outs, many = f.args
        saved = word(f, plan, P.SAVED_RESULTS)
        one = f.bits("or", f.compare("eq", many, 1), f.compare("eq", saved, 0))
        with f.if_(one):
            f.ret(f.call("bare_result", PTR, [f.load(PTR, outs, align=8), saved]))
        made = f.call("PyTuple_New", PTR, [many])
        with f.if_(is_null(f, made)):
            f.ret(made)
        with f.loop(0, many) as loop:
            t = f.load(PTR, f.at(outs, loop.index, I64), align=8)
            bit = f.bits("and", f.bits("lshr", saved, loop.index), 1)
            bare = f.call("bare_result", PTR, [t, bit])
            with f.if_(is_null(f, bare)):
                f.ret(bare)
            f.store(bare, f.at(f.at(made, TUPLE_ITEMS), loop.index, I64), align=8)
        f.ret(made)


def _place(f: LLVMFunction, tuple: LLVMValue, index: LLVMValue, item: LLVMValue) -> None:
    take(f, item)
    f.store(item, f.at(f.at(tuple, TUPLE_ITEMS), index, I64), align=8)


def _write_place_at(m: Module) -> None:
    """`place_at(frame, code)`: (code, line) of a frame; takes the reference to the code. Python
    finds a line by reading the table of lines from its beginning, so pairs are kept by code and
    instruction. A pair holds its code: while it is kept, no other code has that address."""
    m.variable("kept_places", f"[{PLACE_CACHE * 2} x i64]")
    with m.function("place_at", [("frame", PTR), ("code", PTR)], PTR, internal=True) as f:
        frame, code = f.args
        at = f.convert("sext", f.call("PyFrame_GetLasti", I32, [frame]), I64)
        mixed = f.bits("xor", f.bits("lshr", address(f, code), 5), f.bits("lshr", at, 1))
        slot = f.at(f.symbol("kept_places"), (mixed & (PLACE_CACHE - 1)) * 16)
        kept = f.load(PTR, slot, align=8)
        with (
            f.if_(not_null(f, kept)),
            f.if_(f.compare("eq", f.load(I64, f.at(slot, 8), align=8), at)),
            f.if_(f.compare("eq", f.load(PTR, f.at(kept, TUPLE_ITEMS), align=8), code)),
        ):
            drop(f, code)
            take(f, kept)
            f.ret(kept)
        line = f.call("PyFrame_GetLineNumber", I32, [frame])
        number = f.call("PyLong_FromLongLong", PTR, [f.convert("sext", line, I64)])
        pair = f.call("PyTuple_New", PTR, [2])
        with f.if_(any_of(f, is_null(f, number), is_null(f, pair))):
            f.ret(f.zero(PTR))
        f.store(code, f.at(pair, TUPLE_ITEMS), align=8)
        f.store(number, f.at(pair, TUPLE_ITEMS + 8), align=8)
        take(f, pair)
        f.store(pair, slot, align=8)
        f.store(at, f.at(slot, 8), align=8)
        drop(f, kept)
        f.ret(pair)


def _write_user_line(m: Module) -> None:
    """`user_line()`: (code, line) of the caller when its code is known to be the user's, else what
    the Python function says. Known code objects stand in a small table, put there by Python."""
    m.variable("user_codes", f"[{LINE_CACHE} x ptr]", shown=True)
    m.variable("record_lines", "i64", "1", shown=True)
    _write_place_at(m)
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
            f.ret(f.call("place_at", PTR, [frame, code]))
        drop(f, code)
        f.ret(call_python(f, known(f, "user_place")))


# ---- views ------------------------------------------------------------------------------------


def _write_view(m: Module) -> None:
    """`make_view(plan, args, mask, grad)`: another reading of args[0]'s storage, or several.

    The record of a view is (source, steps, version, whether gradients were off).
    """
    params = [("source", PTR), ("meta", PTR), ("delta", I64), ("step", PTR), ("grad", I1)]
    with m.function("one_view", params, PTR, internal=True) as f:
        source, meta, delta, step, grad = f.args
        storage = f.call("own_storage", PTR, [source])
        with f.if_(is_null(f, storage)):
            f.ret(f.zero(PTR))
        t = f.call("new_tensor", PTR, [meta])
        with f.if_(is_null(f, t)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, t, TensorLayout.STORAGE, storage)
        set_field(f, t, TensorLayout.OFFSET, field(f, source, TensorLayout.OFFSET, I64) + delta)
        version = f.call(
            "PyLong_FromLongLong", PTR, [field(f, storage, StorageLayout.VERSION, I64)]
        )
        off = f.select(grad, known(f, "false"), known(f, "true"))
        four = f.constant(4)
        record = f.call("PyTuple_Pack", PTR, [four, source, step, version, off], more_after=1)
        drop(f, version)
        with f.if_(is_null(f, record)):
            drop(f, t)
            f.ret(f.zero(PTR))
        set_field(f, t, TensorLayout.VIEW, record)
        set_field(f, t, TensorLayout.FLAGS, f.constant(TensorLayout.PENDING_VIEW))
        f.call("track", VOID, [t])
        # Its base may come to need gradients by a write: `needs_grad` looks when it was written.
        set_field(f, t, TensorLayout.SEEN_VERSION, field(f, storage, StorageLayout.VERSION, I64))
        f.ret(t)
    params = [("plan", PTR), ("args", PTR), ("mask", I64), ("grad", I1)]
    with m.function("make_view", params, PTR, internal=True) as f:
        plan, args, mask, grad = f.args
        with f.if_(f.compare("ne", word(f, plan, P.FLAGS) & P.SEVERAL, 0)):
            f.ret(f.call("make_views", PTR, [plan, args, mask, grad]))
        given = [word(f, plan, P.OUT_META, PTR), word(f, plan, P.DELTA), word(f, plan, P.STEP, PTR)]
        t = f.call("one_view", PTR, [f.load(PTR, args, align=8), *given, grad])
        with f.if_(f.bits("or", is_null(f, t), f.compare("eq", mask, 0))):
            f.ret(t)
        outs = f.stack(8)
        f.store(t, outs, align=8)
        recorded = f.call("record", I64, [plan, args, mask, outs, f.constant(1)])
        with f.if_(f.compare("ne", recorded, 0)):
            drop(f, t)
            f.ret(f.zero(PTR))
        f.ret(t)
    with m.function("make_views", params, PTR, internal=True) as f:
        plan, args, mask, grad = f.args
        outs = f.stack(P.MAX_VIEWS * 8)
        count = word(f, plan, P.OUTPUTS)
        parts = word(f, plan, P.PARTS, PTR)
        source = f.load(PTR, args, align=8)
        with f.loop(0, count) as loop:
            part = f.at(parts, loop.index * 24)
            given = [word(f, part, 0, PTR), word(f, part, 1), word(f, part, 2, PTR)]
            t = f.call("one_view", PTR, [source, *given, grad])
            with f.if_(is_null(f, t)):
                f.call("drop_all", VOID, [outs, loop.index])
                f.ret(t)
            f.store(t, f.at(outs, loop.index, I64), align=8)
        with f.if_(f.compare("ne", mask, 0)):
            recorded = f.call("record", I64, [plan, args, mask, outs, count])
            with f.if_(f.compare("ne", recorded, 0)):
                f.call("drop_all", VOID, [outs, count])
                f.ret(f.zero(PTR))
        made = f.call("PyTuple_New", PTR, [count])
        with f.if_(is_null(f, made)):
            f.call("drop_all", VOID, [outs, count])
            f.ret(made)
        with f.loop(0, count) as loop:
            item = f.load(PTR, f.at(outs, loop.index, I64), align=8)
            f.store(item, f.at(f.at(made, TUPLE_ITEMS), loop.index, I64), align=8)
        f.ret(made)
