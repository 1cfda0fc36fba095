"""Calls by TVM-FFI's C functions: arguments as tagged values, tensors as borrowed headers.

`call_values(function, ...)` gives plain tensors and numbers to a compiled function, without an
object for any of them. It says whether it did: what has to be looked at first, and a function that
fails, are left to the caller, who makes the call again in the long way and gets the error.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I1,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.native.exchange import BYTES_START, GEOMETRY_HEAD, geometry_of
from lucerne._src.backends.cpu.native.layout import StorageLayout, TensorLayout
from lucerne._src.backends.cpu.native.objects import (
    field,
    is_null,
    known,
    not_null,
    set_field,
    take,
    type_of,
)

MOST_ARGUMENTS = 16
VALUE, HEADER = 16, 48
"""Bytes of a tagged value (a number for its kind, the value) and of a DLTensor."""
INT, BOOL, FLOAT, TENSOR = 1, 2, 3, 7
FIRST_OBJECT = 64
"""Kinds from here on are objects with a count of references."""


def write_calls(m: Module) -> None:
    for name in ("tvm_call", "tvm_drop"):
        m.variable(name, "ptr", "null", shown=True)
    _write_header(m)
    _write_value(m)
    _write_call_values(m)


def _write_header(m: Module) -> None:
    """`header_of(t, header)`: a plain tensor as a DLTensor; 0 if its meta or memory has to be
    looked at first."""
    with m.function("header_of", [("t", PTR), ("header", PTR)], I64, internal=True) as f:
        t, header = f.args
        geometry = geometry_of(f, t)
        with f.if_(is_null(f, geometry)):
            f.ret(f.constant(0))
        own = field(f, t, TensorLayout.DATA, I64)
        with f.if_(f.compare("ne", own, 0)) as b:
            b.give(own)
        with b.else_():
            storage = field(f, t, TensorLayout.STORAGE)
            with f.if_(is_null(f, storage)):
                f.ret(f.constant(0))
            b.give(field(f, storage, StorageLayout.ADDRESS, I64))
        (address,) = b.results
        with f.if_(f.compare("eq", address, 0)):
            f.ret(f.constant(0))
        content = f.at(geometry, BYTES_START)
        kind, sizes = f.word(content, 1), f.at(content, GEOMETRY_HEAD)
        dimensions = f.bits("and", kind, f.constant((1 << 32) - 1))
        offset = field(f, t, TensorLayout.OFFSET, I64) * f.word(content, 2)
        words = (address + offset, f.word(content, 0), kind, sizes,
                 f.at(sizes, dimensions, I64), f.constant(0))  # fmt: skip
        for i, word in enumerate(words):
            set_field(f, header, 8 * i, word)
        f.ret(f.constant(1))


def _write_value(m: Module) -> None:
    """`value_of(x, value, header)`: an argument as a tagged value; 0 if it is of no such kind."""
    params = [("x", PTR), ("value", PTR), ("header", PTR)]
    with m.function("value_of", params, I64, internal=True) as f:
        x, value, header = f.args
        cls = type_of(f, x)
        with f.if_(f.call("is_tensor", I1, [cls])):
            set_field(f, value, 0, f.constant(TENSOR))
            set_field(f, value, 8, header)
            f.ret(f.call("header_of", I64, [x, header]))
        with f.if_(f.compare("eq", cls, known(f, "float"))):
            set_field(f, value, 0, f.constant(FLOAT))
            f.store(f.call("PyFloat_AsDouble", F64, [x]), f.at(value, 8), align=8)
            f.ret(f.constant(1))
        with f.if_(f.compare("eq", cls, known(f, "bool"))):
            set_field(f, value, 0, f.constant(BOOL))
            yes = f.convert("zext", f.compare("eq", x, known(f, "true")), I64)
            set_field(f, value, 8, yes)
            f.ret(f.constant(1))
        with f.if_(f.compare("eq", cls, known(f, "int"))):
            set_field(f, value, 0, f.constant(INT))
            set_field(f, value, 8, f.call("PyLong_AsLongLong", I64, [x]))
            with f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))):  # more than 64 bits
                f.call("PyErr_Clear", VOID, [])
                f.ret(f.constant(0))
            f.ret(f.constant(1))
        f.ret(f.constant(0))


def _write_call_values(m: Module) -> None:
    """`call_values(function, argument, ...)` -> whether it was called and did not fail."""
    with m.function("call_values", [("self", PTR), ("args", PTR), ("count", I64)], PTR) as f:
        _, args, count = f.args
        values = f.stack(MOST_ARGUMENTS * VALUE, 16)
        headers = f.stack(MOST_ARGUMENTS * HEADER, 16)
        result = f.stack(VALUE, 16)
        given = count - 1
        with f.if_(f.compare("gt", given, MOST_ARGUMENTS)):
            _answer(f, "false")
        function = f.call("PyLong_AsVoidPtr", PTR, [f.word(args, 0, PTR)])
        with f.loop(0, given) as loop:
            x = f.load(PTR, f.at(args, loop.index + 1, I64), align=8)
            value, header = f.at(values, loop.index * VALUE), f.at(headers, loop.index * HEADER)
            with f.if_(f.compare("eq", f.call("value_of", I64, [x, value, header]), 0)):
                _answer(f, "false")
        set_field(f, result, 0, f.constant(0))
        set_field(f, result, 8, f.constant(0))
        call = f.load(PTR, f.symbol("tvm_call"), align=8)
        state = f.call("PyEval_SaveThread", PTR, [])  # others may run meanwhile
        number = f.convert("trunc", given, I32)
        failed = f.call_at(call, I32, [function, values, number, result])
        f.call("PyEval_RestoreThread", VOID, [state])
        with f.if_(f.compare("ne", failed, 0)):
            f.call("PyErr_Clear", VOID, [])
            _answer(f, "false")
        kind = f.bits("and", f.word(result, 0), f.constant((1 << 32) - 1))
        with f.if_(f.compare("ge", kind, FIRST_OBJECT)):
            unwanted = f.load(PTR, f.at(result, 8), align=8)
            f.call_at(f.load(PTR, f.symbol("tvm_drop"), align=8), I32, [unwanted])
        _answer(f, "true")


def _answer(f: LLVMFunction, name: str) -> None:
    shown: LLVMValue = known(f, name)
    take(f, shown)
    f.ret(shown)
