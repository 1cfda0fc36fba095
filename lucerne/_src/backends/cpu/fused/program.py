"""Program: a graph of element-wise ops, folds and views, read as expressions over axes.

A tensor inside the graph is an expression together with its dimensions, each of which is an axis of
one common iteration space (or None, of size one). Broadcasting makes axes of operands the same
axis; views only rename dimensions; a fold takes axes away. What remains says which loops compute
the whole graph, and which expressions are constant in which loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.base import dtype as dt
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.checks.fused_reads import REPEATED, dims_read
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Graph, Node, Value, geometries
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.random.counted import (
    counted_key,
    counted_number,
    counted_value,
    counted_word,
    takes_one_word,
)

_COUNTED: Op = counted_value.op  # type: ignore[attr-defined]
_COUNTED_NUMBER: Op = counted_number.op  # type: ignore[attr-defined]
_COUNTED_WORD: Op = counted_word.op  # type: ignore[attr-defined]
_COUNTED_KEY: Op = counted_key.op  # type: ignore[attr-defined]
_MOST_INT32 = 1 << 31


class Axis:
    """A dimension of the iteration space; axes found to be the same one are joined."""

    __slots__ = ("_same", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._same: Axis | None = None

    def __repr__(self) -> str:
        return f"<axis {self.size}>"

    @property
    def root(self) -> Axis:
        found = self
        while found._same is not None:
            found = found._same
        return found

    def join(self, other: Axis) -> None:
        a, b = self.root, other.root
        if a is not b:
            a._same = b


Dims = tuple[Axis | None, ...]


class FusedExpr:
    """A number for every point of some axes. `dtype` is what the op's result has."""

    __slots__ = ("axes", "dtype", "phase")

    axes: frozenset[Axis]
    """The axes it depends on: settled once the whole graph is read."""
    dtype: dt.dtype
    phase: int
    """How many rounds of folds must be complete before it can be computed."""

    def parts(self) -> Sequence[FusedExpr]:
        return ()

    def settle(self) -> None:
        """Fix axes and phase, after those of the parts."""
        self.axes = frozenset().union(*(p.axes for p in self.parts()))
        self.phase = max((p.phase for p in self.parts()), default=0)


class FusedOperand:
    """An operand in memory: word of its pointer in the block, byte offset, dtype, dimensions."""

    __slots__ = ("dims", "dtype", "offset", "slot", "steps")

    def __init__(self, slot: int, meta: TensorMeta, offset: int, dims: Dims) -> None:
        self.slot, self.dtype, self.offset, self.dims = slot, meta.dtype, offset, dims
        self.steps = meta.byte_strides

    def by_axis(self) -> dict[Axis, int]:
        """Byte stride along each axis."""
        found: dict[Axis, int] = {}
        for axis, step in zip(self.dims, self.steps, strict=True):
            if axis is not None:
                if axis.root in found:
                    raise NotTaken("one axis runs along two dimensions of an operand")
                found[axis.root] = step
        return found


NOWHERE = -1
"""The slot of an operand that is not in memory: its elements are their own distances from the
start, counted in elements."""


class Load(FusedExpr):
    """An element of an input."""

    __slots__ = ("memory",)

    def __init__(self, memory: FusedOperand) -> None:
        self.memory, self.dtype = memory, memory.dtype

    def settle(self) -> None:
        self.axes = frozenset(a.root for a in self.memory.dims if a is not None)
        self.phase = 0


class FusedNumber(FusedExpr):
    """A Python number: part of the code when it is a common one, else a word of the block."""

    __slots__ = ("value",)

    def __init__(self, value: Any, dtype: dt.dtype) -> None:
        self.value, self.dtype = value, dtype

    @property
    def baked(self) -> bool:
        if isinstance(self.value, Symbolic):
            return False
        return isinstance(self.value, (bool, complex)) or self.value in _BAKED


_BAKED = frozenset((0, 1, -1, 2, -2, 3, 4, 0.5, -0.5, float("inf"), float("-inf")))


class FusedOp(FusedExpr):
    """An element-wise op. `types`: the compute dtype in which each tensor operand arrives;
    `rounded`: the narrower dtype it is rounded to before, or None for each."""

    __slots__ = ("args", "op", "rounded", "types")

    def __init__(self, op: Op, args: tuple[Any, ...], types: Any, rounded: Any, dtype: Any) -> None:
        self.op, self.args, self.types, self.dtype = op, args, types, dtype
        self.rounded: tuple[Any, ...] = (None,) * len(args) if rounded is None else rounded

    def parts(self) -> Sequence[FusedExpr]:
        return [a for a in self.args if isinstance(a, FusedExpr)]


class Convert(FusedExpr):
    """The same value as another dtype."""

    __slots__ = ("source",)

    def __init__(self, source: FusedExpr, dtype: dt.dtype) -> None:
        self.source, self.dtype = source, dtype

    def parts(self) -> Sequence[FusedExpr]:
        return (self.source,)


class Fold(FusedExpr):
    """A reduction over axes: `how` names the monoid, `compute` the dtype it folds in."""

    __slots__ = ("compute", "dims", "how", "over", "source")

    def __init__(
        self,
        how: str,
        source: FusedExpr,
        dims: Dims,
        over: list[Axis],
        compute: Any,
        dtype: dt.dtype,
    ) -> None:
        self.how, self.source, self.dims, self.over = how, source, dims, over
        self.compute, self.dtype = compute, dtype

    def parts(self) -> Sequence[FusedExpr]:
        return (self.source,)

    @property
    def is_position(self) -> bool:
        return self.how in ("argmax", "argmin")

    def settle(self) -> None:
        folded = {a.root for a in self.over}
        kept = {a.root for a in self.dims if a is not None} - folded
        self.axes = frozenset(self.source.axes & kept)
        self.phase = self.source.phase + 1


class FusedValue:
    """A tensor of the graph: an expression and which axis each dimension is."""

    __slots__ = ("dims", "expr")

    def __init__(self, expr: FusedExpr, dims: Dims) -> None:
        self.expr, self.dims = expr, dims


class Result:
    """An output: what is written where."""

    __slots__ = ("axes", "expr", "memory")

    def __init__(self, expr: FusedExpr, memory: FusedOperand) -> None:
        self.expr, self.memory = expr, memory


class FusedProgram:
    """The expressions of a graph. `exprs` are in an order that can be computed."""

    def __init__(self, graph: Graph) -> None:
        self.exprs: list[FusedExpr] = []
        self._seen: dict[int, FusedValue] = {}
        self._sources: dict[int, tuple[int, TensorMeta, int]] = {}
        """Values that are inputs or views of them: slot, meta, byte offset."""
        self._views: dict[int, tuple[FusedValue, TensorMeta, int]] = {}
        """Views of computed tensors: the tensor, its meta, byte offset."""
        self._loads: dict[tuple[Any, ...], FusedValue] = {}
        self.inputs = len(graph.inputs)
        for k, v in enumerate(graph.inputs):
            if not isinstance(v.meta, TensorMeta):
                raise NotTaken("a number given at run time")
            self._sources[v.index] = (len(graph.outputs) + k, v.meta, 0)
        for node in graph.nodes:
            self._read(node)
        self.results = [self._result(k, v) for k, v in enumerate(graph.outputs)]
        for e in self.exprs:
            e.settle()
        self._check_axes_apart()
        self.folds = [e for e in self.exprs if isinstance(e, Fold)]
        self.folded = self._folded_axes()
        self.usual = self._usual()
        """The expressions that no condition for a whole row is needed to compute."""

    def condition(self, fold: Fold) -> FusedExpr | None:
        """Without which a fold is nought: a sum of `where(c, x, 0)` with one `c` for all of a row
        (it asks for a rare correction, say)."""
        chosen = fold.source
        if fold.how != "add" or not isinstance(chosen, FusedOp) or chosen.op.name != "choose":
            return None
        condition, _, otherwise = chosen.args
        nothing = isinstance(otherwise, FusedNumber) and otherwise.baked and otherwise.value == 0
        still = isinstance(condition, FusedExpr) and not condition.axes & self.folded
        return condition if nothing and still else None

    def _usual(self) -> list[FusedExpr]:
        found: set[FusedExpr] = set()
        left = [r.expr for r in self.results]
        while left:
            e = left.pop()
            needed = self.condition(e) if isinstance(e, Fold) else None
            if needed is not None:
                left.append(needed)
            elif e not in found:
                found.add(e)
                left += e.parts()
        return [e for e in self.exprs if e in found]

    @property
    def seen(self) -> dict[int, FusedValue]:
        """The values of the graph that are read or made, by index."""
        return self._seen

    @property
    def read_from_memory(self) -> set[int]:
        """Those that are inputs or views of inputs."""
        found = self._sources.keys() & self._seen.keys()
        loaded = {id(self._seen[v]) for v in found}
        return found | {v for v, (seen, _, _) in self._views.items() if id(seen) in loaded}

    def _check_axes_apart(self) -> None:
        """A turn of the loops has one index for each axis: a value that has an axis twice (`v` of
        `v + v.T`) would be read on its diagonal alone."""
        for seen in self._seen.values():
            axes = [a.root for a in seen.dims if a is not None]
            if len(set(axes)) != len(axes):
                raise NotTaken("one axis runs along two dimensions of a value")

    def _folded_axes(self) -> frozenset[Axis]:
        """The axes all folds have in common; folds over different ones are not taken."""
        sets = {frozenset(a.root for a in fold.over) for fold in self.folds}
        if len(sets) > 1:
            raise NotTaken("folds over different axes")
        return next(iter(sets), frozenset())

    def _add(self, expr: FusedExpr) -> Any:
        self.exprs.append(expr)
        return expr

    # ---- reading nodes -------------------------------------------------------------------------

    def _read(self, node: Node) -> None:
        op = node.op
        if op.kind == op_.VIEW:
            self._view(node)
        elif op.kind == op_.POINTWISE:
            self._seen[node.outputs[0].index] = self._pointwise(node)
        elif op.kind == op_.REDUCTION:
            self._seen[node.outputs[0].index] = self._fold(node)
        elif op.qualified in ("cast", "clone_as", "copy"):
            self._seen[node.outputs[0].index] = self._copied(node)
        elif op.qualified == "filled" and type(node.args[1]) is not Value:
            meta = node.outputs[0].meta
            dims = _fresh(meta)
            expr = self._add(FusedNumber(node.args[1], meta.dtype))
            self._seen[node.outputs[0].index] = FusedValue(expr, dims)
        elif op.qualified == "counted_draw":
            self._seen[node.outputs[0].index] = self._counted(node)
        else:
            raise NotTaken(f"{op.qualified} is not element by element")

    def _value(self, v: Value) -> FusedValue:
        found = self._seen.get(v.index)
        if found is None:
            slot, meta, offset = self._sources[v.index]
            key = (slot, meta, offset)
            found = self._loads.get(key)
            if found is None:
                dims = _fresh(meta)
                found = FusedValue(self._add(Load(FusedOperand(slot, meta, offset, dims))), dims)
                self._loads[key] = found
            self._seen[v.index] = found
        return found

    def _view(self, node: Node) -> None:
        source = node.args[0]
        if len(node.outputs) != 1:
            raise NotTaken("a view with several results")
        out = node.outputs[0]
        if source.index in self._sources and source.index not in self._seen:
            slot, meta, offset = self._sources[source.index]
            [geometry] = geometries(node, meta)
            unit = out.meta.dtype.itemsize
            self._sources[out.index] = (slot, out.meta, offset + geometry.offset * unit)
            return
        made = self._views.get(source.index, (self._value(source), source.meta, 0))
        seen, memory, start = made
        offset = start + geometries(node)[0].offset * memory.dtype.itemsize
        self._views[out.index] = seen, memory, offset
        self._seen[out.index] = FusedValue(seen.expr, _viewed(seen, memory, out.meta, offset))

    def _copied(self, node: Node) -> FusedValue:
        out = node.outputs[0].meta
        if node.op.qualified == "copy" and type(node.args[1]) is not Value:
            given = bool(node.args[1]) if out.dtype is dt.bool_ else node.args[1]
            return FusedValue(self._add(FusedNumber(given, out.dtype)), _fresh(out))
        if node.op.qualified == "copy":
            seen = self._value(node.args[1])
            dims = list(_fresh(out))
            for mine, theirs in zip(reversed(dims), reversed(seen.dims), strict=False):
                if mine is not None and theirs is not None:
                    mine.join(theirs)
        else:
            seen = self._value(node.args[0])
            dims = list(seen.dims)
        return FusedValue(self._add(Convert(seen.expr, out.dtype)), tuple(dims))

    def _counted(self, node: Node) -> FusedValue:
        """A random number for each element, from its place in memory."""
        named = node.op.named(node.args)
        out: TensorMeta = node.outputs[0].meta
        if named["key"].index not in self._sources:
            raise NotTaken("a key that is computed here")
        dims = _fresh(out)
        narrow = dt.int32 if out.numel < _MOST_INT32 else dt.int64
        places = make_meta(narrow, tuple(out.shape), out.strides, out.device)
        index = self._add(Load(FusedOperand(NOWHERE, places, 0, dims)))
        slot, meta, start = self._sources[named["key"].index]
        one = make_meta(dt.int64, (), (), meta.device)
        seed, offset = (
            self._add(Load(FusedOperand(slot, one, start + k * meta.byte_strides[0], ())))
            for k in (0, 1)
        )
        stream = self._add(FusedNumber(named["stream"], dt.int64))
        words = [
            self._add(
                FusedOp(_COUNTED_KEY, (seed, offset, stream, k), (dt.int64,) * 4, None, dt.uint32)
            )
            for k in (0, 1)
        ]
        kind = dt.int64 if type(named["first"]) is int else out.dtype.compute
        numbers = [self._add(FusedNumber(named[n], kind)) for n in ("first", "second")]
        how = (*numbers, named["distribution"], out.dtype)
        types: tuple[dt.dtype, ...] = (narrow, dt.uint32, dt.uint32)
        op, args = _COUNTED, (index, *words)
        if takes_one_word(named["distribution"], out.dtype):
            word = self._add(FusedOp(_COUNTED_WORD, args, types, None, dt.uint32))
            op, args, types = _COUNTED_NUMBER, (word,), (dt.uint32,)
        types = (*types, kind, kind, kind, kind)
        return FusedValue(self._add(FusedOp(op, (*args, *how), types, None, out.dtype)), dims)

    def _fold(self, node: Node) -> FusedValue:
        named = node.op.named(node.args)
        seen = self._value(named["input"])
        source: TensorMeta = named["input"].meta
        out = node.outputs[0].meta
        dims = reduced_dims(named.get("dim"), source.ndim)
        over = [a for d, a in enumerate(seen.dims) if d in dims and a is not None]
        compute = source.dtype.compute
        if node.op.promote != "bool" and node.op.reduce not in ("argmax", "argmin"):
            compute = out.dtype.compute
        keep = named.get("keepdim", False)
        left = tuple(
            None if d in dims else a for d, a in enumerate(seen.dims) if keep or d not in dims
        )
        if not source.ndim:
            left = ()
        fold = Fold(node.op.reduce, seen.expr, seen.dims, over, compute, out.dtype)
        return FusedValue(self._add(fold), left)

    def _pointwise(self, node: Node) -> FusedValue:
        op = node.op
        operands = [
            a.meta if type(a) is Value else NUMBER_METAS[type(a)]
            for a, k in zip(node.args, op.kinds, strict=True)
            if k == op_.TENSOR and a is not None
        ]
        common = promote.common_type(op.promote, operands)
        compute = common.compute
        types = iter(promote.operand_types(op.promote, operands))
        seen: list[FusedValue] = []
        args: list[Any] = []
        arriving: list[Any] = []
        for a, kind in zip(node.args, op.kinds, strict=True):
            type_ = next(types) if kind == op_.TENSOR and a is not None else compute
            arriving.append(type_)
            if type(a) is Value:
                seen.append(self._value(a))
                args.append(seen[-1].expr)
            elif kind == op_.TENSOR and a is not None:
                args.append(self._add(FusedNumber(a, type_)))
            elif kind == op_.SCALAR and a is not None and _fits(a, compute):
                args.append(self._add(FusedNumber(a, compute)))
            else:
                args.append(a)
        rounded = tuple(
            promote.rounding(op, place, common, a.meta if type(a) is Value else a)
            for place, a in enumerate(node.args)
        )
        out = node.outputs[0].meta
        point = FusedOp(op, tuple(args), tuple(arriving), rounded, out.dtype)
        return FusedValue(self._add(point), _broadcast(seen, out.ndim))

    def _result(self, slot: int, v: Value) -> Result:
        seen = self._seen.get(v.index)
        if seen is None or isinstance(seen.expr, (Load, FusedNumber)):
            raise NotTaken("a result that shares memory with an input")
        return Result(seen.expr, FusedOperand(slot, v.meta, 0, seen.dims))


def _fits(number: Any, compute: dt.dtype) -> bool:
    """Whether a run-time number is brought to the computing type before the body sees it."""
    if isinstance(number, complex):
        return compute.category == dt.COMPLEX
    return not (isinstance(number, float) and compute.category < dt.FLOAT)


def _fresh(meta: TensorMeta) -> Dims:
    return tuple(None if n == 1 else Axis(n) for n in meta.shape)


def _broadcast(operands: list[FusedValue], ndim: int) -> Dims:
    """The dimensions of operands put over each other, the last ones aligned."""
    dims: list[Axis | None] = [None] * ndim
    for seen in operands:
        lead = ndim - len(seen.dims)
        for d, axis in enumerate(seen.dims):
            if axis is None:
                continue
            known = dims[lead + d]
            if known is None:
                dims[lead + d] = axis
            else:
                axis.join(known)
    return tuple(dims)


def _viewed(made: FusedValue, memory: TensorMeta, out: TensorMeta, offset: int) -> Dims:
    """The dimensions of a view of a computed tensor, which may rename and repeat them."""
    if out.dtype is not memory.dtype:
        raise NotTaken("a computed tensor seen as another type")
    read = dims_read(memory, out.shape, out.byte_strides, offset)
    if read is None:
        raise NotTaken("a part of a computed tensor, or in another shape")
    return tuple(
        None if d is None else Axis(n) if d == REPEATED else made.dims[d]
        for n, d in zip(out.shape, read, strict=True)
    )
