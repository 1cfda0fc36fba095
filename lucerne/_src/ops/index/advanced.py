"""Advanced indexing: reading and writing at positions given by tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import common_device, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor, TensorList
from lucerne._src.ops.copy.cast import filled, preserved_strides

INDEX_TYPES = (dt.int64, dt.int32)


def zeros_like_meta(meta: TensorMeta) -> Tensor:
    """Zeros in the shape, dtype and device of a meta, for an op that copies them: one in memory."""
    return filled((), 0, meta.dtype, meta.device, None).expand(meta.shape)


# ---- the geometry of an indexing ----------------------------------------------------------------


class IndexLayout:
    """Where the dimensions of `input[indices]` come from, by torch's (and NumPy's) rule.

    The broadcast shape of the index tensors stands where the indexed dimensions stood when those
    are neighbours, else in front.
    """

    __slots__ = ("at", "broadcast", "dims", "order", "shape")

    def __init__(self, shape: sh.Shape, indices: Sequence[Any]) -> None:
        _check_count(len(shape), len(indices))
        self.dims = [d for d, i in enumerate(indices) if i is not None]
        self.broadcast = _broadcast([tuple(i.shape) for i in indices if i is not None])
        rest = [d for d in range(len(shape)) if d not in self.dims]
        adjacent = bool(self.dims) and self.dims[-1] - self.dims[0] + 1 == len(self.dims)
        self.at = self.dims[0] if adjacent else 0
        self.order = self.dims + rest
        kept = [shape[d] for d in rest]
        self.shape = (*kept[: self.at], *self.broadcast, *kept[self.at :])
        if 0 not in self.broadcast and any(shape[d] == 0 for d in self.dims):
            raise IndexError("index is out of bounds for dimension with size 0")


def _check_count(ndim: int, count: int) -> None:
    if count > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim} (got {count})")


def _broadcast(shapes: list[sh.Shape]) -> sh.Shape:
    try:
        return sh.broadcast_shapes(*shapes)
    except RuntimeError:
        listed = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {listed}"
        ) from None


def _index_meta(input: TensorMeta, indices: Sequence[TensorMeta | None], wrap: bool) -> TensorMeta:
    at = IndexLayout(tuple(input.shape), indices)
    spread = len(at.broadcast)
    kept = [input.strides[d] for d in range(input.ndim) if d not in at.dims]
    strides = (*kept[: at.at], *(0,) * spread, *kept[at.at :])
    trailing = len(at.shape) - at.at - spread
    operands = [(at.shape, strides)]
    for i in indices:
        if i is not None:
            shape = (1,) * at.at + at.broadcast + (1,) * trailing
            spread_strides = sh.broadcast_strides(i.shape, i.strides, at.broadcast)
            viewed = sh.view_strides(at.broadcast, spread_strides, shape)
            operands.append((shape, viewed or sh.contiguous_strides(shape)))
    chosen = sh.elementwise_strides(at.shape, tuple(operands))
    return make_meta(input.dtype, at.shape, chosen, input.device)


@structural(
    checks=op_.POSITIONS,
    internal=True,
    meta=_index_meta,
    name="index",
    vjp={
        "input": lambda g, indices, input_meta: index_put_nd(
            zeros_like_meta(input_meta), indices, g, True
        )
    },
    oracle=lambda input, indices, wrap: input[
        tuple(slice(None) if i is None else i for i in indices)
    ],
    samples=[((3, 3), [None, [2, 0, 0]]), ((3, 3), [[1, 0], [2, 2]])],
    linear=True,
    exact="choice",
    torch="index",
)
def index_nd(input: Tensor, indices: TensorList, wrap: bool = True) -> Tensor:
    """`input[indices]`, one integer tensor or None (take all) for each leading dimension.

    A position out of bounds is an IndexError; negative ones count from the end if `wrap` says so.
    """


def _index_put_meta(
    input: TensorMeta,
    indices: Sequence[TensorMeta | None],
    values: TensorMeta,
    accumulate: bool,
    wrap: bool,
) -> TensorMeta:
    at = IndexLayout(tuple(input.shape), indices)
    if values.dtype is not input.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{dt.cxx_name(input.dtype)} for the destination and {dt.cxx_name(values.dtype)} for "
            "the source."
        )
    if not expandable(tuple(values.shape), at.shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(at.shape)}"
        )
    common_device([input, values])
    return input.like(strides=preserved_strides(input, lo.preserve_format))


def expandable(shape: sh.Shape, target: sh.Shape) -> bool:
    """Whether `shape` broadcasts to exactly `target`."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(n in (1, target[lead + i]) for i, n in enumerate(shape))


@structural(
    checks=op_.POSITIONS,
    meta=_index_put_meta,
    name="index_put",
    vjp={
        "input": lambda g, indices, accumulate: g if accumulate else _hole(g, indices),
        "values": lambda g, indices: index_nd(g, indices),
    },
)
def index_put_nd(
    input: Tensor, indices: TensorList, values: Tensor, accumulate: bool, wrap: bool = True
) -> Tensor:
    """A copy of `input` with `values` written (or added) at the places `input[indices]` reads.

    With `accumulate` repeated places add up; without, one of the values wins.
    """


def _hole(g: Tensor, indices: Any) -> Tensor:
    return index_put_nd(g, indices, filled((), 0, g.dtype, g.device, None), False)


# ---- what users may write ------------------------------------------------------------------------


def integer_indices(input: Tensor, indices: Sequence[Any]) -> tuple[Any, ...]:
    """Masks become the positions of their true elements; integers become int64 or stay int32."""
    _check_count(input.ndim, len(indices))  # (masks without dimensions name no dimension)
    found: list[Any] = []
    for i in indices:
        if i is None:
            found.append(None)
        elif i.dtype in (dt.bool_, dt.uint8):
            found.extend(_positions(input, i, len(found)))
        elif i.dtype in (dt.int64, dt.int32):
            found.append(i)
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    _check_count(input.ndim, len(found))
    return tuple(found)


def _positions(input: Tensor, mask: Tensor, at: int) -> list[Tensor]:
    """One index tensor per dimension of a mask that stands at dimension `at`."""
    for j, n in enumerate(mask.shape):
        if at + j >= input.ndim:
            raise IndexError(
                f"too many indices for tensor of dimension {input.ndim} (got {at + mask.ndim})"
            )
        if input.shape[at + j] != n:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {j} does not match the shape "
                f"of the indexed tensor {list(input.shape)} at index {at + j}"
            )
    where = nonzero_rows(mask)
    return [where.select(1, j) for j in range(mask.ndim)]


def index(input: Tensor, indices: Any) -> Tensor:
    """`input[indices]` for a list of integer tensors, masks and None."""
    return index_nd(input, integer_indices(input, indices))


@front(method=True, inplace=True)
def index_put(
    input: Tensor, indices: Any, values: Tensor, accumulate: bool = False, *, out: Any = None
) -> Tensor:
    """`values` written to (with `accumulate`: added to) the elements at `indices`.

    >>> import lucerne
    >>> x = lucerne.zeros(3)
    >>> i = lucerne.tensor([0, 0, 2])
    >>> x.index_put((i,), lucerne.ones(3), accumulate=True)
    tensor([2., 0., 1.])
    """
    return index_put_nd(input, integer_indices(input, indices), values, accumulate, out=out)


# ---- where is it true ----------------------------------------------------------------------------


@structural(
    meta=None,
    data_dependent=True,
    name="nonzero",
    out="exact",
    vjp={},
    oracle=np.argwhere,
    samples=[([[0, 1, 2], [3, 0, 0]],)],
)
def nonzero_rows(input: Tensor) -> Tensor:
    """The positions of the elements that aren't zero, one row each."""


@front(method=True)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """Positions of the elements that aren't zero: rows, or one tensor per dimension.

    >>> import lucerne
    >>> lucerne.nonzero(lucerne.tensor([0, 3, 0, 5]))
    tensor([[1],
            [3]])
    """
    if as_tuple:
        if out is not None:
            raise TypeError("nonzero(): argument 'out' can't be given together with as_tuple")
        rows = nonzero_rows(input.reshape(1) if not input.ndim else input)
        return tuple(rows.select(1, d) for d in range(max(input.ndim, 1)))
    return nonzero_rows(input, out=out)
