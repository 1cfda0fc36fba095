"""Notes: what grouping decided and why, for people who ask.

`lower(..., notes=Notes())` fills them; `neighbours` then tells, for every pair of kernels of which
one reads what the other makes, why they are two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node, Value, operands
from lucerne._src.loops.group import Grouping

NO_KERNEL = "the backend has no kernel for all of it"


@dataclass
class Notes:
    """What happened while groups were made."""

    apart: list[tuple[int, int, str]] = field(default_factory=list)
    """(node, later node, why their groups were not joined)."""
    refused: list[list[Node]] = field(default_factory=list)
    """Groups that the backend did not take."""
    units: list[tuple[int, list[Node], list[Value]]] = field(default_factory=list)
    """(its first step, nodes, what it reads) of each kernel to be, in order."""
    grouping: Grouping | None = None


@dataclass(frozen=True)
class KeptApart:
    """Two kernels, by their steps, that could have been one; `op` and `reader` are the ops where
    they meet."""

    first: int
    second: int
    op: str
    reader: str
    why: str


def neighbours(notes: Notes) -> Iterator[KeptApart]:
    """Every pair of kernels of which one reads what the other makes, once."""
    grouping = notes.grouping
    if grouping is None:
        return
    unit_of = {id(n): k for k, (_, nodes, _) in enumerate(notes.units) for n in nodes}
    told = _decisions(notes, grouping, unit_of)
    seen: set[tuple[int, int]] = set()
    for k, (step, nodes, _) in enumerate(notes.units):
        for node in nodes:
            for v in () if node.op.kind == op_.VIEW else operands(node.args):
                base = grouping.source.get(v, v)
                if base not in grouping.maker:
                    continue
                maker = grouping.graph.nodes[grouping.maker[base]]
                first = unit_of.get(id(maker), k)
                if first == k or (first, k) in seen:
                    continue
                seen.add((first, k))
                why = told.get((first, k)) or _structure(grouping, maker, node, v, base)
                yield KeptApart(notes.units[first][0], step, maker.op.name, node.op.name, why)


def _decisions(
    notes: Notes, grouping: Grouping, unit_of: dict[int, int]
) -> dict[tuple[int, int], str]:
    """What was said about pairs of kernels while they grew; the last word counts."""
    nodes = grouping.graph.nodes
    found: dict[tuple[int, int], str] = {}
    for a, b, why in notes.apart:
        pair = unit_of.get(id(nodes[a]), -1), unit_of.get(id(nodes[b]), -1)
        found[pair] = found[pair[::-1]] = why
    for group in notes.refused:
        units = {unit_of.get(id(n), -1) for n in group}
        found.update(((a, b), NO_KERNEL) for a in units for b in units if a != b)
    return found


def _structure(grouping: Grouping, maker: Node, node: Node, v: Value, base: Value) -> str:
    """Why two nodes were never tried together."""
    if grouping._space(node) is None:
        if node.op.qualified in grouping.fusion.anchors:
            return f"{node.op.name} reads each element many times: its operands lie in memory"
        return f"{node.op.name} has a kernel of its own, which takes nothing along"
    if v is not base and v not in grouping.same:
        return "it is read through a view that changes the order of elements"
    if grouping._space(maker) is None and maker.op.qualified not in grouping.fusion.anchors:
        return f"{maker.op.name} has a kernel of its own, which takes nothing along"
    return f"{maker.op.name} was taken into a kernel that ends with its heavy op"
