"""Numbers seen at several sizes, explained by one formula.

`Fit` holds quantities whose values are known at each of the sizes a program was traced at (sizes of
inputs, then sizes of whatever nodes made of them). A number that changed from trace to trace is
explained if a simple formula of those gives all its values: a multiple, a product, a sum with a
small constant; for floats also a quotient or a root. Formulas that explain only by having as many
free constants as there are traces are refused, unless the constants are small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lucerne.ir.symbols import Expr, expr, symbol

Seen = tuple[Any, ...]
"""One number for each trace."""
SMALL = 64
"""Sums with constants up to this are believed (paddings, kernel sizes, one more or less)."""


class FloatOf:
    """A float made of a size: `factor * e`, `factor / e`, or the same with a root of it."""

    __slots__ = ("factor", "kind", "size")

    def __init__(self, kind: str, factor: float, size: Expr) -> None:
        self.kind, self.factor, self.size = kind, factor, size

    def __repr__(self) -> str:
        return f"{self.kind}({self.factor!r}, {self.size})"

    def at(self, sizes: Mapping[str, int]) -> float:
        return _FLOATS[self.kind](self.factor, self.size.at(sizes))


_FLOATS: dict[str, Any] = {
    "times": lambda c, n: c * n,
    "over": lambda c, n: c / n,
    "over_root": lambda c, n: c / math.sqrt(n),
    "power": lambda c, n: c * n**-0.5,
    "root": lambda c, n: c * math.sqrt(n),
    "unbiased": lambda c, n: c * (n / (n - 1)),
}
_INVERSES: dict[str, Any] = {
    "times": lambda v: v,
    "over": lambda v: 1 / v,
    "over_root": lambda v: 1 / (v * v),
    "power": lambda v: 1 / (v * v),
    "root": lambda v: v * v,
    "unbiased": lambda v: v / (v - 1),
}
"""The size of which a float was made with the factor one, up to rounding."""


class Fit:
    """Quantities by name, and formulas over them."""

    def __init__(self, traces: int) -> None:
        self.traces = traces
        self.known: dict[Seen, Expr] = {}
        """What is called by a name of its own."""
        self.near: tuple[Seen, ...] = ()
        """Sizes of the tensors a number stands beside: likelier than others to explain it."""
        self._found: dict[Any, Any] = {}

    def name(self, seen: Seen, name: str) -> Expr:
        """Call a quantity by a name."""
        made = self.known[seen] = symbol(name)
        self._found.clear()
        return made

    def agrees(self, formula: Expr, seen: Seen) -> bool:
        """Whether a formula of what has a name gives these numbers."""
        names = {repr(e): values for values, e in self.known.items()}
        wanted = formula.symbols()
        return wanted <= names.keys() and all(
            formula.at({name: names[name][k] for name in wanted}) == n for k, n in enumerate(seen)
        )

    def explain(self, seen: Seen) -> Any:
        """An Expr or a FloatOf that gives these numbers; None: nothing simple does."""
        key = (type(seen[0]), seen, self.near)
        if key not in self._found:
            find = self._float if type(seen[0]) is float else self.integer
            self._found[key] = find(seen)
        return self._found[key]

    def integer(self, seen: Seen) -> Expr | None:
        """A formula of an integer."""
        found = self.product(seen)
        if found is None:
            sums = (self._sum(seen, values, e) for values, e in self._products())
            found = next((s for s in sums if s is not None), None)
        return self._quotient(seen) if found is None else found

    def product(self, seen: Seen) -> Expr | None:
        """A constant, or a multiple of a product of what has a name."""
        if all(v == seen[0] for v in seen):
            return expr(seen[0])
        if seen in self.known:
            return self.known[seen]
        multiples: list[tuple[int, int, Expr]] = []
        for values, e in self._products():
            if not values[0]:  # of an empty tensor: no multiple can be told from it
                continue
            factor, rest = divmod(seen[0], values[0])
            if not rest and factor and _all(v == factor * w for v, w in _zip(seen, values)):
                multiples.append((abs(factor), len(multiples), e * factor))
        if multiples:  # 16 * s1 rather than 64 * s0, if both fit
            return min(multiples)[2]
        return None

    def _sum(self, seen: Seen, values: Seen, e: Expr) -> Expr | None:
        """`factor * e + constant`, or `factor * (e + constant)`."""
        if values[0] == values[1]:
            return None
        factor, rest = divmod(seen[1] - seen[0], values[1] - values[0])
        if rest or not factor:
            return None
        constant = seen[0] - factor * values[0]
        if any(v != factor * w + constant for v, w in _zip(seen, values)):
            return None
        shared = constant % factor == 0 and abs(constant // factor) <= SMALL
        sure = self.traces > 2 or shared or abs(constant) <= SMALL
        return e * factor + constant if sure else None

    def _quotient(self, seen: Seen) -> Expr | None:
        """`(e + constant) // divisor` for small divisors: sizes near at hand first, small constants
        first. With two traces only halves and the like are believed."""
        near = [x for x in self.near if x in self.known]
        for values in [*near, *reversed(self.known)]:
            for divisor in (2, 3, 4, 5, 6, 7, 8, 16, 32, 64):
                wide = range(divisor + 8) if self.traces > 2 and values in near else (0,)
                for k in (*wide, divisor - 1):
                    for constant in (k, -k):
                        if _all(v == (w + constant) // divisor for v, w in _zip(seen, values)):
                            return (self.known[values] + constant) // divisor
        return None

    def _products(self) -> list[tuple[Seen, Expr]]:
        """Named quantities, products of two, products of three."""
        cached = self._found.get("products")
        if cached is not None:
            return cached
        names = list(self.known.items())
        found = list(names)
        level = names
        for _ in range(2):
            level = [
                (tuple(a * b for a, b in _zip(v, w)), e * f)
                for i, (v, e) in enumerate(level)
                for w, f in names[min(i, len(names)) :][:8]
            ][:128]
            found += level
        self._found["products"] = found
        return found

    def _float(self, seen: Seen) -> Any:
        if all(v == seen[0] for v in seen):
            return seen[0]
        for kind, inverse in _INVERSES.items():
            size = self._size_in(seen, kind, inverse)
            if size is not None:
                return FloatOf(kind, 1.0, size)
        for values, e in self._products():
            for kind, value in _FLOATS.items():
                for factor in _factors(kind, seen[0], values[0]):
                    if _all(v == value(factor, w) for v, w in _zip(seen, values)):
                        return FloatOf(kind, factor, e)
        return None

    def _size_in(self, seen: Seen, kind: str, inverse: Any) -> Expr | None:
        """The size from which floats were made in one way, if they are exactly what it gives."""
        try:
            sizes = tuple(round(inverse(v)) for v in seen)
            exact = all(_FLOATS[kind](1.0, n) == v for n, v in _zip(sizes, seen))
        except (ArithmeticError, ValueError):
            return None
        return self.integer(sizes) if exact and min(sizes) > 0 else None


def _factors(kind: str, value: float, size: int) -> list[float]:
    """Constants that might stand before the size: one, a whole number, or whatever is left."""
    unit = _FLOATS[kind](1.0, size)
    if unit == 0 or math.isinf(value) or math.isnan(value):
        return []
    left = value / unit
    return [1.0, -1.0, float(round(left)), left]


def _zip(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return zip(a, b, strict=True)


def _all(answers: Any) -> bool:
    return all(answers)
