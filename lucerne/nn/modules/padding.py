"""Padding: more elements around the spatial dimensions.

A width for all sides, or one for each: those of the last dimension come first.

>>> import lucerne as torch
>>> torch.nn.ConstantPad1d((1, 2), 3.5)(torch.ones(1, 2))
tensor([[3.5000, 1.0000, 1.0000, 3.5000, 3.5000]])
>>> torch.nn.ReflectionPad2d(1)(torch.ones(1, 4, 4)).shape
torch.Size([1, 6, 6])
"""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.utils import repeated


class _PadNd(Module):
    """What all paddings share: the widths, two for each of the last `_dims` dimensions."""

    __constants__ = ["padding"]
    _dims: int
    _mode: str
    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = repeated(padding, 2 * self._dims)

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    """Pads with what is at the other end."""

    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        n = self._dims + 1
        if input.dim() not in (n, n + 1):
            raise ValueError(f"expected {n}D or {n + 1}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        self._check_input_dim(input)
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pads signals (N, C, L) or (C, L) with what is at the other end."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with what is at the other end."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with what is at the other end."""

    _dims = 3


class _ConstantPadNd(_PadNd):
    """Pads with one value."""

    __constants__ = ["padding", "value"]
    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`."""

    _dims = 3


class _ReflectionPadNd(_PadNd):
    """Pads with the input mirrored at its edge."""

    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads signals (N, C, L) or (C, L) with the input mirrored at its edge."""

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with the input mirrored at its edge."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with the input mirrored at its edge."""

    _dims = 3


class _ReplicationPadNd(_PadNd):
    """Pads with the value at the edge."""

    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads signals (N, C, L) or (C, L) with the value at the edge."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with the value at the edge."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with the value at the edge."""

    _dims = 3


class _ZeroPadNd(_ConstantPadNd):
    """Pads with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadNd, ConstantPad1d):
    """Pads the last dimension with zeros."""


class ZeroPad2d(_ZeroPadNd, ConstantPad2d):
    """Pads the last two dimensions with zeros."""


class ZeroPad3d(_ZeroPadNd, ConstantPad3d):
    """Pads the last three dimensions with zeros."""
