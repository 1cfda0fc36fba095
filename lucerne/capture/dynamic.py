"""Sizes that change from call to call: one capture for all of them.

The first capture of a function is made for the sizes it was called with. When the same function
comes with other sizes, it is captured a second time, in step with the first (`SizedCapture`), and a
third time on tensors that are not there, to make sure. From then on (`Sized`) a new size is
not traced: formulas are evaluated (`Sized.at`), and the passes run over what comes out. Machine
code does not depend on sizes, so mostly none is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lucerne.base.numbers import GivenFloat
from lucerne.base.shape import Size
from lucerne.capture.reach import Reach
from lucerne.capture.recorder import Recorder
from lucerne.capture.sized import SizedRecorder
from lucerne.capture.trace import (
    ARGUMENT,
    CONSTANT,
    COVER,
    GRADIENT,
    HELD,
    NUMBER,
    TANGENT,
    Capture,
    Captured,
    Effect,
    Outcome,
    Source,
    Whole,
)
from lucerne.ir import op as op_
from lucerne.ir.graph import Graph, Node, Value
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Op
from lucerne.ir.symbols import SMALLEST, Guard, SymInt, guarding, plain
from lucerne.ops.arithmetic import neg
from lucerne.tensor.interop import values
from lucerne.transforms.functionalize import view_offsets
from lucerne.transforms.generalize import (
    DifferentError,
    Instance,
    Reason,
    SizeRefusedError,
    Template,
    generalize,
)

_LIKE: Op = neg.op  # type: ignore[attr-defined]
"""Stands for "a tensor like this one": a tangent has the sizes of the result it belongs to."""


class SizedCapture(Capture):
    """A capture in step with an earlier one: sizes are `SymInt`s, and decisions become guards."""

    def __init__(
        self, fn: Any, args: Any, kwargs: Any, reach: Reach, whole: Whole, first: Captured
    ) -> None:
        super().__init__(fn, args, kwargs, reach, whole)
        self.first = Graph()
        self.first.inputs, self.first.nodes = first.recorded, first.graph.nodes
        self.guards: list[Guard] = []

    def make_recorder(self) -> Recorder:
        return SizedRecorder(self.whole, self.first)

    def _attempt(self, probe: bool) -> Captured:
        with guarding() as guards:
            made = super()._attempt(probe)
        self.guards = list(guards)
        recorder: Any = self.recorder
        self.told = Told(self.guards, recorder.hints, made.leaves)
        made.leaves = [_bare(x) for x in made.leaves]
        return made


@dataclass
class Told:
    """What a sized capture tells besides."""

    guards: list[Guard]
    hints: dict[int, tuple[Any, ...]]
    """By number of a node: arguments with formulas."""
    leaves: list[Any]
    """What was returned, with formulas."""


def _bare(x: Any) -> Any:
    """What is returned, without the formulas of its sizes."""
    if type(x) is Size:
        return Size(map(plain, x))
    return plain(x) if type(x) is SymInt else x


class Sized:
    """A captured call for all sizes."""

    def __init__(self, captured: Captured, template: Template, beside: Any) -> None:
        self.captured, self.template, self.beside = captured, template, beside
        self.sources = [s for s in captured.sources if s.kind != TANGENT]

    def at(self, leaves: Sequence[Any]) -> Captured | None:
        """What a capture of a call with these leaves would give; None: it must be captured."""
        sizes = self._sizes(leaves)
        if sizes is None:
            return None
        try:
            found = self.at_sizes(sizes)
        except SizeRefusedError:
            return None
        for s, x in zip(found.wanted, found.gradients, strict=True):
            t = _given(s, leaves)
            if x is not None and t is not None and x.meta.shape != t._meta.shape:
                return None
        return found

    def at_sizes(self, sizes: dict[str, int]) -> Captured:
        instance = Instance(self.template, sizes)
        guessed, others = instance.value_of(self.beside)
        places = _Places(instance)
        outcomes: dict[int, Outcome] = {}
        for x, found in zip(_all_outcomes(self.captured), guessed, strict=True):
            offset, meta = found if x.value is None else places.of(x.value)
            outcomes.setdefault(id(x), replace(x, offset=offset, meta=meta))
        return _moved(self.captured, instance, outcomes, others)

    def _sizes(self, leaves: Sequence[Any]) -> dict[str, int] | None:
        """The size of each symbol, if all inputs that the call gives are as they then should be."""
        template = self.template
        metas: list[Any] = []
        for v, s in zip(template.graph.inputs, self.sources, strict=True):
            t = _given(s, leaves)
            metas.append(v.meta if t is None else t._meta)
        sizes = {}
        for name, (i, d) in template.symbols.items():
            if metas[i].ndim <= d or metas[i].shape[d] < SMALLEST:
                return None
            sizes[name] = int(metas[i].shape[d])
        if any(have is not want for have, want in zip(metas, template.metas(sizes), strict=True)):
            return None
        return sizes if template.admits(sizes) else None


def _given(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor of an input, as far as a call decides about it."""
    if source.kind == ARGUMENT:
        return leaves[source.index]
    if source.kind == GRADIENT:
        owner = _given(source.thing, leaves)
        return None if owner is None else owner.grad
    return source.thing if source.kind == HELD else None


def _moved(
    old: Captured, instance: Instance, outcomes: dict[int, Outcome], others: list[Any]
) -> Captured:
    """A captured call with the values, metas and numbers of other sizes."""
    new, made = instance.values, instance.graph
    rest = iter(others)

    def outcome(x: Any) -> Any:
        return outcomes[id(x)] if type(x) is Outcome else x

    def leaf(x: Any) -> Any:
        if type(x) is Outcome:
            return outcomes[id(x)]
        found = next(rest)
        return Size(found) if type(x) is Size else found

    graph = Graph()
    graph.inputs = [new[v.index] for v in old.graph.inputs]
    graph.nodes = [*made.nodes[: old.backward_at]]
    graph.nodes += made.nodes[old.backward_at + len(old.differentiated) :]
    graph._next = old.graph._next
    return replace(
        old,
        graph=graph,
        roots=[new[v.index] for v in old.roots],
        fresh=frozenset(new[v.index] for v in old.fresh),
        recorded=[new[v.index] for v in old.recorded],
        differentiated=[new[v.index] for v in old.differentiated],
        leaves=[leaf(x) for x in old.leaves],
        effects=[Effect(e.owner, outcome(e.outcome)) for e in old.effects],
        gradients=[outcome(x) for x in old.gradients],
    )


# ---- what stands beside the graph ---------------------------------------------------------------


def _all_outcomes(captured: Captured) -> list[Outcome]:
    found = [
        *captured.leaves,
        *[e.outcome for e in captured.effects],
        *captured.gradients,
    ]
    return [x for x in found if type(x) is Outcome]


def _beside(captured: Captured) -> tuple[Any, Any]:
    """The numbers that depend on sizes: where outcomes lie, and what is returned besides."""
    outcomes = [None if x.value else (x.offset, x.meta) for x in _all_outcomes(captured)]
    others = [x for x in captured.leaves if type(x) is not Outcome]
    return outcomes, [tuple(x) if type(x) is Size else x for x in others]


class _Places:
    """Where values of an instance lie in the memories they read."""

    def __init__(self, instance: Instance) -> None:
        self.values = instance.values
        self.makers = {
            v.index: node
            for node in instance.graph.nodes
            if node.op.kind == op_.VIEW
            for v in node.outputs
        }

    def of(self, old: Value) -> tuple[int, TensorMeta]:
        """Offset from the first element of the memory's root, and meta."""
        value = self.values[old.index]
        return self._offset(value), value.meta

    def _offset(self, value: Value) -> int:
        node = self.makers.get(value.index)
        if node is None:
            return 0
        source = node.args[0]
        ratio = source.meta.dtype.itemsize, value.meta.dtype.itemsize
        at = self._offset(source) * ratio[0] // ratio[1]
        return at + view_offsets(node)[[v.index for v in node.outputs].index(value.index)]


def difference(a: Captured, b: Captured) -> str:
    """In which way two captures are not one function at two sizes; empty: in none.

    Graphs are not compared here, nor is what depends on sizes.
    """
    if a.shape != b.shape or len(a.sources) != len(b.sources):
        return "something else is returned, or read"
    if a.covered or b.covered:
        return "arguments share memory with each other"
    if a.stored or b.stored:
        return "tensors are kept for the next call"
    if [k for k, _ in a.checks] != [k for k, _ in b.checks]:
        return "other things are checked"
    for x, y in zip(a.sources, b.sources, strict=True):
        if not _same_source(x, y):
            return f"an input is a {x.kind} of one capture and a {y.kind} of the other"
    if [_fact(x) for x in _all_outcomes(a)] != [_fact(x) for x in _all_outcomes(b)]:
        return "results are readings of other memories"
    for p, q in ((a.none_grads, b.none_grads), (a.wanted, b.wanted)):
        if len(p) != len(q) or not all(map(_same_source, p, q)):
            return "other gradients are needed"
    owners = [e.owner for e in a.effects], [e.owner for e in b.effects]
    if len(owners[0]) != len(owners[1]) or not all(map(_same_source, *owners)):
        return "gradients of other tensors are set"
    if {v.index for v in a.fresh} != {v.index for v in b.fresh}:
        return "other inputs are constants"
    if a.forward_roots != b.forward_roots or len(a.roots) != len(b.roots):
        return "other results"
    return ""


def _fact(x: Outcome) -> Any:
    return x.of_input, x.index, x.itself is None, x.requires_grad, bool(x.used_up), x.tangent


def _same_source(a: Source, b: Source) -> bool:
    if a.kind != b.kind or a.index != b.index:
        return False
    if a.kind in (GRADIENT, COVER):
        return _same_source(a.thing, b.thing)
    if a.kind == CONSTANT:
        return _same_bytes(a.thing, b.thing)
    if a.kind == NUMBER:
        return _same_number(a.thing, b.thing)
    return a.thing is b.thing


def _same_bytes(a: Any, b: Any) -> bool:
    if a._meta is not b._meta:
        return False
    x, y = np.ascontiguousarray(values(a)), np.ascontiguousarray(values(b))
    return bool(x.tobytes() == y.tobytes())


def _same_number(a: Any, b: Any) -> bool:
    """Whether two numbers are read at the same place, or computed alike of such."""
    if type(a) is not GivenFloat or type(b) is not GivenFloat:
        return type(a) is type(b) and bool(a == b)
    pairs = (a.source, b.source), (a.formula, b.formula)
    if any(len(x) != len(y) for x, y in pairs):
        return False
    if a.formula:
        return a.formula[0] is b.formula[0] and all(map(_same_number, a.formula[1:], b.formula[1:]))
    return a.source[0] is b.source[0] and a.source[1:] == b.source[1:]


# ---- comparing captures -------------------------------------------------------------------------


def generalized(captures: list[Captured], told: Told) -> Template | Reason:
    """A template of the graphs of these captures (the second of which was a sized one), or why
    there is none."""
    for other in captures[1:]:
        why = difference(captures[0], other)
        if why:
            return Reason(why)
    at, more = captures[1].backward_at, len(captures[1].differentiated)
    hints = {k if k < at else k + more: args for k, args in told.hints.items()}
    return generalize(*map(_closed, captures), guards=told.guards, hints=hints)


def sized(captures: list[Captured], told: Told) -> Sized | Reason:
    """The first of the captures for all sizes, or why that can't be."""
    template = generalized(captures, told)
    if not isinstance(template, Template):
        return template
    hints = [x for x in told.leaves if type(x) is not Outcome]
    try:
        beside = template.formula([_beside(c) for c in captures], ((), hints))
    except DifferentError as error:
        return Reason(error)
    made = Sized(captures[0], template, beside)
    for captured in captures:
        why = _unlike(made, captured)
        if why:
            return Reason(why)
    return made


def _unlike(made: Sized, captured: Captured) -> str:
    """What a sized capture gives otherwise at the sizes of a real one."""
    sizes = made.template.bind([v.meta for v in _closed(captured).inputs])
    if sizes is None:
        return "a guard does not hold for one of the captures"
    found = made.at_sizes(sizes)
    for a, b in zip(_all_outcomes(found), _all_outcomes(captured), strict=True):
        if a.meta is not b.meta or a.offset != b.offset:
            return f"a result of sizes {tuple(b.meta.shape)} would be {tuple(a.meta.shape)}"
    pairs = zip(found.leaves, captured.leaves, strict=True)
    if any(a != b for a, b in pairs if type(b) is not Outcome):
        return "a number that is returned does not follow from the sizes"
    return ""


def _closed(captured: Captured) -> Graph:
    """The graph as it is compared: with its roots as outputs, and without inputs whose sizes the
    arguments do not tell (tangents are made like the results they belong to)."""
    made, graph = Graph(), captured.graph
    tangents: dict[int, Value] = {}
    for v, s in zip(graph.inputs, captured.sources, strict=True):
        if s.kind == TANGENT:
            tangents[s.index] = v
        else:
            made.inputs.append(v)
    like = [Node(_LIKE, (of,), (tangents[k],)) for k, of in enumerate(captured.differentiated)]
    at = captured.backward_at
    made.nodes = [*graph.nodes[:at], *like, *graph.nodes[at:]]
    made._next, made.outputs = graph._next, tuple(captured.roots)
    return made
