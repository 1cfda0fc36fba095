"""Attributes and calls of `nn.Module` in machine code.

A module keeps parameters, buffers and children in three dictionaries. Python finds them in
`__getattr__`, after a failed lookup that builds an error only to drop it; and a call goes through
a Python function that looks for hooks. Both are what every layer does on every forward, so they
are slots here. What is unusual (hooks, dictionaries of other types, a missing name) goes to the
Python functions they stand for, as does every class that overrides one of these; an error that a
call raises is shown to a Python function before it goes on.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.native.keys import any_of
from lucerne._src.backends.cpu.native.layout import (
    TUPLE_ITEMS,
    TYPE_BASICSIZE,
    TYPE_CALL,
    TYPE_GETATTRO,
    VAR_SIZE,
    make_immortal,
)
from lucerne._src.backends.cpu.native.objects import (
    call_python,
    drop,
    field,
    is_null,
    not_null,
    take,
    type_of,
)
from lucerne._src.backends.cpu.runtime.code import Code, compiled

ABI = 2
LOOKUP = "_PyObject_GenericGetAttrWithDict"
"""The lookup of plain objects, which can be told not to build an error."""
STORES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBALS = tuple(f"global{i}" for i in range(len(HOOKS)))
TABLES = ("dict", "ordered_dict", "members", "hook_table")
"""Types of dictionaries whose items are theirs: `members` and `hook_table` are the base class's own
(what they add is done when they change)."""
WORDS = (*STORES, *HOOKS, *GLOBALS, *TABLES, "forward", "none", "slow_get", "slow_call", "failed")
"""Names of the words of the table `words`, filled in after loading."""
MAX_ARGUMENTS = 8
METHOD = 1 << 63
"""Says of a vectorcall that the word before its first argument may be overwritten."""


def _word(f: LLVMFunction, name: str) -> LLVMValue:
    return f.load(PTR, f.at(f.symbol("words"), WORDS.index(name) * 8), align=8)


def _is_plain_dict(f: LLVMFunction, object: LLVMValue) -> LLVMValue:
    """One of `TABLES`, but no class of a library's own: those may compute their items."""
    cls = type_of(f, object)
    return any_of(f, *(f.compare("eq", cls, _word(f, name)) for name in TABLES))


def write(m: Module) -> None:
    """`module_getattro(self, name)` and `module_call(self, args, kwargs)`."""
    m.optimize = True
    m.variable("words", f"[{len(WORDS)} x i64]", shown=True)
    _write_getattro(m)
    _write_is_quiet(m)
    _write_failed(m)
    _write_call(m)


def _write_getattro(m: Module) -> None:
    with m.function("module_getattro", [("self", PTR), ("name", PTR)], PTR) as f:
        self, name = f.args
        found = f.call(LOOKUP, PTR, [self, name, f.zero(PTR), f.constant(1, I32)])
        with f.if_(not_null(f, found)):
            f.ret(found)
        with f.if_(not_null(f, f.call("PyErr_Occurred", PTR, []))):
            f.ret(f.zero(PTR))
        own = f.call("PyObject_GenericGetDict", PTR, [self, f.zero(PTR)])
        with f.if_(is_null(f, own)):
            f.ret(f.zero(PTR))
        drop(f, own)  # the object holds it
        for store in STORES:
            held = f.call("PyDict_GetItemWithError", PTR, [own, _word(f, store)])
            with f.if_(is_null(f, held)):
                f.ret(call_python(f, _word(f, "slow_get"), self, name))
            with f.if_(f.bits("xor", _is_plain_dict(f, held), True)):
                f.ret(call_python(f, _word(f, "slow_get"), self, name))
            value = f.call("PyDict_GetItemWithError", PTR, [held, name])
            with f.if_(not_null(f, value)):
                take(f, value)
                f.ret(value)
        f.ret(call_python(f, _word(f, "slow_get"), self, name))


def _write_is_quiet(m: Module) -> None:
    """`is_quiet(hooks)`: whether this dictionary (null: none) is a plain one without entries."""
    with m.function("is_quiet", [("hooks", PTR)], I64, internal=True) as f:
        (hooks,) = f.args
        with f.if_(is_null(f, hooks)):
            f.ret(f.constant(0))
        with f.if_(f.bits("xor", _is_plain_dict(f, hooks), True)):
            f.ret(f.constant(0))
        size = f.call("PyDict_Size", I64, [hooks])
        f.ret(f.select(f.compare("eq", size, 0), f.constant(1), f.constant(0)))


def _write_failed(m: Module) -> None:
    """`module_failed(self, args, kwargs)`: what an `except` clause around the call does."""
    params = [("self", PTR), ("args", PTR), ("kwargs", PTR)]
    with m.function("module_failed", params, PTR, internal=True) as f:
        self, args, kwargs = f.args
        parts = f.stack(24, 8)  # class, error, traceback
        places = [f.at(parts, 8 * i) for i in range(3)]
        f.call("PyErr_Fetch", VOID, places)
        f.call("PyErr_NormalizeException", VOID, places)
        kind, error, trace = (f.load(PTR, p, align=8) for p in places)
        with f.if_(not_null(f, trace)):
            f.call("PyException_SetTraceback", I32, [error, trace])
            drop(f, trace)
        before = f.call("PyErr_GetHandledException", PTR, [])
        f.call("PyErr_SetHandledException", VOID, [error])
        given = f.select(is_null(f, kwargs), _word(f, "none"), kwargs)
        told = call_python(f, _word(f, "failed"), error, self, args, given)
        f.call("PyErr_SetHandledException", VOID, [before])
        drop(f, before)
        with f.if_(is_null(f, told)):  # it has raised itself
            drop(f, kind)
            drop(f, error)
            f.ret(f.zero(PTR))
        drop(f, told)
        trace = f.call("PyException_GetTraceback", PTR, [error])
        f.call("PyErr_Restore", VOID, [kind, error, trace])
        f.ret(f.zero(PTR))


def _write_call(m: Module) -> None:
    params = [("self", PTR), ("args", PTR), ("kwargs", PTR)]
    with m.function("module_slow_call", params, PTR, internal=True) as f:
        self, args, kwargs = f.args
        bound = f.call("PyMethod_New", PTR, [_word(f, "slow_call"), self])
        with f.if_(is_null(f, bound)):
            f.ret(bound)
        result = f.call("PyObject_Call", PTR, [bound, args, kwargs])
        drop(f, bound)
        f.ret(result)
    with m.function("module_call", params, PTR) as f:
        self, args, kwargs = f.args
        own = f.call("PyObject_GenericGetDict", PTR, [self, f.zero(PTR)])
        with f.if_(is_null(f, own)):
            f.ret(f.zero(PTR))
        drop(f, own)
        hooks = [f.call("PyDict_GetItemWithError", PTR, [own, _word(f, h)]) for h in HOOKS]
        for one in (*hooks, *(_word(f, g) for g in GLOBALS)):
            with f.if_(f.compare("eq", f.call("is_quiet", I64, [one]), 0)):
                f.ret(f.call("module_slow_call", PTR, [self, args, kwargs]))
        count = field(f, args, VAR_SIZE, I64)
        simple = f.bits("and", is_null(f, kwargs), f.compare("le", count, MAX_ARGUMENTS))
        with f.if_(simple):
            block = f.stack(8 * (MAX_ARGUMENTS + 2), 8)
            start = f.at(block, 8)
            f.store(self, start, align=8)
            f.copy_bytes(f.at(start, 8), f.at(args, TUPLE_ITEMS), count * 8)
            flags = f.bits("or", count + 1, f.constant(METHOD - (1 << 64)))
            given = [_word(f, "forward"), start, flags, f.zero(PTR)]
            result = f.call("PyObject_VectorcallMethod", PTR, given)
            with f.if_(is_null(f, result)):
                f.ret(f.call("module_failed", PTR, [self, args, kwargs]))
            f.ret(result)
        forward = f.call("PyObject_GetAttr", PTR, [self, _word(f, "forward")])
        with f.if_(is_null(f, forward)):
            f.ret(f.call("module_failed", PTR, [self, args, kwargs]))
        result = f.call("PyObject_Call", PTR, [forward, args, kwargs])
        drop(f, forward)
        with f.if_(is_null(f, result)):
            f.ret(f.call("module_failed", PTR, [self, args, kwargs]))
        f.ret(result)


Failed = Callable[[BaseException, Any, tuple[Any, ...], dict[str, Any] | None], None]
"""What is shown the error of a call: the error, the module, and what the call was given."""


class ModuleSlots:
    """The slots, for a base class and its subclasses."""

    def __init__(
        self, code: Code, base: type, hooks: list[Any], tables: list[type], failed: Failed
    ) -> None:
        self.code = code
        self.base = base
        self.slow_get = base.__dict__["__getattr__"]
        self.slow_call = base.__dict__["__call__"]
        things = dict(zip(GLOBALS, hooks, strict=True))
        things |= {name: sys.intern(name) for name in (*STORES, *HOOKS, "forward")}
        things |= dict(zip(TABLES, (dict, OrderedDict, *tables), strict=True))
        things |= {"slow_get": self.slow_get, "slow_call": self.slow_call}
        things |= {"failed": failed, "none": None}
        self.things = things
        for i, name in enumerate(WORDS):
            ctypes.c_int64.from_address(code["words"] + i * 8).value = id(things[name])

    def patch(self, cls: Any) -> None:
        """Give a finished class the slots whose Python functions it does not override."""
        if ctypes.c_ssize_t.from_address(id(cls) + TYPE_BASICSIZE).value != cls.__basicsize__:
            return
        plain = cls.__getattribute__ is object.__getattribute__
        if plain and cls.__getattr__ is self.slow_get:
            _set(id(cls) + TYPE_GETATTRO, self.code["module_getattro"])
        if cls.__call__ is self.slow_call:
            _set(id(cls) + TYPE_CALL, self.code["module_call"])


def _set(place: int, address: int) -> None:
    ctypes.c_void_p.from_address(place).value = address


def load(base: type, hooks: list[Any], tables: list[type], failed: Failed) -> ModuleSlots | None:
    """The slots for `base`, whose tables are of the classes `tables` (that of its members, that of
    its hooks); None where this Python has no quiet lookup."""
    if not hasattr(ctypes.pythonapi, LOOKUP):
        return None
    made = ModuleSlots(compiled(("module slots", ABI), write), base, hooks, tables, failed)
    make_immortal(made)
    return made
