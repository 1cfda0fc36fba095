"""The gradient of a weight and the step of the optimizer as one kernel.

Adam reads four arrays and writes three, and hardly computes: the caches decide. Here it comes after
each 32 rows of the gradient, which are then still near, on the core that computed them. (Done tile
by tile, while the tile unit multiplies the next one, it was slower: pieces of 128 bytes from four
arrays come at half the speed of long rows. Behind bfloat16 products it does not pay.)

The values are those of the product's kernel followed by Adam's
(`elementwise/optimizers.py`), bit by bit.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.elementwise.optimizers import adam_factors, adam_values, tiny_as_zero
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F32, F64, I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.amx.pack import PANEL
from lucerne._src.backends.cpu.gemm.amx.products import parts_take, turned_takes
from lucerne._src.backends.cpu.gemm.args import PLANNED, SIZE, Args
from lucerne._src.backends.cpu.gemm.driver import RUN, SLOTS, pointer_of
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.fuse import PRODUCTS, FusedGraph
from lucerne._src.backends.cpu.gemm.kinds import masked, store_masked
from lucerne._src.backends.cpu.gemm.shape import describe
from lucerne._src.backends.cpu.gemm.split import suits_split
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.graph import Value as GraphValue
from lucerne._src.ir.meta import TensorMeta

UPDATE = "adam_update"
_NUMBERS = 5
_GRAD, _NEW, _OLD, _FACTORS, _WORDS = 0, 1, 4, 7, 15
"""Words of the tail: where the gradient goes, the three new values, the old ones; the doubles that
`adam_factors` gives."""
_UPDATE_NS = 0.6
_LANES, _UNROLL = 16, 2


def fused_update(graph: Graph) -> NativeKernel | None:
    """The kernel of a graph with one product and the step of Adam that reads it; None: it does not
    have that form, or tiles do not suit the product."""
    try:
        return _kernel(graph)
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None


def suits_update(node: Node) -> bool:
    """Whether a product (by its own operands) is computed in a way that can take one along."""
    out = node.outputs[0].meta
    if node.op.qualified != "batch_matmul" or out.ndim != 2 or not out.contiguous:
        return False
    p = describe(node.args[0].meta, node.args[1].meta, out)
    if p is None or p.batch or suits_split(p):
        return False
    return out.dtype.name == "float32" and parts_take(p) and not turned_takes(p)


# ---- the epilogue -----------------------------------------------------------------------------


class Update(Epilogue):
    """Sums are gradients, and are stored; of each panel that is done, Adam's step is made."""

    ends_panels = True

    def __init__(self, decoupled: bool, maximize: bool) -> None:
        self.decoupled, self.maximize = decoupled, maximize
        self.key = ("adam", decoupled, maximize)

    def end_panel(
        self, f: LLVMFunction, args: Args, row: LLVMValue, columns: tuple[LLVMValue, LLVMValue]
    ) -> None:
        """Rows from `row` on, between two columns. All columns of some rows are one long row."""
        first, stop = columns[0], f.minimum(columns[1], args.N)
        rows, width = f.minimum(args.M - row, PANEL), stop - first
        whole = f.compare("eq", width, args.N)
        count = f.select(whole, rows * width, width)
        factors = [
            f.splat(f.convert("fptrunc", f.word(args.UPDATE, k, F64), F32), _LANES)
            for k in range(_FACTORS, _WORDS)
        ]
        bases = [f.word(args.UPDATE, k, PTR) for k in range(_FACTORS)]
        with f.loop(0, f.select(whole, f.constant(1), rows)) as down:
            at = ((row + down.index) * args.N + first) * F32.size
            places = [f.at(base, at) for base in bases]
            most = count & -(_UNROLL * _LANES)
            with f.loop(0, most, _UNROLL * _LANES) as along:
                for u in range(_UNROLL):
                    self._visit(f, factors, places, along.index + u * _LANES, None)
            with f.loop(most, count, _LANES) as along:
                mask = f.low_mask(count - along.index, _LANES)
                self._visit(f, factors, places, along.index, mask)

    def _visit(
        self,
        f: LLVMFunction,
        factors: list[LLVMValue],
        places: list[LLVMValue],
        at: LLVMValue,
        mask: LLVMValue | None,
    ) -> None:
        here = [f.at(place, at * F32.size) for place in places]
        wide = F32.vector(_LANES)
        g, p, m, v = (masked(f, wide, here[k], mask) for k in (_GRAD, *range(_OLD, _FACTORS)))
        new = adam_values(f, factors, [p, g, m, v], self.decoupled, self.maximize)
        for x, place in zip(new, here[_NEW:_OLD], strict=True):
            store_masked(f, x, place, mask)


# ---- the entry --------------------------------------------------------------------------------

# Extra words: the driver's `run`; the place of the count of steps among the call's tensors, and
# those of the gradient, the new and the old values; then as for any fused graph (driver.FUSED).


def _write_entry(m: Module, tensors: int) -> None:
    with m.function("entry", [("block", PTR)], I64) as f:
        block = f.args[0]
        args, update = Args(f, f.stack(SIZE)), f.stack(_WORDS * 8)
        extra = f.at(block, (tensors + 1 + 2 * _NUMBERS) * 8)
        own, planned = f.at(extra, 8), f.at(extra, (2 + _FACTORS) * 8)
        slots = f.at(planned, len(PLANNED) * 8)
        f.copy_bytes(args.place, planned, len(PLANNED) * 8)
        args.set("WORKSPACE", f.word(block, tensors, PTR))
        for i, name in enumerate(SLOTS):
            args.set(f"BASE_{name}", pointer_of(f, block, slots, i))
        args.set("BLOCK", block)
        args.set("TAIL", f.at(slots, 2 * len(SLOTS) * 8))
        args.set("UPDATE", update)
        for k in range(_FACTORS):
            f.store(_tensor(f, block, own, 1 + k), f.at(update, k * 8))
        numbers = [f.word(block, tensors + 1 + 2 * k, F64) for k in range(_NUMBERS)]
        count = f.convert("fpext", f.load(F32, _tensor(f, block, own, 0)), F64)
        for k, x in enumerate(adam_factors(f, numbers, count)):
            f.store(x, f.at(update, (_FACTORS + k) * 8))
        with tiny_as_zero(f):
            f.call_at(f.word(extra, 0, PTR), VOID, [args.place])
        f.ret(0)


def _tensor(f: LLVMFunction, block: LLVMValue, words: LLVMValue, k: int) -> LLVMValue:
    """Where the tensor is whose place among the call's tensors is word `k`."""
    return f.word(f.at(block, f.word(words, k) * 8), 0, PTR)


# ---- the kernel -------------------------------------------------------------------------------


def _kernel(graph: Graph) -> NativeKernel | None:
    update = graph.nodes[-1]
    product = next((n for n in graph.nodes if n.op.qualified in PRODUCTS), None)
    if update.op.qualified != UPDATE or product is None or not suits_update(product):
        return None
    decoupled, _, maximize = update.args[11:]
    old, step = _operands(graph, update)
    (gradient,) = update.args[1]
    results = {v.index: k for k, v in enumerate(graph.outputs)}
    if list(results) != [gradient.index, *(v.index for v in update.outputs)]:
        return None  # a value that nobody reads, or one more that somebody does
    tensors = [v for v in graph.inputs if isinstance(v.meta, TensorMeta)]
    before = Graph()
    before.inputs, before.nodes, before.outputs = tensors, graph.nodes[:-1], (gradient,)

    def around(inner: Epilogue) -> Epilogue:
        if inner is not PLAIN:
            raise NotTaken("a gradient that is more than the product")
        return Update(decoupled, maximize)

    made = FusedGraph(before, results=len(results)).planned(around=around)
    if made is None:
        return None
    slot_of = {v.index: len(results) + k for k, v in enumerate(tensors)}
    own = [slot_of[step.index], *results.values(), *(slot_of[v.index] for v in old)]
    count = len(results) + len(tensors)
    return NativeKernel(
        compiled(("gemm.update", count), lambda m: _write_entry(m, count))["entry"],
        len(results),
        len(tensors),
        "f" * _NUMBERS,
        [made.code[RUN], *own, *made.plan.words, *made.words],
        made.plan.workspace,
        work=made.work + _UPDATE_NS * gradient.meta.numel,
    )


def _operands(graph: Graph, update: Node) -> tuple[list[GraphValue], GraphValue]:
    """Parameter and averages, and the count of steps: all from outside, and laid out alike."""
    params, grads, averages, squares, largest, steps = update.args[:6]
    if largest or len(grads) != 1:
        raise NotTaken("an update of several parameters, or of another kind")
    old, like = [params[0], averages[0], squares[0]], grads[0].meta
    alike = like.dtype.name == "float32" and like.ndim == 2 and like.contiguous
    if not alike or any(v.meta is not like for v in old):
        raise NotTaken("a parameter that is laid out in another way")
    numbers = [v for v in graph.inputs if not isinstance(v.meta, TensorMeta)]
    given = {v.index for v in graph.inputs}
    if list(update.args[6:11]) != numbers or steps[0].meta.dtype.name != "float32":
        raise NotTaken("numbers that are not given at each call")
    if any(v.index not in given for v in (*old, steps[0])):
        raise NotTaken("an operand that is computed in the graph")
    return old, steps[0]
