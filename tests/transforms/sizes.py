"""Functions traced at given sizes, for tests of generalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne.backends.cpu.rules.table import RULES
from lucerne.base import dtype as dt
from lucerne.base.device import device
from lucerne.capture.fake import fake_tensor
from lucerne.capture.recorder import Recorder
from lucerne.capture.sized import SizedRecorder
from lucerne.ir.graph import Graph
from lucerne.ir.meta import TensorMeta, make_meta
from lucerne.ir.op import Op
from lucerne.ir.symbols import Guard, guarding
from lucerne.transforms.generalize import Reason, Template, generalize

Shape = tuple[int, ...]


def meta_of(shape: Shape, dtype: dt.dtype = dt.float32) -> TensorMeta:
    return make_meta(dtype, shape, None, device("cpu"))


def whole(op: Op, args: tuple[Any, ...]) -> bool:
    return op.qualified in RULES


def traced(fn: Callable[..., Any], metas: list[TensorMeta], recorder: Any = None) -> Graph:
    """The graph of `fn` on tensors with these metas."""
    r = recorder or Recorder(whole)
    fakes = [fake_tensor(m) for m in metas]
    for t in fakes:
        r.input(t)
    with r:
        found = fn(*fakes)
        outs = found if isinstance(found, tuple) else (found,)
        r.graph.outputs = tuple(r.value(o) for o in outs)
    graph: Graph = r.graph
    return graph


def guarded(
    fn: Callable[..., Any], first: Graph, metas: list[TensorMeta]
) -> tuple[Graph, list[Guard]]:
    """A second trace in step with the first, and the decisions taken by sizes."""
    with guarding() as guards:
        graph = traced(fn, metas, SizedRecorder(whole, first))
    return graph, list(guards)


def learned(fn: Callable[..., Any], a: list[TensorMeta], b: list[TensorMeta]) -> Template | Reason:
    """What a compiler does when it sees a second size: two traces, then one to make sure."""
    first = traced(fn, a)
    second, guards = guarded(fn, first, b)
    found = generalize(first, second, guards=guards)
    if not isinstance(found, Template):
        return found
    for sizes in found.probes():
        try:
            third = traced(fn, found.metas(sizes)[: len(a)])
        except RuntimeError:  # the function refuses these sizes
            continue
        return generalize(first, second, third, guards=guards)
    return Reason("no size to make sure")
