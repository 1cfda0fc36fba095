"""Functions traced at given sizes, for tests of generalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.backends.cpu.rules.table import RULES
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.capture.symbolic.shapes import SizedRecorder, Symbols
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import guarding
from lucerne._src.transforms.generalize import Template, generalize

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


def learned(fn: Callable[..., Any], a: list[TensorMeta], b: list[TensorMeta]) -> Template:
    """What a compiler does when it sees a second size: one trace with symbols where they differ."""
    pairs = {
        (k, d): (n, m)
        for k, (first, second) in enumerate(zip(a, b, strict=True))
        for d, (n, m) in enumerate(zip(first.shape, second.shape, strict=True))
        if n != m
    }
    symbols = Symbols(pairs)
    with guarding() as guards:
        metas = [symbols.meta(k, meta) for k, meta in enumerate(b)]
        graph = traced(fn, metas, SizedRecorder(whole))
    places: dict[str, tuple[int, int]] = {}
    for at, name in symbols.names.items():
        places.setdefault(name, at)
    return generalize(graph, places, guards)
