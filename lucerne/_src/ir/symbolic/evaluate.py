"""Formulas as code: what follows from sizes is computed by a function that is written for it.

    evaluate = evaluator([n // 2 + 1, 3 * n], ["n"])
    evaluate(20)                        # [11, 60]

Whatever several formulas share is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.meta import TensorMeta, is_sized, make_meta
from lucerne._src.ir.symbolic.expressions import (
    CHOICE,
    CHOICES,
    FLOATS,
    FORMULAS,
    INTEGERS,
    RELATIONS,
    SMALLEST,
    TOTAL,
    Atom,
    Expr,
    FloatExpr,
    Guard,
    choice_of,
    defined,
    same,
)
from lucerne._src.ir.symbolic.numbers import formula

_ERRORS = (ArithmeticError, ValueError, TypeError, MemoryError)
"""What Python raises where a formula has no value."""
_SIGNS = {"floordiv": "//", "modulo": "%"}
_EXTREMES = {"minimum": "min", "maximum": "max"}
_ARITHMETIC = {"add": " + ", "sub": " - ", "mul": " * ", "truediv": " / "}
"""Of floats, and of integers for `/`: nothing but a float comes out."""


def _checked(op: str) -> Callable[..., float]:
    compute = FLOATS[op]

    def run(*args: Any) -> float:
        found = compute(*args)
        if type(found) is not float:
            raise ArithmeticError(f"{op}{args} is {found!r}")
        return found

    return run


_NAMES: dict[str, Any] = {
    "min": min, "max": max, "same": same, "errors": _ERRORS, "choices": CHOICES,
    **{f"i_{op}": run for op, run in INTEGERS.items()},
    **{f"f_{op}": FLOATS[op] if op in TOTAL else _checked(op) for op in FLOATS},
}  # fmt: skip


class _Writer:
    """Writes formulas as lines of Python; equal parts have one name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}
        self._known: dict[int, tuple[Any, str]] = {}
        """By id: formulas that were written (and stay alive), and what stands for them."""

    def text(self, x: Any) -> str:
        """What stands for a formula or a number in the lines that follow."""
        if isinstance(x, FORMULAS):
            known = self._known.get(id(x))
            if known is None:
                made = self._sum(x) if isinstance(x, Expr) else self._call(x)
                known = self._known[id(x)] = x, made
            return known[1]
        if type(x) is float:
            return f"({x!r})" if math.isfinite(x) else f"float({str(x)!r})"
        return repr(x)

    def _call(self, x: FloatExpr) -> str:
        args, sign = [self.text(a) for a in x.args], _ARITHMETIC.get(x.op)
        called = f"f_{x.op}({', '.join(args)})" if sign is None else sign.join(args)
        return self._named(repr(x), called)

    def _sum(self, x: Expr) -> str:
        parts = []
        for monomial, count in x.terms.items():
            factors = [self._atom(a) for a in monomial]
            if count != 1 or not factors:
                factors.append(f"({count})")
            parts.append("*".join(factors))
        if len(parts) < 2 and "*" not in (parts or ["0"])[0]:
            return (parts or ["0"])[0]
        return self._named(repr(x), " + ".join(parts))

    def _atom(self, a: Atom) -> str:
        if a.op == "symbol":
            return a.name
        if a.op.startswith(CHOICE):
            return self._choice(a)
        args = [self.text(x) for x in a.args]
        if a.op in _SIGNS:
            return self._named(a.name, _SIGNS[a.op].join(args))
        if a.op == "if_at_least":
            x, y, found, other = args
            return self._named(a.name, f"{found} if {x} >= {y} else {other}")
        called = _EXTREMES.get(a.op) or f"i_{a.op}"
        return self._named(a.name, f"{called}({', '.join(args)})")

    def _choice(self, a: Atom) -> str:
        number, index = choice_of(a.op)
        known = self._known.get(id(a.args))  # (of the same call, one atom for each result)
        if known is None:
            call = f"choices[{number}]({', '.join(self.text(x) for x in a.args)})"
            known = self._known[id(a.args)] = a.args, self._named(call, call)
        return f"{known[1]}[{index}]"

    def _named(self, key: str, text: str) -> str:
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = f"_{len(self._names)}"
            self.lines.append(f"{found} = {text}")
        return found


class ThingWriter(_Writer):
    """Writes things with numbers and metas in them. What has none is one of the `constants`."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[str, Any] = {"make_meta": make_meta}

    def thing(self, x: Any) -> str:
        if isinstance(x, Symbolic):
            return self.text(formula(x))
        if is_sized(x):
            return self._meta(x)
        if type(x) in (tuple, list):
            inside = ", ".join(map(self.thing, x))
            return f"[{inside}]" if type(x) is list else f"({inside}{',' if x else ''})"
        return self.constant(x)

    def _meta(self, meta: TensorMeta) -> str:
        shape, strides = self.thing(tuple(meta.shape)), self.thing(meta.strides)
        rest = self.constant(meta.device), str(meta.flipped)
        made = f"make_meta({self.constant(meta.dtype)}, {shape}, {strides}, {', '.join(rest)})"
        return self._named(f"meta {id(meta)}", made)

    def numbers(self, found: Iterable[Any]) -> str:
        """A tuple of formulas and plain numbers."""
        return f"({''.join(f'{self.text(n)}, ' for n in found)})"

    def constant(self, x: Any) -> str:
        if type(x) in (int, bool, type(None)):
            return repr(x)
        name = f"c{len(self.constants)}"
        self.constants[name] = x
        return name


def _function(
    lines: Iterable[str], names: Sequence[str], constants: Mapping[str, Any] | None = None
) -> Any:
    body = "\n    ".join(lines)
    space = {**_NAMES, "float": float, **(constants or {})}
    exec(f"def run({', '.join(names)}):\n    {body}", space)
    return space["run"]


def evaluator(formulas: Sequence[Any], names: Sequence[str]) -> Callable[..., list[Any]]:
    """A function of the symbols with these names: the values of all formulas, in their order.

    >>> from lucerne._src.ir.symbolic.evaluate import evaluator
    >>> from lucerne._src.ir.symbolic.expressions import symbol
    >>> n = symbol("n")
    >>> evaluator([n // 2 + 1, 3 * n], ["n"])(20)
    [11, 60]
    """
    writer = _Writer()
    found = [writer.text(x) for x in formulas]
    run: Callable[..., list[Any]] = _function(
        [*writer.lines, f"return [{', '.join(found)}]"], names
    )
    return run


def things_at(things: Sequence[Any], names: Sequence[str]) -> Callable[..., list[Any]]:
    """A function of the symbols: the things, with numbers and metas as they are at these sizes."""
    writer = ThingWriter()
    found = [writer.thing(x) for x in things]
    lines = [*writer.lines, f"return [{', '.join(found)}]"]
    run: Callable[..., list[Any]] = _function(lines, names, writer.constants)
    return run


def predicate(guards: Iterable[Guard], names: Sequence[str]) -> Callable[..., bool]:
    """A function of the symbols: whether all decisions come out as they did.

    >>> import operator
    >>> from lucerne._src.ir.symbolic.evaluate import predicate
    >>> from lucerne._src.ir.symbolic.expressions import Guard, expr, symbol
    >>> holds = predicate([Guard(symbol("n"), operator.lt, expr(32), True)], ["n"])
    >>> holds(20), holds(40)
    (True, False)
    """
    lines = [line for g in guards for line in _asking(g, _Writer(), "False")]
    run: Callable[..., bool] = _function(_trying([*lines, "return True"], "False"), names)
    return run


def _asking(guard: Guard, writer: _Writer, otherwise: str) -> list[str]:
    """Lines that return if a decision comes out in another way; `writer` has no others."""
    left, right = writer.text(guard.left), writer.text(guard.right)
    lines, writer.lines = writer.lines, []
    if guard.relation is defined:
        return [*lines, f"{left}, {right}"]
    sign = RELATIONS[guard.relation]
    asked = f"same({left}, {right})" if guard.relation is same else f"{left} {sign} {right}"
    return [*lines, f"if {'not ' if guard.result else ''}({asked}): return {otherwise}"]


def _trying(lines: Iterable[str], otherwise: str) -> list[str]:
    """Lines that return something else where a formula has no value."""
    return ["try:", *(f"    {line}" for line in lines), "except errors:", f"    return {otherwise}"]


class SizedMeta(NamedTuple):
    """What a meta must be like, but for the numbers in it, which are formulas."""

    like: TensorMeta
    shape: Sequence[Any]
    strides: Sequence[Any]


def binder(
    metas: Sequence[SizedMeta], symbols: Mapping[str, tuple[int, int]], guards: Iterable[Guard]
) -> Callable[..., dict[str, int] | None]:
    """A function of metas: the sizes that they have, by the names of the symbols; None: some meta
    is another one at these sizes, or a decision comes out in another way.

    `symbols`: the number of the meta and the dimension at which each size is read.
    """
    writer, given = ThingWriter(), [f"m{k}" for k in range(len(metas))]
    lines = [
        f"if {m}.ndim != {x.like.ndim} or {m}.flipped != {x.like.flipped}: return None"
        for m, x in zip(given, metas, strict=True)
    ]
    for name, (k, d) in symbols.items():
        lines.append(f"{name} = {given[k]}.shape[{d}]")
        lines.append(f"if {name} < {SMALLEST}: return None")
    for m, x in zip(given, metas, strict=True):
        shape, strides = (writer.numbers(n) for n in (x.shape, x.strides))
        dtype, device = (writer.constant(c) for c in (x.like.dtype, x.like.device))
        lines += writer.lines
        writer.lines = []
        lines.append(f"if {m}.dtype is not {dtype} or {m}.device != {device}: return None")
        lines.append(f"if {m}.shape != {shape} or {m}.strides != {strides}: return None")
    for guard in guards:
        lines += _asking(guard, writer, "None")
    lines.append(f"return {{{', '.join(f'{name!r}: {name}' for name in symbols)}}}")
    run: Callable[..., dict[str, int] | None] = _function(
        _trying(lines, "None"), given, writer.constants
    )
    return run
