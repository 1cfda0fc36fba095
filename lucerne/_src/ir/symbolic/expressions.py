"""Sizes that are not known yet: integers with symbols, in one normal form.

    s0, s1 = symbol("s0"), symbol("s1")
    (s0 + 1) * s1 - s1        is s0*s1
    (4 * s0 + 2) // 4         is s0
    (s0 * s1) // s1           is s0

An expression is a polynomial with integer coefficients. Its variables are symbols and whatever has
no polynomial form (`a // b`, `min`, `n & m`, `int` of a float). Equal expressions print alike, and
what is printed can be parsed. Symbols stand for sizes of at least 2: sizes 0 and 1 change what a
program does (nothing at all, broadcasting), so they are never symbolic.

Floats made of sizes (`n / 2`, `math.sqrt(n)`) are trees (`FloatExpr`) that are evaluated by the
very operations of Python they were written with, in their order: the same bits come out.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

SMALLEST = 2
"""What a symbol is at least."""

Monomial = tuple["Atom", ...]
"""A product of atoms in order; an atom stands in it as often as its power says."""
Number = Any
"""An int or an expression."""


class Atom:
    """A variable of the polynomial: a symbol, or an opaque `op` of expressions."""

    __slots__ = ("args", "name", "op")

    def __init__(self, op: str, args: tuple[Any, ...], name: str) -> None:
        self.op, self.args, self.name = op, args, name

    def __repr__(self) -> str:
        return self.name

    def at(self, sizes: Mapping[str, int]) -> int:
        given = [x.at(sizes) for x in self.args]
        if self.op.startswith(CHOICE):
            number, index = choice_of(self.op)
            return _choose(number, *given)[index]
        return int(_PLAIN[self.op](*given))

    def __lt__(self, other: Atom) -> bool:
        return (len(self.name), self.name) < (len(other.name), other.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.op, self.args, self.name)


INTEGERS: dict[str, Callable[..., int]] = {
    "ipow": operator.pow, "iabs": abs, "bit_and": operator.and_, "bit_or": operator.or_,
    "bit_xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
    "isqrt": math.isqrt, "gcd": math.gcd, "lcm": math.lcm, "comb": math.comb, "perm": math.perm,
    "factorial": math.factorial, "bit_length": int.bit_length, "bit_count": int.bit_count,
    "if_at_least": lambda x, y, a, b: a if x >= y else b,
    "double_bits": lambda x: struct.unpack("<q", struct.pack("<d", x))[0],
    "int": int, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "iround": round,
}  # fmt: skip
"""Functions whose values are integers, by the names they are printed with; the last five are of
floats."""
_PLAIN: dict[str, Any] = {
    "floordiv": operator.floordiv, "modulo": operator.mod, "minimum": min, "maximum": max,
    **INTEGERS,
}  # fmt: skip
_ATOMS: dict[str, Atom] = {}

CHOICE = "choice"
CHOICES: list[Callable[..., tuple[int, ...]]] = []
"""Functions of sizes that give several integers (a plan): `choice3_1(n)` is the second of what the
fourth gives."""


@functools.lru_cache(maxsize=256)
def _choose(number: int, *given: int) -> tuple[int, ...]:
    """What a function of `CHOICES` gives: one formula after another asks for a part of it."""
    return CHOICES[number](*given)


def choice_of(op: str) -> tuple[int, int]:
    """The number of the function, and which of its results it is."""
    number, index = op.removeprefix(CHOICE).split("_")
    return int(number), int(index)


def chosen(number: int, count: int, args: tuple[Expr, ...]) -> list[Expr]:
    """The results of a function of `CHOICES`, of which there are so many."""
    shown = ", ".join(map(repr, args))
    ops = [f"{CHOICE}{number}_{index}" for index in range(count)]
    return [Expr({(_atom(op, args, f"{op}({shown})"),): 1}) for op in ops]


def _atom(op: str, args: tuple[Any, ...], name: str) -> Atom:
    """The one atom of this name: atoms are compared by identity."""
    return _ATOMS.setdefault(name, Atom(op, args, name))


class Expr:
    """A size as an expression of symbols.

    >>> from lucerne._src.ir.symbolic.expressions import parse, symbol
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
        pairs: Any = terms.items() if len(terms) < 2 else sorted(terms.items(), key=_term_order)
        self.terms: dict[Monomial, int] = {m: c for m, c in pairs if c}
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
    args = [x.replace(found) for x in a.args]
    if a.op.startswith(CHOICE):
        number, index = choice_of(a.op)
        return chosen(number, index + 1, tuple(args))[index]
    return integer(a.op, *args) if a.op in INTEGERS else OPERATIONS[a.op](*args)


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
    found = getattr(x, "expr", None)
    return found if isinstance(found, Expr) else _constant(operator.index(x))


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
    if not rest.terms and decide(operator.ne, b, 0):
        return rest  # whatever sign the divisor has
    only = next(iter(rest.terms), ())
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
    return _opaque(op, tuple(sorted(kept, key=repr)), op)


OPERATIONS: dict[str, Callable[..., Expr]] = {
    "floordiv": floordiv, "modulo": modulo, "minimum": minimum, "maximum": maximum,
}  # fmt: skip


def integer(op: str, *args: Any) -> Expr:
    """One of `INTEGERS` of expressions."""
    constants = [x.constant for x in args]
    if all(c is not None for c in constants):
        return expr(INTEGERS[op](*constants))
    return _opaque(op, args, op)


def _opaque(op: str, args: tuple[Any, ...], sign: str) -> Expr:
    if sign in ("//", "%"):
        a, b = (_print_factor(x) for x in args)
        name = f"({a}{sign}{b})"
    else:
        shown = sign if op in INTEGERS else sign[:3]
        name = f"{shown}({', '.join(map(repr, args))})"
    return Expr({(_atom(op, args, name),): 1})


# ---- floats -------------------------------------------------------------------------------------

_FUNCTIONS = (
    math.acos, math.acosh, math.asin, math.asinh, math.atan, math.atan2, math.atanh, math.cbrt,
    math.copysign, math.cos, math.cosh, math.degrees, math.erf, math.erfc, math.exp, math.exp2,
    math.expm1, math.fabs, math.fmod, math.gamma, math.hypot, math.lgamma, math.log, math.log10,
    math.log1p, math.log2, math.pow, math.radians, math.remainder, math.sin, math.sinh, math.sqrt,
    math.tan, math.tanh,
)  # fmt: skip
FLOATS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "fdiv": operator.floordiv, "mod": operator.mod, "fpow": operator.pow, "neg": operator.neg,
    "abs": abs, "float": float, "fround": round, "fmax": lambda a, b: float(max(a, b)),
    **{fn.__name__: fn for fn in _FUNCTIONS},
}  # fmt: skip
"""Functions whose values are floats, by the names they are printed with."""
TOTAL = frozenset(("fmax", "add", "sub", "mul", "neg", "abs", "float", "fabs", "atan", "atan2"))
"""Those that never raise and never give anything but a float."""


class FloatExpr:
    """A float that follows from sizes: one of `FLOATS` of expressions, floats and integers.

    >>> from lucerne._src.ir.symbolic.expressions import FloatExpr, symbol
    >>> half = FloatExpr("truediv", (symbol("n"), 2))
    >>> half, half.at({"n": 5})
    (truediv(n, 2), 2.5)
    """

    __slots__ = ("_text", "args", "op")
    constant = None

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op, self.args = op, args
        self._text: str | None = None

    def __repr__(self) -> str:
        if self._text is None:
            self._text = f"{self.op}({', '.join(map(_shown, self.args))})"
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatExpr) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return FloatExpr, (self.op, self.args)

    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(x.symbols() for x in self.args if isinstance(x, FORMULAS)))

    def at(self, sizes: Mapping[str, int]) -> float:
        """The number this is when the symbols are these; raises what Python would."""
        found = FLOATS[self.op](*[value_at(x, sizes) for x in self.args])
        if type(found) is not float:
            raise ArithmeticError(f"{self} is {found!r} at {dict(sizes)}")
        return found

    def replace(self, found: Mapping[str, Number]) -> FloatExpr:
        args = [x.replace(found) if isinstance(x, FORMULAS) else x for x in self.args]
        return FloatExpr(self.op, tuple(args))


FORMULAS = (Expr, FloatExpr)


def value_at(x: Any, sizes: Mapping[str, int]) -> Any:
    """A number or a formula as the number it is at these sizes."""
    return x.at(sizes) if isinstance(x, FORMULAS) else x


def _shown(x: Any) -> str:
    if type(x) is float and not math.isfinite(x):
        return f"float('{x}')"
    return repr(x)


def float_bounds(x: Any) -> tuple[float, float]:
    """The least and the greatest value of a float, or beyond. Rounding keeps the order, so the ends
    of ranges are those of the results."""
    if not isinstance(x, FloatExpr):
        try:
            low, high = bounds(x) if isinstance(x, Expr) else (x, x)
            return float(low), float(high)
        except OverflowError:
            return _ANY
    if x.op not in ("add", "sub", "mul", "truediv", "neg", "float", "sqrt"):
        return _ANY
    spans = [float_bounds(a) for a in x.args]
    if (x.op == "truediv" and spans[1][0] <= 0) or (x.op == "sqrt" and spans[0][0] < 0):
        return _ANY
    corners = [_corner(x.op, *c) for c in itertools.product(*spans)]
    return _ANY if any(math.isnan(c) for c in corners) else (min(corners), max(corners))


_ANY = (-math.inf, math.inf)


def _corner(op: str, *ends: float) -> float:
    if op == "sqrt" and math.isinf(ends[0]):
        return ends[0]
    found: float = FLOATS[op](*ends)
    return found


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
    found = parse_formula(text)
    if not isinstance(found, Expr):
        raise ValueError(f"no size: {text!r}")
    return found


def parse_formula(text: str) -> Any:
    """The expression of an integer or a float that was printed as `text`."""
    return _parsed(ast.parse(text, mode="eval").body, text)


_SIGNS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "min": minimum, "max": maximum, **{n: functools.partial(integer, n) for n in INTEGERS},
}  # fmt: skip


def _parsed(node: Any, text: str) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return expr(node.value) if type(node.value) is int else node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parsed(node.operand, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_parsed(node.left, text), _parsed(node.right, text))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name, given = node.func.id, node.args
        if name == "float" and isinstance(given[0], ast.Constant) and type(given[0].value) is str:
            return float(given[0].value)
        if name in _CALLS:
            return _CALLS[name](*(_parsed(a, text) for a in given))
        if name in FLOATS:
            return FloatExpr(name, tuple(_parsed(a, text) for a in given))
    raise ValueError(f"no size: {text!r}")


# ---- ranges -------------------------------------------------------------------------------------


def bounds(e: Number) -> tuple[float, float]:
    """The least and the greatest value that symbols of at least 2 allow, or beyond."""
    return _bounds(expr(e))


@functools.lru_cache(maxsize=4096)
def _bounds(e: Expr) -> tuple[float, float]:
    found = {c > 0 for m, c in e.terms.items() if m}
    if len(found) == 1 and all(a.op == "symbol" for m in e.terms for a in m):
        end = sum(c * SMALLEST ** len(m) for m, c in e.terms.items())  # all grow, or all shrink
        return (end, math.inf) if found.pop() else (-math.inf, end)
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
    if a.op in _OF_FLOATS:
        low, high = float_bounds(a.args[0])
        least = math.floor(low) if math.isfinite(low) else low
        return least, math.ceil(high) if math.isfinite(high) else high
    if a.op.startswith(CHOICE) or a.op == "double_bits":
        return _ANY
    spans = [bounds(x) for x in a.args]
    if a.op in INTEGERS:
        return _integer_bounds(a.op, spans)
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


_OF_FLOATS = frozenset(("int", "floor", "ceil", "trunc", "iround"))
_COUNTS = frozenset(("iabs", "isqrt", "gcd", "lcm", "comb", "perm", "factorial", "bit_length"))


def _integer_bounds(op: str, spans: list[tuple[float, float]]) -> tuple[float, float]:
    if op == "if_at_least":
        return min(low for low, _ in spans[2:]), max(high for _, high in spans[2:])
    if op == "bit_and":
        tops = [high for low, high in spans if low >= 0]
        return (0, min(tops)) if tops else _ANY
    if op in ("ipow", "lshift") and spans[0][0] >= 1 and spans[1][0] >= 0:
        return spans[0][0] if op == "lshift" else 1, math.inf
    return (0, math.inf) if op in _COUNTS or op == "bit_count" else _ANY


def _quotient(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return -1 if a < 0 else 0
    return int(a) // int(b)


Relation = Callable[[Any, Any], bool]


def same(a: Any, b: Any) -> bool:
    """Whether two floats are one: nan is nan, and 0.0 is not -0.0."""
    return repr(a) == repr(b)


def defined(a: Any, b: Any) -> bool:
    """True: both could be computed."""
    return True


RELATIONS: dict[Relation, str] = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", same: "is", defined: "and",
}  # fmt: skip


def decide(relation: Relation, a: Number, b: Number) -> bool | None:
    """Whether a relation holds for all sizes (True), for none (False), or for some (None)."""
    return _decide(relation, expr(a), expr(b))


@functools.lru_cache(maxsize=8192)
def _decide(relation: Relation, a: Expr, b: Expr) -> bool | None:
    difference = a - b
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


# ---- decisions ----------------------------------------------------------------------------------


class Guard(NamedTuple):
    """A decision that Python took by a size: it must come out the same the next time."""

    left: Any
    relation: Relation
    right: Any
    result: bool = True

    def holds(self, sizes: Mapping[str, int]) -> bool:
        try:
            found = self.relation(value_at(self.left, sizes), value_at(self.right, sizes))
        except (ArithmeticError, ValueError, TypeError, MemoryError):
            return False  # Python would raise there
        return bool(found) == self.result

    def symbols(self) -> frozenset[str]:
        both = [x for x in (self.left, self.right) if isinstance(x, FORMULAS)]
        return frozenset().union(*(x.symbols() for x in both))

    def __repr__(self) -> str:
        if self.relation is defined:
            return f"{self.left} is defined"
        text = f"{self.left} {RELATIONS[self.relation]} {_shown(self.right)}"
        return text if self.result else f"not {text}"
