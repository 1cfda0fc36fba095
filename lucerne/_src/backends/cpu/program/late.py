"""Kernels whose words can't be written as formulas of sizes: made anew for each size.

A rule that is asked for a kernel of any sizes computes with symbols. Where it needs a number (a
table as long as an image is high, a key), what it makes holds for that number alone: the kernel is
then made by the same rule when the sizes are known. Everything around it still is for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import is_sized
from lucerne._src.ir.symbolic.at_sizes import Sizes, graph_at
from lucerne._src.ir.symbolic.numbers import NoKeyError, guarding, guards_now, leave_all


class LateKernel:
    """Stands for the kernel of a graph until the sizes are known."""

    def __init__(self, graph: Graph, make: Callable[[Graph], Any]) -> None:
        self.graph, self.make = graph, make

    def at(self, sizes: Sizes) -> Any:
        """What the rule makes of the graph at these sizes."""
        return self.make(graph_at(self.graph, sizes))

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        raise AssertionError("a kernel that is made for each size runs at none")


def made_for_all(graph: Graph, make: Callable[[Graph], Any]) -> Any:
    """`make(graph)`; of a graph of any sizes, if that gives no kernel for all of them: one that is
    made later. (Whether there is one at all is asked for the sizes at hand.)"""
    if guards_now() is None or not any(is_sized(v.meta) for v in _values(graph)):
        return make(graph)
    holds, made = for_all_sizes(lambda: make(graph))
    if holds:
        return made
    with guarding():
        here = make(graph_at(graph, None))
    return None if here is None else LateKernel(graph, make)


def for_all_sizes(make: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether what `make()` gives holds for all sizes, under the guards that are left then; and
    what it gives."""
    with guarding(keys=False) as found:
        try:
            made = make()
            needs_number = any(by_value is not None for by_value in found.values())
        except NoKeyError:
            needs_number = True
    if needs_number:
        return False, None
    leave_all(found)
    return True, made


def _values(graph: Graph) -> list[Any]:
    return [*graph.inputs, *(v for n in graph.nodes for v in n.outputs)]
