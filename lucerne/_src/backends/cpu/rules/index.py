"""Rules of the index family: reading and writing at positions that are data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from math import prod
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.index.move import (
    READ,
    WRITE,
    IndexPlaces,
    MoveForm,
    WalkCode,
    form_of,
    write_failure,
)
from lucerne._src.backends.cpu.index.nonzero import RESULT, TOTAL, NonzeroCode, NonzeroKernel
from lucerne._src.backends.cpu.index.walk import GRAIN, IndexDim, IndexWalk, plan_walk
from lucerne._src.backends.cpu.math.storage import STORED
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.errors import IndexBoundsError
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.ops.index.advanced import IndexLayout

Fail = Callable[[int, int], None]
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


# ---- an indexing as dimensions -------------------------------------------------------------------


@dataclass(frozen=True)
class Indexing:
    """The loops over an indexing: strides are those of (whole, part, *index tensors).

    `whole` is what the indices lead into, `part` has one element for each position.
    """

    dims: tuple[IndexDim, ...]
    reach: tuple[tuple[int, int], ...]
    """For each index tensor the size of the dimension it indexes, and bytes per step of `whole`."""
    indices: tuple[int, ...]
    """Bytes of an element of each index tensor."""

    def swapped(self) -> tuple[IndexDim, ...]:
        """The loops with `part` as the target: for reading."""
        return tuple(
            IndexDim(d.size, (d.strides[1], d.strides[0], *d.strides[2:])) for d in self.dims
        )

    @property
    def empty_reach(self) -> bool:
        return any(size == 0 for size, _ in self.reach)


Strides = Sequence[int]


def _along(
    shape: Strides, whole: Strides, part: Strides, dim: int, index: TensorMeta, size: int
) -> Indexing:
    """gather and scatter: along `dim` the index says where, elsewhere positions agree.

    A 0-dim tensor counts as a vector of one element.
    """
    if not index.numel:
        return Indexing((IndexDim(0, (0, 0, 0)),), ((1, 0),), (index.dtype.itemsize,))
    shape, whole, part = shape or (1,), whole or (0,), part or (0,)
    steps = index.byte_strides or (0,)
    dims = [
        IndexDim(n, (0 if d == dim else whole[d], part[d], steps[d]), free=d != dim)
        for d, n in enumerate(shape)
    ]
    return Indexing(tuple(dims), ((size, whole[dim]),), (index.dtype.itemsize,))


def _advanced(
    shape: Strides, whole: Strides, part: Strides, indices: Sequence[TensorMeta | None]
) -> Indexing:
    """x[i, j, ...]: `part` strides belong to the shape of the result."""
    at = IndexLayout(tuple(shape), indices)
    given = [i for i in indices if i is not None]
    kept = [whole[d] for d in range(len(shape)) if d not in at.dims]
    spread = len(at.broadcast)
    whole_strides = [*kept[: at.at], *(0,) * spread, *kept[at.at :]]
    dims = []
    for d, n in enumerate(at.shape):
        inside = at.at <= d < at.at + spread
        steps = [_index_step(i, at.broadcast, d - at.at) if inside else 0 for i in given]
        dims.append(IndexDim(n, (whole_strides[d], part[d], *steps), free=not inside))
    reach = tuple((shape[d], whole[d]) for d in at.dims)
    return Indexing(tuple(dims), reach, tuple(i.dtype.itemsize for i in given))


def _index_step(index: TensorMeta, broadcast: sh.Shape, d: int) -> int:
    strides = sh.broadcast_strides(tuple(index.shape), index.strides, broadcast)
    return to_int(strides[d]) * index.dtype.itemsize


# ---- kernels -------------------------------------------------------------------------------------


class _Stage:
    """One walk of a kernel, with the words it reads."""

    def __init__(self, walk: IndexWalk, form: MoveForm, target: int, source: int) -> None:
        self.walk, self.form, self.target, self.source = walk, form, target, source


def _kernel(
    stages: Sequence[_Stage],
    reach: Sequence[tuple[int, int]],
    index_words: tuple[int, ...],
    tensors: int,
    workspace: int = 0,
    fail: Fail | None = None,
    in_place: bool = False,
) -> NativeKernel:
    """Walks one after another; the extra words are the flag, the reach, and each walk's numbers.

    `in_place`: the first walk copies tensor 1 to tensor 0, and is left out when they are the same.
    """
    first = 1 + tensors + 1
    extra = [0, *(w for pair in reach for w in pair)]
    placed: list[tuple[MoveForm, IndexPlaces]] = []
    for s in stages:
        indexed = bool(s.form.indices)
        places = IndexPlaces(
            s.target, s.source, index_words if indexed else (), first + len(extra), first + 1, first
        )
        placed.append((s.form, places))
        extra += s.walk.words()

    def write(m: Module) -> None:
        codes = [WalkCode(m, f"walk{k}", form, at) for k, (form, at) in enumerate(placed)]
        for code in codes:
            code.write()
            for k in range(len(code.form.indices)):
                code.write_extremes(k)
        with m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            f.store(f.constant(0), f.at(block, first * 8))
            if in_place:
                _write_in_place(f, block, codes)
                codes_left = codes[1:]
            else:
                codes_left = codes
            for code in codes_left:
                f.call(f"{code.name}_all", VOID, [block])
            for code in codes:
                write_failure(f, block, code)
            f.ret(0)

    key = ("index", in_place, *((*astuple(form), *astuple(at)) for form, at in placed))
    work = sum(s.walk.numel for s in stages) * 1.0
    code = compiled(key, write)
    return NativeKernel(
        code["entry"], 1, tensors, extra=extra, workspace=workspace, work=work, fail=fail
    )


def _write_in_place(f: LLVMFunction, block: LLVMValue, codes: Sequence[WalkCode]) -> None:
    """Copy, unless input and output are the same memory: then no index may be wrong."""
    same = f.compare("eq", f.word(block, 0), f.word(block, 1))
    with f.if_(same) as here:
        write_failure(f, block, codes[1], check=True)
    with here.else_():
        f.call(f"{codes[0].name}_all", VOID, [block])


def _bits(dims: Sequence[IndexDim], item: int, indices: int = 0) -> tuple[list[IndexDim], int]:
    """The loops, at least one of them, over two operands and the indices.

    Elements of 16 bytes are moved as two of 8.
    """
    operands = 2 + indices
    dims = dims or [IndexDim(1, (0,) * operands)]
    if item <= 8:
        return list(dims), item
    return [*dims, IndexDim(2, (8, 8, *(0,) * (operands - 2)))], 8


def _read(node: Node, at: Indexing, index_words: tuple[int, ...], wrap: bool, fail: Fail) -> Any:
    """A kernel that reads through indices."""
    if at.empty_reach:
        return None
    dims, item = _bits(at.swapped(), node.outputs[0].meta.dtype.itemsize, len(index_words))
    walk = plan_walk(dims, item)
    form = form_of(walk, at.indices, at.reach, wrap=wrap, through=READ, item=item)
    return _kernel(
        [_Stage(walk, form, 0, 1)], at.reach, index_words, 1 + len(index_words), fail=fail
    )


_NARROW = (dt.float16, dt.bfloat16)


def _write(
    node: Node,
    indexing: Callable[[Strides], Indexing],
    index_words: tuple[int, ...],
    values_word: int,
    fold: str,
    wrap: bool,
    fail: Fail,
) -> Any:
    """A kernel that copies the input and writes (or folds) values through indices.

    Narrow floats are folded in float32, in memory beside the result, and rounded once.
    """
    out: TensorMeta = node.outputs[0].meta
    source: TensorMeta = node.args[0].meta
    dtype = out.dtype
    if not _foldable(dtype, fold) or not out.is_dense:
        return None
    wide = dtype in _NARROW and fold != "set"
    item = 4 if wide else dtype.itemsize
    space = 2 + len(index_words) + 1
    target = space if wide else 0
    steps = tuple(s * item for s in out.strides)
    at = indexing(steps)
    if at.empty_reach:
        return None
    stages = [_begin(out, source, steps, target, wide)]
    dims: list[IndexDim] = list(at.dims) or [IndexDim(1, (0,) * (2 + len(index_words)))]
    if fold == "set":
        dims, item = _bits(dims, item, len(index_words))
        walk = plan_walk(dims, item)
        form = form_of(walk, at.indices, at.reach, wrap=wrap, through=WRITE, item=item)
    else:
        kind = dtype.to_real()
        if dtype.category == dt.COMPLEX:
            half = dtype.itemsize // 2
            dims.append(IndexDim(2, (half, half, *(0,) * len(index_words))))
            item = half
        walk = plan_walk(dims, item)
        form = form_of(
            walk, at.indices, at.reach, wrap=wrap, through=WRITE, fold=fold,
            target="float32" if wide else kind.name, source=kind.name,
        )  # fmt: skip
    stages.append(_Stage(walk, form, target, values_word))
    if wide:
        flat = plan_walk([IndexDim(out.numel, (dtype.itemsize, 4))], dtype.itemsize)
        form = form_of(flat, (), wrap=False, through=READ, target=dtype.name, source="float32")
        stages.append(_Stage(flat, form, 0, space))
    return _kernel(
        stages, at.reach, index_words, 2 + len(index_words),
        workspace=out.numel * 4 if wide else 0, fail=fail, in_place=not wide,
    )  # fmt: skip


def _begin(
    out: TensorMeta, source: TensorMeta, steps: tuple[int, ...], target: int, wide: bool
) -> _Stage:
    """The copy of the input that is written into."""
    dims: list[IndexDim] = [
        IndexDim(n, (t, s)) for n, t, s in zip(out.shape, steps, source.byte_strides, strict=True)
    ]
    if wide:
        walk = plan_walk(dims, 4)
        form = form_of(walk, (), wrap=False, through=READ, target="float32", source=out.dtype.name)
    else:
        dims, item = _bits(dims, out.dtype.itemsize)
        walk = plan_walk(dims, item)
        form = form_of(walk, (), wrap=False, through=READ, item=item)
    return _Stage(walk, form, target, 1)


def _foldable(dtype: dt.dtype, fold: str) -> bool:
    if fold == "set":
        return True
    if dtype.category == dt.COMPLEX:
        return fold == "add" and dtype.native
    return dtype.native or dtype in _NARROW


# ---- along one dimension -------------------------------------------------------------------------


def _bounds_error(dim: int, size: int) -> Fail:
    def fail(status: int, bad: int) -> None:
        raise IndexBoundsError(f"index {bad} is out of bounds for dimension {dim} with size {size}")

    return fail


@rule("gather")
def gather(node: Node) -> Any:
    source, dim, index, _ = node.args
    meta, out = source.meta, node.outputs[0].meta
    dim %= max(meta.ndim, 1)
    size = meta.shape[dim] if meta.ndim else 1
    at = _along(out.shape, meta.byte_strides, out.byte_strides, dim, index.meta, size)
    return _read(node, at, (2,), False, _bounds_error(dim, size))


@rule("scatter")
def scatter(node: Node) -> Any:
    target, dim, index, src, mode = node.args
    meta: TensorMeta = target.meta
    dim %= max(meta.ndim, 1)
    size = meta.shape[dim] if meta.ndim else 1
    shape, part = index.meta.shape, src.meta.byte_strides
    return _write(
        node,
        lambda whole: _along(shape, whole, part, dim, index.meta, size),
        (2,), 3, mode, False, _bounds_error(dim, size),
    )  # fmt: skip


# ---- advanced indexing ---------------------------------------------------------------------------


def _index_error(shape: Sequence[int], dims: Sequence[int], wrap: bool) -> Fail:
    def fail(status: int, bad: int) -> None:
        dim = dims[status - 1]
        size = shape[dim]
        if not wrap and not 0 <= bad < size:
            raise IndexError("index out of range in self")
        raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {size}")

    return fail


def _metas(indices: Sequence[Any]) -> list[TensorMeta | None]:
    return [None if i is None else i.meta for i in indices]


@rule("index")
def index(node: Node) -> Any:
    source, indices, wrap = node.args
    meta, metas = source.meta, _metas(indices)
    at = _advanced(meta.shape, meta.byte_strides, node.outputs[0].meta.byte_strides, metas)
    dims = [d for d, i in enumerate(metas) if i is not None]
    words = tuple(range(2, 2 + len(dims)))
    return _read(node, at, words, wrap, _index_error(meta.shape, dims, wrap))


@rule("embedding")
def embedding(node: Node) -> Any:
    table, indices = node.args[:2]
    meta = table.meta
    strides = node.outputs[0].meta.byte_strides
    at = _advanced(meta.shape, meta.byte_strides, strides, [indices.meta])
    return _read(node, at, (2,), False, _index_error(meta.shape, [0], False))


@rule("index_put")
def index_put(node: Node) -> Any:
    target, indices, values, accumulate, wrap = node.args
    meta, metas = target.meta, _metas(indices)
    shape = IndexLayout(tuple(meta.shape), metas).shape
    given: TensorMeta = values.meta
    spread = sh.broadcast_strides(tuple(given.shape), given.strides, shape)
    part = [s * given.dtype.itemsize for s in spread]
    dims = [d for d, i in enumerate(metas) if i is not None]
    words = tuple(range(2, 2 + len(dims)))
    return _write(
        node,
        lambda whole: _advanced(meta.shape, whole, part, metas),
        words, 2 + len(dims), "add" if accumulate else "set", wrap,
        _index_error(meta.shape, dims, wrap),
    )  # fmt: skip


# ---- where is it true ----------------------------------------------------------------------------


class NonzeroRun:
    """Counts, makes room, writes: the executable of a result whose size depends on the data."""

    def __init__(self, meta: TensorMeta) -> None:
        shape = tuple(meta.shape) or (1,)
        strides = tuple(meta.byte_strides) or (meta.dtype.itemsize,)
        self.ndim, self.columns = len(shape), meta.ndim
        form = NonzeroKernel(self.ndim, meta.dtype.name, strides[-1] == meta.dtype.itemsize)
        code = compiled(("nonzero", *astuple(form)), lambda m: NonzeroCode(m, form).write())
        self.count, self.write = (_CALL(code[name]) for name in ("count", "write"))
        n = shape[-1]
        rows = prod(shape[:-1]) if n else 0
        chunk_rows, pieces, piece = max(1, GRAIN // max(n, 1)), 1, n
        if n > GRAIN:
            pieces, piece = -(-n // GRAIN), GRAIN
        self.chunks = -(-rows // chunk_rows) * pieces
        dims = [w for pair in zip(shape[:-1], strides[:-1], strict=True) for w in pair]
        self.extra = [rows, n, chunk_rows, pieces, piece, self.chunks, strides[-1], *dims]

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, dt.dtype]:
        counts = np.empty(max(1, self.chunks), np.int64)
        words = np.array(
            [0, address_of(inputs[0]), address_of_array(counts), 0, *self.extra], np.int64
        )
        block = address_of_array(words)
        total = self.count(block)
        found = np.empty((self.ndim, total), np.int64).T
        words[RESULT], words[TOTAL] = address_of_array(found), total
        self.write(block)
        return found if self.columns else found[:, :0], dt.int64


def address_of_array(a: np.ndarray[Any, Any]) -> int:
    return int(a.__array_interface__["data"][0])


@rule("nonzero")
def nonzero(node: Node) -> Any:
    meta: TensorMeta = node.args[0].meta
    return NonzeroRun(meta) if meta.dtype in STORED and meta.dtype is not dt.complex32 else None
