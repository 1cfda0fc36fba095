"""What the reference backend says to the same call: a coarse look, to find wrong addressing.

Fine comparison is the business of the conformance tests; here a result counts as wrong when it is
further from the reference than rounding and another order of summation could bring it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lucerne import backends
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, map_values, one_op_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta

_TOLERANCE = {53: 1e-9, 24: 1e-3, 11: 3e-2, 8: 1e-1}
"""By digits of the narrowest floating type of a call, relative to the largest number in it."""
_DRAWN = frozenset((op_.RANDOM,))


def reference_of(graph: Graph) -> Any:
    """The reference backend's executable for a graph; None if it has none or may differ."""
    reference = backends.get("reference")
    if any(n.op.kind in _DRAWN or not reference.supports(n.op) for n in graph.nodes):
        return None
    return reference.compile(graph) if len(graph.nodes) == 1 else partial(_run_nodes, graph)


def _run_nodes(graph: Graph, inputs: Sequence[Any], outputs: Sequence[Plain]) -> None:
    """A traced graph node by node; numbers in it become inputs, as in eager calls."""
    values = {v.index: x for v, x in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        if node.op.kind == op_.VIEW:
            _view(node, values)
            continue
        metas, given = _eager_call(node, values)
        results = [Plain.fresh(v.meta) for v in node.outputs]
        one = one_op_graph(node.op, metas, [v.meta for v in node.outputs])
        backends.get("reference").compile(one)(given, results)
        values.update((v.index, r) for v, r in zip(node.outputs, results, strict=True))
    for v, out in zip(graph.outputs, outputs, strict=True):
        out.values()[...] = values[v.index].values()


def _eager_call(node: Node, values: dict[int, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Metas for `one_op_graph`, and the inputs that flow in."""
    metas: list[Any] = []
    given: list[Any] = []
    for kind, a in zip(node.op.kinds, node.args, strict=True):
        if kind == "l":
            metas.append(tuple(v.meta for v in a))
            given += [values[v.index] for v in a]
        elif isinstance(a, Value):
            metas.append(a.meta)
            given.append(values[a.index])
        else:
            flows = kind in "tn" and a is not None
            metas.append(NUMBER_METAS[type(a)] if flows and kind == "t" else a)
            given += [a] if flows else []
    return tuple(metas), given


def _view(node: Node, values: dict[int, Any]) -> None:
    metas = map_values(lambda v: v.meta, node.args)
    found = node.op.body(*metas)
    parts = found if isinstance(found, (list, tuple)) else [found]
    source = values[node.args[0].index]
    for v, geometry in zip(node.outputs, parts, strict=True):
        start = geometry.offset * v.meta.dtype.itemsize
        values[v.index] = Plain(v.meta, source.buffer[start:])


class Plain:
    """A tensor in ordinary memory: bytes from the first element on."""

    def __init__(self, meta: TensorMeta, buffer: np.ndarray[Any, Any]) -> None:
        self._meta, self._offset, self._array = meta, 0, None
        self._storage = self
        self.buffer = buffer

    @classmethod
    def fresh(cls, meta: TensorMeta) -> Plain:
        return cls(meta, np.empty(meta.span * meta.dtype.itemsize, np.uint8))

    def values(self) -> np.ndarray[Any, Any]:
        m = self._meta
        if not m.numel:
            return np.empty(tuple(m.shape), m.dtype.storage)
        return np.ndarray(tuple(m.shape), m.dtype.storage, self.buffer, 0, m.byte_strides)


def disagreement(inputs: Sequence[Plain], found: Sequence[Plain], wanted: Sequence[Plain]) -> str:
    """How two sets of results differ, in words. Inputs: the tensors among them."""
    metas = [x._meta for x in (*inputs, *found)]
    digits = min((m.dtype.digits for m in metas if m.dtype.category >= dt.FLOAT), default=53)
    tolerance = _TOLERANCE.get(digits, 0.5)
    given = max((_scale(x.values(), x._meta.dtype) for x in inputs), default=0.0)
    for number, (f, w) in enumerate(zip(found, wanted, strict=True)):
        text = _difference(f, w, tolerance, given)
        if text:
            return f"result {number}: {text}"
    return ""


def _scale(values: np.ndarray[Any, Any], dtype: dt.dtype) -> float:
    """The largest finite number."""
    sizes = np.abs(codec.widen(values, dtype).astype(np.complex128))
    finite = sizes[np.isfinite(sizes)]
    return float(finite.max()) if finite.size else 0.0


def _difference(found: Plain, wanted: Plain, tolerance: float, scale: float) -> str:
    dtype = found._meta.dtype
    a, b = codec.widen(found.values(), dtype), codec.widen(wanted.values(), dtype)
    with np.errstate(all="ignore"):
        if dtype.category < dt.FLOAT:
            bad = a != b
        else:
            scale = max(scale, _scale(wanted.values(), dtype))
            bad = ~np.isclose(a, b, tolerance, tolerance * scale, equal_nan=True)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} numbers: at {list(at)} {a[at]}, reference {b[at]}"
