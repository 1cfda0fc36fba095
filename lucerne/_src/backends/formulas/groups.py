"""Groups of element-wise ops as one kernel: values inside never go through memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Executable as ExecutableState
from lucerne._src.backends.formulas.elementwise import body_of
from lucerne._src.backends.formulas.frame import (
    FormulaExecutable,
    FormulaNumber,
    FormulaTensor,
    Frame,
    kind_of,
)
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.graph import Value as GraphValue
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.scalar.protocol import ScalarValue
from lucerne._src.ops.random.counted import counted_draw

_DRAWN: op_.Op = counted_draw.op  # type: ignore[attr-defined]
"""Element by element, and without a formula."""


class Groups:
    """What a backend with a writer may inherit: the compiler hands over groups of ops."""

    folds = False
    """Reductions stay by themselves."""

    def fuse(self, graph: Graph) -> ExecutableState | None:
        return fused(graph, self)

    def fuses_groups(self, graphs: list[Graph]) -> list[bool]:
        return [self.fuse(graph) is not None for graph in graphs]


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([n for n in shape if n != 1])


def fused(graph: Graph, backend: Any) -> ExecutableState | None:
    """One kernel for a graph, if all its ops work element by element on one shape."""
    if not graph.outputs or not all(_fits(n, graph) for n in graph.nodes):
        return None
    shapes = {_squeezed(v.meta.shape) for n in graph.nodes for v in n.outputs}
    return FormulaExecutable(graph, _group, backend, GroupFrame) if len(shapes) == 1 else None


def _fits(node: Node, graph: Graph) -> bool:
    if node.op.kind == op_.VIEW:  # of a value made here
        given = any(node.args[0] is v for v in graph.inputs)
        return node.op.keeps_order and not given
    return node.op.kind == op_.POINTWISE or (node.op.elementwise and node.op is not _DRAWN)


class GroupFrame(Frame):
    """A group being written as one kernel."""

    def __init__(self, graph: Graph, metas: Sequence[TensorMeta], make_writer: Any) -> None:
        self.begin(graph, metas, make_writer)
        self.graph, self.args = graph, []
        self.given: dict[int, Any] = {}
        for k, v in enumerate(graph.inputs):
            is_tensor = type(v.meta) is TensorMeta
            made: Any = FormulaTensor(self, self.buffer_of[k], v.meta) if is_tensor else None
            self.given[v.index] = made if is_tensor else FormulaNumber(self, k, kind_of(v.meta))


def _group(f: GroupFrame) -> None:
    with f.kernel(_squeezed(f.outs[0].shape)) as at:
        made: dict[int, ScalarValue] = {}
        for node in f.graph.nodes:
            (out,) = node.outputs
            made[out.index] = _element(f, node, made, _own(f, at, out.meta.shape))
        for t, v in zip(f.outs, f.graph.outputs, strict=True):
            t.put(_own(f, at, t.shape), made[v.index])


def _own(f: Frame, at: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """Coordinates with zeros where a shape has dimensions of size 1."""
    given = iter(at)
    return [f.size(0) if n == 1 else next(given) for n in shape]


def _element(f: GroupFrame, node: Node, made: dict[int, ScalarValue], at: list[Any]) -> ScalarValue:
    """What a node gives at these coordinates, rounded to the dtype it would be stored in."""
    meta: TensorMeta = node.outputs[0].meta
    args, loaded = [], []
    for a in node.args:
        if type(a) is not GraphValue:
            args.append(a)
            loaded.append(a)
        elif a.index in made:
            args.append(FormulaTensor(f, -1, a.meta))
            loaded.append(made[a.index])
        else:
            given = f.given[a.index]
            is_tensor = isinstance(given, FormulaTensor)
            args.append(given)
            # the operand of `copy` whose memory is written is not read
            read = is_tensor and not (node.op.qualified == "copy" and len(args) == 1)
            loaded.append(given.spread(meta.shape)(*at) if read else given)
    if node.op.kind == op_.VIEW:
        found: ScalarValue = loaded[0]
        return found
    if node.op.kind == op_.POINTWISE:
        value = body_of(f, node.op, args, loaded)
    else:
        value = loaded[1 if node.op.qualified in ("copy", "filled") else 0]
    compute = f.value(value, meta.dtype.compute)
    return ScalarValue(f.writer, f.writer.rounded(compute.raw, meta.dtype))
