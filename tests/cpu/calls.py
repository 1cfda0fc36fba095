"""One call of a rule or of the reference backend, over memory that ends at forbidden pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne import backends
from lucerne._src.backends.cpu.rules.table import RULES
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.device import device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.ir.meta import TensorMeta, make_meta
from tests.cpu.guarded import Guest

HOST = device("cpu")
LAYOUTS = ("plain", "turned", "sliced")
Array = np.ndarray[Any, Any]


def guest(values: Any, dtype: dt.dtype, layout: str = "plain") -> Guest:
    """A tensor that holds `values`."""
    array = np.asarray(values)
    strides: Any = None
    if layout == "turned":
        strides = sh.ordered_strides(array.shape, range(array.ndim))
    elif layout == "sliced":
        strides = tuple(2 * s for s in sh.contiguous_strides([n + 1 for n in array.shape]))
    elif layout == "channels last":
        strides = sh.ordered_strides(array.shape, (1, *range(array.ndim - 1, 1, -1), 0))
    made = blank(make_meta(dtype, array.shape, strides, HOST))
    if array.size:
        made.fill(array)
    return made


def blank(meta: TensorMeta) -> Guest:
    made = Guest(meta)
    made._storage.buffer = made._storage.bytes  # type: ignore[attr-defined]  # the reference reads it
    return made


def numbers(rng: np.random.Generator, dtype: dt.dtype, shape: Sequence[int]) -> Array:
    """Small whole numbers: sums of them are exact in every dtype."""
    values: Array = rng.integers(-4 if dtype.is_signed else 0, 5, tuple(shape))
    return values > 0 if dtype is dt.bool_ else values


def run(name: str, args: Sequence[Any], *, engine: bool) -> list[Guest]:
    """The results of an op: tensors among the arguments are Guests, in tensor lists too."""
    op = op_.get(name)
    metas = tuple(_meta(a) for a in args)
    assert op.meta is not None
    found = op.meta(*metas)
    outs = (found,) if isinstance(found, TensorMeta) else tuple(found)
    graph = one_op_graph(op, metas, outs)
    results = [blank(m) for m in outs]
    executable(graph, engine)(inputs_of(op, args), results)
    return results


def executable(graph: Graph, engine: bool) -> Any:
    if not engine:
        return backends.get("reference").compile(graph)
    (node,) = graph.nodes
    made = RULES[node.op.qualified](node)
    assert made is not None, f"the engine leaves {node} to others"
    return made


def inputs_of(op: op_.Op, args: Sequence[Any]) -> list[Any]:
    listed: list[Any] = []
    for a, kind in zip(args, op.kinds, strict=True):
        if kind == "l":
            listed += [x for x in a if x is not None]
        elif kind in "tno" and a is not None:
            listed.append(a)
    return listed


def _meta(a: Any) -> Any:
    if isinstance(a, tuple) and any(isinstance(x, Guest) for x in a):
        return tuple(None if x is None else x._meta for x in a)
    return a._meta if isinstance(a, Guest) else a


def outcome(name: str, args: Sequence[Any], *, engine: bool) -> Any:
    """Arrays, or the text of the exception and whether it is an IndexError."""
    try:
        return [g.values.copy() for g in run(name, args, engine=engine)]
    except (IndexError, RuntimeError) as problem:
        return isinstance(problem, IndexError), isinstance(problem, RuntimeError), str(problem)


def check(name: str, args: Sequence[Any], rtol: float = 0.0) -> None:
    """The engine does what the reference does."""
    with np.errstate(all="ignore"):
        wanted, found = (outcome(name, args, engine=e) for e in (False, True))
    if isinstance(wanted, tuple):
        assert found == wanted
        return
    assert not isinstance(found, tuple), found
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol, rtol, equal_nan=True)
