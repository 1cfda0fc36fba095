"""The programs: pairs in three forms, and random trees, each from its number."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lucerne as torch
from tests.pairs.functions import CORE, functions

Function = Callable[[Any], Any]

FORMS: dict[str, Callable[[Function, Function], Function]] = {
    "b(a(x))": lambda a, b: lambda x: b(a(x)),
    "y + b(y), y = a(2x)": lambda a, b: lambda x: _with_itself(a(x * 2), b),
    "a(y) + b(y), y = 2x": lambda a, b: lambda x: _both(x * 2, a, b),
}


def _with_itself(y: Any, b: Function) -> Any:
    return y + b(y)


def _both(y: Any, a: Function, b: Function) -> Any:
    return a(y) + b(y)


# ---- inputs --------------------------------------------------------------------------------------

BASES: dict[str, Callable[[Any], Any]] = {
    "4x6": lambda draw: draw(4, 6),
    "1x6": lambda draw: draw(1, 6),
    "4x1": lambda draw: draw(4, 1),
    "4x4": lambda draw: draw(4, 4),
    "2x3x4": lambda draw: draw(2, 3, 4),
    "3x2x1x1": lambda draw: draw(3, 2, 1, 1),
    "turned": lambda draw: draw(6, 4).t(),
    "every second": lambda draw: draw(8, 6)[::2],
    "channels last": lambda draw: draw(2, 4, 2, 3).contiguous(memory_format=torch.channels_last),
    "33": lambda draw: draw(33),
}
"""What x is: batch 1, dimensions of size one, other orders in memory among them."""
WIDE: dict[str, Callable[[Any], Any]] = {
    "3x37 of 40": lambda draw: draw(3, 40)[:, :37],
    "2x3x35, rows apart": lambda draw: draw(2, 6, 35)[:, ::2],
    "turned 37x5": lambda draw: draw(37, 5).t(),
    "channels last, 2x3x5x7": lambda draw: draw(2, 3, 5, 7).contiguous(
        memory_format=torch.channels_last
    ),
    "70 of 140": lambda draw: draw(140)[::2],
}
"""Rows of several vectors and a rest, that do not lie side by side. (Tables of their own: with more
rows in BASES each seed would be another tree.)"""


def given(base: str) -> Any:
    """The same numbers each time."""
    g = torch.Generator().manual_seed(1)
    made = BASES.get(base) or WIDE[base]
    return made(lambda *shape: torch.randn(*shape, generator=g))


@dataclass(frozen=True)
class Program:
    name: str
    call: Function
    base: str = "4x6"


# ---- pairs ---------------------------------------------------------------------------------------


def pair_count() -> int:
    return len(CORE) ** 2 * len(FORMS)


def pairs(numbers: range, base: str = "4x6") -> Iterator[Program]:
    """Those pairs, in an order in which neighbours have nothing in common."""
    order = list(range(pair_count()))
    random.Random(0).shuffle(order)
    made, forms = functions(), list(FORMS)
    for k in numbers:
        at, form = divmod(order[k], len(forms))
        a, b = (CORE[n] for n in divmod(at, len(CORE)))
        name = f"{forms[form]} with a = {a}, b = {b}"
        yield Program(name, FORMS[forms[form]](made[a], made[b]), base)


# ---- trees ---------------------------------------------------------------------------------------

_MOST_ELEMENTS = 2000
_TRIES = 12
_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda p, q: p + q, "-": lambda p, q: p - q, "*": lambda p, q: p * q,
    "max": torch.maximum,
}  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """`x` (twice the input) or `given` (no parts), a function of a tree (one), or two trees put
    together (two). One that occurs twice is computed once: it is one value."""

    what: str
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        if len(self.parts) == 2:
            return f"({self.parts[0]} {self.what} {self.parts[1]})"
        return f"{self.what}({self.parts[0]})" if self.parts else self.what

    @property
    def names(self) -> set[str]:
        """What it is made of."""
        return {self.what}.union(*(p.names for p in self.parts))

    @property
    def depth(self) -> int:
        return 1 + max((p.depth for p in self.parts), default=-1)

    def value(self, x: Any, made: dict[str, Function], known: dict[Tree, Any]) -> Any:
        if self not in known:
            inner = [p.value(x, made, known) for p in self.parts]
            if not inner:
                known[self] = x if self.what == "given" else x * 2
            elif len(inner) == 1:
                known[self] = made[self.what](inner[0])
            else:
                known[self] = _JOINS[self.what](*inner)
        return known[self]


def tree(seed: int, made: dict[str, Function], *, wide: bool = False) -> Program:
    """A tree of depth 3 to 6: each step is tried, so that it is one that eager takes."""
    rng = random.Random(seed)
    base, depth = rng.choice(list(WIDE if wide else BASES)), rng.randint(3, 6)
    x, found = given(base), Tree("given" if wide else "x")
    known: dict[Tree, Any] = {}
    grown = [found]
    names = list(made)
    for _ in range(depth * _TRIES):
        if found.depth >= depth:
            break
        more = _grown(rng, found, grown, names)
        if _works(more, x, made, known):
            found = more
            grown.append(more)

    # no more than it uses: a trace looks at all that a function can reach
    used = {name: made[name] for name in found.names if name in made}

    def call(x: Any) -> Any:
        return found.value(x, used, {})

    return Program(f"{'wide ' * wide}tree {seed}: {found}", call, base)


def _grown(rng: random.Random, now: Tree, before: list[Tree], names: list[str]) -> Tree:
    """One step more: a function, a value with a function of itself, or with something before."""
    f, g, join = rng.choice(names), rng.choice(names), rng.choice(list(_JOINS))
    kind = rng.random()
    if kind < 0.35:
        return Tree(f, (now,))
    if kind < 0.65:
        return Tree(join, (now, Tree(f, (now,))))
    if kind < 0.85:
        return Tree(join, (Tree(f, (now,)), Tree(g, (now,))))
    return Tree(join, (Tree(f, (now,)), rng.choice(before)))


def _works(t: Tree, x: Any, made: dict[str, Function], known: dict[Tree, Any]) -> bool:
    """Whether eager takes a step, and gives numbers that can be compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            y = t.value(x, made, known)
        except Exception:  # another shape, or dtype: so is life
            known.pop(t, None)
            return False
    fits = 0 < y.numel() <= _MOST_ELEMENTS and y.is_floating_point()
    return fits and bool(y.isfinite().all()) and bool((y.abs() < 1e4).all())
