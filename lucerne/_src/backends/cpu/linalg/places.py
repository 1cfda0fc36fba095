"""Matrices as kernels find them: sizes and distances from the metas of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lucerne._src.backends.cpu.linalg.element import KINDS
from lucerne._src.backends.cpu.linalg.frame import batch_step
from lucerne._src.ir.meta import TensorMeta


class MatrixPlace(NamedTuple):
    """Bytes from matrix to matrix, from row to row, from column to column."""

    step: int
    rs: int
    cs: int


def place_of(meta: TensorMeta, batch: Sequence[int]) -> MatrixPlace | None:
    """Where the matrices of a tensor are when its leading dimensions spread to `batch`; None: not
    evenly apart."""
    step = batch_step(meta, batch)
    return None if step is None else MatrixPlace(step, *meta.byte_strides[-2:])


def column_place(meta: TensorMeta, batch: Sequence[int]) -> MatrixPlace | None:
    """The same for vectors, as matrices of one column."""
    step = batch_step(meta, batch, 1)
    return None if step is None else MatrixPlace(step, meta.byte_strides[-1], 0)


def is_taken(*metas: TensorMeta) -> bool:
    """Whether kernels exist for these tensors: matrices of one known dtype, not empty."""
    dtypes = {m.dtype for m in metas}
    return len(dtypes) == 1 and metas[0].dtype in KINDS and all(m.numel for m in metas)
