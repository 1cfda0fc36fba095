"""Tensors overwritten element by element: diagonals, and Python functions applied in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor


@front(method=True)
def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a value to the main diagonal, in place; `wrap` begins anew in tall matrices.

    >>> import lucerne
    >>> lucerne.zeros(2, 2).fill_diagonal_(5)
    tensor([[5., 0.],
            [0., 5.]])
    """
    if input.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step, start = sum(input.stride()), input.storage_offset()
    length = min(input.shape)
    input.as_strided((length,), (step,), start).fill_(fill_value)
    height, width = input.shape[0], input.shape[1]
    if wrap and input.ndim == 2 and height > width + 1:
        for first in range(width + 1, height, width + 1):
            rows = min(width, height - first)
            at = start + first * input.stride(0)
            input.as_strided((rows,), (step,), at).fill_(fill_value)
    return input


def _refuse_grad(name: str, *tensors: Tensor) -> None:
    if any(t.requires_grad for t in tensors):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
            "instead."
        )


def _rewrite(input: Tensor, values: list[Any]) -> Tensor:
    number = _NUMBERS[input.dtype.category]
    made = input.new_tensor([number(v) for v in values])
    return input.copy_(made.reshape(input.shape))


_NUMBERS: dict[int, type] = {dt.BOOL: bool, dt.INTEGER: int, dt.FLOAT: float, dt.COMPLEX: complex}


@front(method=True)
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by `callable(element)`; slow, for the host only.

    >>> import lucerne
    >>> lucerne.tensor([1, 2]).apply_(lambda v: v * v)
    tensor([1, 4])
    """
    _refuse_grad("apply_", input)
    return _rewrite(input, [callable(v) for v in input.reshape(-1).tolist()])


@front(method=True)
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by `callable(element, element of tensor)`; slow, for the host only."""
    _refuse_grad("map_", input, tensor)
    if input.dtype is not tensor.dtype:
        raise TypeError(f"map_(): expected a tensor of {input.dtype}, got {tensor.dtype}")
    others = tensor.expand(input.shape).reshape(-1).tolist()
    pairs = zip(input.reshape(-1).tolist(), others, strict=True)
    return _rewrite(input, [callable(a, b) for a, b in pairs])
