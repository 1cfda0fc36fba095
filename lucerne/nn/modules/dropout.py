"""Layers that drop parts of their input at random while training."""

from __future__ import annotations

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module


class _DropoutNd(Module):
    """The probability to drop, and whether to do it in place."""

    __constants__ = ["p", "inplace"]
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Probability and the in-place flag."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Sets elements to zero with probability `p`, and scales the others by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input with holes; in evaluation the input itself."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Sets whole channels of (N, C, L) or (C, L) to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """The input without some of its channels."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Sets whole channels of (N, C, H, W) or (N, C, L) to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """The input without some of its channels."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Sets whole channels of (N, C, D, H, W) or (C, D, H, W) to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """The input without some of its channels."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance, for networks of `SELU`."""

    def forward(self, input: Tensor) -> Tensor:
        """The input with elements at the activation's negative saturation."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        """The input with channels at the activation's negative saturation."""
        return F.feature_alpha_dropout(input, self.p, self.training)
