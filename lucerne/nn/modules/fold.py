"""Layers that cut images into windows and put them together again."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module


class Fold(Module):
    """Adds up windows (N, C * kernel, L) in an image (N, C, *output_size).

    >>> import lucerne as torch
    >>> torch.nn.Fold(output_size=(4, 5), kernel_size=(2, 2))(torch.ones(1, 12, 12)).shape
    torch.Size([1, 3, 4, 5])
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]
    output_size: Any
    kernel_size: Any
    dilation: Any
    padding: Any
    stride: Any

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The image."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """Sizes."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """The windows of an image (N, C, H, W), one for each column of (N, C * kernel, L).

    >>> import lucerne as torch
    >>> torch.nn.Unfold(kernel_size=(2, 3))(torch.ones(2, 5, 3, 4)).shape
    torch.Size([2, 30, 4])
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]
    kernel_size: Any
    dilation: Any
    padding: Any
    stride: Any

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The windows."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Sizes."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
