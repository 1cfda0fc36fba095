"""Products of a sparse matrix, given by compressed rows, with dense matrices.

`starts[i]` to `starts[i + 1]` are the entries of row `i`; entry `k` stands in column `columns[k]`.
The bodies gather and scatter, so every device has them; an engine may bring one loop for each.
"""

from __future__ import annotations

import numpy as np

from lucerne._src.ir import op as op_
from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.index.advanced import index_nd, index_put_nd
from lucerne._src.ops.index.searching import binary_search
from lucerne._src.ops.index.sorting import argsort


def row_numbers(starts: Tensor, count: int) -> Tensor:
    """For each of `count` entries the row it stands in.

    >>> import lucerne
    >>> row_numbers(lucerne.tensor([0, 2, 2, 3]), 3)
    tensor([0, 0, 2])
    """
    entries = arange(count, dtype=starts.dtype, device=starts.device)
    return binary_search(starts, entries, True) - 1


def turned(starts: Tensor, columns: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The transposed matrix: its starts, its columns, and which entry of the first stands where."""
    order = argsort(columns, stable=True)
    edges = arange(width + 1, dtype=columns.dtype, device=columns.device)
    begins = binary_search(index_nd(columns, (order,)), edges, False)
    rows = index_nd(row_numbers(starts, columns.shape[0]), (order,))
    return begins, rows, order


def _times(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray
) -> object:
    made = np.zeros((len(starts) - 1, dense.shape[1]), np.result_type(values, dense))
    np.add.at(made, np.repeat(np.arange(len(starts) - 1), np.diff(starts)),
              values[:, None] * dense[columns])  # fmt: skip
    return made


def _dense_gradient(g: Tensor, starts: Tensor, columns: Tensor, values: Tensor,
                    dense_meta: TensorMeta) -> Tensor:  # fmt: skip
    begins, rows, order = turned(starts, columns, dense_meta.shape[0])
    return csr_times_dense(begins, rows, index_nd(values, (order,)).conj(), g)


def _times_meta(
    starts: TensorMeta, columns: TensorMeta, values: TensorMeta, dense: TensorMeta
) -> TensorMeta | None:
    if values.dtype is not dense.dtype or dense.ndim != 2 or values.ndim != 1:
        return None
    need(
        starts.ndim == columns.ndim == 1 and starts.shape[0] > 0 and columns.shape == values.shape,
        lambda: (
            f"rows {list(starts.shape)}, columns {list(columns.shape)} and values "
            f"{list(values.shape)} are no sparse matrix"
        ),
    )
    return dense.like(shape=(starts.shape[0] - 1, dense.shape[1]))


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=_times_meta,
    vjp={
        "values": lambda g, starts, columns, dense: sampled_products(
            starts, columns, g, dense.conj()
        ),
        "dense": _dense_gradient,
    },
    oracle=_times,
    samples=[([0, 2, 2, 3], [1, 0, 1], (3,), (2, 4))],
)
def csr_times_dense(starts: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """A sparse matrix times a dense one."""
    rows = row_numbers(starts, columns.shape[0])
    products = values.unsqueeze(1) * index_nd(dense, (columns,))
    shape = (starts.shape[0] - 1, dense.shape[1])
    zeros = filled(shape, 0, products.dtype, products.device, None)
    return index_put_nd(zeros, (rows,), products, True)


def _right_gradient(g: Tensor, starts: Tensor, columns: Tensor, left: Tensor,
                    right_meta: TensorMeta) -> Tensor:  # fmt: skip
    begins, rows, order = turned(starts, columns, right_meta.shape[0])
    return csr_times_dense(begins, rows, index_nd(g, (order,)), left.conj())


def _sampled_meta(
    starts: TensorMeta, columns: TensorMeta, left: TensorMeta, right: TensorMeta
) -> TensorMeta | None:
    if left.dtype is not right.dtype or left.ndim != 2 or right.ndim != 2:
        return None
    need(
        starts.ndim == columns.ndim == 1 and starts.shape[0] == left.shape[0] + 1,
        lambda: (
            f"rows {list(starts.shape)} and columns {list(columns.shape)} are no sparse "
            f"matrix with {left.shape[0]} rows"
        ),
    )
    need(
        left.shape[1] == right.shape[1],
        lambda: f"products of {list(left.shape)} and {list(right.shape)}",
    )
    return left.like(shape=(columns.shape[0],))


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=_sampled_meta,
    vjp={
        "left": lambda g, starts, columns, right: csr_times_dense(starts, columns, g, right.conj()),
        "right": _right_gradient,
    },
    oracle=lambda starts, columns, left, right: (
        left[np.repeat(np.arange(len(starts) - 1), np.diff(starts))] * right[columns]
    ).sum(-1, dtype=left.dtype),
    samples=[([0, 2, 2, 3], [1, 0, 1], (3, 4), (2, 4))],
)
def sampled_products(starts: Tensor, columns: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """For each entry the product of row `i` of `left` with row `columns[k]` of `right`."""
    rows = row_numbers(starts, columns.shape[0])
    return (index_nd(left, (rows,)) * index_nd(right, (columns,))).sum(-1).to(left.dtype)
