"""A fault by itself: the smallest graph that shows it, and how to run it both ways.

What shadow mode prints ends with a call of `show`: the graph as text and the numbers that flow in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.step_runner import executable_of
from lucerne._src.backends.contract.tensor_view import Bytes, Spot, elements
from lucerne._src.capture.shadow.nearness import Array, NearnessRule
from lucerne._src.capture.shadow.replay import Replay
from lucerne._src.ir.graph import Graph, Node, Value, operands, verify
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.text import parse
from lucerne._src.pipeline import passes
from lucerne._src.transforms.interpret import blank, held

_MOST_NUMBERS = 2048
_MOST_NODES = 40


def show(text: str, numbers: Sequence[Any], stage: str) -> bool:
    """Run a graph op by op and by `stage` (a pass, or "kernel"); print both.

    Returns whether they agree.

    >>> import numpy as np
    >>> lines = "graph(%0: float32[2])", "  %1: float32[2] = neg(%0)", "  return %1"
    >>> show("\\n".join(lines), [np.array([1.0, 2.0])], "simplify")
    right:  [-1. -2.]
    after simplify: [-1. -2.]
    the same
    True
    """
    graph = parse(text)
    inputs = [_input(v, x) for v, x in zip(graph.inputs, numbers, strict=True)]
    want, got = Replay().run(graph, inputs).outputs, by_stage(graph, inputs, stage)
    same = all(
        NearnessRule(local=True).difference(a, b, v.meta.dtype) is None
        for a, b, v in zip(got, want, graph.outputs, strict=True)
    )
    for a, b in zip(got, want, strict=True):
        print(f"right:  {b}\nafter {stage}: {a}")
    print("the same" if same else "DIFFERENT")
    return same


def by_stage(graph: Graph, inputs: list[Any], stage: str) -> list[Array]:
    """The outputs of a graph after a pass, or by the kernel that is made of it."""
    for p in passes.PASSES:
        if p.name == stage:
            setting = passes.PassSetting.of(backends.get(backends.HOST), bitwise=False)
            return Replay().run(p.run(graph, setting), inputs).outputs
    backend = backends.get(backends.HOST)
    outs = [in_memory(blank(v.meta), backend) for v in graph.outputs]
    executable_of(graph, backend)([in_memory(x, backend) for x in inputs], outs)
    return [np.array(elements(o)) for o in outs]


def _input(v: Value, x: Any) -> Any:
    if not isinstance(v.meta, TensorMeta):
        return x
    storage = v.meta.dtype.storage
    return held(np.resize(np.asarray(x).astype(storage), tuple(v.meta.shape)), v.meta)


def in_memory(x: Any, backend: Any) -> Any:
    """A value in memory of the backend."""
    if not isinstance(x, Spot):
        return x
    meta = x._meta
    nbytes = max(meta.span * meta.dtype.itemsize, 1)
    buffer = backend.allocate(nbytes)
    made = Spot(meta, Bytes(buffer, nbytes, backend.address(buffer), backend), 0)
    if meta.numel:  # by way of the host: the memory may be the backend's own
        flat = np.zeros(nbytes, np.uint8)
        np.ndarray(tuple(meta.shape), meta.dtype.storage, flat, 0, meta.byte_strides)[...] = x.array
        backend.write(buffer, 0, flat)
    return made


# ---- making one ---------------------------------------------------------------------------------


def script(graph: Graph, inputs: Sequence[Any], stage: str) -> str:
    """A program that shows a fault by itself."""
    if len(graph.nodes) > _MOST_NODES:
        return f"# a graph of {len(graph.nodes)} nodes: finding.graph, finding.inputs"
    return "\n".join([
        "import numpy as np",
        "import lucerne",
        "from lucerne._src.capture.shadow.reproduce import show",
        f'graph = """{graph}"""',
        "numbers = [",
        *(f"    {_literal(x)}," for x in inputs),
        "]",
        f"show(graph, numbers, {stage!r})",
    ])  # fmt: skip


def _literal(x: Any) -> str:
    if not isinstance(x, Spot):
        return repr(x) if isinstance(x, (bool, int, float, complex, str)) else "None"
    array = x.array
    numbers = array.ravel()[:_MOST_NUMBERS].tolist()
    text = f"np.array({numbers}, {array.dtype.str!r})"
    text = text.replace("nan", "np.nan").replace("inf", "np.inf")
    return text if array.size <= _MOST_NUMBERS else text + "  # the first ones, again and again"


def small_case(
    stage: str, graph: Graph, culprits: Sequence[Node], seen: dict[int, Array]
) -> tuple[Graph, list[Any]]:
    """The nodes that a pass got wrong by themselves if that shows it, else the whole graph."""
    for nodes in (list(culprits), _with_makers(graph, culprits)):
        if not nodes or not all(n.outputs for n in nodes):
            continue
        small = sliced(nodes, graph)
        inputs = [_as_seen(v, seen) for v in small.inputs]
        try:
            want, got = Replay().run(small, inputs).outputs, by_stage(small, inputs, stage)
        except Exception:  # it shows more in the whole graph
            continue
        rule = NearnessRule(local=False)
        pairs = zip(got, want, small.outputs, strict=True)
        if any(rule.difference(a, b, v.meta.dtype) is not None for a, b, v in pairs):
            return small, inputs
    return graph, [_as_seen(v, seen) for v in graph.inputs]


def _as_seen(v: Value, seen: dict[int, Array]) -> Any:
    return held(seen[v.index], v.meta) if v.index in seen else 0.0


def _with_makers(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """Nodes, and those that make what they read."""
    wanted = {v.index for n in nodes for v in operands(n.args)}
    chosen = set(map(id, nodes))
    return [n for n in graph.nodes if id(n) in chosen or any(v.index in wanted for v in n.outputs)]


def sliced(nodes: Sequence[Node], graph: Graph) -> Graph:
    """Some nodes of a graph as a graph of their own; what the last one makes comes out."""
    order = {id(n): k for k, n in enumerate(graph.nodes)}
    chosen = sorted(nodes, key=lambda n: order.get(id(n), len(order)))
    made = {v.index for n in chosen for v in n.outputs}
    outside: dict[int, Value] = {}
    for n in chosen:
        for v in operands(n.args):
            if v.index not in made:
                outside.setdefault(v.index, v)
    small = Graph()
    small.inputs, small.nodes = list(outside.values()), chosen
    small.outputs = chosen[-1].outputs
    small._next = 1 + max([*outside, *made], default=0)
    verify(small)
    return small
