"""Layers that turn channels into pixels and back."""

from __future__ import annotations

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module


class PixelShuffle(Module):
    """(..., C * r * r, H, W) becomes (..., C, H * r, W * r).

    >>> import lucerne as torch
    >>> torch.nn.PixelShuffle(3)(torch.ones(1, 9, 4, 4)).shape
    torch.Size([1, 1, 12, 12])
    """

    __constants__ = ["upscale_factor"]
    upscale_factor: int

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The larger image."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) becomes (..., C * r * r, H, W).

    >>> import lucerne as torch
    >>> torch.nn.PixelUnshuffle(3)(torch.ones(1, 1, 12, 12)).shape
    torch.Size([1, 9, 4, 4])
    """

    __constants__ = ["downscale_factor"]
    downscale_factor: int

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The smaller image with more channels."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"downscale_factor={self.downscale_factor}"
