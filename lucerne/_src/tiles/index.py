"""Indices of blocks: affine forms of what is not known yet, and messages that name the line."""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir.tile import Affine
from lucerne._src.tiles.language import Operand


class TileError(RuntimeError):
    """A kernel that can't be compiled: says what is wrong, and at which line."""


class Index(Operand):
    """An integer known as an affine form: a program's number, a loop's counter, sums of them."""

    __slots__ = ("affine",)

    def __init__(self, affine: Affine) -> None:
        self.affine = affine

    @property
    def node(self) -> Index:
        return self

    def __add__(self, other: Any) -> Any:
        found = self._sum(other, 1)
        return super().__add__(other) if found is None else found

    def __radd__(self, other: Any) -> Any:
        found = self._sum(other, 1)
        return super().__radd__(other) if found is None else found

    def __sub__(self, other: Any) -> Any:
        found = self._sum(other, -1)
        return super().__sub__(other) if found is None else found

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, int):
            return Index(Affine(other).plus(self.affine, -1))
        return super().__rsub__(other)

    def __mul__(self, other: Any) -> Any:
        return Index(self.affine.times(other)) if isinstance(other, int) else super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return self.__mul__(other) if isinstance(other, int) else super().__rmul__(other)

    def __neg__(self) -> Any:
        return Index(self.affine.times(-1))

    def _sum(self, other: Any, factor: int) -> Any:
        if isinstance(other, (int, Index)):
            return Index(self.affine.plus(as_affine(other), factor))
        return None

    def bounded_by(self, other: Any) -> Bound:
        return Bound((self.affine, as_affine(other)))

    def __repr__(self) -> str:
        return f"<index {self.affine}>"


class Bound:
    """The least of several indices: where a loop ends."""

    def __init__(self, affines: tuple[Affine, ...]) -> None:
        self.affines = affines

    def bounded_by(self, other: Any) -> Bound:
        more = other.affines if isinstance(other, Bound) else (as_affine(other),)
        return Bound((*self.affines, *more))


def as_affine(x: Any) -> Affine:
    if isinstance(x, Index):
        return x.affine
    if isinstance(x, int) and not isinstance(x, bool):
        return Affine(x)
    return fail(f"expected an index (an int, a program's number, a loop's counter), got {x!r}")


def piece(start: int, stop: int, size: int) -> tuple[int, int]:
    """A slice with fixed ends as (first, one past the last), negative ones counted from the end;
    its extent is what it says, also where it sticks out over the edge."""
    low = max(start + size, 0) if start < 0 else start
    high = stop + size if stop < 0 else stop
    return low, max(low, high)


def here() -> str:
    """The user's line."""
    return describe(user_place())


def fail(text: str) -> NoReturn:
    raise TileError(f"{text}\n  at {here()}")
