"""Padding: more elements around the spatial dimensions."""

from __future__ import annotations

from typing import Any

from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.utils import _ntuple, _pair, _quadruple
from lucerne.tensor.tensor import Tensor

_sextuple = _ntuple(6)


class _CircularPadNd(Module):
    """Pads with what is at the other end."""

    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class CircularPad1d(_CircularPadNd):
    """Pads signals (N, C, L) or (C, L) with what is at the other end.

    >>> import lucerne as torch
    >>> torch.nn.CircularPad1d(1)(torch.ones(1, 1, 4)).shape
    torch.Size([1, 1, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class CircularPad2d(_CircularPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with what is at the other end.

    >>> import lucerne as torch
    >>> torch.nn.CircularPad2d(1)(torch.ones(1, 1, 4, 4)).shape
    torch.Size([1, 1, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (3, 4):
            raise ValueError(f"expected 3D or 4D input (got {input.dim()}D input)")


class CircularPad3d(_CircularPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with what is at the other end.

    >>> import lucerne as torch
    >>> torch.nn.CircularPad3d(1)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 6, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (4, 5):
            raise ValueError(f"expected 4D or 5D input (got {input.dim()}D input)")


class _ConstantPadNd(Module):
    """Pads with one value."""

    __constants__ = ["padding", "value"]
    value: float
    padding: tuple[int, ...]

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    >>> import lucerne as torch
    >>> torch.nn.ConstantPad1d(1, 3.5)(torch.ones(1, 1, 4)).shape
    torch.Size([1, 1, 6])
    """

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _pair(padding)


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`.

    >>> import lucerne as torch
    >>> torch.nn.ConstantPad2d(1, 3.5)(torch.ones(1, 1, 4, 4)).shape
    torch.Size([1, 1, 6, 6])
    """

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _quadruple(padding)


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`.

    >>> import lucerne as torch
    >>> torch.nn.ConstantPad3d(1, 3.5)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 6, 6, 6])
    """

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _sextuple(padding)


class _ReflectionPadNd(Module):
    """Pads with the input mirrored at its edge."""

    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "reflect")

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads signals (N, C, L) or (C, L) with the input mirrored at its edge.

    >>> import lucerne as torch
    >>> torch.nn.ReflectionPad1d(1)(torch.ones(1, 1, 4)).shape
    torch.Size([1, 1, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)


class ReflectionPad2d(_ReflectionPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with the input mirrored at its edge.

    >>> import lucerne as torch
    >>> torch.nn.ReflectionPad2d(1)(torch.ones(1, 1, 4, 4)).shape
    torch.Size([1, 1, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)


class ReflectionPad3d(_ReflectionPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with the input mirrored at its edge.

    >>> import lucerne as torch
    >>> torch.nn.ReflectionPad3d(1)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 6, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)


class _ReplicationPadNd(Module):
    """Pads with the value at the edge."""

    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "replicate")

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads signals (N, C, L) or (C, L) with the value at the edge.

    >>> import lucerne as torch
    >>> torch.nn.ReplicationPad1d(1)(torch.ones(1, 1, 4)).shape
    torch.Size([1, 1, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)


class ReplicationPad2d(_ReplicationPadNd):
    """Pads images (N, C, H, W) or (C, H, W) with the value at the edge.

    >>> import lucerne as torch
    >>> torch.nn.ReplicationPad2d(1)(torch.ones(1, 1, 4, 4)).shape
    torch.Size([1, 1, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)


class ReplicationPad3d(_ReplicationPadNd):
    """Pads volumes (N, C, D, H, W) or (C, D, H, W) with the value at the edge.

    >>> import lucerne as torch
    >>> torch.nn.ReplicationPad3d(1)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 6, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)


class ZeroPad1d(ConstantPad1d):
    """Pads the last dimension with zeros.

    >>> import lucerne as torch
    >>> torch.nn.ZeroPad1d(1)(torch.ones(1, 1, 4)).shape
    torch.Size([1, 1, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Pads the last two dimensions with zeros.

    >>> import lucerne as torch
    >>> torch.nn.ZeroPad2d(1)(torch.ones(1, 1, 4, 4)).shape
    torch.Size([1, 1, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Pads the last three dimensions with zeros.

    >>> import lucerne as torch
    >>> torch.nn.ZeroPad3d(1)(torch.ones(1, 1, 4, 4, 4)).shape
    torch.Size([1, 1, 6, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"
