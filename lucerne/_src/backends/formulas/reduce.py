"""Folds: reductions, running folds, products of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.backends.formulas.frame import FormulaTensor, Frame
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.scalar.protocol import ScalarValue, s

_FOLDS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": s.maximum,
    "min": s.minimum,
    "or": lambda a, b: a | b,
    "and": lambda a, b: a & b,
}


def least(dtype: dt.dtype) -> Any:
    """What every number of a dtype is at least."""
    if dtype.category == dt.FLOAT:
        return -math.inf
    return False if dtype is dt.bool_ else int(np.iinfo(dtype.storage).min)


def greatest(dtype: dt.dtype) -> Any:
    if dtype.category == dt.FLOAT:
        return math.inf
    return True if dtype is dt.bool_ else int(np.iinfo(dtype.storage).max)


_FIRST: dict[str, Any] = {
    "add": lambda dtype: 0, "mul": lambda dtype: 1, "max": least, "min": greatest,
    "or": lambda dtype: False, "and": lambda dtype: True,
}  # fmt: skip


def reduction(f: Frame, input: FormulaTensor, *args: Any) -> None:
    """Fold over the reduced dimensions, in the computing type of the result."""
    op = f.node.op
    named = op.named(f.node.args)
    dims = [d for d in reduced_dims(named.get("dim"), input.ndim) if d < input.ndim]
    kept = [d for d in range(input.ndim) if d not in dims]
    if op.reduce in ("argmax", "argmin"):
        _position(f, input, dims, kept, op.reduce)
        return
    compute = dt.bool_ if op.promote == "bool" else f.out.dtype.compute
    out = _without(f.out, kept)
    with f.kernel([input.shape[d] for d in kept]) as at:
        total = f.variable(_FIRST[op.reduce](compute), compute)
        with f.loops([input.shape[d] for d in dims]) as inner:
            x = f.value(input(*_woven(dims, inner, kept, at)), compute)
            total.set(_FOLDS[op.reduce](total.now, x))
        out.put(at, total.now)


def _without(out: FormulaTensor, kept: Any) -> FormulaTensor:
    """The result without the dimensions of size 1 that reduced ones left."""
    if out.ndim == len(kept):
        return out
    return FormulaTensor(out.frame, out.buffer, out.meta, [out.strides[d] for d in kept])


def _woven(dims: Any, inner: Any, kept: Any, outer: Any) -> list[Any]:
    placed = dict(zip(dims, inner, strict=True)) | dict(zip(kept, outer, strict=True))
    return [placed[d] for d in range(len(placed))]


def _position(f: Frame, input: FormulaTensor, dims: Any, kept: Any, mode: str) -> None:
    """Where the extreme is; the first one when several tie, a nan before all others."""
    compute = input.dtype.compute
    out = _without(f.out, kept)
    with f.kernel([input.shape[d] for d in kept]) as at:
        zero = f.value(0, dt.int64)
        best = f.variable(input(*_woven(dims, [zero] * len(dims), kept, at)), compute)
        where, count = f.variable(0, dt.int64), f.variable(0, dt.int64)
        with f.loops([input.shape[d] for d in dims]) as inner:
            x = input(*_woven(dims, inner, kept, at))
            won = wins(x, best.now, mode)
            where.set(s.where(won, count.now, where.now))
            best.set(s.where(won, x, best.now))
            count.set(count.now + 1)
        out.put(at, where.now)


def wins(x: ScalarValue, best: ScalarValue, mode: str, *, ties: bool = False) -> ScalarValue:
    """Whether a value is better than the best so far; nan is better than every number."""
    dtype = x.dtype
    if dtype is dt.bool_:
        x, best = s.cast(x, dt.int8), s.cast(best, dt.int8)
    better = best < x if mode in ("argmax", "max") else x < best
    if ties:
        better = better | (x == best)
    if dtype.category != dt.FLOAT:
        return better
    beats = better | s.is_nan(x)
    return beats if ties else beats & ~s.is_nan(best)


# ---- running folds -------------------------------------------------------------------------------


def _row(f: Frame, input: FormulaTensor, dim: int) -> tuple[list[int], Any]:
    """The other dimensions, and a function that puts a position along `dim` among them."""
    if not input.ndim:
        return [], lambda at, i: []
    dim %= input.ndim
    others = [n for d, n in enumerate(input.shape) if d != dim]
    return others, lambda at, i: [*at[:dim], i, *at[dim:]]


def _length(input: FormulaTensor, dim: int) -> int:
    return input.shape[dim] if input.ndim else 1


def _logaddexp(a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """log(exp(a) + exp(b)) with the larger one taken out first."""
    if a.dtype.category == dt.COMPLEX:
        right = s.real(b) <= s.real(a)
        high, low = s.where(right, a, b), s.where(right, b, a)
        shift = s.where(s.is_inf(s.real(high)), 0, high)
        sum_ = shift + s.log(s.exp(high - shift) + s.exp(low - shift))
        return s.where(s.real(low) == -math.inf, high, sum_)
    high = s.maximum(a, b)
    shift = s.where(s.is_inf(high), 0.0, high)
    return shift + s.log(s.exp(a - shift) + s.exp(b - shift))


@formula("scan")
def scan(f: Frame, input: FormulaTensor, dim: int, mode: str, reverse: bool, dtype: Any) -> None:
    others, place = _row(f, input, dim)
    length = _length(input, dim)
    finds = mode in ("argmax", "argmin")
    compute = input.dtype.compute if finds else f.out.dtype.compute
    fold = {"logaddexp": _logaddexp, **_FOLDS}.get(mode, s.maximum)
    if not f.out.meta.numel:
        return
    with f.kernel(others) as at:
        last = f.size(length - 1)
        first = place(at, last if reverse else f.value(0, dt.int64))
        best, where = f.variable(input(*first), compute), f.variable(0, dt.int64)
        with f.loop(length) as turn:
            i = last - turn if reverse else turn
            x = f.value(input(*place(at, i)), compute)
            if finds:
                won = (turn == 0) | wins(x, best.now, mode, ties=True)
                where.set(s.where(won, i, where.now))
                best.set(s.where(won, x, best.now))
            else:
                best.set(s.where(turn == 0, x, fold(best.now, x)))
            f.out.put(place(at, i), where.now if finds else best.now)


@formula("linear_scan")
def linear_scan(
    f: Frame, decay: FormulaTensor, input: FormulaTensor, dim: int, reverse: bool
) -> None:
    others, place = _row(f, input, dim)
    length, compute = _length(input, dim), f.out.dtype.compute
    if not f.out.meta.numel:
        return
    with f.kernel(others) as at:
        y, factor = f.variable(0, compute), f.variable(0, compute)
        with f.loop(length) as turn:
            i = f.size(length - 1) - turn if reverse else turn
            a = f.value(decay(*place(at, i)), compute)
            x = f.value(input(*place(at, i)), compute)
            y.set(x + s.where(turn == 0, 0, (factor.now if reverse else a) * y.now))
            factor.set(a)
            f.out.put(place(at, i), y.now)


# ---- products ------------------------------------------------------------------------------------


@formula("batch_matmul")
def batch_matmul(f: Frame, input: FormulaTensor, other: FormulaTensor) -> None:
    *batch, rows, columns = f.out.shape
    depth, compute = input.shape[-1], f.out.dtype.compute
    a, b = input.spread([*batch, rows, depth]), other.spread([*batch, depth, columns])
    with f.kernel(f.out.shape) as (*at, i, j):
        total = f.variable(0, compute)
        with f.loop(depth) as k:
            total.set(total.now + f.value(a(*at, i, k), compute) * f.value(b(*at, k, j), compute))
        f.out.put((*at, i, j), total.now)
