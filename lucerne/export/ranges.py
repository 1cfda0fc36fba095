"""Sizes and decisions: which dimensions are symbols, and in which range a module does the same."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from lucerne._src.base.process.source_location import describe
from lucerne._src.capture.symbolic.shapes import Symbols
from lucerne._src.ir.symbolic.expressions import SMALLEST, Guard, defined
from lucerne._src.ir.symbolic.expressions import symbol as symbol_
from lucerne._src.ir.symbolic.numbers import SizeGuards
from lucerne._src.ir.symbolic.scan import first_wrong
from lucerne._src.transforms.generalize import Template
from lucerne.export import blueprint as bp
from lucerne.export.dims import Dynamic
from lucerne.export.errors import ExportError


def symbols_of(dynamic: Dynamic, fixed: Mapping[tuple[int, int], int]) -> Symbols:
    """A symbol for each Dim; sizes that follow from one (`2 * Dim(...)`) are expressions of it, if
    a dimension shows it as it is."""
    places = [p for p in dynamic.places if (p.leaf, p.dim) not in fixed]
    plain = {p.root.name for p in places if p.size(3) == 3 and p.size(5) == 5}
    keys = {(p.leaf, p.dim): (p.root.name, p.size(0), p.size(1) - p.size(0)) for p in places}
    made = Symbols({at: k for at, k in keys.items() if k[0] not in plain or k[1:] == (0, 1)})
    names = {keys[at]: name for at, name in made.names.items()}
    for at, (root, constant, factor) in keys.items():
        if at not in made.names:
            made.exprs[at] = symbol_(names[root, 0, 1]) * factor + constant
    return made


def ranges_of(template: Template, made: bp.Blueprint, dynamic: Dynamic) -> dict[str, bp.Range]:
    found = {}
    for symbol, (i, d) in template.symbols.items():
        leaf = made.inputs[i].leaf
        place = next(p for p in dynamic.places if (p.leaf, p.dim) == (leaf, d))
        root, n = place.root, dynamic.example[place.root.name]
        derived = place.size(n) != n
        name = f"{root.name}_size" if derived else root.name
        low, high = place.size(max(root.min, SMALLEST)), place.size(root.max)
        found[symbol] = bp.Range(name, low, high)
    return found


def fixed_roots(made: bp.Blueprint, dynamic: Dynamic, guards: SizeGuards) -> set[str]:
    """Dims that nobody insists on (`Dim.AUTO`) and that can't change: alone, or at all."""
    found: set[str] = set()
    example = made.example_sizes()
    for guard in guards:
        names = guard.symbols()
        if guard.relation is defined or not names:
            continue
        optional = {made.ranges[s].name for s in names} & dynamic.optional
        if len(names) > 1:
            found |= optional if not _is_loose(guard, example) else set()
        elif optional:
            [s] = names
            if _is_alone(guard, s, made.ranges[s], example[s]):
                found |= optional
    return found


def _is_alone(guard: Guard, symbol: str, known: bp.Range, n: int) -> bool:
    """Whether a decision by one size comes out another way at the sizes beside it."""
    beside = [k for k in (n - 1, n + 1) if known.least <= k <= known.most]
    return not any(guard.holds({symbol: k}) for k in beside)


def _is_loose(guard: Guard, example: Mapping[str, int]) -> bool:
    """Whether a decision by several sizes comes out the same when they become others."""
    moved = [{**example, s: k * n + 1} for s, n in example.items() for k in (1, 2, 5)]
    return all(guard.holds(sizes) for sizes in moved)


def check_guards(made: bp.Blueprint, dynamic: Dynamic, guards: SizeGuards) -> None:
    """What the module decided by sizes must be so in the whole range that was asked for; a range
    that nobody asked for (`Dim.AUTO`) ends where it is no longer so."""
    example = made.example_sizes()
    for guard, by_value in guards.items():
        names = guard.symbols()
        told = made.renamed(repr(guard))
        if by_value is not None and _breaks(guard, made, example):
            at = "" if by_value.place is None else f" ({describe(by_value.place)})"
            raise ExportError(
                f"export: the module is not one program for all sizes: {told} is needed{at}. A "
                "loop over a size, or a constant made of one, gives another program for each; "
                "make that dimension static (leave it out of dynamic_shapes)."
            )
        if len(names) > 1 and guard.relation is operator.eq and _breaks(guard, made, example):
            wrong = _breaks(guard, made, example) or {}
            sizes = ", ".join(f"{made.ranges[s].name} = {n}" for s, n in wrong.items())
            raise ExportError(
                f"export: the module does not take {sizes}, which dynamic_shapes allows: only "
                f"sizes where {told}. Give the Dim a range without such sizes, one Dim to "
                "dimensions that must agree, or `8 * Dim(...)` where multiples are needed."
            )
        if len(names) != 1 or guard.relation is defined:
            continue
        [symbol] = names
        known = made.ranges[symbol]
        if known.name in dynamic.optional:
            narrow(guard, symbol, known, example[symbol])
            continue
        refuse_decision(guard, symbol, known, told)
    made.guards = [made.renamed(repr(g)) for g in guards if g.relation is not defined]


def _breaks(guard: Guard, made: bp.Blueprint, example: Mapping[str, int]) -> dict[str, int] | None:
    """Sizes inside of the ranges at which a guard does not hold; None: none are found."""
    for s in guard.symbols():
        known = made.ranges[s]
        tried: Iterable[int] = (known.least, *(example[s] + k for k in range(-64, 65)), known.most)
        for n in tried:
            inside = max(known.least, SMALLEST) <= n <= known.most
            if inside and not guard.holds({**example, s: n}):
                return {**example, s: n}
    return None


def exceptions(guard: Guard, made: bp.Blueprint) -> tuple[str, list[int]]:
    """The symbol that a decision is by, and the few sizes in its range where it is not so; none if
    there are many, or if it is by several symbols."""
    names = guard.symbols()
    if len(names) != 1 or guard.relation is defined:
        return "", []
    [symbol] = names
    known = made.ranges[symbol]
    least = max(known.least, SMALLEST)
    wrong = [
        n
        for n in (*range(least, min(known.most, least + 4096) + 1), known.most)
        if not guard.holds({symbol: n})
    ]
    return symbol, wrong if len(wrong) <= _FEW and known.most not in wrong else []


_FEW = 4


def refuse_decision(guard: Guard, symbol: str, known: bp.Range, told: str) -> None:
    """Raise if a decision by one size is not the same in the whole range."""
    least = max(known.least, SMALLEST)
    last = min(known.most, least + 100_000)
    tried = range(least, last + 1, max(1, (last - least) // 4096))
    wrong = [n for n in (*tried, known.most) if not guard.holds({symbol: n})]
    if not wrong:
        return
    right = [n for n in tried if guard.holds({symbol: n})]
    fix = f"min={right[0]}, max={right[-1]}" if right else "another range"
    if right and right[-1] == tried[-1] and known.most not in wrong:
        fix = f"min={right[0]}"
    raise ExportError(
        f"export: the module decides by the size {known.name}: {told}, which is not so for "
        f"{known.name} = {wrong[0]}. Export it for the sizes of one decision, "
        f"Dim({known.name!r}, {fix}), or use torch.cond."
    )


def narrow(guard: Guard, symbol: str, known: bp.Range, n: int) -> None:
    """The range around a size in which a decision is the same."""
    last = max(n, min(known.most, n + _FAR))
    below = first_wrong(guard, symbol, range(n - 1, known.least - 1, -1))
    above = first_wrong(guard, symbol, range(n + 1, last + 1))
    far = above is None and last == n + _FAR and guard.holds({symbol: known.most})
    known.least = min(n, known.least) if below is None else below + 1
    known.most = known.most if far else last if above is None else above - 1


_FAR = 100_000
"""So far a range is tried; one that reaches there reaches to its end, if the decision does."""
