"""Functions lane by lane: calls of the C library, wrapped once per module.

A vector call becomes one internal function that loops over its lanes through the stack, so that a
kernel holds one call where it is used and not sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.builder import F64, LLVMFunction, LLVMValue, Type

Scalars = Callable[..., Sequence[LLVMValue]]


def per_lane(
    f: LLVMFunction, name: str, args: Sequence[LLVMValue], returns: Sequence[Type], one: Scalars
) -> list[LLVMValue]:
    """`one(function, *scalars)` for each lane of `args`: one result for each type in `returns`.

    `name` must say everything that `one` does: the helper is shared within the module.
    """
    lanes = args[0].type.lanes
    if not lanes:
        return list(one(f, *args))
    types = [t.vector(lanes) for t in returns]
    label = f"each_{name}_{'_'.join(a.type.suffix for a in args)}"
    if not f.module.has(label):
        _write(f, label, [a.type for a in args], types, one)
    if len(types) == 1:
        return [f.call(label, types[0], args)]
    struct = Type(f"{{ {', '.join(t.text for t in types)} }}", "nothing", 0)
    pair = f.call(label, struct, args)
    return [f.value(t, f"extractvalue {struct.text} {pair.text}, {k}") for k, t in enumerate(types)]


def _write(
    f: LLVMFunction, label: str, params: list[Type], returns: list[Type], one: Scalars
) -> None:
    struct = (
        returns[0]
        if len(returns) == 1
        else Type(f"{{ {', '.join(t.text for t in returns)} }}", "nothing", 0)
    )
    listed = [(f"x{k}", t) for k, t in enumerate(params)]
    with f.module.function(
        label, listed, struct, internal=True, attributes="nounwind noinline"
    ) as g:
        places = [g.stack(t.nbytes) for t in params]
        results = [g.stack(t.nbytes) for t in returns]
        for v, place in zip(g.args, places, strict=True):
            g.store(v, place)
        with g.loop(0, params[0].lanes, at_least_once=True) as loop:
            scalars = [
                g.load(t.element, g.at(p, loop.index, t))
                for t, p in zip(params, places, strict=True)
            ]
            for v, place in zip(one(g, *scalars), results, strict=True):
                g.store(v, g.at(place, loop.index, v.type))
        found = [g.load(t, p) for t, p in zip(returns, results, strict=True)]
        if len(found) == 1:
            g.ret(found[0])
            return
        whole: Any = g.undefined(struct)
        for k, v in enumerate(found):
            whole = g.value(
                struct, f"insertvalue {struct.text} {whole.text}, {v.type.text} {v.text}, {k}"
            )
        g.ret(whole)


def libm(f: LLVMFunction, name: str, *args: LLVMValue) -> LLVMValue:
    """A C function of doubles; floats are widened and the result rounded once."""
    type = args[0].type.element

    def one(g: LLVMFunction, *xs: LLVMValue) -> list[LLVMValue]:
        wide = [g.convert("fpext", x, F64) for x in xs]
        found = g.call(name, F64, wide)
        return [g.convert("fptrunc", found, type)]

    return per_lane(f, name, args, [type], one)[0]


def libm_complex(f: LLVMFunction, name: str, *parts: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """A C function of complex doubles (re, im, re, im, ...) to one complex number."""
    type = parts[0].type.element

    def one(g: LLVMFunction, *xs: LLVMValue) -> list[LLVMValue]:
        wide = [g.convert("fpext", x, F64) for x in xs]
        pair = Type("{ double, double }", "nothing", 0)
        found = g.call(name, pair, wide)
        both = [g.value(F64, f"extractvalue {pair.text} {found.text}, {k}") for k in (0, 1)]
        return [g.convert("fptrunc", v, type) for v in both]

    re, im = per_lane(f, name, parts, [type, type], one)
    return re, im
