"""Layers that merge dimensions and split them again."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn.modules.module import Module


class Flatten(Module):
    """Merges the dimensions from `start_dim` to `end_dim`.

    >>> import lucerne as torch
    >>> torch.nn.Flatten()(torch.ones(32, 1, 5, 5)).shape
    torch.Size([32, 25])
    """

    __constants__ = ["start_dim", "end_dim"]
    start_dim: int
    end_dim: int

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """The flattened input."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The range of dimensions."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one dimension into several.

    >>> import lucerne as torch
    >>> torch.nn.Unflatten(1, (2, 5, 5))(torch.ones(2, 50)).shape
    torch.Size([2, 2, 5, 5])
    """

    __constants__ = ["dim", "unflattened_size"]
    dim: int
    unflattened_size: Any

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self._require_tuple_int(unflattened_size)
        self.dim = dim
        self.unflattened_size = unflattened_size

    def _require_tuple_int(self, input: Any) -> None:
        if not isinstance(input, tuple | list):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(input).__name__}"
            )
        for at, size in enumerate(input):
            if not isinstance(size, int):
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {at}"
                )

    def forward(self, input: Tensor) -> Tensor:
        """The input with the dimension split."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The dimension and its parts."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
