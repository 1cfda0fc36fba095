"""Which statements of a tile program share one walk over their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.ir import tile as ir
from lucerne._src.ir.tile import Let, Set, Store, TileDim, TileExpr, TileLoop

MOST_TOGETHER = 6


def domain(s: Any) -> tuple[TileDim, ...] | None:
    """The elements a statement visits; None: it walks in a way of its own."""
    if isinstance(s, (Store, Set)):
        return s.dims
    if isinstance(s, Let):
        e = s.expr
        if e.kind == "keep":
            return e.dims
        if e.kind == "fold" and len(e.args[0].dims) == 1:
            return e.args[0].dims
    return None


def reads(s: Any) -> list[TileExpr]:
    """The expressions that a statement computes at each element."""
    if isinstance(s, (Store, Set)):
        return [s.expr]
    return [] if s.expr.kind == "read" else list(s.expr.args)


def groups(statements: Sequence[Any]) -> list[list[Any]]:
    """Neighbours over the same elements together, unless one needs what another has to finish."""
    found: list[list[Any]] = []
    made: set[int] = set()
    for s in statements:
        mine = None if isinstance(s, TileLoop) else domain(s)
        if (
            found
            and mine is not None
            and len(found[-1]) < MOST_TOGETHER
            and domain_of(found[-1]) == mine
            and not _needs(s, made)
        ):
            found[-1].append(s)
        else:
            found.append([s])
            made = set()
        if isinstance(s, Let) and s.expr.kind == "fold":
            made.add(s.expr.number)
    return found


def domain_of(group: list[Any]) -> tuple[TileDim, ...] | None:
    return None if isinstance(group[0], TileLoop) else domain(group[0])


def _needs(s: Any, folds: set[int]) -> bool:
    """Whether a fold of the same walk must be finished before this statement can begin."""
    if not folds:
        return False
    seen: set[int] = set()
    return any(
        e.number in folds or any(a.number in folds for a in _behind(e))
        for root in reads(s)
        for e in ir.operands(root, seen)
    )


def _behind(e: TileExpr) -> tuple[TileExpr, ...]:
    """What a transpose stands for."""
    return e.args if e.kind == "swap" else ()
