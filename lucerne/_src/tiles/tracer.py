"""Tracing: runs a kernel's Python once on symbols, and writes down what it does.

Everything that could go wrong with memory is decided here. An index is an affine form with a known
range: an index that may leave its axis is an error at the user's line, a slice that may is cut at
the edge. A store must show that no two programs write the same element.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import tile as ir
from lucerne._src.ir.tile import (
    Affine,
    At,
    Let,
    New,
    Set,
    Span,
    Store,
    TileDim,
    TileExpr,
    TileLoop,
    Var,
    View,
)
from lucerne._src.tiles.index import Bound, Index, TileError, as_affine, fail, here, piece
from lucerne._src.tiles.keeping import SCRATCH_BYTES, all_statements, with_keeps
from lucerne._src.tiles.language import Block, Operand, TensorParam
from lucerne._src.tiles.types import computes_in


class _Variable:
    """A variable while it is traced: its version counts what was written to it."""

    def __init__(self, spec: ir.TileVariable) -> None:
        self.spec, self.version = spec, 0


class Tracer:
    """An engine of the language that writes a program (`lucerne._src.ir.tile`)."""

    def __init__(self, grid: tuple[int, ...], params: list[TensorParam]) -> None:
        self.grid, self.params = grid, params
        self.ids = tuple(Var(f"p{i}", 0, max(n - 1, 0)) for i, n in enumerate(grid))
        self.exprs: list[TileExpr] = []
        self._known: dict[Any, TileExpr] = {}
        self._bodies: list[list[Any]] = [[]]
        self._variables: list[_Variable] = []
        self._loops = 0
        self._bounds: dict[Var, tuple[Affine, tuple[Affine, ...]]] = {}
        self.scratch = 0

    # ---- expressions -------------------------------------------------------------------------

    def expr(
        self,
        kind: str,
        dtype: dt.dtype,
        dims: tuple[TileDim, ...],
        args: tuple[TileExpr, ...] = (),
        data: Any = (),
        weak: bool = False,
    ) -> TileExpr:
        shown = (type(data), data.hex()) if isinstance(data, float) else (type(data), data)
        key = (kind, dtype, dims, tuple(a.number for a in args), shown, weak)
        if key not in self._known:
            made = TileExpr(kind, dtype, dims, args, data, len(self.exprs), here(), weak)
            self.exprs.append(made)
            self._known[key] = made
        return self._known[key]

    def given(self, number: int) -> TileExpr:
        """A number of the call."""
        return self.expr("given", dt.float64, (), (), number, weak=True)

    def as_expr(self, x: Any) -> TileExpr:
        if isinstance(x, TileExpr):
            return x
        if isinstance(x, Block):
            return self.as_expr(x.node)
        if isinstance(x, Index):
            return self.expr("index", dt.int64, (), (), x.affine, weak=True)
        if isinstance(x, bool):
            return self.expr("const", dt.bool_, (), (), x, weak=True)
        if isinstance(x, int):
            return self.expr("const", dt.int64, (), (), x, weak=True)
        if isinstance(x, float):
            return self.expr("const", dt.float64, (), (), x, weak=True)
        return fail(f"expected a block or a number, got {type(x).__name__} {x!r}")

    def cast(self, x: Any, dtype: dt.dtype) -> TileExpr:
        e = self.as_expr(x)
        if e.dtype is dtype and not e.weak:
            return e
        if e.kind == "const":
            return self.expr("const", dtype, (), (), e.data)
        return self.expr("cast", dtype, e.dims, (e,))

    def point(self, name: str, args: list[Any]) -> TileExpr:
        made = [self.as_expr(a) for a in args]
        inner, result = computes_in(name, [(e.dtype, e.weak) for e in made])
        weak = all(e.weak for e in made)
        if weak:
            inner = dt.float64 if inner.category == dt.FLOAT else inner
            result = inner if result.category == dt.FLOAT else result
        wanted = [inner] * len(made)
        if name == "where":
            wanted[0] = dt.bool_
        cast = tuple(self.cast(e, d) for e, d in zip(made, wanted, strict=True))
        return self.expr("point", result, self._spread(made), cast, name, weak)

    def _spread(self, exprs: list[TileExpr]) -> tuple[TileDim, ...]:
        """The common dims of blocks: aligned at the last axis, a dim of length 1 gives way."""
        rank = max(len(e.dims) for e in exprs)
        found: list[TileDim] = []
        for k in range(rank, 0, -1):
            dim = TileDim(1)
            for e in exprs:
                if len(e.dims) < k:
                    continue
                other = e.dims[-k]
                if 1 not in (dim.length, other.length) and dim.length != other.length:
                    shapes = " and ".join(str([d.length for d in x.dims]) for x in exprs if x.dims)
                    fail(f"blocks of shapes {shapes} do not fit together")
                dim = dim.meet(other)
            found.append(dim)
        return tuple(found)

    def lengths(self, x: Any) -> tuple[int, ...]:
        return tuple(d.length for d in self.as_expr(x).dims)

    def dtype_of(self, x: Any) -> dt.dtype:
        return self.as_expr(x).dtype

    # ---- what has a statement of its own -----------------------------------------------------

    def fold(self, how: str, x: Any, axis: int, keep: bool) -> TileExpr:
        e = self._solid(x)
        dtype = e.dtype
        if how in (ir.SUM, ir.PRODUCT) and dtype.category < dt.FLOAT:
            dtype = dt.int64
            e = self.cast(e, dtype)
        rest = e.dims[:axis] + ((TileDim(1),) if keep else ()) + e.dims[axis + 1 :]
        if keep and len(e.dims) == 1:
            rest = (TileDim(1),)
        return self._let("fold", dtype, rest, (e,), (how, axis, keep))

    def scan(self, how: str, x: Any) -> TileExpr:
        e = self._solid(x)
        if how in (ir.SUM, ir.PRODUCT) and e.dtype.category < dt.FLOAT:
            e = self.cast(e, dt.int64)
        return self._let("scan", e.dtype, e.dims, (e,), (how,))

    def keep(self, x: Any) -> TileExpr:
        e = self.as_expr(x)
        if not e.dims or (ir.is_made(e) and e.kind not in ("read", "swap")):
            return e
        return self._let("keep", e.dtype, e.dims, (e,))

    def _solid(self, x: Any) -> TileExpr:
        e = self.as_expr(x)
        if not e.dims:
            fail("expected a row or a matrix, got a single number")
        return e

    def _let(
        self,
        kind: str,
        dtype: dt.dtype,
        dims: tuple[TileDim, ...],
        args: tuple[TileExpr, ...],
        data: Any = (),
    ) -> TileExpr:
        for a in args:
            self._check_fresh(a)
        before = len(self.exprs)
        made = self.expr(kind, dtype, dims, args, (*data, len(self._bodies), self._time()))
        if len(self.exprs) > before:
            if dims:
                self._take_scratch(dims, dtype)
            self._bodies[-1].append(Let(made))
        return made

    def _time(self) -> int:
        """Changes whenever something that was computed before may be out of reach or out of date:
        equal things are then computed again."""
        return self._loops

    def _take_scratch(self, dims: tuple[TileDim, ...], dtype: dt.dtype) -> None:
        nbytes = dtype.itemsize
        for d in dims:
            nbytes *= d.length
        self.scratch += nbytes
        if self.scratch > SCRATCH_BYTES:
            fail(
                f"the blocks that a program keeps would take {self.scratch} bytes, and "
                f"{SCRATCH_BYTES} is the most: work on smaller pieces (slices, tiles.range)"
            )

    def _stored(self, x: Any) -> TileExpr:
        """A matrix or row that lies in memory, side by side along its last axis."""
        e = self._solid(x)
        if e.kind == "swap" or (e.kind == "load" and not self._is_dense(e)):
            return self._let("keep", e.dtype, e.dims, (e,))
        if e.kind == "load" or (ir.is_made(e) and e.kind != "read"):
            return e
        return self._let("keep", e.dtype, e.dims, (e,))

    def _is_dense(self, e: TileExpr) -> bool:
        view: View = e.data
        meta = self.params[view.tensor].meta
        last = [(p, a) for p, a in _axes(view) if not isinstance(p, At)][-1]
        return isinstance(last[0], Span) and meta.strides[last[1]] == 1

    def dot(self, a: Any, b: Any) -> TileExpr:
        left, right = self._solid(a), self._stored(b)
        left = left if left.kind == "load" else self._stored(left)
        if len(right.dims) != 2:
            fail("tiles.dot: the right operand must be a matrix; of two rows take tiles.sum(a * b)")
        inner, other = left.dims[-1], right.dims[0]
        if inner.length != other.length:
            shapes = [[d.length for d in x.dims] for x in (left, right)]
            fail(f"tiles.dot: shapes {shapes[0]} and {shapes[1]}: the inner sizes differ")
        _, dtype = computes_in("mul", [(x.dtype, False) for x in (left, right)])
        return self._let("dot", dtype, (*left.dims[:-1], right.dims[1]), (left, right))

    def swap(self, x: Any) -> TileExpr:
        e = self._solid(x)
        if len(e.dims) != 2:
            fail(f"only a matrix has a transpose, this is a block of shape {list(self.lengths(e))}")
        if e.kind != "load":
            e = self._stored(e)
        return self.expr("swap", e.dtype, e.dims[::-1], (e,))

    # ---- other leaves ------------------------------------------------------------------------

    def count(self, x: Any, axis: int) -> Any:
        dim = self.as_expr(x).dims[axis]
        if not dim.limits:
            return self.as_expr(dim.length)
        return self.expr("count", dt.int64, (), (), dim, weak=True)

    def iota(self, length: int) -> TileExpr:
        return self.expr("iota", dt.int64, (TileDim(length),), (), 0)

    def full(self, lengths: tuple[int, ...], value: Any, dtype: dt.dtype) -> TileExpr:
        if len(lengths) > 2 or not all(isinstance(n, int) and n > 0 for n in lengths):
            fail(f"a block has one or two positive extents, got {lengths}")
        one = self.cast(value, dtype)
        return self.expr("cast", dtype, tuple(TileDim(n) for n in lengths), (one,))

    # ---- tensors -----------------------------------------------------------------------------

    def load(self, tensor: TensorParam, index: tuple[Any, ...]) -> TileExpr:
        if tensor.is_output:
            fail(f"{tensor.name} is an output, and outputs can't be read: keep the value instead")
        view, dims, dynamic = self._view(tensor, index)
        return self.expr("load", tensor.dtype.compute, dims, dynamic, view)

    def store(self, tensor: TensorParam, index: tuple[Any, ...], value: Any) -> None:
        if not tensor.is_output:
            fail(f"{tensor.name} is an input: annotate it as tiles.Out to write to it")
        view, dims, dynamic = self._view(tensor, index)
        if dynamic:
            fail("the place of a store may not depend on data: two programs might write there")
        e = self.as_expr(value)
        self._check_fresh(e)
        if len(e.dims) > len(dims):
            fail(
                f"a block of shape {list(self.lengths(e))} does not fit into "
                f"{tensor.name}{_spelled(view)}, which has {len(dims)} axes"
            )
        for mine, theirs in zip(reversed(dims), reversed(e.dims), strict=False):
            if theirs.length not in (1, mine.length):
                fail(
                    f"a block of shape {list(self.lengths(e))} does not fit into a piece of "
                    f"{tensor.name} of shape {[d.length for d in dims]}"
                )
        self._check_apart(tensor, view)
        padded = (*dims[: len(dims) - len(e.dims)], *e.dims)
        met = tuple(d.meet(o) if d != o else d for d, o in zip(dims, padded, strict=True))
        self._bodies[-1].append(Store(view, met, self.cast(e, tensor.dtype.compute), (), here()))

    def _view(
        self, tensor: TensorParam, index: tuple[Any, ...]
    ) -> tuple[View, tuple[TileDim, ...], tuple[TileExpr, ...]]:
        shape = list(tensor.shape)
        given = [i for i in index if i is not None]
        if len(given) > len(shape):
            fail(f"{tensor.name} has {len(shape)} axes, but {len(given)} indices are given")
        parts: list[Any] = []
        dims: list[TileDim] = []
        dynamic: list[TileExpr] = []
        axis = 0
        for i in (*index, *[slice(None)] * (len(shape) - len(given))):
            if i is None:
                parts.append(New())
                dims.append(TileDim(1))
                continue
            size = shape[axis]
            if isinstance(i, slice):
                span, dim = self._slice(tensor, axis, size, i)
                parts.append(span)
                dims.append(dim)
            else:
                parts.append(self._at(tensor, axis, size, i, dynamic))
            axis += 1
        if len(dims) > 2:
            fail(f"{tensor.name}: a block has at most two axes, this piece has {len(dims)}")
        return View(tensor.number, tuple(parts)), tuple(dims), tuple(dynamic)

    def _at(self, tensor: TensorParam, axis: int, size: int, i: Any, dynamic: list[TileExpr]) -> At:
        if isinstance(i, (Block, Operand)) and not isinstance(i, Index):
            e = self.as_expr(i.node if isinstance(i, Block) else _loaded(i))
            if e.dims or e.dtype.category != dt.INTEGER or not size:
                fail(
                    f"{tensor.name}: an index that is data must be a single integer, this is a "
                    f"block of {e.dtype} with shape {list(self.lengths(e))}"
                )
            dynamic.append(self.cast(e, dt.int64))
            return At(None, dynamic[-1].number)
        affine = as_affine(i)
        if not affine.terms and affine.constant < 0:
            affine = Affine(affine.constant + size)
        high = self.high(affine)
        if affine.low < 0 or high >= size:
            fail(
                f"{tensor.name} has size {size} in axis {axis}, but the index {affine} goes from "
                f"{affine.low} to {high}. Take a slice (it ends at the edge), or another "
                "grid or range"
            )
        return At(affine)

    def _slice(self, tensor: TensorParam, axis: int, size: int, s: slice) -> tuple[Span, TileDim]:
        if s.step not in (None, 1):
            fail(f"{tensor.name}: a slice of a block has step 1, got {s.step}")
        start = Affine(0) if s.start is None else as_affine(s.start)
        stop = Affine(size) if s.stop is None else as_affine(s.stop)
        if not start.terms and not stop.terms:
            low, high = piece(start.constant, stop.constant, size)
            ends = () if high <= size else (Affine(size - low),)
            return Span(Affine(low), high - low), TileDim(high - low, ends)
        extent = stop.plus(start, -1)
        if extent.terms:
            fail(
                f"{tensor.name}: the extent of a slice must be the same for all programs, but "
                f"{extent} is not. Write it as start : start + n"
            )
        length = extent.constant
        if length <= 0 or start.low < 0:
            fail(
                f"{tensor.name}: the slice {start} : {stop} is empty or begins before the tensor "
                f"(its start goes from {start.low} to {start.high})"
            )
        limits = (Affine(size).plus(start, -1),) if self.high(start) + length > size else ()
        return Span(start, length), TileDim(length, limits)

    def _check_apart(self, tensor: TensorParam, view: View) -> None:
        """Every axis of the grid must move the block by more than its extent, along an axis of the
        tensor of its own: then no two programs write the same element."""
        free = {
            axis: (p.start, p.length) if isinstance(p, Span) else (p.place, 1)
            for p, axis in _axes(view)
            if not isinstance(p, New)
        }
        for var in self.ids:
            if not var.high:
                continue
            for axis, (affine, length) in free.items():
                factor = dict(affine.terms).get(var, 0)
                rest = affine.plus(Affine(0, ((var, factor),)), -1) if factor else affine
                if factor and rest.high - rest.low + length <= abs(factor):
                    del free[axis]
                    break
            else:
                fail(
                    f"two programs may write the same element of {tensor.name}: nothing shows that "
                    f"{tensor.name}{_spelled(view)} is another piece for each {var.name} (the "
                    f"program's number along axis {var.name[1:]}, from 0 to {var.high})"
                )

    # ---- variables and loops -----------------------------------------------------------------

    def variable(self, initial: Any) -> _Variable:
        e = self.as_expr(initial)
        if e.weak:
            e = self.cast(e, dt.float32 if e.dtype.category == dt.FLOAT else dt.int64)
        lengths = tuple(d.length for d in e.dims)
        made = _Variable(ir.TileVariable(len(self._variables), e.dtype, lengths))
        self._variables.append(made)
        self._take_scratch(tuple(TileDim(n) for n in lengths), e.dtype)
        # What an edge cuts off of the first value is zero, so that all of it has a value.
        if any(d.limits for d in e.dims):
            self.write(made, self.full(lengths, 0, e.dtype))
        self.write(made, e)
        return made

    def read(self, variable: _Variable) -> TileExpr:
        spec = variable.spec
        dims = tuple(TileDim(n) for n in spec.lengths)
        made = self.expr("read", spec.dtype, dims, (), (spec, variable.version))
        if not dims:
            body = self._bodies[-1]
            if Let(made) not in body:
                body.append(Let(made))
        return made

    def write(self, variable: _Variable, value: Any) -> None:
        spec = variable.spec
        e = self.cast(value, spec.dtype)
        self._check_fresh(e)
        lengths = self.lengths(e)
        padded = (TileDim(1),) * (len(spec.lengths) - len(lengths)) + e.dims
        if len(lengths) > len(spec.lengths) or any(
            d.length not in (1, n) for d, n in zip(padded, spec.lengths, strict=True)
        ):
            fail(
                f"a variable of shape {list(spec.lengths)} can't hold a block of shape "
                f"{list(lengths)}"
            )
        dims = tuple(TileDim(n).meet(d) for d, n in zip(padded, spec.lengths, strict=True))
        self._bodies[-1].append(Set(spec, dims, e))
        variable.version += 1

    def _check_fresh(self, e: TileExpr) -> None:
        """Rows and matrices of variables are read where they are used: they must be the same."""
        for x in ir.operands(e):
            if x.kind == "read" and x.dims:
                spec, version = x.data
                if self._variables[spec.number].version != version:
                    fail(
                        "this uses what a variable held before it was set anew. Keep the old value "
                        f"before that: old = tiles.keep(variable.value) (it was read at {x.place})"
                    )

    def loop(self, start: Any, stop: Any, step: int) -> Iterator[Index]:
        if not isinstance(step, int) or step <= 0:
            fail(f"tiles.range: the step must be a positive int, got {step!r}")
        first = as_affine(start)
        stops = stop.affines if isinstance(stop, Bound) else (as_affine(stop),)
        extents = [s.plus(first, -1) for s in stops]
        most = max(min(e.high for e in extents) - 1, 0)
        var = Var(f"k{self._loops}", 0, most // step * step)
        self._bounds[var] = first, stops
        self._loops += 1
        for v in self._variables:
            v.version += 1
        self._bodies.append([])
        yield Index(first.plus(Affine(0, ((var, 1),))))
        body = self._bodies.pop()
        self._loops += 1
        for v in self._variables:
            v.version += 1
        kept = tuple(with_keeps(self, body))
        self._bodies[-1].append(TileLoop(var, tuple(sorted(set(extents))), step, kept))

    def high(self, affine: Affine) -> int:
        """The largest value an index takes: loops end where they are told to."""
        found = affine.high
        for var, k in affine.terms:
            if k == 1 and var in self._bounds:
                start, stops = self._bounds[var]
                rest = affine.plus(start.plus(Affine(0, ((var, 1),))), -1)
                found = min(found, *(rest.plus(s).high - 1 for s in stops))
        return found

    def program_id(self, axis: int) -> Index:
        if not 0 <= axis < len(self.grid):
            fail(f"the grid has {len(self.grid)} axes, there is no program_id({axis})")
        return Index(Affine(0, ((self.ids[axis], 1),)))

    # ---- the end -----------------------------------------------------------------------------

    def finish(self, name: str, numbers: str) -> ir.TileProgram:
        if len(self._bodies) != 1:
            fail("a loop over tiles.range was left with break: that can't be compiled")
        outputs = tuple(p.meta for p in self.params if p.is_output)
        inputs = tuple(p.meta for p in self.params if not p.is_output)
        body = tuple(with_keeps(self, self._bodies[0]))
        written = {s.view.tensor for s in all_statements(body) if isinstance(s, Store)}
        for p in self.params:
            if p.is_output and p.number not in written:
                raise TileError(f"{name}: nothing is ever stored to the output {p.name}")
        return ir.TileProgram(
            name, self.grid, self.ids, outputs, inputs, numbers, body, tuple(self.exprs)
        )


def _loaded(x: Any) -> Any:
    return (x.value if hasattr(x, "value") else x.to(dt.int64)).node


def _axes(view: View) -> list[tuple[Any, int]]:
    """Each part with the axis of the tensor it belongs to (-1 for new ones)."""
    found, axis = [], 0
    for p in view.parts:
        found.append((p, -1 if isinstance(p, New) else axis))
        axis += not isinstance(p, New)
    return found


def _spelled(view: View) -> str:
    texts = []
    for p in view.parts:
        if isinstance(p, Span):
            texts.append(f"{p.start} : {p.start} + {p.length}" if p.start.terms else ":")
        else:
            texts.append("None" if isinstance(p, New) else str(p.place))
    return f"[{', '.join(texts)}]"
