"""Functionalize: mutation out of a graph. What is written becomes a new value; inputs that were
written to get their last value back at the end (`graph.writes`).

A captured graph has writes (`copy` nodes without results) and views that alias. Here each memory
has a value that stands for it (its root), and a current one. A write over all of it makes the
written value the current one; a write to a view puts a region into it. Views made before a write
are read anew from the current value when they are used after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, geometries, map_values
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import copy, put_region
from lucerne._src.ops.view.slicing import strided_view

_COPY: Op = copy.op  # type: ignore[attr-defined]
_PUT: Op = put_region.op  # type: ignore[attr-defined]
_STRIDED: Op = strided_view.op  # type: ignore[attr-defined]


class MutationError(NotImplementedError):
    """A write that can't be told as a new value."""


class _Reading(NamedTuple):
    """How a value reads a memory: its root, and from which element on (in elements)."""

    root: Value
    offset: int


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.made = Graph()
        self.readings: dict[Value, _Reading] = {}
        self.current: dict[Value, Value] = {}
        """For each root: the value (of the new graph) that its memory holds now."""
        self.ages: dict[Value, int] = {}
        """How often a root was written to."""
        self.known: dict[Value, tuple[int, Value]] = {}
        """Old value -> (age of its root when it was last read, value of the new graph)."""
        for v in graph.inputs:
            self._root(v, self.made.input(v.meta))

    def _root(self, old: Value, new: Value) -> None:
        self.readings[old] = _Reading(old, 0)
        self.current[old], self.ages[old] = new, 0
        self.known[old] = 0, new

    def read(self, v: Value) -> Value:
        """The value of the new graph that `v` has now."""
        root, offset = self.readings[v]
        age, found = self.known[v]
        if age != self.ages[root]:
            now = self.current[root]
            found = now if v is root else self._region(now, v.meta, offset)
            self.known[v] = self.ages[root], found
        return found

    def _region(self, now: Value, meta: TensorMeta, offset: int) -> Value:
        if now.meta.dtype is not meta.dtype:
            raise MutationError("a view of another dtype is read after its memory was written to")
        return self.made.call(_STRIDED, (now, tuple(meta.shape), meta.strides, offset), [meta])[0]

    def visit(self, node: Node) -> None:
        self.made.place = node.place
        if not node.outputs and node.op is _COPY:
            self.write(*node.args)
            return
        args = map_values(self.read, node.args)
        outputs = self.made.call(node.op, args, [v.meta for v in node.outputs])
        if node.op.kind != op_.VIEW:
            for old, new in zip(node.outputs, outputs, strict=True):
                self._root(old, new)
            return
        source = self.readings[node.args[0]]
        for old, new, offset in zip(node.outputs, outputs, view_offsets(node), strict=True):
            start = _rescaled(source.offset, node.args[0].meta, old.meta) + offset
            self.readings[old] = _Reading(source.root, start)
            self.known[old] = self.ages[source.root], new

    def write(self, target: Value, source: Any) -> None:
        root, offset = self.readings[target]
        if isinstance(source, Value):
            source = self.read(source)
        now = self.current[root]
        if target.meta is root.meta and offset == 0:
            new = self._whole(now, source)
        else:
            if target.meta.dtype is not root.meta.dtype:
                raise MutationError("a view of another dtype is written to")
            meta = target.meta
            args = (now, source, tuple(meta.shape), meta.strides, offset)
            new = self.made.call(_PUT, args, [now.meta])[0]
        self.current[root] = new
        self.ages[root] += 1

    def _whole(self, now: Value, source: Any) -> Value:
        """All of a memory is written: by a value as it is, or converted and broadcast."""
        if isinstance(source, Value) and source.meta is now.meta:
            return source
        return self.made.call(_COPY, (now, source), [now.meta])[0]


def view_offsets(node: Node) -> list[int]:
    """Where each result of a view begins, in elements of its own dtype from the source's first."""
    return [g.offset for g in geometries(node)]


def _rescaled(offset: int, have: TensorMeta, want: TensorMeta) -> int:
    """An offset in elements of one dtype as one in elements of another."""
    return offset * have.dtype.itemsize // want.dtype.itemsize


def functionalize(
    graph: Graph,
    roots: Sequence[Value],
    fresh: frozenset[Value] = frozenset(),
    readings: Sequence[Value] = (),
    new: dict[Value, Value] | None = None,
) -> Graph:
    """A graph without writes: its outputs are the last values of `roots`, then what `readings`
    (any values, views as well) read at the end. `new` gets, for each value, what it is when it is
    made.

    Inputs in `fresh` begin anew at every call, so what is written to them is not kept.
    """
    walk = _Walk(graph)
    for node in graph.nodes:
        walk.visit(node)
        if new is not None:
            new.update((v, walk.known[v][1]) for v in node.outputs)
    made = walk.made
    made.outputs = (*(walk.current[r] for r in roots), *(walk.read(v) for v in readings))
    made.writes = [
        (made.inputs[k], walk.current[v])
        for k, v in enumerate(graph.inputs)
        if walk.ages[v] and v not in fresh
    ]
    return made
