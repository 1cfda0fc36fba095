"""DLPack's C functions over the native tensor: what other libraries' machine code asks it for.

`DLPackExchangeAPI` (DLPack 1.2) is a table of functions that a tensor type hands out, so that a
kernel library gets at address, shape and strides of an argument without a call of Python. A plain
tensor on the host takes that way; everything else (another type, a gradient that would be lost,
an interpreter that watches) is shown to the Python function `dlpack_lend` first, which answers with
the plain tensor to take in its place, or raises.

What a meta says is written once, as bytes that the meta keeps (`exchanged`): five words of a
DLTensor (device; dimensions and type; room for two pointers; the size of an element), then sizes
and strides.
"""

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
from lucerne._src.backends.cpu.native.dispatch import GRAD_ON
from lucerne._src.backends.cpu.native.layout import MemoryLayout, StorageLayout, TensorLayout
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


class Managed:
    """Offsets in a DLManagedTensorVersioned of ours; what it keeps alive comes after its end."""

    CONTEXT, DELETER, FLAGS = 8, 16, 24
    DATA, DEVICE, KIND, SHAPE, STRIDES, START = 32, 40, 48, 56, 64, 72
    BUFFER, GEOMETRY = 80, 88
    SIZE = 96


VERSION = 1 | 3 << 32
"""1.3, as two 32-bit numbers."""
GEOMETRY_HEAD = 24
"""Bytes of a meta's geometry before the sizes: device, dimensions and type, bytes of an element."""
BYTES_START = bytes.__basicsize__ - 1
"""Where a bytes object keeps its content."""


def write_exchange(m: Module) -> None:
    m.variable("exchanged_offset", "i64", "0", shown=True)
    _write_deleter(m)
    _write_export(m)
    _write_import(m)
    _write_ready(m)


def _write_deleter(m: Module) -> None:
    """`dlpack_delete(managed)`: may be called by any thread."""
    with m.function("dlpack_delete", [("managed", PTR)]) as f:
        (managed,) = f.args
        with f.if_(f.compare("eq", f.call("Py_IsInitialized", I32, []), 0)):
            f.ret()  # a static object of the library outlives Python: the memory goes with it
        state = f.call("PyGILState_Ensure", I32, [])
        drop(f, field(f, managed, Managed.BUFFER))
        drop(f, field(f, managed, Managed.GEOMETRY))
        f.call("PyMem_RawFree", VOID, [managed])
        f.call("PyGILState_Release", VOID, [state])


def geometry_of(f: LLVMFunction, t: LLVMValue) -> LLVMValue:
    """The bytes that the meta of a tensor keeps, or null."""
    at = f.load(I64, f.symbol("exchanged_offset"), align=8)
    return f.load(PTR, f.at(field(f, t, TensorLayout.META), at), align=8)


def _write_export(m: Module) -> None:
    # lossless(t) -> whether nobody records what becomes of a plain tensor
    with m.function("lossless", [("t", PTR)], I1, internal=True) as f:
        (t,) = f.args
        with f.if_(f.compare("eq", known(f, "mode", I64) & GRAD_ON, 0)):
            f.ret(f.constant(1, I1))
        f.ret(f.compare("eq", f.call("needs_grad", I64, [t]), 0))
    # quickly(t, out) -> 1: done; 0: not a tensor that can be taken as it is; -1: an error
    with m.function("quickly", [("t", PTR), ("out", PTR)], I32, internal=True) as f:
        t, out = f.args
        geometry = geometry_of(f, t)
        with f.if_(is_null(f, geometry)):
            f.ret(f.constant(0, I32))
        storage = f.call("own_storage", PTR, [t])
        with f.if_(is_null(f, storage)):
            f.ret(f.constant(-1, I32))
        address = field(f, storage, StorageLayout.ADDRESS, I64)
        buffer = field(f, storage, StorageLayout.BUFFER)
        with f.if_(f.bits("or", f.compare("eq", address, 0), is_null(f, buffer))):
            f.ret(f.constant(0, I32))
        managed = f.call("PyMem_RawMalloc", PTR, [f.constant(Managed.SIZE)])
        with f.if_(is_null(f, managed)):
            f.call("PyErr_NoMemory", PTR, [])
            f.ret(f.constant(-1, I32))
        with f.if_(f.compare("eq", type_of(f, buffer), known(f, "memory_type"))):
            set_field(f, buffer, MemoryLayout.EXPORTED, f.constant(1))
        content = f.at(geometry, BYTES_START)
        kind = f.word(content, 1)
        sizes = f.at(content, GEOMETRY_HEAD)
        offset = field(f, t, TensorLayout.OFFSET, I64) * f.word(content, 2)
        set_field(f, managed, 0, f.constant(VERSION))
        set_field(f, managed, Managed.CONTEXT, managed)
        set_field(f, managed, Managed.DELETER, f.symbol("dlpack_delete"))
        set_field(f, managed, Managed.FLAGS, f.constant(0))
        set_field(f, managed, Managed.DATA, address + offset)
        set_field(f, managed, Managed.DEVICE, f.word(content, 0))
        set_field(f, managed, Managed.KIND, kind)
        set_field(f, managed, Managed.SHAPE, sizes)
        dimensions = f.bits("and", kind, f.constant((1 << 32) - 1))
        set_field(f, managed, Managed.STRIDES, f.at(sizes, dimensions, I64))
        set_field(f, managed, Managed.START, f.constant(0))
        for place, held in ((Managed.BUFFER, buffer), (Managed.GEOMETRY, geometry)):
            take(f, held)
            set_field(f, managed, place, held)
        f.store(managed, out, align=8)
        f.ret(f.constant(1, I32))
    # dlpack_export(object, out) -> 0, or -1 with an error: managed_tensor_from_py_object_no_sync
    with m.function("dlpack_export", [("object", PTR), ("out", PTR)], I32) as f:
        thing, out = f.args
        plain = f.call("is_tensor", I1, [type_of(f, thing)])
        with f.if_(plain), f.if_(f.call("usual", I1, [])), f.if_(f.call("lossless", I1, [thing])):
            done = f.call("quickly", I32, [thing, out])
            with f.if_(f.compare("gt", done, 0)):
                f.ret(f.constant(0, I32))
            with f.if_(f.compare("lt", done, 0)):
                f.ret(f.constant(-1, I32))
        shown = call_python(f, known(f, "dlpack_lend"), thing)
        with f.if_(is_null(f, shown)):
            f.ret(f.constant(-1, I32))
        done = f.call("quickly", I32, [shown, out])
        drop(f, shown)
        with f.if_(f.compare("gt", done, 0)):
            f.ret(f.constant(0, I32))
        with f.if_(f.compare("eq", done, 0)):  # `dlpack_lend` gives none of these
            m.external("PyExc_BufferError")
            error = f.load(PTR, f.symbol("PyExc_BufferError"), align=8)
            f.call("PyErr_SetNone", VOID, [error])
        f.ret(f.constant(-1, I32))


def _write_import(m: Module) -> None:
    # dlpack_import(managed, out) -> 0, or -1 with an error: managed_tensor_to_py_object_no_sync
    with m.function("dlpack_import", [("managed", PTR), ("out", PTR)], I32) as f:
        managed, out = f.args
        number = f.call("PyLong_FromVoidPtr", PTR, [managed])
        with f.if_(is_null(f, number)):
            f.ret(f.constant(-1, I32))
        made = call_python(f, known(f, "dlpack_take"), number)
        drop(f, number)
        f.store(made, out, align=8)
        f.ret(f.select(is_null(f, made), f.constant(-1, I32), f.constant(0, I32)))
    # dlpack_allocate(prototype, out, context, refuse) -> 0, or -1: managed_tensor_allocator.
    # Called by code that need not hold Python's lock.
    params = [("prototype", PTR), ("out", PTR), ("context", PTR), ("refuse", PTR)]
    with m.function("dlpack_allocate", params, I32) as f:
        prototype, out, context, refuse = f.args
        state = f.call("PyGILState_Ensure", I32, [])
        number = f.call("PyLong_FromVoidPtr", PTR, [prototype])
        made = call_python(
            f, known(f, "dlpack_room"), number
        )  # a tensor, or what is wrong as bytes
        drop(f, number)
        with f.if_(not_null(f, made)), f.if_(f.call("is_tensor", I1, [type_of(f, made)])):
            done = f.call("quickly", I32, [made, out])
            drop(f, made)
            f.call("PyGILState_Release", VOID, [state])
            f.ret(f.select(f.compare("gt", done, 0), f.constant(0, I32), f.constant(-1, I32)))
        f.call("PyErr_Clear", VOID, [])
        m.constant("refusal_kind", "[13 x i8]", 'c"RuntimeError\\00"')
        m.constant("no_tensor", "[21 x i8]", 'c"no room for a tensor\\00"')
        with f.if_(is_null(f, made)) as b:
            b.give(f.symbol("no_tensor"))
        with b.else_():
            b.give(f.at(made, BYTES_START))
        f.call_at(refuse, VOID, [context, f.symbol("refusal_kind"), b.results[0]])
        drop(f, made)
        f.call("PyGILState_Release", VOID, [state])
        f.ret(f.constant(-1, I32))
    # dlpack_stream(kind, index, out) -> 0: current_work_stream; the host has none
    with m.function("dlpack_stream", [("kind", I32), ("index", I32), ("out", PTR)], I32) as f:
        f.store(f.zero(PTR), f.args[2], align=8)
        f.ret(f.constant(0, I32))


def _write_ready(m: Module) -> None:
    # ready(tensor, ...) -> whether all are plain tensors that nobody watches: a call on them needs
    # neither autograd nor autocast nor an interpreter
    with m.function("ready", [("self", PTR), ("args", PTR), ("count", I64)], PTR) as f:
        _, args, count = f.args
        no = known(f, "false")
        with f.if_(f.bits("xor", f.call("usual", I1, []), True)):
            take(f, no)
            f.ret(no)
        with f.if_(f.compare("ne", known(f, "cast", I64), 0)):
            take(f, no)
            f.ret(no)
        with f.loop(0, count) as loop:
            t = f.load(PTR, f.at(args, loop.index, I64), align=8)
            with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, t)]), True)):
                take(f, no)
                f.ret(no)
            with f.if_(f.bits("xor", f.call("lossless", I1, [t]), True)):
                take(f, no)
                f.ret(no)
        yes = known(f, "true")
        take(f, yes)
        f.ret(yes)
