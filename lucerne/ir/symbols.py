"""Sizes that are not known yet: integers with symbols, in one normal form.

    s0, s1 = symbol("s0"), symbol("s1")
    (s0 + 1) * s1 - s1        is s0*s1
    (4 * s0 + 2) // 4         is s0
    (s0 * s1) // s1           is s0

An expression is a polynomial with integer coefficients. Its variables are symbols and whatever has
no polynomial form (`a // b`, `a % b`, `min`, `max` of expressions). Equal expressions print alike,
and what is printed can be parsed. Symbols stand for sizes of at least 2: sizes 0 and 1 change what
a program does (nothing at all, broadcasting), so they are never symbolic.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from lucerne.base.where import is_users

SMALLEST = 2
"""What a symbol is at least."""

Monomial = tuple["Atom", ...]
"""A product of atoms in order; an atom stands in it as often as its power says."""
Number = Any
"""An int or an expression."""


class Atom:
    """A variable of the polynomial: a symbol, or an opaque `op` of two or more expressions."""

    __slots__ = ("args", "name", "op")

    def __init__(self, op: str, args: tuple[Expr, ...], name: str) -> None:
        self.op, self.args, self.name = op, args, name

    def __repr__(self) -> str:
        return self.name

    def at(self, sizes: Mapping[str, int]) -> int:
        return int(_PLAIN[self.op](*[x.at(sizes) for x in self.args]))

    def __lt__(self, other: Atom) -> bool:
        return (len(self.name), self.name) < (len(other.name), other.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.op, self.args, self.name)


_PLAIN: dict[str, Any] = {
    "floordiv": operator.floordiv, "modulo": operator.mod, "minimum": min, "maximum": max,
}  # fmt: skip
_ATOMS: dict[str, Atom] = {}


def _atom(op: str, args: tuple[Expr, ...], name: str) -> Atom:
    """The one atom of this name: atoms are compared by identity."""
    return _ATOMS.setdefault(name, Atom(op, args, name))


class Expr:
    """A size as an expression of symbols.

    >>> from lucerne.ir.symbols import parse, symbol
    >>> n = symbol("n")
    >>> (n + 1) * (n - 1)
    n*n - 1
    >>> ((n + 1) * (n - 1)).at({"n": 5})
    24
    >>> parse("2*n + n") == 3 * n
    True
    """

    __slots__ = ("_text", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = {m: c for m, c in sorted(terms.items(), key=_term_order) if c}
        self._text: str | None = None

    # ---- what it is ----------------------------------------------------------------------------

    @property
    def constant(self) -> int | None:
        """Its value, if no symbol is in it."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for m in self.terms:
            for a in m:
                if a.op == "symbol":
                    found.add(a.name)
                else:
                    found.update(*(x.symbols() for x in a.args))
        return frozenset(found)

    def __repr__(self) -> str:
        if self._text is None:
            self._text = _print(self)
        return self._text

    def __eq__(self, other: object) -> bool:
        """Whether the normal forms are the same (see `decide` for what follows from ranges)."""
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.constant) if self.constant is not None else hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.terms,)

    # ---- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Number) -> Expr:
        return self._with(other, 1)

    def __sub__(self, other: Number) -> Expr:
        return self._with(other, -1)

    def _with(self, other: Number, sign: int) -> Expr:
        found = dict(self.terms)
        for m, c in expr(other).terms.items():
            found[m] = found.get(m, 0) + sign * c
        return Expr(found)

    def __mul__(self, other: Number) -> Expr:
        found: dict[Monomial, int] = {}
        for (m, c), (n, d) in itertools.product(self.terms.items(), expr(other).terms.items()):
            both = tuple(sorted(m + n))
            found[both] = found.get(both, 0) + c * d
        return Expr(found)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Number) -> Expr:
        return expr(other)._with(self, -1)

    def __neg__(self) -> Expr:
        return self * -1

    def __pow__(self, times: int) -> Expr:
        found = expr(1)
        for _ in range(times):
            found = found * self
        return found

    def __floordiv__(self, other: Number) -> Expr:
        return floordiv(self, expr(other))

    def __rfloordiv__(self, other: Number) -> Expr:
        return floordiv(expr(other), self)

    def __mod__(self, other: Number) -> Expr:
        return modulo(self, expr(other))

    def __rmod__(self, other: Number) -> Expr:
        return modulo(expr(other), self)

    # ---- values --------------------------------------------------------------------------------

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number this is when the symbols are these."""
        total = 0
        for m, c in self.terms.items():
            for a in m:
                c *= sizes[a.name] if a.op == "symbol" else a.at(sizes)
            total += c
        return total

    def replace(self, found: Mapping[str, Number]) -> Expr:
        """With other expressions in place of some symbols."""
        total = expr(0)
        for m, c in self.terms.items():
            product = expr(c)
            for a in m:
                product = product * _replaced(a, found)
            total = total + product
        return total


def _replaced(a: Atom, found: Mapping[str, Number]) -> Expr:
    if a.op == "symbol":
        return expr(found[a.name]) if a.name in found else Expr({(a,): 1})
    return OPERATIONS[a.op](*(x.replace(found) for x in a.args))


def _term_order(item: tuple[Monomial, int]) -> Any:
    m, _ = item
    return -len(m), [(len(a.name), a.name) for a in m]


def symbol(name: str) -> Expr:
    """The size called `name` (an identifier)."""
    if not name.isidentifier():
        raise ValueError(f"a symbol needs a name that is an identifier, not {name!r}")
    return Expr({(_atom("symbol", (), name),): 1})


@functools.lru_cache(maxsize=1024)
def _constant(value: int) -> Expr:
    return Expr({(): value})


def expr(x: Number) -> Expr:
    """A number or an expression as an expression."""
    if isinstance(x, Expr):
        return x
    return x.expr if type(x) is SymInt else _constant(operator.index(x))


# ---- what is no polynomial ----------------------------------------------------------------------


def floordiv(a: Expr, b: Expr) -> Expr:
    """`a // b`: terms that `b` divides are taken out; the rest is opaque unless it is known."""
    if b.constant == 0:
        raise ZeroDivisionError(f"{a} // 0")
    if a.constant is not None and b.constant is not None:
        return expr(a.constant // b.constant)
    whole, rest = _divided(a, b)
    if decide(operator.ge, rest, 0) and decide(operator.lt, rest, b):
        return whole
    if rest.constant is not None and b.constant is not None:
        return whole + rest.constant // b.constant
    return whole + _opaque("floordiv", (rest, b), "//")


def modulo(a: Expr, b: Expr) -> Expr:
    """`a % b`, which is `a - a // b * b`."""
    if b.constant == 0:
        raise ZeroDivisionError(f"{a} % 0")
    if a.constant is not None and b.constant is not None:
        return expr(a.constant % b.constant)
    _, rest = _divided(a, b)
    if rest.constant is not None and b.constant is not None:
        return expr(rest.constant % b.constant)
    if decide(operator.ge, rest, 0) and decide(operator.lt, rest, b):
        return rest
    only = next(iter(rest.terms))
    if len(only) == 1 and only[0].op == "modulo" and only[0].args[1] == b and len(rest.terms) == 1:
        return rest if rest.terms[only] == 1 else _opaque("modulo", (rest, b), "%")
    return _opaque("modulo", (rest, b), "%")


def _divided(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(q, r) with `a == q * b + r`, as much in q as divides term by term."""
    if len(b.terms) != 1:
        quotient = _exact(a, b)
        return (quotient, expr(0)) if quotient is not None else (expr(0), a)
    ((divisor, factor),) = b.terms.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in a.terms.items():
        left = _without(m, divisor)
        if left is None:
            rest[m] = c
            continue
        whole[left] = c // factor
        if c % factor:
            rest[m] = c % factor
    return Expr(whole), Expr(rest)


def _without(m: Monomial, divisor: Monomial) -> Monomial | None:
    """`m` divided by `divisor`; None if it does not divide."""
    left = list(m)
    for a in divisor:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def _exact(a: Expr, b: Expr) -> Expr | None:
    """The polynomial `a / b`, by long division; None if a rest remains."""
    (lead, factor), *_ = b.terms.items()
    quotient, rest = expr(0), a
    for _ in range(len(a.terms) + 8):
        if not rest.terms:
            return quotient
        (m, c), *_ = rest.terms.items()
        left = _without(m, lead)
        if left is None or c % factor:
            return None
        part = Expr({left: c // factor})
        quotient, rest = quotient + part, rest - part * b
    return None


def minimum(*given: Number) -> Expr:
    """The smallest; those that can't be it are left out."""
    return _extreme("minimum", operator.le, [expr(x) for x in given])


def maximum(*given: Number) -> Expr:
    """The largest; those that can't be it are left out."""
    return _extreme("maximum", operator.ge, [expr(x) for x in given])


def _extreme(op: str, relation: Any, given: list[Expr]) -> Expr:
    flat: list[Expr] = []
    for x in given:
        (only, count) = next(iter(x.terms.items()), ((), 0))
        nested = len(x.terms) == 1 and count == 1 and len(only) == 1 and only[0].op == op
        flat.extend(only[0].args if nested else [x])
    kept: list[Expr] = []
    for x in flat:
        if any(decide(relation, k, x) for k in kept):
            continue
        kept = [k for k in kept if not decide(relation, x, k)]
        kept.append(x)
    if len(kept) == 1:
        return kept[0]
    return _opaque(op, tuple(sorted(kept, key=repr)), op[:3])


OPERATIONS: dict[str, Callable[..., Expr]] = {
    "floordiv": floordiv, "modulo": modulo, "minimum": minimum, "maximum": maximum,
}  # fmt: skip


def _opaque(op: str, args: tuple[Expr, ...], sign: str) -> Expr:
    if sign in ("//", "%"):
        a, b = (_print_factor(x) for x in args)
        name = f"({a}{sign}{b})"
    else:
        name = f"{sign}({', '.join(map(repr, args))})"
    return Expr({(_atom(op, args, name),): 1})


# ---- text ---------------------------------------------------------------------------------------


def _print(e: Expr) -> str:
    parts: list[str] = []
    for m, c in e.terms.items():
        factors = [a.name for a in m]
        if abs(c) != 1 or not factors:
            factors.insert(0, str(abs(c)))
        sign = ("-" if c < 0 else "") if not parts else (" - " if c < 0 else " + ")
        parts.append(sign + "*".join(factors))
    return "".join(parts) or "0"


def _print_factor(e: Expr) -> str:
    text = _print(e)
    plain = len(e.terms) < 2 and "*" not in text and "-" not in text
    return text if plain else f"({text})"


def parse(text: str) -> Expr:
    """The expression that was printed as `text`."""
    return _parsed(ast.parse(text, mode="eval").body, text)


_SIGNS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLS = {"min": minimum, "max": maximum}


def _parsed(node: Any, text: str) -> Expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return expr(node.value)
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parsed(node.operand, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        found: Expr = _SIGNS[type(node.op)](_parsed(node.left, text), _parsed(node.right, text))
        return found
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _CALLS[node.func.id](*(_parsed(a, text) for a in node.args))
    raise ValueError(f"no size: {text!r}")


# ---- ranges -------------------------------------------------------------------------------------


def bounds(e: Number) -> tuple[float, float]:
    """The least and the greatest value that symbols of at least 2 allow, or beyond."""
    e = expr(e)
    return _lowest(e), -_lowest(-e)


def _lowest(e: Expr) -> float:
    """Every atom as its least value and something that is not negative: then signs decide."""
    shifted = expr(0)
    for m, c in e.terms.items():
        product = expr(c)
        for a in m:
            least, most = _atom_bounds(a)
            if least == -math.inf:
                return _crude(e)
            product = product * (Expr({(_atom("slack", (), f"_slack_{a.name}"),): 1}) + int(least))
            _SLACK[f"_slack_{a.name}"] = most - least
        shifted = shifted + product
    total: float = 0
    for m, c in shifted.terms.items():
        if not m:
            total += c
        elif c < 0:
            total += c * math.prod(_SLACK[a.name] for a in m)
    return total


_SLACK: dict[str, float] = {}


def _crude(e: Expr) -> float:
    """The sum of the least values of the terms."""
    total: float = 0
    for m, c in e.terms.items():
        span = (1.0, 1.0)
        for a in m:
            span = _product(span, _atom_bounds(a))
        total += min(_times(c, span[0]), _times(c, span[1])) if m else c
    return total


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _atom_bounds(a: Atom) -> tuple[float, float]:
    if a.op == "symbol":
        return SMALLEST, math.inf
    spans = [bounds(x) for x in a.args]
    if a.op == "minimum":
        return min(s[0] for s in spans), min(s[1] for s in spans)
    if a.op == "maximum":
        return max(s[0] for s in spans), max(s[1] for s in spans)
    (low, high), (least, most) = spans
    if least <= 0:
        return -math.inf, math.inf
    if a.op == "modulo":
        return 0, min(most - 1, high if low >= 0 else math.inf)
    return _quotient(low, least if low < 0 else most), _quotient(high, most if high < 0 else least)


def _quotient(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return -1 if a < 0 else 0
    return int(a) // int(b)


Relation = Callable[[Any, Any], bool]
RELATIONS: dict[Relation, str] = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=",
}  # fmt: skip


def decide(relation: Relation, a: Number, b: Number) -> bool | None:
    """Whether a relation holds for all sizes (True), for none (False), or for some (None)."""
    difference = expr(a) - b
    if difference.constant is not None:
        return bool(relation(difference.constant, 0))
    low, high = bounds(difference)
    if relation in (operator.eq, operator.ne):
        apart = low > 0 or high < 0
        return (relation is operator.ne) if apart else None
    if relation in (operator.lt, operator.ge):
        decided = (high < 0) if relation is operator.lt else (low >= 0)
        refuted = (low >= 0) if relation is operator.lt else (high < 0)
    else:
        decided = (high <= 0) if relation is operator.le else (low > 0)
        refuted = (low > 0) if relation is operator.le else (high <= 0)
    return True if decided else False if refuted else None


# ---- sizes in running Python --------------------------------------------------------------------


class Guard(NamedTuple):
    """A decision that Python took by a size: it must come out the same the next time."""

    left: Expr
    relation: Relation
    right: Expr
    result: bool
    users: bool = True
    """False: taken by code of this package, perhaps between numbers that are both sizes."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return bool(self.relation(self.left.at(sizes), self.right.at(sizes))) == self.result

    def __repr__(self) -> str:
        text = f"{self.left} {RELATIONS[self.relation]} {self.right}"
        return text if self.result else f"not {text}"


class _Guards(threading.local):
    def __init__(self) -> None:
        self.found: dict[Guard, None] | None = None


_guards = _Guards()


@contextmanager
def guarding() -> Iterator[dict[Guard, None]]:
    """Collect the decisions that are taken inside by `SymInt`s, in order, each once.

    >>> from lucerne.ir.symbols import SymInt, guarding, symbol
    >>> n = SymInt(20, symbol("n"))
    >>> with guarding() as guards:
    ...     half = n // 2 + 1
    ...     small = half < 32
    >>> half, half.expr, list(guards)
    (11, (n//2) + 1, [(n//2) + 1 < 32])
    """
    before, _guards.found = _guards.found, {}
    try:
        yield _guards.found
    finally:
        _guards.found = before


class SymInt(int):
    """An int that knows how it follows from the sizes of the inputs.

    It has a value like any other (`hint`); arithmetic carries the expression along; whatever
    decides by the value is written down as a guard while somebody is `guarding`. C code takes it
    for a plain int (`range(n)`, `n / 2.0`), so what comes out of that must be checked otherwise:
    `transforms.generalize` compares whole traces.
    """

    expr: Expr

    def __new__(cls, hint: int, expression: Expr) -> SymInt:
        made = super().__new__(cls, hint)
        made.expr = expression
        return made

    @property
    def hint(self) -> int:
        return int.__pos__(self)

    def __index__(self) -> int:
        """For code that takes plain integers."""
        return self.hint

    __int__ = __index__

    def __bool__(self) -> bool:
        return _decided(self, operator.ne, 0)

    def __hash__(self) -> int:
        return hash(self.hint)

    def __neg__(self) -> Any:
        return made(-self.hint, -self.expr)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.hint,)


def made(value: int, expression: Expr) -> int:
    """A number that depends on sizes, or a plain one if it does not."""
    return value if expression.constant is not None else SymInt(value, expression)


def plain(x: int) -> int:
    """The value alone, without a guard: for who keeps the expression himself."""
    return x.hint if type(x) is SymInt else x


def _decided(x: SymInt, relation: Relation, other: int) -> bool:
    result = bool(relation(x.hint, plain(other)))
    if _guards.found is None or decide(relation, x.expr, expr(other)) is not None:
        return result
    # Ops compare sizes to check them, also with numbers that have lost their expression on the
    # way. They check again when a graph is made for other sizes, so those are no decisions.
    users = is_users(sys._getframe(2).f_code)
    if users or relation not in _CHECKS:
        _guards.found[Guard(x.expr, relation, expr(other), result, users)] = None
    return result


_CHECKS = (operator.eq, operator.ne)


def _calculate(compute: Any, swapped: bool) -> Any:
    def run(self: SymInt, other: Any) -> Any:
        if type(other) is float:
            return compute(other, self.hint) if swapped else compute(self.hint, other)
        if not isinstance(other, int):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        return made(compute(plain(a), plain(b)), compute(expr(a), expr(b)))

    return run


def _compare(relation: Relation) -> Any:
    def run(self: SymInt, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return _decided(self, relation, other)

    return run


for _relation in RELATIONS:
    setattr(SymInt, f"__{_relation.__name__}__", _compare(_relation))
for _compute in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
    setattr(SymInt, f"__{_compute.__name__}__", _calculate(_compute, swapped=False))
    setattr(SymInt, f"__r{_compute.__name__}__", _calculate(_compute, swapped=True))
