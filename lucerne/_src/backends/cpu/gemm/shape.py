"""From tensor metadata to the sizes and strides of a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lucerne._src.backends.cpu.gemm.args import MAX_BATCH_DIMS
from lucerne._src.backends.cpu.gemm.plan import GemmBatch, GemmProduct
from lucerne._src.ir.meta import TensorMeta


def describe(
    a: TensorMeta,
    b: TensorMeta,
    c: TensorMeta,
    e_strides: Sequence[int] | None = None,
    more: Sequence[Sequence[int]] = (),
) -> GemmProduct | None:
    """The product a @ b -> c of metas with two dimensions or more; None if it is too crooked.

    `e_strides`: strides of the epilogue's tensor expanded to c's shape. `more`: byte steps of other
    tensors along the dimensions of c.
    """
    if c.strides[-1] != 1 and c.shape[-1] > 1:
        return None
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    e = e_strides or (0,) * c.ndim
    batch = merged(
        GemmBatch(
            size, _step(a, c, d), _step(b, c, d), c.strides[d], e[d], tuple(s[d] for s in more)
        )
        for d, size in enumerate(c.shape[:-2])
    )
    a_row, c_row, e_row = a.strides[-2], c.strides[-2], e[-2]
    rows = tuple(s[-2] for s in more)
    if len(batch) == 1 and batch[0].b == 0:
        d = batch[0]
        steps = (m * a_row, m * c_row, m * e_row, *(m * s for s in rows))
        if m == 1 or (d.a, d.c, d.e, *d.more) == steps:
            # One B for the whole batch: its matrices are one tall matrix.
            if m == 1:
                a_row, c_row, e_row, rows = d.a, d.c, d.e, d.more
            m, batch = m * d.size, []
    if len(batch) > MAX_BATCH_DIMS:
        return None
    return GemmProduct(
        m,
        n,
        k,
        a_row,
        a.strides[-1],
        b.strides[-2],
        b.strides[-1],
        c_row,
        e_row,
        tuple(batch),
        rows,
    )


def _step(meta: TensorMeta, c: TensorMeta, d: int) -> int:
    """The stride of an operand along dimension d of the result; 0 where it broadcasts."""
    own = d - (c.ndim - meta.ndim)
    return 0 if own < 0 or meta.shape[own] == 1 else meta.strides[own]


def expanded_strides(meta: TensorMeta, shape: Sequence[int]) -> list[int]:
    """Strides of a tensor read in a larger shape: 0 where it broadcasts."""
    missing = len(shape) - meta.ndim
    own = zip(meta.shape, meta.strides, shape[missing:], strict=True)
    return [0] * missing + [0 if n == 1 and want > 1 else s for n, s, want in own]


def merged(dims: Any) -> list[GemmBatch]:
    """Dimensions of size one dropped, neighbours that step alike made one."""
    found: list[GemmBatch] = []
    for d in dims:
        if d.size == 1:
            continue
        if found and _follows(found[-1], d):
            last = found.pop()
            d = replace(d, size=last.size * d.size)
        found.append(d)
    return found


def _follows(outer: GemmBatch, inner: GemmBatch) -> bool:
    n = inner.size
    steps = (inner.a, inner.b, inner.c, inner.e, *inner.more)
    return (outer.a, outer.b, outer.c, outer.e, *outer.more) == tuple(s * n for s in steps)
