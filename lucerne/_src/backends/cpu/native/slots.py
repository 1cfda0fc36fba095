"""Operators and subscripts in machine code: the core first, then whatever Python had put there."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I1, I32, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.native.dispatch import NOT_MINE
from lucerne._src.backends.cpu.native.objects import call_python, type_of
from lucerne._src.ir.scalar.protocol import COMPARISONS

BINARY = ("add", "sub", "mul", "truediv", "matmul")
UNARY = ("neg", "abs")


def write_slots(m: Module) -> None:
    for name in (*BINARY, *UNARY):
        m.variable(f"info_{name}", "ptr", "null", shown=True)
        m.variable(f"old_{name}", "ptr", "null", shown=True)
    m.variable("public_getitem", "ptr", "null", shown=True)
    m.variable("old_compare", "ptr", "null", shown=True)
    for name in BINARY:
        with m.function(f"slot_{name}", [("a", PTR), ("b", PTR)], PTR) as f:
            a, b = f.args
            if name == "truediv":  # torch rounds `1 / x` twice: the reflected form is Python's
                with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, a)]), True)):
                    f.ret(call_python(f, _variable(f, f"old_{name}"), a, b))
            if name == "mul":  # torch reads `2.3 * x` as `x * 2.3`, whose second factor is whole
                with f.if_(f.bits("xor", f.call("is_tensor", I1, [type_of(f, a)]), True)):
                    _answer(f, name, [b, a])
                    f.ret(call_python(f, _variable(f, f"old_{name}"), a, b))
            _answer(f, name, [a, b])
            # Python's own slot would refuse now that it has been replaced: a function stands in
            f.ret(call_python(f, _variable(f, f"old_{name}"), a, b))
    for name in UNARY:
        with m.function(f"slot_{name}", [("a", PTR)], PTR) as f:
            (a,) = f.args
            _answer(f, name, [a])
            f.ret(f.call_at(_variable(f, f"old_{name}"), PTR, [a]))
    with m.function("slot_getitem", [("a", PTR), ("index", PTR)], PTR) as f:
        a, index = f.args
        block = f.stack(16, 8)
        f.store(a, block, align=8)
        f.store(index, f.at(block, 8), align=8)
        f.ret(f.call("public_call", PTR, [_variable(f, "public_getitem"), block, 2, f.zero(PTR)]))
    m.variable("compare_infos", f"[{len(COMPARISONS)} x ptr]", shown=True)
    with m.function("slot_compare", [("a", PTR), ("b", PTR), ("how", I32)], PTR) as f:
        a, b, how = f.args
        at = f.convert("sext", how, f.constant(0).type)
        info = f.load(PTR, f.at(f.symbol("compare_infos"), at * 8), align=8)
        _answer_with(f, info, [a, b])
        f.ret(f.call_at(_variable(f, "old_compare"), PTR, [a, b, how]))


def _variable(f: LLVMFunction, name: str) -> LLVMValue:
    return f.load(PTR, f.symbol(name), align=8)


def _answer(f: LLVMFunction, name: str, args: list[LLVMValue]) -> None:
    _answer_with(f, _variable(f, f"info_{name}"), args)


def _answer_with(f: LLVMFunction, info: LLVMValue, args: list[LLVMValue]) -> None:
    """Return the core's result unless it says that the call is not for it."""
    block = f.stack(8 * len(args), 8)
    for i, a in enumerate(args):
        f.store(a, f.at(block, i * 8), align=8)
    with f.if_(f.compare("ne", info, f.zero(PTR))):
        result = f.call("core", PTR, [info, block, len(args)])
        with f.if_(f.compare("ne", result, f.convert("inttoptr", f.constant(NOT_MINE), PTR))):
            f.ret(result)
