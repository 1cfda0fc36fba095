"""Machine code of the native objects: making them, freeing them, their attributes.

Values that only the running process knows (types, None, callbacks) are words of the table `known`,
filled in after loading; see KNOWN for their order.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I8
from lucerne._src.backends.cpu.native.layout import TYPE, MemoryLayout, StorageLayout, TensorLayout

KNOWN = (
    "tensor_type", "plain_type", "storage_type", "memory_type", "none", "true", "false", "float",
    "int", "bool", "tuple", "str", "dtype", "device_class", "layout", "memory_format",
    "expand_auto", "expand_view", "free_list", "free_count", "host_device", "in_place_type",
    "mode", "owner_thread", "slow_run", "zero", "user_place", "adopt", "observe", "ellipsis",
    "slice", "list", "size", "cast", "watcher", "no_room",
    "dlpack_lend", "dlpack_take", "dlpack_room",
)  # fmt: skip
"""Names of the words of the table `known`."""

FREE_LIST_LIMIT = 256


def known(f: LLVMFunction, name: str, type: object = PTR) -> LLVMValue:
    """A word of the table."""
    return f.load(type, known_place(f, name), align=8)  # type: ignore[arg-type]


def known_place(f: LLVMFunction, name: str) -> LLVMValue:
    return f.at(f.symbol("known"), KNOWN.index(name) * 8)


def is_null(f: LLVMFunction, pointer: LLVMValue) -> LLVMValue:
    return f.compare("eq", pointer, f.zero(PTR))


def not_null(f: LLVMFunction, pointer: LLVMValue) -> LLVMValue:
    return f.compare("ne", pointer, f.zero(PTR))


def field(f: LLVMFunction, object: LLVMValue, offset: int, type: object = PTR) -> LLVMValue:
    return f.load(type, f.at(object, offset), align=8)  # type: ignore[arg-type]


def set_field(f: LLVMFunction, object: LLVMValue, offset: int, value: LLVMValue) -> None:
    f.store(value, f.at(object, offset), align=8)


def take(f: LLVMFunction, object: LLVMValue) -> None:
    """One more reference."""
    f.call("Py_IncRef", VOID, [object])


def drop(f: LLVMFunction, object: LLVMValue) -> None:
    """One reference less; null is fine."""
    f.call("Py_DecRef", VOID, [object])


def type_of(f: LLVMFunction, object: LLVMValue) -> LLVMValue:
    return field(f, object, TYPE)


def call_python(f: LLVMFunction, callable: LLVMValue, *args: LLVMValue) -> LLVMValue:
    """Call a Python function; null when it raised."""
    return f.call("PyObject_CallFunctionObjArgs", PTR, [callable, *args, f.zero(PTR)], more_after=1)


def write_objects(m: Module) -> None:
    m.variable("known", f"[{len(KNOWN)} x i64]", shown=True)
    _write_new_tensor(m)
    _write_tensor_dealloc(m)
    _write_tensor_gc(m)
    _write_storage(m)
    _write_tensor_attributes(m)
    _write_memory(m)
    _write_refusal(m)
    _write_makers(m)


# ---- tensors ----------------------------------------------------------------------------------


def _write_new_tensor(m: Module) -> None:
    """`new_tensor(meta)`: an empty tensor of the exact type; takes a reference of the meta."""
    with m.function("new_tensor", [("meta", PTR)], PTR, internal=True) as f:
        (meta,) = f.args
        head = known(f, "free_list")
        with f.if_(not_null(f, head)) as b:
            f.store(field(f, head, TensorLayout.DATA), known_place(f, "free_list"), align=8)
            left = known(f, "free_count", I64) - 1
            f.store(left, known_place(f, "free_count"), align=8)
            cls = known(f, "tensor_type")
            b.give(f.call("PyObject_Init", PTR, [head, cls]))
        with b.else_():
            made = f.call("PyType_GenericAlloc", PTR, [known(f, "tensor_type"), 0])
            with f.if_(is_null(f, made)):
                f.ret(f.zero(PTR))
            f.call("PyObject_GC_UnTrack", VOID, [made])
            b.give(made)
        (t,) = b.results
        for offset in range(TensorLayout.STORAGE, TensorLayout.SIZE, 8):
            set_field(f, t, offset, f.constant(0))
        take(f, meta)
        set_field(f, t, TensorLayout.META, meta)
        f.ret(t)


def _free_own_block(f: LLVMFunction, t: LLVMValue) -> None:
    data = field(f, t, TensorLayout.DATA)
    with f.if_(not_null(f, data)):
        f.call("lucerne_free", VOID, [data, field(f, t, TensorLayout.NBYTES, I64)])
        set_field(f, t, TensorLayout.DATA, f.zero(PTR))


def _write_tensor_dealloc(m: Module) -> None:
    with m.function("tensor_dealloc", [("t", PTR)]) as f:
        (t,) = f.args
        f.call("PyObject_GC_UnTrack", VOID, [t])
        with f.if_(not_null(f, field(f, t, TensorLayout.WEAK))):
            f.call("PyObject_ClearWeakRefs", VOID, [t])
        _free_own_block(f, t)
        for offset in (
            TensorLayout.META, TensorLayout.STORAGE, TensorLayout.AUTO, TensorLayout.VIEW,
            TensorLayout.ARRAY, TensorLayout.DICT,
        ):  # fmt: skip
            held = field(f, t, offset)
            with f.if_(not_null(f, held)):
                set_field(f, t, offset, f.zero(PTR))
                drop(f, held)
        cls = type_of(f, t)
        count = known(f, "free_count", I64)
        exact = f.bits(
            "and",
            f.compare("eq", cls, known(f, "tensor_type")),
            f.compare("lt", count, FREE_LIST_LIMIT),
        )
        with f.if_(exact) as b:
            set_field(f, t, TensorLayout.DATA, known(f, "free_list"))
            f.store(t, known_place(f, "free_list"), align=8)
            f.store(count + 1, known_place(f, "free_count"), align=8)
        with b.else_():
            f.call("PyObject_GC_Del", VOID, [t])
        drop(f, cls)


def _write_tensor_gc(m: Module) -> None:
    held = (
        TensorLayout.STORAGE,
        TensorLayout.AUTO,
        TensorLayout.VIEW,
        TensorLayout.ARRAY,
        TensorLayout.DICT,
    )
    params = [("t", PTR), ("visit", PTR), ("arg", PTR)]
    with m.function("tensor_traverse", params, I32) as f:
        t, visit, arg = f.args
        for offset in (TYPE, *held):
            child = field(f, t, offset)
            with f.if_(not_null(f, child)):
                stopped = f.call_at(visit, I32, [child, arg])
                with f.if_(f.compare("ne", stopped, 0)):
                    f.ret(stopped)
        f.ret(f.constant(0, I32))
    with m.function("tensor_clear", [("t", PTR)], I32) as f:
        (t,) = f.args
        for offset in (TensorLayout.AUTO, TensorLayout.VIEW, TensorLayout.ARRAY, TensorLayout.DICT):
            child = field(f, t, offset)
            with f.if_(not_null(f, child)):
                set_field(f, t, offset, f.zero(PTR))
                drop(f, child)
        set_field(f, t, TensorLayout.FLAGS, f.constant(0))
        f.ret(f.constant(0, I32))


SLOT_FREE = 74


def _free_object(f: LLVMFunction, object: LLVMValue) -> None:
    """The end of an object of any type, subclasses with a garbage-collector header included."""
    cls = type_of(f, object)
    free = f.call("PyType_GetSlot", PTR, [cls, f.constant(SLOT_FREE, I32)])
    f.call_at(free, VOID, [object])
    drop(f, cls)


# ---- storage ----------------------------------------------------------------------------------


def _write_storage(m: Module) -> None:
    with m.function("storage_dealloc", [("s", PTR)]) as f:
        (s,) = f.args
        with f.if_(not_null(f, field(f, s, StorageLayout.WEAK))):
            f.call("PyObject_ClearWeakRefs", VOID, [s])
        for offset in (
            StorageLayout.BUFFER, StorageLayout.DEVICE, StorageLayout.OWNER, StorageLayout.WRITER,
            StorageLayout.VIEWS,
        ):  # fmt: skip
            held = field(f, s, offset)
            with f.if_(not_null(f, held)):
                set_field(f, s, offset, f.zero(PTR))
                drop(f, held)
        _free_object(f, s)
    # own_storage(t): the storage of a tensor, made from its own block when it has none yet.
    # A new reference is not given; null with an error set when there is nothing.
    with m.function("own_storage", [("t", PTR)], PTR, internal=True) as f:
        (t,) = f.args
        found = field(f, t, TensorLayout.STORAGE)
        with f.if_(not_null(f, found)):
            f.ret(found)
        data = field(f, t, TensorLayout.DATA)
        with f.if_(is_null(f, data)):
            f.call("PyErr_SetString", VOID, [_exception(f), f.symbol("no_storage")])
            f.ret(f.zero(PTR))
        memory = f.call("PyType_GenericAlloc", PTR, [known(f, "memory_type"), 0])
        with f.if_(is_null(f, memory)):
            f.ret(f.zero(PTR))
        nbytes = field(f, t, TensorLayout.NBYTES, I64)
        f.call("begin_memory", VOID, [memory, data, nbytes])
        set_field(f, t, TensorLayout.DATA, f.zero(PTR))
        made = f.call("PyType_GenericAlloc", PTR, [known(f, "storage_type"), 0])
        with f.if_(is_null(f, made)):
            drop(f, memory)
            f.ret(f.zero(PTR))
        set_field(f, made, StorageLayout.ADDRESS, data)
        set_field(f, made, StorageLayout.NBYTES, nbytes)
        set_field(f, made, StorageLayout.BUFFER, memory)
        device = known(f, "host_device")
        take(f, device)
        set_field(f, made, StorageLayout.DEVICE, device)
        set_field(f, t, TensorLayout.STORAGE, made)
        f.ret(made)
    m.constant("no_storage", "[31 x i8]", 'c"this tensor has no storage yet\\00"')


def _exception(f: LLVMFunction) -> LLVMValue:
    f.module.external("PyExc_AttributeError")
    return f.load(PTR, f.symbol("PyExc_AttributeError"), align=8)


def _write_tensor_attributes(m: Module) -> None:
    # Tensors made by the fast path are unknown to the garbage collector until they hold something.
    with m.function("tensor_setattro", [("t", PTR), ("name", PTR), ("value", PTR)], I32) as f:
        t, name, value = f.args
        status = f.call("PyObject_GenericSetAttr", I32, [t, name, value])
        with f.if_(not_null(f, field(f, t, TensorLayout.DICT))):
            f.call("track", VOID, [t])
        f.ret(status)
    with m.function("get_storage", [("t", PTR), ("closure", PTR)], PTR) as f:
        t, _ = f.args
        found = f.call("own_storage", PTR, [t])
        with f.if_(not_null(f, found)):
            take(f, found)
        f.ret(found)
    with m.function("set_storage", [("t", PTR), ("value", PTR), ("closure", PTR)], I32) as f:
        t, value, _ = f.args
        _free_own_block(f, t)
        set_field(f, t, TensorLayout.SEEN_VERSION, f.constant(0))
        _replace(f, t, TensorLayout.STORAGE, value)
        f.ret(f.constant(0, I32))
    for attribute, offset, bit, expand in (
        ("auto", TensorLayout.AUTO, TensorLayout.PENDING_AUTO, "expand_auto"),
        ("view", TensorLayout.VIEW, TensorLayout.PENDING_VIEW, "expand_view"),
    ):
        _write_lazy(m, attribute, offset, bit, expand)


def _write_lazy(m: Module, name: str, offset: int, bit: int, expand: str) -> None:
    """An attribute that may be a record: a Python function replaces it when it is looked at."""
    with m.function(f"get_{name}", [("t", PTR), ("closure", PTR)], PTR) as f:
        t, _ = f.args
        if name == "auto":
            unknown = f.bits(
                "and",
                is_null(f, field(f, t, TensorLayout.AUTO)),
                not_null(f, field(f, t, TensorLayout.VIEW)),
            )
            with f.if_(unknown):
                f.call("look_at_base", VOID, [t])
        pending = field(f, t, TensorLayout.FLAGS, I64) & bit
        with f.if_(f.compare("ne", pending, 0)):
            done = call_python(f, known(f, expand), t, field(f, t, offset))
            with f.if_(is_null(f, done)):
                f.ret(f.zero(PTR))
            drop(f, done)
        found = field(f, t, offset)
        shown = f.select(is_null(f, found), known(f, "none"), found)
        take(f, shown)
        f.ret(shown)
    params = [("t", PTR), ("value", PTR), ("closure", PTR)]
    with m.function(f"set_{name}", params, I32) as f:
        t, value, _ = f.args
        flags = field(f, t, TensorLayout.FLAGS, I64)
        if name == "view":  # a view that Python makes: the word may still hold a size
            other = f.compare("eq", flags & bit, 0)
            with f.if_(f.bits("and", other, is_null(f, field(f, t, TensorLayout.DATA)))):
                set_field(f, t, TensorLayout.SEEN_VERSION, f.constant(0))
        set_field(f, t, TensorLayout.FLAGS, flags & ~bit)
        none = f.compare("eq", value, known(f, "none"))
        with f.if_(none) as b:
            _replace(f, t, offset, f.zero(PTR))
        with b.else_():
            _replace(f, t, offset, value)
            f.call("track", VOID, [t])
        f.ret(f.constant(0, I32))


def _replace(f: LLVMFunction, object: LLVMValue, offset: int, value: LLVMValue) -> None:
    old = field(f, object, offset)
    with f.if_(not_null(f, value)):
        take(f, value)
    set_field(f, object, offset, value)
    with f.if_(not_null(f, old)):
        drop(f, old)


# ---- memory -----------------------------------------------------------------------------------


def _write_memory(m: Module) -> None:
    # WRITES does not begin at 0 but at a number no other memory had: it alone tells whoever kept
    # it that this is the same memory, unchanged, even when another one has taken its address
    m.variable("memories", "i64", "0")
    params = [("s", PTR), ("data", PTR), ("nbytes", I64)]
    with m.function("begin_memory", params, VOID, internal=True) as f:
        s, data, nbytes = f.args
        number = f.load(I64, f.symbol("memories"), align=8) + (1 << 32)
        f.store(number, f.symbol("memories"), align=8)
        set_field(f, s, MemoryLayout.WRITES, number)
        set_field(f, s, MemoryLayout.ADDRESS, data)
        set_field(f, s, MemoryLayout.NBYTES, nbytes)
    with m.function("track", [("t", PTR)], internal=True) as f:
        (t,) = f.args
        tracked = f.call("PyObject_GC_IsTracked", I32, [t])
        with f.if_(f.compare("eq", tracked, 0)):
            f.call("PyObject_GC_Track", VOID, [t])
    with m.function("memory_dealloc", [("s", PTR)]) as f:
        (s,) = f.args
        with f.if_(not_null(f, field(f, s, MemoryLayout.WEAK))):
            f.call("PyObject_ClearWeakRefs", VOID, [s])
        data = field(f, s, MemoryLayout.ADDRESS)
        with f.if_(not_null(f, data)):
            f.call("lucerne_free", VOID, [data, field(f, s, MemoryLayout.NBYTES, I64)])
        _free_object(f, s)
    with m.function("memory_buffer", [("s", PTR), ("view", PTR), ("flags", I32)], I32) as f:
        s, view, flags = f.args
        set_field(f, s, MemoryLayout.EXPORTED, f.constant(1))
        args = [view, s, field(f, s, MemoryLayout.ADDRESS), field(f, s, MemoryLayout.NBYTES, I64)]
        f.ret(f.call("PyBuffer_FillInfo", I32, [*args, f.constant(0, I32), flags]))


# ---- what Python calls ------------------------------------------------------------------------


def _write_refusal(m: Module) -> None:
    # refuse_room(nbytes): raise that there is no memory; null
    with m.function("refuse_room", [("nbytes", I64)], PTR, internal=True) as f:
        f.call("PyErr_Clear", VOID, [])  # (of a number of bytes that is none of ours)
        wanted = f.call("PyLong_FromLongLong", PTR, [f.args[0]])
        with f.if_(not_null(f, wanted)):
            drop(f, call_python(f, known(f, "no_room"), wanted))
            drop(f, wanted)
        f.ret(f.zero(PTR))


def _write_makers(m: Module) -> None:
    fastcall = [("self", PTR), ("args", PTR), ("count", I64)]
    # allocate(nbytes) -> Memory
    with m.function("allocate", fastcall, PTR) as f:
        _, args, _ = f.args
        nbytes = f.call("PyLong_AsSsize_t", I64, [f.word(args, 0, PTR)])
        data = f.call("lucerne_alloc", PTR, [nbytes])
        with f.if_(is_null(f, data)):
            f.ret(f.call("refuse_room", PTR, [nbytes]))
        memory = f.call("PyType_GenericAlloc", PTR, [known(f, "memory_type"), 0])
        with f.if_(is_null(f, memory)):
            f.ret(f.zero(PTR))
        f.call("begin_memory", VOID, [memory, data, nbytes])
        f.ret(memory)
    # make_tensor(storage, offset, meta) -> Tensor
    with m.function("make_tensor", fastcall, PTR) as f:
        _, args, _ = f.args
        storage, offset, meta = (f.word(args, i, PTR) for i in range(3))
        t = f.call("new_tensor", PTR, [meta])
        with f.if_(is_null(f, t)):
            f.ret(f.zero(PTR))
        take(f, storage)
        set_field(f, t, TensorLayout.STORAGE, storage)
        set_field(f, t, TensorLayout.OFFSET, f.call("PyLong_AsSsize_t", I64, [offset]))
        f.ret(t)
    # fresh_tensor(meta, nbytes) -> Tensor on a block of its own
    with m.function("fresh_tensor", fastcall, PTR) as f:
        _, args, _ = f.args
        nbytes = f.call("PyLong_AsSsize_t", I64, [f.word(args, 1, PTR)])
        f.ret(f.call("block_tensor", PTR, [f.word(args, 0, PTR), nbytes]))
    with m.function("block_tensor", [("meta", PTR), ("nbytes", I64)], PTR, internal=True) as f:
        meta, nbytes = f.args
        data = f.call("lucerne_alloc", PTR, [nbytes])
        with f.if_(is_null(f, data)):
            f.ret(f.call("refuse_room", PTR, [nbytes]))
        t = f.call("new_tensor", PTR, [meta])
        with f.if_(is_null(f, t)):
            f.call("lucerne_free", VOID, [data, nbytes])
            f.ret(f.zero(PTR))
        set_field(f, t, TensorLayout.DATA, data)
        set_field(f, t, TensorLayout.NBYTES, nbytes)
        f.ret(t)
    # needs_grad(t) -> 0 or 1, without turning a record into a state
    with m.function("needs_grad", [("t", PTR)], I64, internal=True) as f:
        (t,) = f.args
        with f.if_(is_null(f, field(f, t, TensorLayout.AUTO))):
            with f.if_(is_null(f, field(f, t, TensorLayout.VIEW))):
                f.ret(f.constant(0))
            f.call("look_at_base", VOID, [t])
        auto = field(f, t, TensorLayout.AUTO)
        with f.if_(is_null(f, auto)):
            f.ret(f.constant(0))
        pending = field(f, t, TensorLayout.FLAGS, I64) & TensorLayout.PENDING_AUTO
        with f.if_(f.compare("ne", pending, 0)):
            f.ret(f.constant(1))
        at = f.load(I64, f.symbol("requires_grad_offset"), align=8)
        answer = f.load(PTR, f.at(auto, at), align=8)
        f.ret(f.convert("zext", f.compare("eq", answer, known(f, "true")), I64))
    m.variable("requires_grad_offset", "i64", "0", shown=True)
    # look_at_base(t): if the memory of a view was written to since, Python sees whether its base
    # needs gradients now, and then gives the view a state
    with m.function("look_at_base", [("t", PTR)], VOID, internal=True) as f:
        (t,) = f.args
        storage = field(f, t, TensorLayout.STORAGE)
        with f.if_(is_null(f, storage)):
            f.ret()
        now = field(f, storage, StorageLayout.VERSION, I64)
        before = field(f, t, TensorLayout.SEEN_VERSION, I64)
        with f.if_(f.compare("ne", now, before)):
            set_field(f, t, TensorLayout.SEEN_VERSION, now)
            done = call_python(f, known(f, "adopt"), t)
            with f.if_(not_null(f, field(f, t, TensorLayout.AUTO))):
                # part of a graph now, by a history that only Python can replay: it stays unseen
                set_field(f, t, TensorLayout.SEEN_VERSION, before)
            with f.if_(is_null(f, done)) as b:
                f.call("PyErr_Clear", VOID, [])
            with b.else_():
                drop(f, done)
    with m.function("get_needs_grad", [("t", PTR), ("closure", PTR)], PTR) as f:
        t, _ = f.args
        needs = f.compare("ne", f.call("needs_grad", I64, [t]), 0)
        shown = f.select(needs, known(f, "true"), known(f, "false"))
        take(f, shown)
        f.ret(shown)
    # the record of a tensor that nobody has looked at, else None; a view has one as long as
    # nobody wrote to its memory (its history is another one from then on)
    with m.function("get_record", [("t", PTR), ("closure", PTR)], PTR) as f:
        t, _ = f.args
        pending = f.compare(
            "ne", field(f, t, TensorLayout.FLAGS, I64) & TensorLayout.PENDING_AUTO, 0
        )
        view = f.bits("and", pending, not_null(f, field(f, t, TensorLayout.VIEW)))
        with f.if_(view), f.if_(f.compare("ne", f.call("is_odd", I64, [t]), 0)):
            take(f, known(f, "none"))
            f.ret(known(f, "none"))
        shown = f.select(pending, field(f, t, TensorLayout.AUTO), known(f, "none"))
        take(f, shown)
        f.ret(shown)


__all__ = ["I8", "KNOWN", "write_objects"]
