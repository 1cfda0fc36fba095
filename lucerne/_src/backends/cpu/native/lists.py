"""Machine code over tuples of tensors: pointers into a block, counting writes, clearing gradients.

An optimizer step touches every parameter with little work for each; these are the loops around it.
All take tuples (nothing may change them meanwhile) and answer False at the first tensor that is not
as expected, before anything was changed: then Python does the whole.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    I1,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I8
from lucerne._src.backends.cpu.native.keys import any_of, is_known
from lucerne._src.backends.cpu.native.layout import (
    TUPLE_ITEMS,
    VAR_SIZE,
    MemoryLayout,
    StorageLayout,
    TensorLayout,
)
from lucerne._src.backends.cpu.native.objects import (
    drop,
    field,
    is_null,
    known,
    not_null,
    set_field,
    take,
    type_of,
)

FASTCALL = [("self", PTR), ("args", PTR), ("count", I64)]


def write_lists(m: Module) -> None:
    m.variable("grad_offset", "i64", "0", shown=True)
    _write_tests(m)
    _write_place(m)
    _write_changes(m)


def _item(f: LLVMFunction, items: LLVMValue, index: LLVMValue) -> LLVMValue:
    return f.load(PTR, f.at(f.at(items, TUPLE_ITEMS), index, I64), align=8)


def _answer(f: LLVMFunction, name: str) -> None:
    shown = known(f, name)
    take(f, shown)
    f.ret(shown)


def _write_tests(m: Module) -> None:
    # fits(x, meta): a plain tensor with this meta, made outside of inference mode
    with m.function("fits", [("x", PTR), ("meta", PTR)], I1, internal=True) as f:
        x, meta = f.args
        with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, x)]), True)):
            f.ret(f.constant(False, I1))
        storage = field(f, x, TensorLayout.STORAGE)
        with f.if_(not_null(f, storage)):
            odd = f.load(I8, f.at(storage, StorageLayout.INFERENCE))
            with f.if_(f.compare("ne", odd, 0)):
                f.ret(f.constant(False, I1))
        f.ret(f.compare("eq", field(f, x, TensorLayout.META), meta))
    # grad_place(t): where a leaf keeps its gradient; null when it has no state yet
    with m.function("grad_place", [("t", PTR)], PTR, internal=True) as f:
        (t,) = f.args
        with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, t)]), True)):
            f.ret(f.zero(PTR))
        auto = field(f, t, TensorLayout.AUTO)
        pending = f.compare(
            "ne", field(f, t, TensorLayout.FLAGS, I64) & TensorLayout.PENDING_AUTO, 0
        )
        with f.if_(any_of(f, is_null(f, auto), pending)):
            f.ret(f.zero(PTR))
        f.ret(f.at(auto, f.load(I64, f.symbol("grad_offset"), align=8)))


def _write_place(m: Module) -> None:
    """`place(tensors, metas, item size, address)`, `place_grads(...)`: store the pointers of the
    tensors, or of their gradients, from `address` on."""
    for name in ("place", "place_grads"):
        with m.function(name, FASTCALL, PTR) as f:
            _, args, _ = f.args
            items, metas = f.word(args, 0, PTR), f.word(args, 1, PTR)
            size = f.call("PyLong_AsSsize_t", I64, [f.word(args, 2, PTR)])
            target = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 3, PTR)])
            count = field(f, items, VAR_SIZE, I64)
            with f.if_(f.compare("ne", count, field(f, metas, VAR_SIZE, I64))):
                _answer(f, "false")
            with f.loop(0, count) as loop:
                x = _item(f, items, loop.index)
                if name == "place_grads":
                    place = f.call("grad_place", PTR, [x])
                    with f.if_(is_null(f, place)):
                        _answer(f, "false")
                    x = f.load(PTR, place, align=8)
                    with f.if_(is_null(f, x)):
                        _answer(f, "false")
                fits = f.call("fits", I1, [x, _item(f, metas, loop.index)])
                with f.if_(f.bits("xor", fits, True)):
                    _answer(f, "false")
                data = f.call("data_of", I64, [x, size])
                with f.if_(f.compare("eq", data, 0)):
                    _answer(f, "false")
                f.store(data, f.at(target, loop.index, I64), align=8)
            _answer(f, "true")


def _write_changes(m: Module) -> None:
    # note_write(t, line): what Storage.note_write does, and whose line it was
    with m.function("note_write", [("t", PTR), ("line", PTR)], VOID, internal=True) as f:
        t, line = f.args
        storage = f.call("own_storage", PTR, [t])
        with f.if_(is_null(f, storage)):
            f.call("PyErr_Clear", VOID, [])
            f.ret()
        set_field(
            f, storage, StorageLayout.VERSION, field(f, storage, StorageLayout.VERSION, I64) + 1
        )
        memory = field(f, storage, StorageLayout.BUFFER)
        with f.if_(is_known(f, type_of(f, memory), "memory_type")):
            writes = field(f, memory, MemoryLayout.WRITES, I64) + 1
            set_field(f, memory, MemoryLayout.WRITES, writes)
        saved = f.compare("ne", f.load(I8, f.at(storage, StorageLayout.SAVED)), 0)
        with f.if_(f.bits("and", saved, f.compare("ne", line, known(f, "none")))):
            old = field(f, storage, StorageLayout.WRITER)
            take(f, line)
            set_field(f, storage, StorageLayout.WRITER, line)
            with f.if_(not_null(f, old)):
                drop(f, old)
    # note_writes(tensors, line)
    with m.function("note_writes", FASTCALL, PTR) as f:
        _, args, _ = f.args
        items, line = f.word(args, 0, PTR), f.word(args, 1, PTR)
        with f.loop(0, field(f, items, VAR_SIZE, I64)) as loop:
            f.call("note_write", VOID, [_item(f, items, loop.index), line])
        _answer(f, "true")
    # count_up(tensors): add one to each, numbers of float32 that `place` has checked
    with m.function("count_up", FASTCALL, PTR) as f:
        _, args, _ = f.args
        items = f.word(args, 0, PTR)
        with f.loop(0, field(f, items, VAR_SIZE, I64)) as loop:
            t = _item(f, items, loop.index)
            data = f.convert("inttoptr", f.call("data_of", I64, [t, 4]), PTR)
            f.store(f.load(F32, data) + 1.0, data)
            f.call("note_write", VOID, [t, known(f, "none")])
        _answer(f, "true")
    # clear_grads(tensors): `t.grad = None` for each; those without a state have none
    with m.function("clear_grads", FASTCALL, PTR) as f:
        _, args, _ = f.args
        items = f.word(args, 0, PTR)
        with f.loop(0, field(f, items, VAR_SIZE, I64)) as loop:
            t = _item(f, items, loop.index)
            with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, t)]), True)):
                _answer(f, "false")
            place = f.call("grad_place", PTR, [t])
            with f.if_(not_null(f, place)):
                old = f.load(PTR, place, align=8)
                none = known(f, "none")
                take(f, none)
                f.store(none, place, align=8)
                with f.if_(not_null(f, old)):
                    drop(f, old)
        _answer(f, "true")


__all__ = ["write_lists"]
