"""The table of ops: how each is written, which operands it takes, and what it means in NumPy.

One row is everything about an op (`Op`). The rows are in the files of this folder that begin with
`ops_`; `TABLE` joins them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.compiler.program import Ref


@dataclass
class Live:
    """A value of the program being made: its name and, as PyTorch computes it, its tensor."""

    name: str
    t: Any
    exact: bool = True
    """The same in every correct compilation, to the last bit: the operand of ops that jump."""
    loose: bool = False
    """May or may not share memory with another value (`reshape`)."""

    @property
    def ref(self) -> Ref:
        return Ref(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.t.shape)

    @property
    def dtype(self) -> str:
        return str(self.t.dtype).removeprefix("torch.")

    @property
    def is_float(self) -> bool:
        return bool(self.t.dtype.is_floating_point)

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"


Wanted = Callable[[Live], bool]


class Maker(Protocol):
    """What a row may ask of the generator."""

    rng: Any

    def pick(self, wanted: Wanted = ..., *, exact: bool = ...) -> Live | None: ...
    def fresh(self, shape: tuple[int, ...], dtype: str = ..., values: str = ...) -> Live | None: ...
    def number(self, whole: bool = ...) -> Any: ...
    def live(self) -> list[Live]: ...


@dataclass(frozen=True)
class Op:
    name: str
    text: str
    pick: Callable[[Any], tuple[Any, ...] | None]
    wide: Callable[..., Any] | None = None
    """The same on NumPy arrays; None: compared with eager only."""
    exact: bool = False
    """Moves, selects or compares: no rounding."""
    jumps: bool = False
    """Not continuous: only exact operands, or a last-bit difference is seen as a mistake."""
    writes: bool = False
    """Changes its first operand."""
    loose: bool = False
    """The result may be a view or a copy, by the layout of the operand."""
    weight: float = 1.0


# ---- which operands


def floats(v: Live) -> bool:
    return v.is_float


def arithmetic(v: Live) -> bool:
    return not v.is_bool


def whole(v: Live) -> bool:
    return not v.is_float and not v.is_bool


def flags(v: Live) -> bool:
    return v.is_bool


def anything(v: Live) -> bool:
    return True


def dims(least: int, most: int = 9, wanted: Wanted = anything) -> Wanted:
    return lambda v: least <= len(v.shape) <= most and wanted(v)


def full(wanted: Wanted) -> Wanted:
    """With at least one element."""
    return lambda v: v.t.numel() > 0 and wanted(v)


def within(low: float, high: float, wanted: Wanted = floats) -> Wanted:
    """All elements in a range (where a function is smooth and finite)."""

    def check(v: Live) -> bool:
        if not wanted(v) or v.t.numel() == 0:
            return False
        x = v.t.detach()
        return bool((x >= low).all()) and bool((x <= high).all())

    return check


# ---- the operands, in the order of the text


def one(wanted: Wanted = floats, exact: bool = False) -> Callable[[Maker], Any]:
    def pick(g: Maker) -> Any:
        x = g.pick(wanted, exact=exact)
        return None if x is None else (x.ref,)

    return pick


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Both shapes broadcast together."""
    return all(x == y or x == 1 or y == 1 for x, y in zip(a[::-1], b[::-1], strict=False))


def partner(g: Maker, x: Live, wanted: Wanted, exact: bool = False) -> Live | None:
    """A second operand that broadcasts with the first; a new input where there is none."""
    y = g.pick(lambda v: wanted(v) and fits(x.shape, v.shape), exact=exact)
    if y is not None and (y.name != x.name or g.rng.random() < 0.3):
        return y
    shape = x.shape
    if shape and g.rng.random() < 0.4:
        shape = g.rng.choice([shape[1:], (*shape[:-1], 1), (1, *shape[1:])])
    return g.fresh(shape, x.dtype) or y


def two(wanted: Wanted = floats, second: Wanted | None = None, exact: bool = False) -> Any:
    def pick(g: Maker) -> Any:
        x = g.pick(wanted, exact=exact)
        y = x and partner(g, x, second or wanted, exact)
        return (x.ref, y.ref) if x and y and (second or wanted)(y) else None

    return pick


def three(wanted: Wanted = floats) -> Any:
    def pick(g: Maker) -> Any:
        x = g.pick(wanted)
        same = lambda v: wanted(v) and v.dtype == x.dtype  # noqa: E731
        y = x and partner(g, x, same)
        z = x and partner(g, x, same)
        if not (x and y and z and same(y) and same(z) and fits(y.shape, z.shape)):
            return None
        return (x.ref, y.ref, z.ref)

    return pick


def with_number(wanted: Wanted = arithmetic, exact: bool = False) -> Any:
    """A tensor and a number that suits its dtype."""

    def pick(g: Maker) -> Any:
        x = g.pick(wanted, exact=exact)
        return None if x is None else (x.ref, g.number(whole=not x.is_float))

    return pick


def with_dim(wanted: Wanted = floats, exact: bool = False, keep: bool = False) -> Any:
    """A tensor, a dimension and whether to keep it."""

    def pick(g: Maker) -> Any:
        x = g.pick(dims(1, 9, wanted), exact=exact)
        if x is None:
            return None
        d = dim_of(g, x)
        return (x.ref, d, g.rng.random() < 0.4) if keep else (x.ref, d)

    return pick


def dim_of(g: Maker, x: Live) -> int:
    return int(g.rng.randrange(-len(x.shape), len(x.shape)))
