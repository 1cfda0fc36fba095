"""Sizes and decisions: at which sizes a module is traced, and in which range it does the same."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from lucerne.export import blueprint as bp
from lucerne.export.dims import Dynamic
from lucerne.export.errors import ExportError
from lucerne.ir.symbols import SMALLEST, Guard
from lucerne.ir.symbols import symbol as symbol_
from lucerne.transforms.generalize import Template

_TRACES = 4
"""At how many more sizes a module is traced, if there are as many."""


def sizes_to_try(dynamic: Dynamic) -> list[dict[str, int]]:
    """Sizes for further traces: unlike each other, with different rests, inside the ranges."""
    chosen: dict[str, list[int]] = {}
    fixed: set[int] = set()
    for name, root in dynamic.roots.items():
        n = dynamic.example[name]
        low, high = max(root.min, SMALLEST), root.max
        pool = [
            2 * n + 3,
            2 * n + 2,
            3 * n + 4,
            n + 1,
            31,
            26,
            19,
            12,
            9,
            n + 2,
            n - 1,
            *range(low, low + 12),
        ]
        found: list[int] = []
        for k in pool:
            size = min(k, high)
            if low <= size and size != n and size not in found and size not in fixed:
                found.append(size)
            if len(found) == _TRACES:
                break
        if not found:
            found = [k for k in (low, high, low + 1) if low <= k <= high and k != n][:1]
        fixed.update(found)
        chosen[name] = found
    count = max((len(x) for x in chosen.values()), default=0)
    if any(not x for x in chosen.values()):
        return []
    return [{name: x[k % len(x)] for name, x in chosen.items()} for k in range(count)]


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


def check_guards(made: bp.Blueprint, dynamic: Dynamic) -> None:
    """What the module decided by sizes must be so in the whole range that was asked for; a range
    that nobody asked for (`Dim.AUTO`) ends where it is no longer so."""
    assert made.template is not None
    example = made.example_sizes()
    for guard in made.template.guards:
        names = guard.left.symbols() | guard.right.symbols()
        if not names <= made.ranges.keys() or len(names) != 1:
            continue
        [symbol] = names
        known = made.ranges[symbol]
        if known.name in dynamic.optional:
            narrow(guard, symbol, known, example[symbol])
            continue
        refuse_decision(guard, symbol, known, made.renamed(repr(guard)))
    made.guards = [made.renamed(repr(g)) for g in made.template.guards if g.users]


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


def broken_decision(
    guards: list[Guard], dynamic: Dynamic, at: Mapping[str, int]
) -> tuple[str, Guard] | None:
    """A decision of the user's code by one size that comes out otherwise in the example: the name
    of that size, and the decision as the example has it, about a size called s."""
    sizes, names = dynamic.sizes(at), {}
    before = dynamic.sizes(dynamic.example)
    seen: dict[tuple[int, int], str] = {}
    for p in sorted(dynamic.places, key=lambda p: (p.leaf, p.dim)):
        pair = before[p.leaf, p.dim], sizes[p.leaf, p.dim]
        if pair[0] != pair[1] and pair not in seen:
            seen[pair] = symbol = f"s{len(seen)}"
            if p.size(3) == 3:  # a size itself, not one that follows from it
                names[symbol] = p.root.name
    for g in guards:
        used = g.left.symbols() | g.right.symbols()
        if not g.users or len(used) != 1 or not used <= names.keys():
            continue
        [symbol] = used
        if not g.holds({symbol: dynamic.example[names[symbol]]}):
            to = {symbol: symbol_("s")}
            left, right = g.left.replace(to), g.right.replace(to)
            return names[symbol], Guard(left, g.relation, right, not g.result)
    return None


def symbol_sizes(made: bp.Blueprint, dynamic: Dynamic, at: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the template names, for sizes of the roots."""
    assert made.template is not None
    sizes = dynamic.sizes(at)
    return {s: sizes[made.inputs[i].leaf, d] for s, (i, d) in made.template.symbols.items()}


def where_broken(guard: Guard, made: bp.Blueprint, dynamic: Dynamic) -> dict[str, int] | None:
    """Sizes of the roots, inside their ranges, at which a guard does not hold; None: none found."""
    choices = []
    for name, root in dynamic.roots.items():
        n, low = dynamic.example[name], max(root.min, SMALLEST)
        tried = (low, low + 1, low + 2, n, 2 * n + 3, 5 * n + 1, 40 * n + 1, 1000 * n + 1)
        choices.append(sorted({min(max(k, low), root.max) for k in tried}))
    for found in itertools.islice(itertools.product(*choices), 4096):
        at = dict(zip(dynamic.roots, found, strict=True))
        sizes = symbol_sizes(made, dynamic, at)
        known = (guard.left.symbols() | guard.right.symbols()) <= sizes.keys()
        if not known or not guard.holds(sizes):
            return at if known else None
    return None


def narrow(guard: Guard, symbol: str, known: bp.Range, n: int) -> None:
    """The range around a size in which a decision is the same."""
    low = high = n
    while low > known.least and guard.holds({symbol: low - 1}):
        low -= 1
    while high < known.most and guard.holds({symbol: high + 1}) and high < n + 100_000:
        high += 1
    far = high == n + 100_000 and guard.holds({symbol: known.most})
    known.least, known.most = low, known.most if far else high
