"""Which blocks of a traced kernel are worth computing once and keeping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucerne._src.ir import tile as ir
from lucerne._src.ir.tile import Let, Set, Store, TileExpr, TileLoop
from lucerne._src.tiles.types import CHEAP

SCRATCH_BYTES = 192 * 1024
"""What all blocks that a program keeps may take."""
_KEEP_BYTES = 64 * 1024
"""A block that would be computed twice is kept if it takes at most this much."""


def all_statements(body: tuple[Any, ...]) -> Iterator[Any]:
    for s in body:
        if isinstance(s, TileLoop):
            yield from all_statements(s.body)
        else:
            yield s


def _read_by(s: Any) -> list[TileExpr]:
    """What a statement computes, element by element."""
    if isinstance(s, Let):
        return [] if s.expr.kind in ("read", "dot") else list(s.expr.args)
    return [s.expr] if isinstance(s, (Store, Set)) else []


def with_keeps(tracer: Any, body: list[Any]) -> list[Any]:
    """The statements, with costly blocks that two of them need computed once and kept."""
    users: dict[int, list[int]] = {}
    found: dict[int, TileExpr] = {}
    for n, s in enumerate(body):
        seen: set[int] = set()
        for root in _read_by(s):
            for e in ir.operands(root, seen):
                if e.kind == "point" and e.data not in CHEAP and e.dims:
                    users.setdefault(e.number, []).append(n)
                    found[e.number] = e
    replaced: dict[int, TileExpr] = {}
    before: dict[int, list[Let]] = {}
    for number, where in users.items():
        e = found[number]
        nbytes = e.dtype.itemsize
        for d in e.dims:
            nbytes *= d.length
        room = tracer.scratch + nbytes <= SCRATCH_BYTES and nbytes <= _KEEP_BYTES
        variable = any(x.kind == "read" for x in ir.operands(e))
        if len(set(where)) > 1 and room and not variable:
            tracer.scratch += nbytes
            kept = tracer.expr("keep", e.dtype, e.dims, (e,), ("auto", len(tracer.exprs)))
            replaced[number] = kept
            before.setdefault(where[0], []).append(Let(kept))
    if not replaced:
        return body
    swap = _Rewriter(tracer, replaced)
    made: list[Any] = []
    for n, s in enumerate(body):
        made += before.get(n, [])
        made.append(swap.statement(s))
    return made


class _Rewriter:
    """Statements with some expressions replaced by the kept ones."""

    def __init__(self, tracer: Any, replaced: dict[int, TileExpr]) -> None:
        self.tracer, self.replaced = tracer, replaced
        self._made: dict[int, TileExpr] = {}

    def statement(self, s: Any) -> Any:
        if isinstance(s, (Store, Set)):
            return s._replace(expr=self.expr(s.expr))
        if isinstance(s, Let) and s.expr.kind in ("fold", "scan", "keep"):
            # The expression stays the same object for who reads it: its argument changes.
            s.expr.args = tuple(self.expr(a) for a in s.expr.args)
        return s

    def expr(self, e: TileExpr) -> TileExpr:
        if e.number in self.replaced:
            return self.replaced[e.number]
        if ir.is_made(e) or not e.args or e.kind == "load":
            return e
        if e.number not in self._made:
            args = tuple(self.expr(a) for a in e.args)
            same = all(a is b for a, b in zip(args, e.args, strict=True))
            self._made[e.number] = (
                e if same else self.tracer.expr(e.kind, e.dtype, e.dims, args, e.data, e.weak)
            )
        return self._made[e.number]
