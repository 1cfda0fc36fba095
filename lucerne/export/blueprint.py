"""Blueprint: an exported program without its tensors. What a file holds besides the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.expressions import Expr
from lucerne._src.ir.symbolic.numbers import is_symbolic, to_int
from lucerne._src.tensor.base import TensorBase
from lucerne._src.transforms.functionalize import functionalize
from lucerne._src.transforms.generalize import Instance, SizeRefusedError, Template
from lucerne.export.errors import ArgumentError
from lucerne.export.safety import check_graph

PARAMETER, BUFFER, CONSTANT, ARGUMENT = "parameter", "buffer", "constant", "argument"


RAISED: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (IndexError, RuntimeError, TypeError, ValueError)
}
"""What checks of values raise."""


class Tensor:
    """Stands for a tensor among the leaves of arguments and results."""

    def __repr__(self) -> str:
        return "a tensor"

    def __reduce__(self) -> str:
        return "TENSOR"


TENSOR = Tensor()


@dataclass
class Input:
    """Where an input of the graph comes from."""

    kind: str
    name: str
    """As in the graph that people see: `p_lin_weight`, `x`."""
    target: str = ""
    """Of parameters, buffers and constants: the name in the module."""
    leaf: int = 0
    """Of arguments: which leaf."""
    persistent: bool = True
    requires_grad: bool = False
    fresh: bool = False
    """A constant that the program writes to, and that begins anew at every call."""


@dataclass
class Range:
    """A size that may change: its name, and from where to where."""

    name: str
    least: int
    most: int

    def __str__(self) -> str:
        most = "" if self.most >= 2**31 - 1 else f" to {self.most}"
        return f"{self.name} from {self.least}{most}"


@dataclass
class Blueprint:
    """The graph as it was captured (mutation included), and how it is called."""

    graph: Graph
    inputs: list[Input]
    in_shape: Any
    in_leaves: list[Any]
    """TENSOR, or the value that the call must have there."""
    in_names: list[str]
    """Of each leaf, as messages call it."""
    out_shape: Any
    out_leaves: list[Any]
    """TENSOR, a constant, or the formula of a number that follows from sizes."""
    template: Template | None = None
    top_names: list[str] = field(default_factory=list)
    """Of the arguments: of those by position, then of those by name."""
    ranges: dict[str, Range] = field(default_factory=dict)
    """By symbol of the template."""
    checks: list[tuple[str, str]] = field(default_factory=list)
    """What is raised (kind and text) if one of the flags is true that follow the results among the
    graph's outputs."""
    guards: list[str] = field(default_factory=list)
    """What the module decided by sizes, in words."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Blueprint:
        """Itself: nobody changes a plan, and its graph may be large."""
        return self

    @property
    def fresh(self) -> frozenset[Value]:
        pairs = zip(self.graph.inputs, self.inputs, strict=True)
        return frozenset(v for v, i in pairs if i.fresh)

    # ---- calls ---------------------------------------------------------------------------------

    def bind(self, leaves: Sequence[Any]) -> tuple[tuple[str, int], ...]:
        """The sizes of a call, after a look at all its arguments. Raises what is wrong in words."""
        for k, (want, have) in enumerate(zip(self.in_leaves, leaves, strict=True)):
            if want is not TENSOR and not _same(want, have):
                raise ArgumentError(
                    f"{self.in_names[k]}: the program was exported for {want!r}, not {have!r}. "
                    "Values that are no tensors are part of the program."
                )
            if want is TENSOR and not isinstance(have, TensorBase):
                raise ArgumentError(
                    f"{self.in_names[k]}: a tensor is expected, not {type(have).__name__}"
                )
        sizes = self._sizes(leaves)
        metas = [v.meta for v in self.graph.inputs]
        if self.template is not None:
            metas = self.template.metas(sizes)
        for meta, each in zip(metas, self.inputs, strict=True):
            if each.kind == ARGUMENT:
                self._check(each, leaves[each.leaf]._meta, meta)
        if self.template is not None and not self.template.admits(sizes):
            broken = [str(g) for g in self.template.guards if not g.holds(sizes)]
            raise ArgumentError(
                f"at these sizes ({self._told(sizes)}) the module would do something else: it was "
                f"exported where {', '.join(map(self.renamed, broken))}"
            )
        return tuple(sizes.items())

    def _sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        if self.template is None:
            return sizes
        for name, (i, d) in self.template.symbols.items():
            each = self.inputs[i]
            shape = leaves[each.leaf]._meta.shape
            if len(shape) != self.graph.inputs[i].meta.ndim:
                raise ArgumentError(
                    f"{each.name}: {self.graph.inputs[i].meta.ndim} dimensions are expected, not "
                    f"{len(shape)}"
                )
            n, known = to_int(shape[d]), self.ranges[name]
            if not known.least <= n <= known.most:
                raise ArgumentError(
                    f"{self.in_names[each.leaf]}, dimension {d}, is {n}: the program was exported "
                    f"for {known}"
                )
            sizes[name] = n
        return sizes

    def _told(self, sizes: Mapping[str, int]) -> str:
        return ", ".join(f"{self.ranges[s].name} = {n}" for s, n in sizes.items())

    def renamed(self, text: str) -> str:
        """A formula with the names that the user gave."""
        for symbol, known in self.ranges.items():
            text = text.replace(symbol, known.name)
        return text

    def _check(self, each: Input, have: TensorMeta, want: TensorMeta) -> None:
        where = self.in_names[each.leaf]
        if have.dtype is not want.dtype or have.device != want.device:
            raise ArgumentError(
                f"{where}: {want.dtype} on {want.device} is expected, not {have.dtype} on "
                f"{have.device}"
            )
        if have.ndim != want.ndim:
            raise ArgumentError(f"{where}: {want.ndim} dimensions are expected, not {have.ndim}")
        for d, (n, m) in enumerate(zip(have.shape, want.shape, strict=True)):
            if n == m:
                continue
            formula = None if self.template is None else self.template.inputs[self._number(each)]
            size = formula and formula[0][d]
            if isinstance(size, Expr):
                raise ArgumentError(
                    f"{where}, dimension {d}, is {n}: it must be {self.renamed(repr(size))}, which "
                    f"is {m} for the other arguments"
                )
            raise ArgumentError(
                f"{where}, dimension {d}, is {n}: the program was exported for {m}. Give "
                f"dynamic_shapes to `export` for sizes that change."
            )

    def _number(self, each: Input) -> int:
        return next(k for k, x in enumerate(self.inputs) if x is each)

    # ---- graphs --------------------------------------------------------------------------------

    def at(self, sizes: Mapping[str, int]) -> tuple[Graph, list[Any]]:
        """The graph without mutation at these sizes, and the leaves of its result."""
        if self.template is None:
            graph, leaves = self.graph, self.out_leaves
            return functionalize(graph, [], self.fresh, graph.outputs), leaves
        try:
            instance = Instance(self.template, sizes)
        except SizeRefusedError as error:
            raise ArgumentError(
                f"the program does not hold at these sizes ({self._told(sizes)}): {error}"
            ) from error
        if not is_symbolic(list(sizes.values())):  # (of a trace: what comes of it is checked)
            check_graph(instance.graph)
        fresh = frozenset(instance.values[v.index] for v in self.fresh)
        made = functionalize(instance.graph, [], fresh, instance.graph.outputs)
        return made, [instance.value_of(x) for x in self.out_leaves]

    def example_sizes(self) -> dict[str, int]:
        if self.template is None:
            return {}
        inputs = self.graph.inputs
        return {s: int(inputs[i].meta.shape[d]) for s, (i, d) in self.template.symbols.items()}


def _same(want: Any, have: Any) -> bool:
    return type(want) is type(have) and (want is have or bool(want == have) or want != want)
