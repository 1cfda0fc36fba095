"""A backward graph for the case that some of its tangents do not arrive.

A function returns logits and a loss, and its caller goes back from the loss alone. What the others
would have brought is not nought then, it is not there: eager visits none of the nodes that it would
come from, adds nothing, and leaves the gradients that nothing reaches None. Noughts in its place
cost time, turn -0.0 into 0.0 and, where a derivative is infinite, numbers into NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base.process.source_location import Origin
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, map_values, operands, renamed
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import clone_as, filled
from lucerne._src.ops.pointwise.arithmetic import add2
from lucerne._src.transforms import dead
from lucerne._src.transforms.rewrite import result_metas

_ADD: Op = add2.op  # type: ignore[attr-defined]
_CLONE: Op = clone_as.op  # type: ignore[attr-defined]
_FILLED: Op = filled.op  # type: ignore[attr-defined]
UNFIT = (ValueError, RuntimeError, TypeError, IndexError)
"""What an op raises that does not take a gradient as it lies when nothing is added to it."""


def sums_of(graph: Graph) -> frozenset[int]:
    """The numbers of the nodes by which the engine adds up what two others bring: they are of no
    line of the forward pass."""
    return frozenset(k for k, node in enumerate(graph.nodes) if _is_sum(node))


def _is_sum(node: Node) -> bool:
    of_line = isinstance(node.place, Origin) and node.place.backward
    if node.op is not _ADD or of_line:
        return False
    shapes = [v.meta.shape for v in operands(node.args)]
    return bool(shapes) and all(shape == shapes[0] for shape in shapes[1:])


def without(
    graph: Graph,
    missing: Sequence[Value],
    late: Sequence[Value],
    sums: frozenset[int],
    unasked: Collection[int] = (),
) -> Fewer:
    """The backward graph without some of its tangents (`late`: all of them), and without the
    outputs whose numbers are `unasked`."""
    return Fewer(graph, missing, late, sums, unasked)


class Fewer:
    """`graph` has the inputs of the old one but for those that are missing; `places[k]` says which
    of its outputs the k-th old one has become, None: nothing reaches it, or nobody asks."""

    def __init__(
        self,
        source: Graph,
        missing: Sequence[Value],
        late: Sequence[Value],
        sums: frozenset[int],
        unasked: Collection[int],
    ) -> None:
        absent = {v.index for v in missing}
        self._late = {v.index for v in late}
        """Values that depend on a tangent, those that do not arrive included."""
        self._here: dict[int, Value | None] = {}
        """By number of an old value: what it is now; None: it does not arrive."""
        self._zeros: dict[int, Value] = {}
        self.graph = Graph()
        for v in source.inputs:
            self._here[v.index] = None if v.index in absent else self.graph.input(v.meta)
        for k, node in enumerate(source.nodes):
            self._take(node, k in sums)
        self.places: list[int | None] = []
        outputs: list[Value] = []
        for k, v in enumerate(source.outputs):
            found = None if k in unasked else self._here[v.index]
            self.places.append(None if found is None else len(outputs))
            outputs += [] if found is None else [self._as_result(v, found)]
        self.graph.outputs = tuple(outputs)
        self.graph = dead.run(self.graph, keep_draws=False)

    def _take(self, node: Node, is_sum: bool) -> None:
        """A node of the old graph, or what is left of it."""
        self.graph.place = node.place
        late = [v for v in operands(node.args) if v.index in self._late]
        arriving = [v for v in late if self._here[v.index] is not None]
        if late:
            self._late.update(v.index for v in node.outputs)
        if late and not arriving:
            self._here.update((v.index, None) for v in node.outputs)
        elif len(arriving) == 1 and len(late) == 2 and is_sum:
            self._here[node.outputs[0].index] = self._here[arriving[0].index]
        else:
            self._copy(node)

    def _copy(self, node: Node) -> None:
        args = map_values(self._now, node.args)
        pairs = list(zip(operands(node.args), operands(args), strict=True))
        metas = [v.meta for v in node.outputs]
        if any(old.meta is not now.meta for old, now in pairs):
            try:
                metas = self._metas(node, args)
            except UNFIT:  # as the sum lay, then
                laid = {now.index: self._laid(now, old.meta) for old, now in pairs}
                args = renamed(args, laid)
        made = self.graph.call(node.op, args, metas)
        self._here.update((old.index, new) for old, new in zip(node.outputs, made, strict=True))

    @staticmethod
    def _metas(node: Node, args: tuple[Any, ...]) -> list[Any]:
        if node.op.kind == op_.COMPOSITE:
            raise ValueError("a kernel of a whole composite takes what it was asked about")
        return list(result_metas(node.op, args))

    def _laid(self, now: Value, meta: Any) -> Value:
        """A copy that lies as the old value did."""
        if now.meta is meta:
            return now
        args = now, lo.contiguous_format
        found = self.graph.call(_CLONE, args, result_metas(_CLONE, args))[0]
        if found.meta is not meta:
            raise ValueError("a gradient that nothing is added to lies otherwise")
        return found

    def _now(self, old: Value) -> Value:
        """What a value is now; noughts for one that does not arrive, as the derivative of an op of
        several results is given."""
        found = self._here[old.index]
        if found is None:
            found = self._zeros.get(old.index)
        if found is None:
            meta: Any = old.meta
            args = (tuple(meta.shape), 0, meta.dtype, meta.device, meta.strides)
            found = self._zeros[old.index] = self.graph.call(_FILLED, args, [meta])[0]
        return found

    def _as_result(self, old: Value, now: Value) -> Value:
        """An output is a memory of its own; one that was a sum may be a view now."""
        if now.meta is old.meta:
            return now
        args = now, lo.preserve_format
        return self.graph.call(_CLONE, args, result_metas(_CLONE, args))[0]
