"""From the graph of a program to an ONNX graph: one walk, which goes on past what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import NUMBER_METAS
from lucerne._src.ir.scalar.protocol import ScalarValue
from lucerne._src.ir.scalar.typed import TypedNum
from lucerne._src.ir.symbolic.expressions import FORMULAS, Expr
from lucerne.export.onnx.errors import NotExpressibleError, Refusal
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.rules import load_rules
from lucerne.export.onnx.table import RULES
from lucerne.export.onnx.types import proto
from lucerne.export.onnx.writer import Writer
from lucerne.export.whole import expand

_FOLDS = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
_LOGIC = {"or": "ReduceMax", "and": "ReduceMin"}
_POSITIONS = {"argmax": "ArgMax", "argmin": "ArgMin"}
"""What the monoid of a reduction's entry is in ONNX."""


class Translation(Writer):
    """A writer that knows which ONNX name each value of the graph has."""

    def __init__(self, opset: int) -> None:
        super().__init__(opset)
        load_rules()
        self.names: dict[int, str] = {}
        self.shapes: dict[int, tuple[Any, ...]] = {}
        """Sizes of values that follow from symbols, as formulas."""
        self.refusals: list[Refusal] = []
        self._refused: set[int] = set()

    # ---- what rules ask --------------------------------------------------------------------------

    def of(self, a: Value) -> str:
        return self.names[a.index]

    def sizes_of(self, a: Value) -> tuple[Any, ...]:
        """The shape of a value, formulas where it changes."""
        return self.shapes.get(a.index, tuple(a.meta.shape))

    def operand(self, a: Any, dtype: dt.dtype) -> str:
        """A value or a number as a tensor of this dtype."""
        if isinstance(a, Value):
            return self.of(a) if a.meta.dtype is dtype else self.cast(self.of(a), dtype)
        if isinstance(a, Expr):
            return self.cast(self.scalar(a), dtype)
        if isinstance(a, FORMULAS):
            return self.cast(self.float_of(a), dtype)
        return self.constant(a, dtype)

    def turned(self, a: Value) -> str:
        """The transpose of a matrix; of a weight as another constant: quantizers look for those."""
        name = self.of(a)
        known = self.initializers.get(name)
        if known is None:
            return self.node("Transpose", [name], perm=[1, 0])
        made = f"{name}.T"
        if made not in self.initializers:
            self.initializers[made] = _transposed(known, made)
        return made

    # ---- the walk --------------------------------------------------------------------------------

    def run(self, graph: Graph, formulas: Mapping[int, Any], needed: set[int]) -> None:
        """Write the nodes whose results are needed; what can't be written is noted."""
        for k, node in enumerate(graph.nodes):
            if not any(v.index in needed for v in node.outputs):
                continue
            self.step(node, formulas.get(k) or node.args)

    def step(self, node: Node, args: tuple[Any, ...]) -> None:
        """Write one node, or note why it can't be written."""
        if self._reads_refused(node):
            self._refused.update(v.index for v in node.outputs)
            return
        try:
            self._named(node, self.translated(node, args))
        except NotExpressibleError as error:
            self.refusals.append(
                Refusal(node.op.qualified, str(node.place or "an unknown line"), str(error))
            )
            self._refused.update(v.index for v in node.outputs)

    def _reads_refused(self, node: Node) -> bool:
        """Whether an operand was refused before: its reason is told already."""
        return any(v.index in self._refused for v in operands(node.args))

    def translated(self, node: Node, args: tuple[Any, ...]) -> Any:
        """The names of what a node gives: by its rule, else by its body."""
        op = node.op
        if node.outputs and all(self._is_empty(v) for v in node.outputs):
            return [self._nothing(v) for v in node.outputs]
        rule = RULES.get(op.qualified)
        if rule is not None:
            made = rule(self, node, *args)
            return self._body(node, args) if made is NotImplemented else made
        if op.kind == op_.POINTWISE:
            return self._pointwise(node, args)
        if op.kind == op_.REDUCTION:
            return self._reduction(node, *args)
        return self._body(node, args)

    def _is_empty(self, v: Value) -> bool:
        return any(not isinstance(n, Expr) and n == 0 for n in self.sizes_of(v))

    def _nothing(self, v: Value) -> str:
        """A tensor without elements, for which engines have ideas of their own."""
        return self.node("Expand", [self.constant(0, v.meta.dtype), self.ints(self.sizes_of(v))])

    def _body(self, node: Node, args: tuple[Any, ...]) -> list[str]:
        """The ops of a composite in its place."""
        sized = any(isinstance(x, Expr) for a in args if isinstance(a, Value)
                    for x in self.sizes_of(a))  # fmt: skip
        graph = expand(node) if node.op.kind == op_.COMPOSITE else None
        if graph is None:
            raise NotExpressibleError("ONNX has no operator for it")
        if sized or args is not node.args:
            raise NotExpressibleError("ONNX has no operator for it at sizes that change")
        return self.inside(graph, [self.of(x) for x in operands(args)])

    def inside(self, graph: Graph, given: Sequence[str]) -> list[str]:
        """The nodes of a graph inside a node, here; `given`: the names of its inputs."""
        before = self.names
        self.names = {v.index: name for v, name in zip(graph.inputs, given, strict=True)}
        try:
            for node in graph.nodes:
                self._named(node, self.translated(node, node.args))
            return [self.of(v) for v in graph.outputs]
        finally:
            self.names = before

    def _named(self, node: Node, made: Any) -> None:
        made = [made] if isinstance(made, str) else made
        self.names.update((v.index, name) for v, name in zip(node.outputs, made, strict=False))

    # ---- bodies on elements ----------------------------------------------------------------------

    def _pointwise(self, node: Node, args: tuple[Any, ...]) -> str:
        op, out = node.op, node.outputs[0].meta
        if out.dtype.category == dt.COMPLEX:
            raise NotExpressibleError("ONNX has no complex numbers")
        plain = out.dtype in (dt.float32, dt.float64) and isinstance(args[0], Value)
        if op.onnx and plain and args[0].meta.dtype is out.dtype:
            return self.node(op.onnx, [self.of(args[0])])
        data = [k == op_.TENSOR and a is not None for k, a in zip(op.kinds, args, strict=True)]
        metas = [_meta(a) for a, is_data in zip(args, data, strict=True) if is_data]
        common = promote.common_type(op.promote, metas)
        if common.category == dt.COMPLEX:
            raise NotExpressibleError("ONNX has no complex numbers")
        types = iter(promote.operand_types(op.promote, metas))
        operands = [
            self._element(a, next(types) if is_data else common.compute, is_data,
                          op.kinds[place] == op_.SCALAR,
                          promote.rounding(op, place, common, _meta(a) if is_data else a))
            for place, (a, is_data) in enumerate(zip(args, data, strict=True))
        ]  # fmt: skip
        count = sum(not p.keyword_only for p in op.params)
        named = {p.name: x for p, x in zip(op.params[count:], operands[count:], strict=True)}
        made = op.body(*operands[:count], **named)
        raw = made.raw if type(made) is ScalarValue else made
        num = self.machine.number(raw, out.dtype.compute)
        return num.re if out.dtype.compute is out.dtype else self.cast(num.re, out.dtype)

    def _element(
        self, a: Any, kind: dt.dtype, is_data: bool, is_number: bool, rounded: dt.dtype | None
    ) -> Any:
        """An operand as the machine takes it; `is_number`: a parameter that changes from call to
        call, which bodies compute with."""
        if isinstance(a, FORMULAS):
            wide = dt.int64 if isinstance(a, Expr) else dt.float64
            num = TypedNum(wide, self.scalar(a) if wide is dt.int64 else self.float_of(a))
            fits = is_data or wide.category <= max(kind.category, dt.INTEGER)
            return ScalarValue(self.machine, self.machine.number(num, kind) if fits else num)
        if not is_data and not (is_number and _fits(a, kind)):
            return a
        if not isinstance(a, Value):
            made = self.machine.number(a, kind)
        else:
            stored = a.meta.dtype
            raw = TypedNum(stored.compute, self.operand(a, stored.compute))
            made = self.machine.number(raw, kind)
            if stored is rounded:
                rounded = None
        if rounded is not None and kind is rounded.compute and kind is not rounded:
            made = self.machine.rounded(made, rounded)
        return ScalarValue(self.machine, made)

    # ---- reductions ------------------------------------------------------------------------------

    def _reduction(
        self, node: Node, input: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> str:
        meta, out, monoid = input.meta, node.outputs[0].meta, node.op.reduce
        if dt.COMPLEX in (meta.dtype.category, out.dtype.category):
            raise NotExpressibleError("ONNX has no complex numbers")
        x, keep = self.of(input), int(keepdim)
        if monoid in _POSITIONS:
            return self._position(_POSITIONS[monoid], input, out, dim, keep)
        listed = (
            range(meta.ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
        )
        dims = sorted({d % meta.ndim for d in listed}) if meta.ndim else []
        if monoid in _LOGIC:
            whole = x if meta.dtype is dt.bool_ else self._is_true(input)
            number = self.cast(whole, dt.int32)
            made = (
                self.node(_LOGIC[monoid], [number, self.ints(dims)], keepdims=keep)
                if dims
                else number
            )
            return self.cast(made, out.dtype)
        if monoid not in _FOLDS:
            raise NotExpressibleError(f"ONNX has no fold by {monoid!r}")
        wide = out.dtype
        if wide.category < dt.FLOAT and wide not in (dt.int32, dt.int64):
            wide = dt.int64
        elif wide.compute is not wide and monoid in ("add", "mul"):
            wide = wide.compute
        x = x if meta.dtype is wide else self.cast(x, wide)
        if dims:
            x = self.node(_FOLDS[monoid], [x, self.ints(dims)], keepdims=keep)
        return x if wide is out.dtype else self.cast(x, out.dtype)

    def _is_true(self, input: Value) -> str:
        num = TypedNum(input.meta.dtype.compute, self.operand(input, input.meta.dtype.compute))
        found: str = self.machine.number(num, dt.bool_).re
        return found

    def _position(self, kind: str, input: Value, out: Any, dim: Any, keep: int) -> str:
        meta = input.meta
        x = self.of(input)
        if meta.dtype.category < dt.FLOAT and meta.dtype not in (dt.int32, dt.int64):
            x = self.cast(x, dt.int64)
        if not meta.ndim:
            return self.constant(0, dt.int64)
        if dim is not None:
            return self.node(kind, [x], axis=dim % meta.ndim, keepdims=keep)
        made = self.node(kind, [self.node("Reshape", [x, self.ints([-1])])], axis=0, keepdims=0)
        return self.node("Reshape", [made, self.ints([1] * meta.ndim)]) if keep else made


def _meta(a: Any) -> Any:
    if isinstance(a, Value):
        return a.meta
    return NUMBER_METAS[
        int if isinstance(a, Expr) else float if isinstance(a, FORMULAS) else type(a)
    ]


def _fits(a: Any, kind: dt.dtype) -> bool:
    """Whether a number of Python is one of the computing type, or goes as it is."""
    order = {bool: dt.BOOL, int: dt.INTEGER, float: dt.FLOAT}
    return type(a) in order and order[type(a)] <= max(kind.category, dt.INTEGER)


def _transposed(known: Any, name: str) -> Any:
    """A constant of a file, transposed, whatever its dtype."""
    return proto(onnx_package().numpy_helper.to_array(known).T, name)


def needed_values(graph: Graph, outputs: Sequence[Value]) -> set[int]:
    """Numbers of the values that the outputs follow from: checks of arguments are left out."""
    found = {v.index for v in outputs}
    for node in reversed(graph.nodes):
        if any(v.index in found for v in node.outputs):
            found.update(v.index for v in operands(node.args))
    return found
