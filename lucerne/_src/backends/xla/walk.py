"""A graph as a pure function of JAX arrays: `jax.jit` makes one XLA program of it.

Values are arrays in their logical shape. Strides are known from metas, and matter only to views
that name memory (`as_strided`) and to writes into regions of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from lucerne._src.backends.contract.control_flow import is_control
from lucerne._src.backends.xla import rules as rules
from lucerne._src.backends.xla.checks import Check, checks_of
from lucerne._src.backends.xla.layout import memory_of, put, strided
from lucerne._src.backends.xla.meshes import (
    MeshUse,
    as_it_was,
    constrained,
    constraint,
    cut_along,
    mesh_of,
)
from lucerne._src.backends.xla.nodes import pointwise, reduction
from lucerne._src.backends.xla.rows import FlattenedValues
from lucerne._src.backends.xla.rules.table import RULES
from lucerne._src.backends.xla.types import jtype, stored
from lucerne._src.backends.xla.views import VIEWS
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, geometries, run_node
from lucerne._src.ir.op import Op

_NARROW = (dt.bfloat16, dt.float16)
_PUT, _PRODUCT, _CAST = "put_region", "batch_matmul", "cast"
_PLACED, _PLACED_LIKE = "placed", "placed_like"
_CONVOLUTIONS = ("conv", "conv_input", "conv_weight")
Results = Sequence[Any]
Run = Callable[[Graph, Results], list[Any]]
"""Runs a graph inside of a node."""


def asks_for_mesh(node: Node) -> bool:
    """Whether what is told to XLA of a node depends on the mesh that its operands lie on."""
    return node.op.qualified in _CONVOLUTIONS or is_control(node)


def has_rule(op: Op) -> bool:
    """Whether a graph with this op can be walked."""
    if op.kind in (op_.POINTWISE, op_.REDUCTION, op_.VIEW):
        return True
    return op.qualified in RULES or op.qualified in (_PUT, _PLACED, _PLACED_LIKE)


def is_walkable(graph: Graph) -> bool:
    """Whether every node has a meaning here, those of graphs inside of nodes too."""
    for node in graph.nodes:
        if is_control(node):
            inside = [a for a in node.args if isinstance(a, Graph)]
            if not inside or not all(map(is_walkable, inside)):
                return False
        elif not has_rule(node.op):
            return False
    return True


class Walk:
    """One graph, run on arrays once: while it is traced."""

    def __init__(
        self, graph: Graph, places: Mapping[int, Any] | None = None, mesh: Any = None
    ) -> None:
        self.graph = graph
        self._mesh = mesh
        """What the graph around this one lies on, if there is one."""
        self.places: dict[int, Any] = {} if places is None else dict(places)
        """How inputs lie on a mesh, and results that are to (`meshes.place_of`), by number."""
        self.checks: list[Check] = []
        """What can be wrong with the data, as values of the program."""
        self._narrow: dict[int, Any] = {}
        """Of a float32 value that is a 16-bit one widened: that one. Products read it in its place
        (a product of two 16-bit floats fits float32, so nothing changes): they run on units for
        matrices of 16 bits, and half the bytes are moved."""
        self._base: dict[int, tuple[int, Any, int]] = {}
        """Of a view: the number of the value it reads, its meta, and where it begins in it."""
        self._values: dict[int, Any] = {}
        self._rows = FlattenedValues() if MeshUse.begun else None

    def __call__(self, given: Results) -> tuple[list[Any], list[Any]]:
        """The outputs, and what is written to inputs."""
        graph = self.graph
        values = self._values = {v.index: x for v, x in zip(graph.inputs, given, strict=True)}
        for node in graph.nodes:
            run_node(node, values, self._results)
        return (
            [values[v.index] for v in graph.outputs],
            [values[v.index] for _, v in graph.writes],
        )

    def _results(self, node: Node, args: tuple[Any, ...]) -> Any:
        op = node.op
        if op.kind == op_.VIEW:
            return self._viewed(node, args)
        if is_control(node):
            return _CONTROL[op.name](partial(_outputs, self._on()), *args)
        if op.qualified == _PUT:
            return _put(node, *args)
        if op.qualified == _PLACED:
            return self._placed(node, *args)
        if op.qualified == _PLACED_LIKE:
            return self._placed_like(node, *args)
        if op.qualified == _PRODUCT:
            args = self._narrowed(node, args)
            made = None if self._rows is None else self._rows.product(node, args)
            if made is not None:
                return made
        elif op.qualified == _CAST and _widens(node):
            self._narrow[node.outputs[0].index] = args[0]
        self.checks += checks_of(node, args)
        if op.qualified in _CONVOLUTIONS:
            return self._convolved(node, args)
        if op.qualified in RULES:
            return RULES[op.qualified](node, *args)
        return (pointwise if op.kind == op_.POINTWISE else reduction)(node, args)

    def _on(self) -> Any:
        """The mesh that the program lies on; None: on none."""
        return self._mesh if self._mesh is not None else mesh_of(self.places.values())

    def _convolved(self, node: Node, args: tuple[Any, ...]) -> Any:
        """XLA cuts convolutions along batch and channels alone, those of groups along the batch.
        Where it cuts pixels, the gradient of one with a stride is wrong; there, and where it cuts
        groups, it may also end the process (jax 0.10.2)."""
        mesh, name, is_one_group = self._on(), node.op.qualified, args[-1] == 1
        images, weights = (2, 2) if is_one_group else (1, 0)
        of_weight = name == "conv_weight"
        first = cut_along(args[0], mesh, images)
        second = cut_along(args[1], mesh, images if of_weight else weights)
        made = RULES[name](node, first, second, *args[2:])
        return cut_along(made, mesh, weights if of_weight else images)

    def _placed(self, node: Node, x: Any, layout: Any) -> Any:
        target = None if layout is None else constraint(layout, x.ndim)
        if target is not None and None not in layout.placements:
            self.places[node.outputs[0].index] = target
        return constrained(x, target)

    def _placed_like(self, node: Node, other: Any, x: Any) -> Any:
        place = self.places.get(node.args[0].index)
        if place is None:
            return x
        self.places[node.outputs[0].index] = place
        return constrained(x, as_it_was(x.shape, place)[0])

    def _narrowed(self, node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
        found = [self._narrow.get(a.index) for a in node.args]
        kinds = {None if x is None else x.dtype for x in found}
        return args if None in kinds or len(kinds) > 1 else tuple(found)

    def _viewed(self, node: Node, args: tuple[Any, ...]) -> list[Any]:
        source, parts = node.args[0], geometries(node)
        root, meta, start = self._base.get(source.index, (source.index, source.meta, 0))
        if source.meta.dtype.itemsize == node.outputs[0].meta.dtype.itemsize:
            for v, part in zip(node.outputs, parts, strict=True):
                self._base[v.index] = root, meta, start + part.offset
        run = VIEWS.get(node.op.qualified)
        if run is None:
            flat = memory_of(self._values[root], meta)
            return [strided(flat, p.shape, p.strides, start + p.offset) for p in parts]
        if source.index in self._narrow and node.op.qualified != "view_dtype":
            again = run(self._narrow[source.index], args[1:], parts)
            pairs = zip(node.outputs, again, strict=True)
            self._narrow.update((v.index, x) for v, x in pairs)
        if self._rows is not None:
            known = self._rows.viewed(node, args[0], self._narrow.get(source.index))
            if known is not None:
                return [known]
        return run(args[0], args[1:], parts)


def _widens(node: Node) -> bool:
    return node.args[0].meta.dtype in _NARROW and node.args[1] is dt.float32


def _put(node: Node, x: Any, src: Any, size: Any, stride: Any, offset: int) -> Any:
    meta = node.args[0].meta
    src = jnp.broadcast_to(stored(src, meta.dtype), tuple(size))
    return put(x, meta, src, size, stride, offset)


# ---- control flow --------------------------------------------------------------------------------


def _outputs(mesh: Any, graph: Graph, given: Results) -> list[Any]:
    found = Walk(graph, mesh=mesh)(given)[0]
    pairs = zip(graph.outputs, found, strict=True)
    return [jnp.asarray(x).astype(jtype(v.meta.dtype)) for v, x in pairs]


def _is_true(x: Any) -> Any:
    return jnp.reshape(x, ()) != 0


def _cond(run: Run, predicate: Any, operands: Results, yes: Graph, no: Graph) -> Any:
    branches = [lambda *given, graph=graph: run(graph, given) for graph in (yes, no)]
    return lax.cond(_is_true(predicate), *branches, *operands)


def _while(run: Run, carried: Results, extra: Results, goes_on: Graph, body: Graph) -> Any:
    return lax.while_loop(
        lambda now: _is_true(run(goes_on, [*now, *extra])[0]),
        lambda now: run(body, [*now, *extra]),
        list(carried),
    )


def _scan(
    run: Run, init: Results, xs: Results, extra: Results, body: Graph, length: int, reverse: bool
) -> Any:
    count = len(init)

    def turn(carry: Any, rows: Any) -> Any:
        outs = run(body, [*carry, *rows, *extra])
        return outs[:count], outs[count:]

    carry, ys = lax.scan(turn, list(init), list(xs), length=length, reverse=reverse)
    return [*carry, *ys]


_CONTROL: dict[str, Callable[..., Any]] = {
    "cond_graphs": _cond,
    "while_graphs": _while,
    "scan_graphs": _scan,
}
