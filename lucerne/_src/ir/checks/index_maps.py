"""Index maps: what the loops of a fused kernel read and write, checked against the graph.

A kernel that computes several nodes gives an account of its loops (`LoopWalk`): for every value
which axis of the iteration space each dimension is, and for everything in memory how far a turn of
each loop goes. `check` follows the graph by itself and compares addresses:

* at one turn every op reads its operands at the index at which it makes its result;
* a view of a value made inside reads, along every axis, as far as the value was written there, from
  the same start: the index map of the load is that of the store;
* the loops go through memory as the strides of inputs and results say, and write each element of a
  result once.

It knows nothing of how groups are found (`loops/group.py`) or why views were taken (`reads.py`).
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lucerne._src.ir import op as op_
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Graph, Node, Value, bases, operands
from lucerne._src.ir.meta import TensorMeta

Dims = tuple[int | None, ...]
"""For each dimension of a value the number of an axis; None: it has size one."""


class IndexMapError(ValueError):
    """Loops that read or write other elements than the graph says."""


@dataclass(frozen=True)
class LoopAccess:
    """Something in memory that the loops go through."""

    value: int
    """An input of the graph, a view of one, or (`is_store`) an output: its index in the graph."""
    offset: int
    """Where it begins, in bytes from the start of the input or output."""
    is_store: bool = False


@dataclass(frozen=True)
class LoopWalk:
    """The account that a kernel gives of its loops."""

    sizes: tuple[int, ...]
    """Of the axes."""
    dims: Mapping[int, Dims]
    """Of every value in the graph that is read or made in the loops."""
    accesses: tuple[LoopAccess, ...]
    loops: tuple[tuple[int, tuple[int, ...]], ...]
    """Of each loop the size, and the bytes that a turn of it goes on in each access."""
    orders: tuple[tuple[int, ...], ...] = ()
    """Lists of axes, outermost first, that are several ways to cut the same row of elements."""


def check(graph: Graph, walk: LoopWalk) -> None:
    """Follow a graph; IndexMapError if the loops of its kernel do something else."""
    _Check(graph, walk).run()


class _Check:
    def __init__(self, graph: Graph, walk: LoopWalk) -> None:
        self.graph, self.walk = graph, walk
        self.inputs = {v.index for v in graph.inputs}
        placed = bases(graph)
        self.values = {v.index: v for v in placed}
        self.base = {v.index: (base.index, start) for v, (base, start) in placed.items()}
        """The value in whose memory one lies, and where in it, in bytes."""

    def run(self) -> None:
        for axes in self.walk.dims.values():
            _need(len({a for a in axes if a is not None}) == len(_some(axes)), "an axis twice")
        for node in self.graph.nodes:
            if node.op.kind == op_.VIEW:
                for v in node.outputs:
                    self._view(v)
            elif node.op.kind == op_.REDUCTION:
                self._fold(node)
            else:
                self._elements(node)
        self._memory()

    # ---- inside ----------------------------------------------------------------------------------

    def _dims(self, v: Value) -> Dims:
        """The axes of a value, each as long as its dimension."""
        _need(v.index in self.walk.dims, f"{v} is in no loop")
        dims = self.walk.dims[v.index]
        _need(len(dims) == v.meta.ndim, f"{v} has {v.meta.ndim} dimensions, not {len(dims)}")
        for n, axis in zip(v.meta.shape, dims, strict=True):
            _need(n == (1 if axis is None else self.walk.sizes[axis]), f"an axis of {v} is not {n}")
        return dims

    def _map(self, v: Value) -> dict[int, int]:
        """How many bytes a value's memory is gone through along each axis."""
        steps = zip(self._dims(v), v.meta.byte_strides, strict=True)
        return {axis: step for axis, step in steps if axis is not None and step}

    def _view(self, v: Value) -> None:
        base, start = self.base[v.index]
        if v.index not in self.walk.dims or base in self.inputs:
            return  # nobody reads it, or it is read from memory: see `_memory`
        made = self.values[base]
        _need(start == 0, f"{v} begins {start} bytes behind {made}, which is made at that turn")
        _need(
            self._map(v) == self._map(made) and v.meta.dtype is made.meta.dtype,
            f"{v} is read at another index than {made} is made at",
        )

    def _elements(self, node: Node) -> None:
        """An op has its operands at its own index: the last dimensions go along the same axes."""
        for out in node.outputs:
            dims = self._dims(out)
            for v in read_by(node):
                own = self._dims(v)
                _need(len(own) <= len(dims), f"{v} has more dimensions than {out}")
                for a, b in zip(reversed(own), reversed(dims), strict=False):
                    _need(a is None or a == b, f"{node.op.name} reads {v} at another index")

    def _fold(self, node: Node) -> None:
        named = node.op.named(node.args)
        source, [out] = named["input"], node.outputs
        over = reduced_dims(named.get("dim"), source.meta.ndim)
        keep = named.get("keepdim", False)
        dims = self._dims(source)
        left = [None if d in over else a for d, a in enumerate(dims) if keep or d not in over]
        want = self._dims(out)
        _need(_some(left) == _some(want), f"{node.op.name} leaves other axes than {out} has")

    # ---- memory ----------------------------------------------------------------------------------

    def _memory(self) -> None:
        stored = {a.value for a in self.walk.accesses if a.is_store}
        _need(stored == {v.index for v in self.graph.outputs}, "an output is not written")
        loaded = {a.value for a in self.walk.accesses if not a.is_store}
        for v in self._leaves():
            _need(v.index in loaded, f"{v} is read, and no loop loads it")
        wanted: list[dict[int, int]] = []
        for access in self.walk.accesses:
            v = self.values[access.value]
            start = 0 if access.is_store else self.base[v.index][1]
            _need(access.offset == start, f"{v} begins at {start}, not at {access.offset}")
            wanted.append(self._map(v))
        axes = _along(self.walk.sizes, wanted, self.walk.orders, self._in_use())
        found = self.walk.loops
        same = joint(axes) == joint(found)
        _need(same, f"loops {[*found]} where memory lies as {axes}")
        for k, access in enumerate(self.walk.accesses):
            if access.is_store:
                _covers(self.values[access.value], [(n, steps[k]) for n, steps in found])

    def _in_use(self) -> set[int]:
        """The axes of what ops read, and make for somebody. A view of a view has some that nobody
        goes along, and so has what is made to be written over (the target of a `copy`)."""
        ops = [node for node in self.graph.nodes if node.op.kind != op_.VIEW]
        values = [*(v for node in ops for v in read_by(node)), *self.graph.outputs]
        wanted = {self.base[v.index][0] for v in values}
        values += [v for node in ops for v in node.outputs if v.index in wanted]
        return {a for v in values for a in _some(self._dims(v))}

    def _leaves(self) -> Iterator[Value]:
        """What ops read of the inputs, themselves or through views."""
        for node in self.graph.nodes:
            if node.op.kind != op_.VIEW:
                for v in read_by(node):
                    if self.base[v.index][0] in self.inputs:
                        yield v


def read_by(node: Node) -> list[Value]:
    """The tensors whose elements an op reads, those in lists too."""
    args = node.args[1:] if node.op.qualified == "copy" else node.args
    if node.op.qualified in ("filled", "counted_draw"):
        return []  # made from numbers
    return [v for v in operands(args) if isinstance(v.meta, TensorMeta)]


def _some(dims: Sequence[int | None]) -> list[int]:
    return [a for a in dims if a is not None]


def _need(condition: bool, problem: str) -> None:
    if not condition:
        raise IndexMapError(problem)


def _covers(v: Value, loops: list[tuple[int, int]]) -> None:
    """Each element of a value's memory is written, and by one turn."""
    if not v.meta.numel:
        return
    own = sorted((step, n) for n, step in loops if n > 1 and step)
    _need(prod(n for _, n in own) == v.meta.numel, f"not all of {v} is written")
    size = v.meta.dtype.itemsize
    last = sum((n - 1) * step for step, n in own) + size
    _need(last <= v.meta.span * size, f"{v} is written past its end")
    nested = all(outer >= step * n for (step, n), (outer, _) in itertools.pairwise(own))
    if not nested and v.meta.numel <= _FEW:  # strides like (24, 7) may miss each other all the same
        met = {sum(at) for at in itertools.product(*(range(0, n * s, s) for s, n in own))}
        _need(len(met) == v.meta.numel, f"{v} is written twice in places")


_FEW = 1 << 16
"""Elements whose addresses are listed one by one, where nothing shorter tells them apart."""

Loops = Sequence[tuple[int, tuple[int, ...]]]


def joint(loops: Loops) -> tuple[int, dict[tuple[int, ...], int]]:
    """Which addresses loops over several things go to together, and how often, in one form.

    As a power series, a loop of n turns by s is (1 - x^ns) / (1 - x^s), and loops in each other are
    a product. Such products are equal only if, when all that can be is cancelled, the exponents are
    the same: so two loops that are one long one for everything in them count as that.
    """
    exponents: Counter[tuple[int, ...]] = Counter()
    still = 1
    if any(n == 0 for n, _ in loops):
        return 0, {}
    for n, steps in loops:
        if not any(steps):
            still *= n
        elif n > 1:
            exponents[tuple(n * s for s in steps)] += 1
            exponents[steps] -= 1
    return still, {steps: count for steps, count in exponents.items() if count}


def _along(
    sizes: Sequence[int],
    maps: Sequence[dict[int, int]],
    orders: Sequence[tuple[int, ...]],
    used: set[int],
) -> list[tuple[int, tuple[int, ...]]]:
    """The steps of all maps along each axis in use. Axes of `orders` are ways to cut one row: there
    the cuts of all of them count."""
    alone = used - {a for order in orders for a in order}
    found = [(sizes[a], tuple(m.get(a, 0) for m in maps)) for a in sorted(alone)]
    if not orders:
        return found
    cuts = _cuts([[sizes[a] for a in order] for order in orders])
    steps = [_steps_at(m, sizes, orders, cuts) for m in maps]
    pieces = [b // a for a, b in itertools.pairwise(cuts)]
    return found + [(n, tuple(s[k] for s in steps)) for k, n in enumerate(pieces)]


def _cuts(orders: list[list[int]]) -> list[int]:
    """Where rows are cut, counted in elements from the innermost: 1, ..., all of them."""
    found = {1}
    totals = {prod(order) for order in orders}
    _need(len(totals) == 1, "the same elements are counted twice, and differently")
    for order in orders:
        at = 1
        for n in reversed(order):
            at *= n
            found.add(at)
    listed = sorted(found)
    for a, b in itertools.pairwise(listed):
        _need(b % a == 0, "axes that cut each other unevenly")
    return listed


def _steps_at(
    steps: dict[int, int], sizes: Sequence[int], orders: Sequence[tuple[int, ...]], cuts: list[int]
) -> list[int]:
    """The step of each piece between two cuts, of something that goes along the axes of one."""
    for order in orders:
        if steps.keys() <= set(order):
            found, at = [], 1
            for axis in reversed(order):
                found += [
                    steps.get(axis, 0) * (cut // at)
                    for cut in cuts[:-1]
                    if at <= cut < at * sizes[axis]
                ]
                at *= sizes[axis]
            return found
    raise IndexMapError("something goes along axes of two orders")


FAILURES: list[str] = []
"""What `holds` found wrong in this process, for tests and for people who look."""


def holds(graph: Graph, walk_of: Callable[[Graph], tuple[Graph, LoopWalk] | None]) -> bool:
    """Whether the loops of a graph's kernel are right; if not, a warning says why, and FAILURES."""
    try:
        told = walk_of(graph)
        if told is not None:
            check(*told)
    except Exception as problem:  # whatever it is, it must not cost more than the kernel
        FAILURES.append(f"{type(problem).__name__}: {problem}\n{graph}")
        warnings.warn(
            f"a fused kernel is not used, its ops run one by one: {problem}. Please report this, "
            f"with the graph:\n{graph}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True
