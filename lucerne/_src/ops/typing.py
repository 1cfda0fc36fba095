"""Questions about types: what operands would make, and what a tensor is."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import promote
from lucerne._src.ir.define import front
from lucerne._src.ir.meta import NUMBER_METAS
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import is_tensor


@front(torch=None)
def result_type(tensor1: Any, tensor2: Any) -> dt.dtype:
    """The dtype an arithmetic op on these two would give; numbers yield to tensors.

    >>> import lucerne
    >>> lucerne.result_type(lucerne.tensor([1, 2]), 1.0)
    torch.float32
    """
    return promote.result_type([_described(x) for x in (tensor1, tensor2)])


def _described(x: Any) -> Any:
    if is_tensor(x):
        return x._meta
    for kind in (bool, int, float, complex):
        if isinstance(x, kind):
            return NUMBER_METAS[kind]
    raise TypeError(f"result_type(): expected tensors or numbers, got {type(x).__name__}")


@front(torch=None)
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float."""
    return bool(input.dtype.is_floating_point)


@front(torch=None)
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return bool(input.dtype.is_complex)


@front(torch=None)
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return bool(input.dtype.is_signed)


@front(torch=None)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return bool(input.shape == other.shape)
