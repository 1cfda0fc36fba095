"""A number that changes when the bits of a tensor do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, reduced_dims, reduced_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import refuse
from lucerne._src.ops.copy.join import cat

XOR = 0
"""The only mode there is: exclusive or of all bits."""
_UNSIGNED = (dt.uint16, dt.uint32, dt.uint64)


def _oracle(input: Any, dim: Any, keepdim: bool, mode: int) -> Any:
    wide = input.astype(np.float64 if input.dtype.kind == "f" else np.int64)
    axes = reduced_dims(dim, input.ndim)
    fold: Any = np.bitwise_xor.reduce
    return fold(wide.view(np.uint64), axis=axes, keepdims=keepdim)


def _check(input: Tensor, dims: tuple[int, ...], everything: bool, mode: int) -> None:
    if mode != XOR:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    refuse(input, "xor_sum_cpu", dt.COMPLEX)
    if input.dtype in _UNSIGNED:
        refuse(input, "xor_sum_cpu", input.dtype.category)
    if input.numel():
        return
    if everything:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if not input.shape[d]:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")


def _folded(bits: Tensor) -> Tensor:
    """Exclusive or over the last dimension, by halves: a tree of log2(n) steps."""
    while (n := bits.shape[-1]) > 1:
        half = n // 2
        pairs = bits.narrow(-1, 0, half) ^ bits.narrow(-1, half, half)
        bits = cat((pairs, bits.narrow(-1, n - 1, 1)), -1) if n % 2 else pairs
    return bits.squeeze(-1)


@composite(vjp={}, method=True, oracle=_oracle, out="exact")
def hash_tensor(
    input: Tensor, dim: IntList = (), *, keepdim: bool = False, mode: int = XOR
) -> Tensor:
    """Exclusive or of the bits of all elements, each widened to 64 bits, as uint64.

    Two tensors that hold the same numbers, in whatever order, have the same hash.

    >>> import lucerne
    >>> lucerne.hash_tensor(lucerne.tensor([1, 2, 4]))
    tensor(7, dtype=torch.uint64)
    """
    dims = reduced_dims(dim, input.ndim)
    _check(input, dims, dim == (), mode)
    wide = input.to(dt.float64 if input.dtype.category == dt.FLOAT else dt.int64)
    shape = reduced_meta(input._meta, dims, keepdim, dt.uint64).shape
    if not input.ndim:
        wide, dims = wide.reshape(1), (0,)
    kept = [d for d in range(wide.ndim) if d not in dims]
    count = math.prod(wide.shape[d] for d in dims)
    rows = wide.permute(*kept, *dims).reshape(*(wide.shape[d] for d in kept), count)
    rows = rows.clone() if count == 1 else rows.contiguous()  # never a view of the input
    return _folded(rows.view(dt.int64)).view(dt.uint64).reshape(shape)
