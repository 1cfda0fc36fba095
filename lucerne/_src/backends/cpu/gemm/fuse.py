"""A product and the element-wise ops around it as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lucerne._src.backends.cpu.emit.types import BF16
from lucerne._src.backends.cpu.fused.account import Account
from lucerne._src.backends.cpu.fused.layout import is_heavy
from lucerne._src.backends.cpu.fused.program import (
    Axis,
    FusedExpr,
    FusedOp,
    FusedOperand,
    FusedProgram,
    Load,
    Result,
)
from lucerne._src.backends.cpu.gemm.amx.pack import NARROW, Wide
from lucerne._src.backends.cpu.gemm.amx.products import amx_takes
from lucerne._src.backends.cpu.gemm.choose import choose, duration
from lucerne._src.backends.cpu.gemm.driver import MOST_TENSORS
from lucerne._src.backends.cpu.gemm.epilogue import ACROSS, DOWN, FULL, PLAIN, Combine, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import KINDS, GemmKind
from lucerne._src.backends.cpu.gemm.plan import GemmProduct, Planned
from lucerne._src.backends.cpu.gemm.prepack import planned_for_packed, suits_packed
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.gemm.split import suits_split
from lucerne._src.backends.cpu.gemm.tail import STILL, UNIT, Tail, TailOperand
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.backends.cpu.rules.casts import is_rounding
from lucerne._src.backends.cpu.runtime.code import Code
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node, Value, geometries
from lucerne._src.ir.meta import TensorMeta, make_meta

PRODUCTS = ("batch_matmul", "nn.functional.linear", "add_product")
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_ROUNDED = 8
"""More ops that each round to 16 bits run faster in loops of their own, several vectors at once."""
_ROUNDED_COLUMNS = 384
"""With more columns A is packed several times: rounding it once, before, costs less."""


def fused_product(graph: Graph) -> NativeKernel | None:
    """The kernel of a graph with one product and element-wise ops on its result.

    None: it does not have that form. Results must not share memory with operands: sums of a part
    of k wait in them.
    """
    try:
        return FusedGraph(graph).kernel()
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None


def right_operand(graph: Graph) -> tuple[int, int, TensorMeta] | None:
    """Of a graph that `fused_product` takes, the right operand if it can come packed: the input
    that holds it, its place there in bytes, and how it is read, as a matrix (k, n)."""
    if any(n.op.qualified == "adam_update" for n in graph.nodes):
        return None  # the gradient of a weight: neither factor is one
    group = FusedGraph(graph)
    a, b = group.factors.a, group.factors.b
    dense = a.meta.ndim == 2 or a.meta.contiguous
    if b.meta.ndim != 2 or not dense or a.rounded or b.rounded:
        return None
    if group.kind.source is BF16 and 1 not in a.meta.strides[-2:]:
        return None
    return b.slot - len(graph.outputs), b.offset, b.meta


def packed_fused_product(graph: Graph) -> NativeKernel | None:
    """The same kernel, reading a packed copy in the place of the right operand."""
    try:
        return FusedGraph(graph).kernel(packed=True)
    except NotImplementedError:
        return None


def walk_behind(graph: Graph) -> tuple[Graph, LoopWalk]:
    """What the kernel of such a graph goes through behind the product."""
    return FusedGraph(graph).walk()


@dataclass(frozen=True)
class GemmSource:
    """An operand in memory: its place among the call's tensors, its meta, a byte offset."""

    slot: int
    meta: TensorMeta
    offset: int = 0
    rounded: bool = False
    """Whether it is float32 in memory and counts as bfloat16."""

    @property
    def turned(self) -> GemmSource:
        meta = self.meta.like(shape=self.meta.shape[::-1], strides=self.meta.strides[::-1])
        return replace(self, meta=meta)


@dataclass(frozen=True)
class GemmOperands:
    """The product of a graph: its operands as matrices, what is added to it, and the result."""

    a: GemmSource
    b: GemmSource
    added: GemmSource | None
    out: Value


def read_views(sources: dict[int, GemmSource], nodes: list[Node]) -> None:
    """Views of the inputs are operands in memory too, and so are roundings to bfloat16."""
    for node in nodes:
        if len(node.outputs) != 1 or not node.args or type(node.args[0]) is not Value:
            continue
        before, out = sources.get(node.args[0].index), node.outputs[0]
        if before is None:
            continue
        if node.op.kind == op_.VIEW:
            sources[out.index] = _viewed(before, node)
        elif is_rounding(node):
            sources[out.index] = replace(before, rounded=True)


def factors_of(node: Node, sources: dict[int, GemmSource]) -> GemmOperands:
    """The operands of a product, by the number of the value."""

    def source(v: Value) -> GemmSource:
        found = sources.get(v.index)
        if found is None:
            raise NotTaken("an operand that is computed in the graph")
        return found

    out = node.outputs[0]
    if node.op.qualified == "batch_matmul":
        left, right = node.args
        return GemmOperands(source(left), source(right), None, out)
    if node.op.qualified == "add_product":
        added, left, right = node.args
        return GemmOperands(source(left), source(right), source(added), out)
    left, weight, bias = node.args
    if weight.meta.ndim != 2 or left.meta.ndim < 2:
        raise NotTaken("a vector")
    added = None if bias is None else source(bias)
    return GemmOperands(source(left), source(weight).turned, added, out)


def _viewed(before: GemmSource, node: Node) -> GemmSource:
    if node.outputs[0].meta.dtype not in (before.meta.dtype, dt.bfloat16):
        raise NotTaken("an operand seen as another type")
    try:
        seen = geometries(node, before.meta)[0]
    except RuntimeError as problem:  # it is a view of the rounded copy only
        raise NotTaken(str(problem)) from problem
    meta = before.meta.like(shape=tuple(seen.shape), strides=tuple(seen.strides))
    offset = before.offset + seen.offset * meta.dtype.itemsize
    return replace(before, meta=meta, offset=offset)


@dataclass(frozen=True)
class Planning:
    """Code of a product, its plan, and the words behind those of the plan."""

    code: Code
    plan: Planned
    words: list[int]
    work: float


class _After(FusedProgram):
    """The ops after a product: its result is the first input, and may be a result as it is."""

    def __init__(self, graph: Graph) -> None:
        self.product_slot = len(graph.outputs)
        super().__init__(graph)

    def is_product(self, e: Any) -> bool:
        return isinstance(e, Load) and e.memory.slot == self.product_slot

    def _result(self, slot: int, v: Value) -> Result:
        seen = self._value(v)
        if self.is_product(seen.expr):
            return Result(seen.expr, FusedOperand(slot, v.meta, 0, seen.dims))
        return super()._result(slot, v)


class FusedGraph:
    """One fused graph, being understood."""

    def __init__(self, graph: Graph, results: int | None = None) -> None:
        """`results`: how many the kernel has in all, if some are not the graph's."""
        self.graph = graph
        first = len(graph.outputs) if results is None else results
        nodes = [n for n in graph.nodes if n.op.qualified in PRODUCTS]
        if len(nodes) != 1:
            raise NotTaken("not one product")
        if len(graph.outputs) + len(graph.inputs) > MOST_TENSORS:
            raise NotTaken("more tensors than an entry has room for")
        self.sources = {
            v.index: GemmSource(k + first, v.meta)
            for k, v in enumerate(graph.inputs)
            if isinstance(v.meta, TensorMeta)
        }
        rest = [n for n in graph.nodes if n is not nodes[0]]
        read_views(self.sources, rest)
        self.factors = factors_of(nodes[0], self.sources)
        out: TensorMeta = self.factors.out.meta
        if out.dtype.name not in _FLOATS or not out.numel or not out.contiguous:
            raise NotTaken("a product of another kind")
        self.kind: GemmKind = KINDS[out.dtype.name]
        self.out = out
        self.program = self._after(rest)
        self.orders = self._orders()

    def _after(self, rest: list[Node]) -> _After:
        """The rest of the graph, its inputs in the order in which they are read."""
        inputs = {v.index: v for v in self.graph.inputs}
        used: set[int] = {v.index for v in self.graph.outputs}
        kept: list[Node] = []
        for node in reversed(rest):  # without the views that only the product reads
            if any(v.index in used for v in node.outputs):
                kept.insert(0, node)
                used.update(a.index for a in node.args if type(a) is Value)
        extras = {
            a.index: a for n in kept for a in n.args if type(a) is Value and a.index in inputs
        }
        self.extras = list(extras.values())
        after = Graph()
        after.inputs = [self.factors.out, *self.extras]
        after.nodes, after.outputs = kept, self.graph.outputs
        self.after = after
        return _After(after)

    # ---- places ----------------------------------------------------------------------------------

    def _orders(self) -> list[list[Axis]]:
        """For each way the product is seen: its axes, outermost first."""
        found = []
        for e in self.program.exprs:
            if not self.program.is_product(e):
                continue
            assert isinstance(e, Load)
            memory, item = e.memory, self.out.dtype.itemsize
            axes = [a.root for a in memory.dims if a is not None]
            if memory.dtype is not self.out.dtype or memory.offset or len(set(axes)) != len(axes):
                raise NotTaken("a part of the product")
            step = item
            for axis in reversed(axes):
                if memory.by_axis()[axis] != step:
                    raise NotTaken("the product in another order")
                step *= axis.size
            if step != item * self.out.numel:
                raise NotTaken("a part of the product")
            found.append(axes)
        if not found:
            raise NotTaken("a product that is not used")
        return found

    def _steps(self, memory: FusedOperand) -> list[int]:
        """Byte steps of a tensor along the dimensions of the product."""
        by_axis = memory.by_axis()
        for axes in self.orders:
            if by_axis.keys() <= set(axes):
                pairs = [(a.size, by_axis.get(a, 0)) for a in axes]
                return steps_over(self.out.shape, pairs)
        raise NotTaken("a tensor with axes that the product does not have")

    def _check_axes(self) -> None:
        """Every expression lives in the axes of one view of the product."""
        for e in self.program.exprs:
            if not any(e.axes <= set(axes) for axes in self.orders):
                raise NotTaken("an expression over other axes")

    def _results(self) -> list[list[int]]:
        found = []
        for r in self.program.results:
            steps = self._steps(r.memory)
            if any(n > 1 and not s for n, s in zip(self.out.shape, steps, strict=True)):
                raise NotTaken("a result without some of the axes")
            if steps[-1] != r.memory.dtype.itemsize and self.out.shape[-1] > 1:
                raise NotTaken("a result whose rows are not dense")
            found.append(steps)
        return found

    def _loads(self) -> dict[Load, list[int] | None]:
        found: dict[Load, list[int] | None] = {}
        for e in self.program.exprs:
            if not isinstance(e, Load):
                continue
            if self.program.is_product(e):
                found[e] = None
                continue
            if not 0 <= e.memory.slot - self.program.product_slot - 1 < len(self.extras):
                raise NotTaken("numbers that follow from their own positions")
            steps = found[e] = self._steps(e.memory)
            if steps[-1] not in (0, e.memory.dtype.itemsize):
                raise NotTaken("an operand whose rows are not dense")
        return found

    # ---- the kernel ------------------------------------------------------------------------------

    def kernel(self, packed: bool = False) -> NativeKernel | None:
        """`packed`: the right operand comes packed (see `prepack`), in the place of its tensor."""
        made = self.planned(packed)
        if made is None:
            return None
        tensors = len(self.graph.inputs)
        return NativeKernel(
            made.code[f"fused{tensors + len(self.graph.outputs)}"],
            len(self.graph.outputs), tensors, extra=[*made.plan.words, *made.words],
            workspace=made.plan.workspace, work=made.work,
        )  # fmt: skip

    def planned(
        self, packed: bool = False, around: Callable[[Epilogue], Epilogue] = lambda inner: inner
    ) -> Planning | None:
        """What the kernel is made of. `around`: an epilogue that has the graph's one inside."""
        self._check_axes()
        results, loads = self._results(), self._loads()
        holder = self._holder()
        c = self._result_meta(results, holder)
        first, e_strides = self._first()
        p = self._described(c, e_strides, results, loads)
        if p is None or not same_sums(p, first):
            return None
        wide = Wide(self.factors.a.rounded, self.factors.b.rounded)
        if wide != NARROW and not amx_takes(p):
            return None
        if wide.a and p.n > _ROUNDED_COLUMNS:
            return None
        if (
            sum(isinstance(e, FusedOp) and e.dtype.itemsize == 2 for e in self.program.exprs)
            > _ROUNDED
        ):
            return None
        epilogue, words = first, []
        if len(results) > 1 or not self.program.is_product(self.program.results[0].expr):
            epilogue = tail = self._tail(p, first, results, loads, holder or 0)
            tail.sums_apart, words = holder is None, tail.words
        b, epilogue = self.factors.b, around(epilogue)
        if packed:
            if wide != NARROW or not suits_packed(self.kind, p):
                return None
            code, planned = planned_for_packed(self.kind, p, epilogue)
            b = GemmSource(b.slot, b.meta)
        else:
            code, planned = choose(self.kind, p, epilogue, wide)
        given = [self.factors.a, b, GemmSource(holder or 0, c), self.factors.added]
        slots = [0 if x is None else x.slot for x in given]
        slots += [0 if x is None else x.offset for x in given]
        return Planning(code, planned, [*slots, *words], duration(self.kind, p) + self._tail_work())

    def _described(
        self,
        c: TensorMeta,
        e_strides: list[int] | None,
        results: list[list[int]],
        loads: dict[Load, list[int] | None],
    ) -> GemmProduct | None:
        more = [*results, *(s for s in loads.values() if s is not None)]
        return describe(self.factors.a.meta, self.factors.b.meta, c, e_strides, more)

    def walk(self) -> tuple[Graph, LoopWalk]:
        """The ops behind the product, and what their loops go through: the matrices of the batch,
        rows and columns. The element of the product that is at hand is counted in this order."""
        results, loads = self._results(), self._loads()
        c = self._result_meta(results, self._holder())
        p = self._described(c, self._first()[1], results, loads)
        assert p is not None
        account, item = Account(self.program), self.out.dtype.itemsize
        columns = [r.memory.dtype.itemsize for r in self.program.results]
        for k, (v, r) in enumerate(zip(self.after.outputs, self.program.results, strict=True)):
            account.store(v, r.memory.offset, k)
        for e, steps in loads.items():
            if steps is not None:
                account.load(e, len(columns))
                columns.append(e.memory.dtype.itemsize if steps[-1] else 0)
        for e, steps in loads.items():
            if steps is None:
                account.load(e, len(columns))
        loops = [(p.n, (*columns, item)), (p.m, (*p.more_rows, item * p.n))]
        step = item * p.n * p.m
        for d in reversed(p.batch):
            loops.append((d.size, (*d.more, step)))
            step *= d.size
        return self.after, account.walk(loops, self.orders)

    def _tail_work(self) -> float:
        heavy = sum(is_heavy(e) for e in self.program.exprs)
        return self.out.numel * (0.1 * len(self.program.results) + 0.3 * heavy)

    def _holder(self) -> int | None:
        """The result that can hold sums of a part of k."""
        for k, r in enumerate(self.program.results):
            if r.memory.dtype.name == _SUMS[self.out.dtype.name]:
                return k
        return None

    def _result_meta(self, results: list[list[int]], holder: int | None) -> TensorMeta:
        """C for the plan: the result that holds sums, else the first one, which is read ahead."""
        item = self.out.dtype.itemsize
        steps = results[holder or 0]
        if holder is not None:
            strides = [s // self.program.results[holder].memory.dtype.itemsize for s in steps]
        else:
            strides = [-(-s // item) for s in steps]
        strides[-1] = 1
        return make_meta(self.out.dtype, tuple(self.out.shape), tuple(strides), self.out.device)

    def _first(self) -> tuple[Epilogue, list[int] | None]:
        """The product's own epilogue, and the strides of what it adds."""
        added = self.factors.added
        if added is None:
            return PLAIN, None
        strides = expanded_strides(added.meta, self.out.shape)
        spread = spread_of(strides, self.out.shape[-1])
        if spread is None:
            raise NotTaken("an added tensor whose rows are not dense")
        if added.rounded and spread != ACROSS:
            raise NotTaken("an added tensor that is rounded and not one row")
        return Combine(spread, rounded=added.rounded), strides

    def _tail(
        self,
        p: GemmProduct,
        first: Epilogue,
        results: list[list[int]],
        loads: dict[Load, list[int] | None],
        main: int,
    ) -> Tail:
        at = iter(range(len(p.more_rows)))

        def operand(memory: FusedOperand, slot: int, steps: list[int], along: str) -> TailOperand:
            k = next(at)
            batch = tuple(d.more[k] for d in p.batch)
            return TailOperand(memory.dtype, slot, memory.offset, p.more_rows[k], batch, along)

        made = [
            operand(r.memory, k, s, UNIT)
            for k, (r, s) in enumerate(zip(self.program.results, results, strict=True))
        ]
        given: dict[FusedExpr, TailOperand | None] = {}
        for e, steps in loads.items():
            given[e] = None
            if steps is not None:
                extra = self.extras[e.memory.slot - self.program.product_slot - 1]
                slot = self.sources[extra.index].slot
                given[e] = operand(e.memory, slot, steps, UNIT if steps[-1] else STILL)
        sizes = [d.size for d in p.batch]
        return Tail(self.program, first, self.out.dtype, made, given, sizes, main)


_SUMS = {"float32": "float32", "float64": "float64", "float16": "float32", "bfloat16": "float32"}


def spread_of(strides: Sequence[int], columns: int) -> str | None:
    """How an added tensor lies over the result; None if its rows are not dense."""
    if strides[-1] == 0 and columns > 1:
        return DOWN
    if strides[-1] != 1 and columns > 1:
        return None
    return FULL if any(strides[:-1]) else ACROSS


def same_sums(p: GemmProduct, first: Epilogue) -> bool:
    """Whether the fused kernel adds up as the product's own would."""
    if first is not PLAIN:
        return True
    return not suits_split(p) and not (p.n == 1 and p.m > 1)


def steps_over(shape: Sequence[int], axes: Sequence[tuple[int, int]]) -> list[int]:
    """Steps along the dimensions of `shape` of a tensor given by (size, step) along other axes.

    Both cut the same elements in the same order, each in its own way.
    """
    left = list(axes)
    size, step = 1, 0
    found: list[int] = []
    for n in reversed(shape):
        got, own = 1, 0
        while got < n:
            if size == 1:
                size, step = left.pop()
            taken = min(n // got, size)
            if n // got % taken or size % taken:
                raise NotTaken("axes that cut a dimension unevenly")
            if got == 1:
                own = step
            elif step != own * got:
                raise NotTaken("a dimension with several steps")
            got, size, step = got * taken, size // taken, step * taken
        found.insert(0, own)
    return found
