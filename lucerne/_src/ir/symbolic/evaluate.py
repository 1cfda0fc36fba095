"""Formulas as code: what follows from sizes is computed by a function that is written for it.

    evaluate = evaluator([n // 2 + 1, 3 * n], ["n"])
    evaluate(20)                        # [11, 60]

Whatever several formulas share is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.meta import TensorMeta, is_sized, make_meta
from lucerne._src.ir.symbolic.expressions import (
    CHOICE,
    CHOICES,
    FLOATS,
    FORMULAS,
    INTEGERS,
    RELATIONS,
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
        return f"float({str(x)!r})" if type(x) is float else repr(x)

    def _call(self, x: FloatExpr) -> str:
        args = ", ".join(self.text(a) for a in x.args)
        return self._named(repr(x), f"f_{x.op}({args})")

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
        return self._constant(x)

    def _meta(self, meta: TensorMeta) -> str:
        shape, strides = self.thing(tuple(meta.shape)), self.thing(meta.strides)
        rest = self._constant(meta.device), str(meta.flipped)
        made = f"make_meta({self._constant(meta.dtype)}, {shape}, {strides}, {', '.join(rest)})"
        return self._named(f"meta {id(meta)}", made)

    def _constant(self, x: Any) -> str:
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
    lines = ["try:"]
    for guard in guards:
        writer = _Writer()
        left, right = writer.text(guard.left), writer.text(guard.right)
        lines += [f"    {line}" for line in writer.lines]
        if guard.relation is defined:
            lines.append(f"    {left}, {right}")
            continue
        sign = RELATIONS[guard.relation]
        asked = f"same({left}, {right})" if guard.relation is same else f"{left} {sign} {right}"
        lines.append(f"    if {'not ' if guard.result else ''}({asked}): return False")
    run: Callable[..., bool] = _function(
        [*lines, "    return True", "except errors:", "    return False"], names
    )
    return run
