"""Whether all numbers of some tensors are finite: one small program for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.pointwise.arithmetic import add2, mul
from lucerne._src.ops.reduce.folds import sum as sum_
from lucerne._src.pipeline.road import Road
from lucerne._src.tensor.autograd.ranges import counts
from lucerne._src.transforms.rewrite import result_metas

_MUL, _SUM, _ADD = (f.op for f in (mul, sum_, add2))  # type: ignore[attr-defined]


def is_read(meta: Any) -> bool:
    """Whether a tensor has numbers that may be infinite or nan."""
    return isinstance(meta, TensorMeta) and meta.dtype.category is dt.FLOAT and meta.numel > 0


class FiniteCheck:
    """Made for the metas of some tensors; called with those, it says whether all are finite.

    A finite number times 0 is 0, any other is nan: so is the sum of all of them.
    """

    def __init__(self, metas: Sequence[TensorMeta]) -> None:
        """Tensors of other kinds than `is_read` are not looked at."""
        self.metas = list(metas)
        self.read = [k for k, meta in enumerate(metas) if is_read(meta)]
        found = [metas[k] for k in self.read]
        self._launch: Any = None
        self._is_number = [m.numel for m in found] == [1]
        if found and not self._is_number and len({m.device for m in found}) == 1:
            road = Road(backends.get(found[0].device.type))
            self._launch = road.compiled(_graph(found)).launch

    def __call__(self, tensors: Sequence[Any]) -> bool:
        given = tuple([tensors[k] for k in self.read])
        if self._is_number:
            return math.isfinite(given[0].item())
        results = None if self._launch is None else self._launch((), given, ())
        if results is None:
            with dispatch.unseen():
                return all(counts(t) == (0, 0) for t in given)
        found: bool = results[0].item() == 0
        return found


def _graph(metas: Sequence[TensorMeta]) -> Graph:
    graph = Graph()
    total: Value | None = None
    for v in [graph.input(meta) for meta in metas]:
        every = tuple(range(len(v.meta.shape)))
        nought = _call(graph, _MUL, (v, 0.0))
        found = _call(graph, _SUM, (nought, every, False, dt.float32)) if every else nought
        total = found if total is None else _call(graph, _ADD, (total, found))
    assert total is not None
    graph.outputs = (total,)
    return graph


def _call(graph: Graph, op: Op, args: tuple[Any, ...]) -> Value:
    return graph.call(op, args, result_metas(op, args))[0]
