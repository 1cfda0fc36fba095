"""From one trace with symbolic sizes to a graph for all sizes.

In such a trace the sizes of the inputs that may change are symbols, and every number in the graph
is plain or says how it follows from them (`ir.symbolic`). A `Template` is read off it: the
formulas, the guards, and `instantiate`, which makes the graph for other sizes by evaluating
formulas and asking each op for its metas again. Those must be the ones the trace told; else the
sizes are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lucerne._src.base.exact import exact
from lucerne._src.base.process.forks import once
from lucerne._src.base.shape import Size
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, make_meta, plain_meta
from lucerne._src.ir.symbolic.evaluate import SizedMeta, binder
from lucerne._src.ir.symbolic.expressions import FORMULAS, SMALLEST, Guard
from lucerne._src.ir.symbolic.numbers import is_symbolic, number_at, plain
from lucerne._src.transforms.rewrite import result_metas


class SizeRefusedError(Exception):
    """A template does not hold for these sizes; the text says why."""


def generalize(
    graph: Graph, symbols: Mapping[str, tuple[int, int]], guards: Iterable[Guard] = ()
) -> Template:
    """The template of a trace; `symbols` says for each name at which (input, dimension) it is
    read."""
    made = _Reading(graph)
    made.template.symbols, made.template.guards = dict(symbols), tuple(guards)
    return made.template


class Template:
    """A graph for all sizes. `symbols` has, for each name, the (input, dimension) it is read at."""

    def __init__(self, graph: Graph, symbols: dict[str, tuple[int, int]]) -> None:
        self.graph = graph
        """As it was in the trace."""
        self.symbols = symbols
        self.inputs: list[Any] = []
        """For each input: None if it is always the same, else (shape, strides) as formulas."""
        self.formulas: dict[int, Any] = {}
        """By number of the node: its arguments with formulas where numbers depend on sizes."""
        self.results: dict[int, list[Any]] | None = {}
        """By number of the node: the same as `inputs` for its results, as the trace told them;
        None: they were not kept."""
        self.guards: tuple[Guard, ...] = ()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n} = input {i} size {d}" for n, (i, d) in self.symbols.items())
        return f"<template of {len(self.graph.nodes)} nodes: {sizes}>"

    def bind(self, metas: Sequence[Any]) -> dict[str, int] | None:
        """The sizes that inputs with these metas have; None: it is no template for them.

        (An input without a meta of its own, None, is as the others say.)
        """
        if len(metas) != len(self.inputs):
            return None
        sizes = {}
        for name, (i, d) in self.symbols.items():
            meta = metas[i]
            if not isinstance(meta, TensorMeta) or meta.ndim <= d or meta.shape[d] < SMALLEST:
                return None
            sizes[name] = int(meta.shape[d])
        for given, v, formula in zip(metas, self.graph.inputs, self.inputs, strict=True):
            if given is not None and given is not meta_at(v.meta, formula, sizes):
                return None
        return sizes if self.admits(sizes) else None

    @once
    def sized_inputs(self) -> list[int]:
        """Those whose metas depend on sizes."""
        return [k for k, formula in enumerate(self.inputs) if formula is not None]

    @once
    def bind_sized(self) -> Callable[..., dict[str, int] | None]:
        """`bind` of the metas of these inputs alone, as code."""
        at = {k: n for n, k in enumerate(self.sized_inputs)}
        metas = [SizedMeta(self.graph.inputs[k].meta, *self.inputs[k]) for k in self.sized_inputs]
        symbols = {name: (at[i], d) for name, (i, d) in self.symbols.items()}
        return binder(metas, symbols, self.guards)

    def metas(self, sizes: Mapping[str, int]) -> list[Any]:
        """The metas of the inputs at these sizes."""
        pairs = zip(self.graph.inputs, self.inputs, strict=True)
        return [meta_at(v.meta, f, sizes) for v, f in pairs]

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether everything that was decided comes out the same at these sizes."""
        return all(g.holds(sizes) for g in self.guards)

    def instantiate(self, sizes: Mapping[str, int]) -> Graph:
        """The graph at these sizes; values have the numbers they have in `self.graph`."""
        return Instance(self, sizes).graph


class Instance:
    """A template at some sizes."""

    def __init__(self, template: Template, sizes: Mapping[str, int]) -> None:
        self.template = template
        self.sizes = dict(sizes)
        self.values: dict[int, Value] = {}
        self.graph = graph = Graph()
        old = template.graph
        self._known: dict[Any, tuple[TensorMeta, ...]] = {}
        self._same: set[int] = set()
        for v, formula in zip(old.inputs, template.inputs, strict=True):
            graph.inputs.append(self._value(v, meta_at(v.meta, formula, self.sizes)))
        for k, node in enumerate(old.nodes):
            graph.nodes.append(self._node(k, node))
        graph.outputs = tuple(self.values[v.index] for v in old.outputs)
        graph.writes = [(self.values[a.index], self.values[b.index]) for a, b in old.writes]
        graph._next = old._next

    def value_of(self, formula: Any) -> Any:
        """What a formula of `formula_of` is here."""
        return evaluated(formula, self.sizes)

    def _value(self, old: Value, meta: Any) -> Value:
        made = self.values[old.index] = Value(old.index, meta)
        if meta is old.meta:
            self._same.add(old.index)
        return made

    def _node(self, k: int, node: Node) -> Node:
        formulas = self.template.formulas.get(k)
        args = node.args if formulas is None else evaluated(formulas, self.sizes)
        args, same = self._placed(args)
        if (same and formulas is None) or not node.outputs:
            metas: Sequence[Any] = [v.meta for v in node.outputs]
        else:
            metas = self._metas(node, args)
        told = self._told(k, node, metas)
        if len(metas) != len(told) or any(a is not b for a, b in zip(metas, told, strict=True)):
            raise SizeRefusedError(f"{node.op.name} gives other sizes than it told")
        outputs = tuple([self._value(v, m) for v, m in zip(node.outputs, metas, strict=True)])
        return Node(node.op, args, outputs, node.place)

    def _told(self, k: int, node: Node, metas: Sequence[Any]) -> Sequence[Any]:
        """The metas of the results as they follow from those of the trace."""
        if self.template.results is None:
            return metas if len(metas) == len(node.outputs) else ()
        formulas = self.template.results.get(k)
        if formulas is None:
            return [v.meta for v in node.outputs]
        pairs = zip(node.outputs, formulas, strict=True)
        return [meta_at(v.meta, f, self.sizes) for v, f in pairs]

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
        key: tuple[Any, ...] = (id(node),)
        found = None
        if not Guarding.count:  # (expressions are no keys)
            try:
                key = (node.op, *[_key(a) for a in args])
                found = self._known.get(key)
            except TypeError:  # a static that can't be a key
                key = (id(node),)
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
    return exact(a)


# ---- formulas -----------------------------------------------------------------------------------


class MetaOf:
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


def meta_at(like: Any, formula: Any, sizes: Mapping[str, int]) -> Any:
    """A meta of the trace at other sizes."""
    if formula is None:
        return like
    shape, strides = formula
    return make_meta(
        like.dtype,
        tuple([number_at(n, sizes) for n in shape]),
        tuple([number_at(n, sizes) for n in strides]),
        like.device,
        like.flipped,
    )


def formula_of(x: Any) -> Any:
    """A thing with symbolic numbers in it as one with formulas; the thing itself if it has none.

    Things are numbers, metas, graphs, and tuples, lists, dicts and slices of them.
    """
    kind = type(x)
    if is_symbolic(x) and not isinstance(x, tuple | list):
        return x.expr
    if isinstance(x, tuple | list):
        parts = [formula_of(y) for y in x]
        if all(a is b for a, b in zip(parts, x, strict=True)):
            return x
        return _rebuilt(kind, parts)
    if kind is TensorMeta:
        formula = meta_formula(x)
        return x if formula is None else MetaOf(plain_meta(x), formula)
    if kind is Graph:
        template = _Reading(x).template
        changes = template.formulas or any(f is not None for f in template.inputs)
        return GraphOf(template) if changes else x
    return x


def _rebuilt(kind: Any, parts: list[Any]) -> Any:
    if issubclass(kind, Size):
        return tuple(parts)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def evaluated(x: Any, sizes: Mapping[str, Any]) -> Any:
    """What `formula_of` gave, at these sizes (which may be symbolic themselves)."""
    if isinstance(x, FORMULAS):
        try:
            return number_at(x, sizes)
        except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
            raise SizeRefusedError(f"{x} has no value there: {error}") from error
    if isinstance(x, GraphOf):
        return x.at(sizes)
    if isinstance(x, tuple | list):
        parts = [evaluated(y, sizes) for y in x]
        return x if all(a is b for a, b in zip(parts, x, strict=True)) else _rebuilt(type(x), parts)
    if type(x) is MetaOf:
        return meta_at(x.like, x.formula, sizes)
    return x


def meta_formula(meta: Any) -> Any:
    """(shape, strides) as formulas; None if the meta is always the same."""
    if not isinstance(meta, TensorMeta) or not is_symbolic((*meta.shape, *meta.strides)):
        return None
    return formula_of(tuple(meta.shape)), formula_of(meta.strides)


def plain_thing(x: Any) -> Any:
    """A thing as it was in the trace, without expressions."""
    if isinstance(x, tuple | list):
        parts = [plain_thing(y) for y in x]
        same = all(a is b for a, b in zip(parts, x, strict=True))
        return x if same else _rebuilt(type(x), parts)
    if type(x) is TensorMeta:
        return plain_meta(x)
    return _Reading(x).template.graph if type(x) is Graph else plain(x)


class _Reading:
    """Takes a traced graph apart into the plain one and its formulas."""

    def __init__(self, graph: Graph) -> None:
        made = Graph()
        self.template = Template(made, {})
        self.values: dict[int, Value] = {}
        for v in graph.inputs:
            made.inputs.append(self._value(v))
            self.template.inputs.append(meta_formula(v.meta))
        for k, node in enumerate(graph.nodes):
            made.nodes.append(self._node(k, node))
        made.outputs = tuple(self.values[v.index] for v in graph.outputs)
        made.writes = [(self.values[a.index], self.values[b.index]) for a, b in graph.writes]
        made._next = graph._next

    def _value(self, old: Value) -> Value:
        made = self.values[old.index] = Value(old.index, plain_meta(old.meta))
        return made

    def _node(self, k: int, node: Node) -> Node:
        args = self._placed(node.args)
        formulas = formula_of(args)
        if formulas is not args:
            self.template.formulas[k] = formulas
        results, told = [meta_formula(v.meta) for v in node.outputs], self.template.results
        assert told is not None
        if any(f is not None for f in results):
            told[k] = results
        outputs = tuple([self._value(v) for v in node.outputs])
        return Node(node.op, plain_thing(args), outputs, node.place)

    def _placed(self, x: Any) -> Any:
        if type(x) is Value:
            return self.values[x.index]
        if isinstance(x, tuple | list):
            return _rebuilt(type(x), [self._placed(y) for y in x])
        return x


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


__all__ = [
    "GraphOf", "Instance", "SizeRefusedError", "Template", "evaluated",
    "first_difference", "formula_of", "generalize",
]  # fmt: skip
