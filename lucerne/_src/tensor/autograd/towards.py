"""A pass over records to chosen leaves: what `func.grad` and its like ask for.

`records.backward` adds to `.grad` of every leaf; here some tensors are asked for, nothing is added
anywhere, and only formulas that lead to one of them are computed. As there, no nodes are made. A
graph that is not made of records alone needs the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.tensor.autograd.engine import note_place
from lucerne._src.tensor.autograd.node import anomaly, fit, gradients, plus
from lucerne._src.tensor.autograd.pending import ARGS, AUTOS, MASK, META, OP, PART, PLACE, Record
from lucerne._src.tensor.autograd.records import (
    Flow,
    NamedRecord,
    is_plain_leaf,
    parts_of,
    recipe,
    release,
    walk,
)
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase


def gradients_towards(
    outputs: Sequence[Any], given: Sequence[Any], inputs: Sequence[Any], keep_graph: bool
) -> list[Any] | None:
    """The gradients of the leaves `inputs`, for the gradients `given` of `outputs` (all of which
    require them); None for one that nothing leads to. None at all: this graph needs the engine."""
    if anomaly.enabled or Watch.current is not None:
        return None
    roots = [r for r in map(history, outputs) if r]
    slots = {id(x._auto): i for i, x in enumerate(inputs)}
    plain = all(is_plain_leaf(x, x._auto) for x in inputs) and len(slots) == len(inputs)
    order = walk(roots) if plain and len(roots) == len(outputs) else None
    masks = None if order is None else _masks(order, slots)
    if order is None or masks is None:
        return None
    flow = Flow(order)
    for root, g in zip(roots, given, strict=True):
        flow.arrive(root, g)
    found: list[Any] = [None] * len(inputs)
    before, dispatch_state.grad_enabled = dispatch_state.grad_enabled, False
    try:
        for record in reversed(order):
            g = flow.arriving.pop(id(record), None)
            mask = masks[id(record)]
            if g is not None and mask:
                _visit(record, mask, g, flow, slots, found)
                if not keep_graph:
                    release(record)
    finally:
        dispatch_state.grad_enabled = before
        dispatch_state.backward_of = None
    return found


def history(t: Any) -> Record | None:
    """The record of a tensor, if that is the whole of its history."""
    record: Record | None = t._record
    if record is None or (t._view is not None and t._storage.version != t._view.version):
        return None
    return record


def ends(order: Sequence[Record], visit: Callable[[AutogradState], bool]) -> bool:
    """Whether `visit` is true of some place where these records end: a leaf, or a node."""
    return any(
        visit(auto)
        for record in order
        for given in record[AUTOS]
        for auto in (given if type(given) is tuple else (given,))
        if isinstance(auto, AutogradState)
    )


def _masks(order: Sequence[Record], slots: dict[int, int]) -> dict[int, int] | None:
    """For each record the arguments through which a wanted leaf is reached; None: there are nodes
    through which one may be."""
    found: dict[int, int] = {}

    def leads(auto: Any) -> bool | None:
        if type(auto) is list:
            return found[id(auto[0] if len(auto) == PART else auto)] != 0
        return None if auto is not None and auto.grad_fn is not None else id(auto) in slots

    for record in order:
        mask = 0
        for i, given in enumerate(record[AUTOS]):
            if given is None:
                continue
            parts = [leads(a) for a in given] if type(given) is tuple else [leads(given)]
            if None in parts:
                return None
            mask |= any(parts) << i
        found[id(record)] = mask & record[MASK]
    return found


def _visit(
    record: Record, mask: int, g: Any, flow: Flow, slots: dict[int, int],
    found: list[Any],
) -> None:  # fmt: skip
    """Send what arrived at a record on to its arguments."""
    if type(g) is list:
        g = gradients(record[OP], g, record[META])
    if dispatch_state.kernel_level:
        dispatch_state.backward_of = record[PLACE]
    try:
        made = [
            (i, parts[part or 0])
            for step in recipe(record[OP], mask)[1]
            for parts in (parts_of(record, g, *step),)
            for i, part in step[2]
        ]
        if len(made) > 2:
            made.sort(key=lambda pair: pair[0])
        args, autos = record[ARGS], record[AUTOS]
        for i, one in made:
            if type(autos[i]) is not tuple:
                _give(args[i], autos[i], one, flow, slots, found)
            elif one is not None:
                for arg, auto, each in zip(args[i], autos[i], one, strict=True):
                    _give(arg, auto, each, flow, slots, found)
    except Exception as error:
        note_place(error, NamedRecord(record))
        raise


def _give(arg: Any, auto: Any, g: Any, flow: Flow, slots: dict[int, int], found: list[Any]) -> None:
    if g is None or auto is None:
        return
    meta = arg._meta if isinstance(arg, TensorBase) else arg
    if g._meta is not meta:
        g = fit(g, meta)
    if type(auto) is list:
        flow.arrive(auto, g)
        return
    slot = slots.get(id(auto))
    if slot is not None:
        found[slot] = g if found[slot] is None else plus(found[slot], g)
