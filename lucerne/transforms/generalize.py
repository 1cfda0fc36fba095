"""From traces of a function at different sizes to one graph for all sizes.

Two traces are the same program at different sizes if they have the same nodes with the same
connections, and every number in them is the same or explained by the sizes (see `fit`). The result
is a `Template`: symbols for the sizes of inputs that differed, guards, and `instantiate`, which
makes the graph for other sizes by evaluating formulas and asking each op for its metas again.
Sizes of results that no simple formula explains (of a convolution, say) are quantities of their
own, read off when the node that makes them has been asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from lucerne.base.shape import Size
from lucerne.ir.graph import Graph, Node, Value
from lucerne.ir.meta import TensorMeta, make_meta
from lucerne.ir.symbols import SMALLEST, Expr, Guard, SymInt
from lucerne.transforms.fit import Fit, FloatOf
from lucerne.transforms.rewrite import operands, result_metas


class DifferentError(Exception):
    """The traces are not one program; the text says where."""


class SizeRefusedError(Exception):
    """A template does not hold for these sizes; the text says why."""


class Reason(str):
    """Why there is no template."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def generalize(
    first: Graph,
    second: Graph,
    *more: Graph,
    guards: Iterable[Guard] = (),
    hints: Mapping[int, tuple[Any, ...]] | None = None,
) -> Template | Reason:
    """One template for all given traces, or a `Reason`, which is false.

    `hints`: by number of a node, its arguments in the second trace with `SymInt`s among them. Where
    the formula of one is right for all traces, no other is looked for.

    More traces than two make sure of what two can't tell: a number that is the same at both sizes
    may still change with a third, and a formula with two constants fits any two numbers.
    """
    traces = [first, second, *more]
    try:
        return _Comparison(traces, hints or {}).template(tuple(guards))
    except DifferentError as error:
        return Reason(error)


class Template:
    """A graph for all sizes. `symbols` has, for each name, the (input, dimension) it is read at."""

    def __init__(self, graph: Graph, symbols: dict[str, tuple[int, int]]) -> None:
        self.graph = graph
        self.symbols = symbols
        self.inputs: list[Any] = []
        """For each input: None if it is always the same, else (shape, strides) as formulas."""
        self.formulas: dict[int, Any] = {}
        """By number of the node: its arguments with formulas where numbers depend on sizes."""
        self.named: dict[int, list[tuple[str, int, int]]] = {}
        """By number of the node: (name, result, dimension) of quantities read off its results."""
        self.guards: tuple[Guard, ...] = ()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n} = input {i} size {d}" for n, (i, d) in self.symbols.items())
        return f"<template of {len(self.graph.nodes)} nodes: {sizes}>"

    def bind(self, metas: Sequence[Any]) -> dict[str, int] | None:
        """The sizes that inputs with these metas have; None: it is no template for them."""
        if len(metas) != len(self.inputs):
            return None
        sizes = {}
        for name, (i, d) in self.symbols.items():
            meta = metas[i]
            if not isinstance(meta, TensorMeta) or meta.ndim <= d or meta.shape[d] < SMALLEST:
                return None
            sizes[name] = int(meta.shape[d])
        for given, v, formula in zip(metas, self.graph.inputs, self.inputs, strict=True):
            if given is not (v.meta if formula is None else _meta_at(v.meta, formula, sizes)):
                return None
        return sizes if self.admits(sizes) else None

    def metas(self, sizes: Mapping[str, int]) -> list[Any]:
        """The metas of the inputs at these sizes."""
        pairs = zip(self.graph.inputs, self.inputs, strict=True)
        return [v.meta if f is None else _meta_at(v.meta, f, sizes) for v, f in pairs]

    @property
    def sure(self) -> bool:
        """Whether more than two traces speak for it."""
        return self.fit.traces > 2

    @property
    def traced(self) -> dict[str, tuple[int, ...]]:
        """The size each symbol had in each trace."""
        return {repr(e): values for values, e in self.fit.known.items()}

    def probes(self) -> list[dict[str, int]]:
        """Sizes unlike those that were traced, for a trace that makes sure of the formulas.

        Best first: primes, so that nothing divides them by accident (twice a prime, if only odd
        sizes were seen); then sizes that go on as the
        traced ones do, for functions that need multiples of something; then near ones. Sizes that
        the guards forbid are left out.
        """
        seen, names = self.traced, list(self.symbols)
        tried: list[dict[str, int]] = [{}]
        for name in names:
            odd = all(n % 2 for n in seen[name])  # what is halved shows at even sizes only
            least = max(seen[name]) if odd else 2 * max(seen[name])
            prime = _prime(least, set(tried[0].values()))
            tried[0][name] = 2 * prime if odd else prime
        for factor in (5, 3, 2):
            steps = [abs(seen[n][1] - seen[n][0]) for n in names]
            far = [max(seen[n]) + (factor + k) * s for k, (n, s) in enumerate(zip(names, steps))]  # noqa: B905
            tried.append(dict(zip(names, far, strict=True)))
        tried += [{n: max(seen[n]) + step for n in names} for step in (5, 3, 1, -1)]
        return [
            sizes
            for sizes in tried
            if all(n not in seen[name] and n >= SMALLEST for name, n in sizes.items())
            and self.admits(sizes)
        ]

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the guards that speak of inputs hold; the others are seen by `instantiate`."""
        return all(g.holds(sizes) for g in self.guards if self._early(g))

    def _early(self, guard: Guard) -> bool:
        return (guard.left.symbols() | guard.right.symbols()) <= self.symbols.keys()

    def instantiate(self, sizes: Mapping[str, int]) -> Graph:
        """The graph at these sizes; values have the numbers they have in `self.graph`."""
        return Instance(self, sizes).graph

    def formula(self, seen: Sequence[Any], hint: Any = None) -> Any:
        """A thing beside the graph, given as it was in each trace, as a formula of the sizes.

        Things are numbers, metas, and tuples or lists of them; `value_of` evaluates. `hint`: the
        thing with `SymInt`s in it.
        """
        return _Walk(self.fit, "beside the graph").formula(tuple(seen), hint)

    fit: Fit


class Instance:
    """A template at some sizes: the graph, and the values of all named quantities."""

    def __init__(self, template: Template, sizes: Mapping[str, int]) -> None:
        self.template = template
        self.sizes = dict(sizes)
        self.values: dict[int, Value] = {}
        self.graph = graph = Graph()
        old = template.graph
        self._known: dict[Any, tuple[TensorMeta, ...]] = {}
        self._same: set[int] = set()
        for v, formula in zip(old.inputs, template.inputs, strict=True):
            meta = v.meta if formula is None else _meta_at(v.meta, formula, self.sizes)
            graph.inputs.append(self._value(v, meta))
        for k, node in enumerate(old.nodes):
            graph.nodes.append(self._node(k, node))
        graph.outputs = tuple(self.values[v.index] for v in old.outputs)
        graph.writes = [(self.values[a.index], self.values[b.index]) for a, b in old.writes]
        graph._next = old._next
        for guard in template.guards:
            if not guard.holds(self.sizes):
                raise SizeRefusedError(f"the function decided otherwise: {guard}")

    def value_of(self, formula: Any) -> Any:
        """What a formula of `Template.formula` is here."""
        return _evaluated(formula, self.sizes)

    def _value(self, old: Value, meta: Any) -> Value:
        made = self.values[old.index] = Value(old.index, meta)
        if meta is old.meta:
            self._same.add(old.index)
        return made

    def _node(self, k: int, node: Node) -> Node:
        formulas = self.template.formulas.get(k)
        args = node.args if formulas is None else _evaluated(formulas, self.sizes)
        args, same = self._placed(args)
        same = same and formulas is None
        metas: Sequence[Any] = (
            [v.meta for v in node.outputs] if same or not node.outputs else self._metas(node, args)
        )
        if len(metas) != len(node.outputs):
            raise SizeRefusedError(f"{node.op.name} gives another number of results")
        outputs = tuple([self._value(v, m) for v, m in zip(node.outputs, metas, strict=True)])
        for name, result, dim in self.template.named.get(k, ()):
            self.sizes[name] = int(metas[result].shape[dim])
        return Node(node.op, args, outputs, node.place)

    def _placed(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        """Arguments with the values of this graph; whether all of them are as in the template."""
        values, same = self.values, self._same
        found, unchanged = [], True
        for a in args:
            if type(a) is Value:
                unchanged = unchanged and a.index in same
                a = values[a.index]
            elif type(a) is tuple and any(type(x) is Value for x in a):
                unchanged = unchanged and all(type(x) is not Value or x.index in same for x in a)
                a = tuple([values[x.index] if type(x) is Value else x for x in a])
            found.append(a)
        return tuple(found), unchanged

    def _metas(self, node: Node, args: tuple[Any, ...]) -> Sequence[TensorMeta]:
        key = (node.op, *[_key(a) for a in args])
        try:
            found = self._known.get(key)
        except TypeError:  # a static that can't be a key
            key, found = (id(node),), None
        if found is None:
            try:
                found = result_metas(node.op, args)
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
                raise SizeRefusedError(f"{node.op.name} refuses these sizes: {error}") from error
            self._known[key] = found
        return found


def _key(a: Any) -> Any:
    if type(a) is Value:
        return a.meta
    if type(a) is tuple:
        return tuple([_key(x) for x in a])
    if type(a) is Graph:
        return str(a)
    return (type(a), a) if type(a) in (int, float, bool) else a


def _meta_at(like: TensorMeta, formula: Any, sizes: Mapping[str, int]) -> TensorMeta:
    shape, strides = formula
    return make_meta(
        like.dtype,
        tuple([n if type(n) is int else n.at(sizes) for n in shape]),
        tuple([n if type(n) is int else n.at(sizes) for n in strides]),
        like.device,
    )


class _MetaOf:
    """The formula of a meta that stands beside the graph."""

    __slots__ = ("formula", "like")

    def __init__(self, like: TensorMeta, formula: Any) -> None:
        self.like, self.formula = like, formula


class GraphOf:
    """The formula of a graph inside a node: a template whose sizes are those around it."""

    __slots__ = ("template",)

    def __init__(self, template: Template) -> None:
        self.template = template

    def at(self, sizes: Mapping[str, int]) -> Graph:
        return Instance(self.template, sizes).graph


def _evaluated(x: Any, sizes: Mapping[str, int]) -> Any:
    kind = type(x)
    if kind is GraphOf:
        return x.at(sizes)
    if kind is Expr or kind is FloatOf:
        return x.at(sizes)
    if kind is tuple or kind is list:
        return kind([_evaluated(y, sizes) for y in x])
    if kind is _MetaOf:
        return _meta_at(x.like, x.formula, sizes)
    return x


# ---- comparing traces ---------------------------------------------------------------------------


class _Walk:
    """The same thing of each trace, walked side by side into one with formulas."""

    def __init__(self, fit: Fit, where: str, same: Any = None) -> None:
        self.fit, self.where, self.same = fit, where, same

    def formula(self, seen: tuple[Any, ...], hint: Any = None) -> Any:
        first = seen[0]
        kind = type(first)
        if any(type(x) is not kind for x in seen):
            raise DifferentError(f"{self.where}: {first!r} in one trace, {seen[1]!r} in another")
        if kind is Value:
            if self.same is None or not self.same(seen):
                raise DifferentError(f"{self.where} reads {first!r} or {seen[1]!r}")
            return first
        if kind in (tuple, list):
            if len({len(x) for x in seen}) != 1:
                raise DifferentError(f"{self.where}: {first!r} has another length than {seen[1]!r}")
            hints = hint if type(hint) in (tuple, list, Size) else ()
            parts = zip_longest(zip(*seen, strict=True), hints[: len(first)])
            return kind([self.formula(x, h) for x, h in parts])
        if kind is TensorMeta:
            return self._meta(seen)
        if kind is Graph:
            return _graph_formula(self.fit, seen, self.where)
        if kind is int or kind is float:
            return self._number(seen, hint)
        if any(x is not first and x != first for x in seen):
            raise DifferentError(f"{self.where}: {first!r} or {seen[1]!r}")
        return first

    def _number(self, seen: tuple[Any, ...], hint: Any = None) -> Any:
        if type(hint) is SymInt and self.fit.agrees(hint.expr, seen):
            return hint.expr
        found = self.fit.explain(seen)
        if found is None:
            raise DifferentError(f"{self.where}: no size explains {', '.join(map(repr, seen))}")
        constant = found.constant if type(found) is Expr else None
        return found if constant is None else constant

    def _meta(self, seen: tuple[Any, ...]) -> Any:
        first = seen[0]
        if all(m is first for m in seen):
            return first
        if any(m.dtype is not first.dtype or m.device != first.device for m in seen):
            raise DifferentError(f"{self.where}: another dtype or device")
        shape = self.formula(tuple(tuple(m.shape) for m in seen))
        strides = self.formula(tuple(m.strides for m in seen))
        return _MetaOf(first, (shape, strides))


class _Comparison:
    """Builds the template of some traces, and checks that it gives each of them back."""

    def __init__(self, traces: list[Graph], hints: Mapping[int, tuple[Any, ...]]) -> None:
        self.traces, self.hints = traces, hints
        self.fit = Fit(len(traces))
        self.pairs: dict[int, tuple[int, ...]] = {}
        """Value of the first trace by number -> its numbers in all traces."""

    def template(self, guards: tuple[Guard, ...]) -> Template:
        graphs = self.traces
        for what in ("inputs", "nodes", "outputs", "writes"):
            counts = {len(getattr(g, what)) for g in graphs}
            if len(counts) != 1:
                raise DifferentError(
                    f"{' or '.join(map(str, sorted(counts)))} {what}: {_at(graphs)}"
                )
        template = Template(graphs[0], {})
        template.fit = self.fit
        self._inputs(template)
        for k, nodes in enumerate(zip(*(g.nodes for g in graphs), strict=True)):
            self._node(template, k, nodes)
        self._ends()
        quantities = [
            {repr(e): values[k] for values, e in self.fit.known.items()} for k in range(len(graphs))
        ]
        # What ops compared was perhaps a size on both sides: then it fails for another trace.
        template.guards = tuple(
            g for g in guards if g.users or all(_known_to_hold(g, q) for q in quantities)
        )
        self._check(template)
        return template

    def _pair(self, values: tuple[Value, ...]) -> None:
        self.pairs[values[0].index] = tuple(v.index for v in values)

    def _same(self, values: tuple[Value, ...]) -> bool:
        return self.pairs.get(values[0].index) == tuple(v.index for v in values)

    def _inputs(self, template: Template) -> None:
        """Sizes that differ get names; equal ones (in all traces) share a name."""
        rows = list(zip(*(g.inputs for g in self.traces), strict=True))
        for i, values in enumerate(rows):
            self._pair(values)
            metas = [v.meta for v in values]
            if not all(isinstance(m, TensorMeta) for m in metas):
                if any(m is not metas[0] for m in metas):
                    raise DifferentError(f"input {i} is {metas[0]} or {metas[1]}")
                continue
            if len({(m.dtype, m.device, m.ndim) for m in metas}) != 1:
                raise DifferentError(f"input {i} has another dtype, device or number of dimensions")
            for d, seen in enumerate(zip(*(m.shape for m in metas), strict=True)):
                if all(n == seen[0] for n in seen) or seen in self.fit.known:
                    continue
                if min(seen) < SMALLEST:
                    raise DifferentError(f"input {i}: size {min(seen)} is always a case of its own")
                name = f"s{len(template.symbols)}"
                template.symbols[name] = i, d
                self.fit.name(seen, name)
        if not template.symbols:
            raise DifferentError("all inputs have the same sizes")
        for i, values in enumerate(rows):
            walk = _Walk(self.fit, f"input {i}")
            seen = tuple(v.meta for v in values)
            same = not isinstance(seen[0], TensorMeta) or all(m is seen[0] for m in seen)
            template.inputs.append(None if same else walk.formula(seen).formula)

    def inside(self, template: Template) -> None:
        """Compare graphs inside nodes, whose sizes are those around them: none get names here."""
        for i, values in enumerate(zip(*(g.inputs for g in self.traces), strict=True)):
            self._pair(values)
            formula = _Walk(self.fit, f"input {i}").formula(tuple(v.meta for v in values))
            template.inputs.append(formula.formula if type(formula) is _MetaOf else None)
        for k, nodes in enumerate(zip(*(g.nodes for g in self.traces), strict=True)):
            self._node(template, k, nodes, names=False)
        self._ends()

    def _node(
        self, template: Template, k: int, nodes: tuple[Node, ...], *, names: bool = True
    ) -> None:
        first = nodes[0]
        where = f"node {k} ({first.op.name})"
        if any(n.op is not first.op or len(n.outputs) != len(first.outputs) for n in nodes):
            raise DifferentError(f"node {k} is {first.op.name} or {nodes[1].op.name}")
        self.fit.near = _sizes_of([operands(n.args) for n in nodes])
        seen = tuple(n.args for n in nodes)
        args = _Walk(self.fit, where, self._same).formula(seen, self.hints.get(k))
        self.fit.near = ()
        if _has_formula(args):
            template.formulas[k] = args
        for r, values in enumerate(zip(*(n.outputs for n in nodes), strict=True)):
            self._pair(values)
            metas = [v.meta for v in values]
            if all(m is metas[0] for m in metas) or len({m.ndim for m in metas}) != 1:
                continue
            if not names:
                continue
            for d, seen in enumerate(zip(*(m.shape for m in metas), strict=True)):
                if self.fit.product(seen) is None:
                    name = f"d{values[0].index}_{d}"
                    template.named.setdefault(k, []).append((name, r, d))
                    self.fit.name(seen, name)

    def _ends(self) -> None:
        graphs = self.traces
        for values in zip(*(g.outputs for g in graphs), strict=True):
            if not self._same(values):
                raise DifferentError("other values are returned")
        for pairs in zip(*(g.writes for g in graphs), strict=True):
            if not all(self._same(tuple(p[i] for p in pairs)) for i in (0, 1)):
                raise DifferentError("other values are written")

    def _check(self, template: Template) -> None:
        for trace in self.traces:
            try:
                sizes = template.bind([v.meta for v in trace.inputs])
                if sizes is None:
                    raise DifferentError("a guard does not hold for one of the traces")
                made = template.instantiate(sizes)
            except SizeRefusedError as error:
                raise DifferentError(str(error)) from error
            difference = first_difference(made, trace)
            if difference:
                raise DifferentError(f"shapes do not follow from the sizes: {difference}")


def _graph_formula(fit: Fit, seen: tuple[Graph, ...], where: str) -> Any:
    """One graph for those that stand in one place in several traces."""
    for what in ("inputs", "nodes", "outputs"):
        if len({len(getattr(g, what)) for g in seen}) != 1:
            raise DifferentError(f"{where}: another graph inside, {_at(list(seen))}")
    near = fit.near
    comparison = _Comparison(list(seen), {})
    comparison.fit = fit
    template = Template(seen[0], {})
    comparison.inside(template)
    fit.near = near
    if template.formulas or any(f is not None for f in template.inputs):
        return GraphOf(template)
    return seen[0]


def first_difference(made: Graph, trace: Graph) -> str:
    """Where two graphs with the same structure differ in metas or numbers; empty: nowhere."""
    for a, b in zip(made.inputs, trace.inputs, strict=True):
        if a.meta is not b.meta:
            return f"input {a.typed()} is not {b.typed()}"
    for k, (n, m) in enumerate(zip(made.nodes, trace.nodes, strict=True)):
        if _key(n.args) != _key(m.args):
            return f"node {k}: {n!r} is not {m!r}"
        if any(v.meta is not w.meta for v, w in zip(n.outputs, m.outputs, strict=True)):
            return f"node {k}: {n!r} is not {m!r}"
    return ""


def _prime(least: int, taken: set[int]) -> int:
    """A prime above `least` that nobody else has."""
    n = least + 1
    while n in taken or any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n += 1
    return n


def _sizes_of(values: list[list[Value]]) -> tuple[tuple[int, ...], ...]:
    """The sizes, in all traces, of the tensors that a node of each trace reads."""
    found: dict[tuple[int, ...], None] = {}
    for same in zip(*values, strict=False):
        shapes = [v.meta.shape for v in same if isinstance(v.meta, TensorMeta)]
        if len(shapes) == len(same):
            found.update(dict.fromkeys(zip(*map(tuple, shapes), strict=False)))
    return tuple(found)


def _known_to_hold(guard: Guard, quantities: Mapping[str, int]) -> bool:
    names = guard.left.symbols() | guard.right.symbols()
    return names <= quantities.keys() and guard.holds(quantities)


def _has_formula(x: Any) -> bool:
    if type(x) in (tuple, list):
        return any(_has_formula(y) for y in x)
    return type(x) in (Expr, FloatOf, _MetaOf, GraphOf)


def _at(graphs: list[Graph]) -> str:
    """The first nodes that are not alike, for the message."""
    for k, nodes in enumerate(zip(*(g.nodes for g in graphs), strict=False)):
        names = {n.op.name for n in nodes}
        if len(names) != 1:
            return f"node {k} is {' or '.join(sorted(names))}"
    return "one trace goes on where the other ends"


__all__ = [
    "GraphOf", "Instance", "Reason", "SizeRefusedError", "Template", "first_difference",
    "generalize",
]  # fmt: skip
