"""Convolutions and their transposes, with a known number of input channels or a lazy one.

A family is one class with the constructor; its members say how many dimensions they slide over
(`_dims`) and which function they call.

>>> import lucerne as torch
>>> torch.nn.Conv2d(16, 33, (3, 5), padding="same")(torch.randn(2, 16, 50, 100)).shape
torch.Size([2, 33, 50, 100])
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn import init
from lucerne.nn.modules.lazy import LazyModuleMixin
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.utils import _reverse_repeat_tuple, _single, repeated
from lucerne.nn.parameter import Parameter, UninitializedParameter

_PADDINGS = ("same", "valid")
_PADDING_MODES = ("zeros", "circular", "replicate", "reflect")


def _check_arguments(
    in_channels: int, out_channels: int, groups: int, padding: Any, stride: Any, mode: str
) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in _PADDINGS:
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if mode not in _PADDING_MODES:
        names = ", ".join(map(repr, _PADDING_MODES))
        raise ValueError(f"padding_mode must be one of {{{names}}}, but got padding_mode={mode!r}")


def _explicit_padding(padding: Any, kernel_size: Any, dilation: Any) -> Any:
    """What `F.pad` adds (last dimension first) where a mode other than zeros does the padding."""
    if not isinstance(padding, str):
        return _reverse_repeat_tuple(padding, 2)
    sides = [0, 0] * len(kernel_size)
    if padding == "same":
        for at, (d, k) in enumerate(zip(reversed(dilation), reversed(kernel_size), strict=False)):
            total = d * (k - 1)
            sides[2 * at], sides[2 * at + 1] = total // 2, total - total // 2
    return sides


class _ConvNd(Module):
    """What all convolutions share: sizes, weight, bias and their first values."""

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if transposed and padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__()
        _check_arguments(in_channels, out_channels, groups, padding, stride, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _explicit_padding(padding, kernel_size, dilation)
        shape = self._weight_shape()
        self.weight = Parameter(lu.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(lu.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Draw weight and bias evenly within 1 / sqrt(inputs of an output) of zero."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            inputs, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if inputs != 0:
                bound = 1 / math.sqrt(inputs)
                init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with this weight and bias."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """The convolved input."""
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and options that differ from their defaults."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        n = len(self.kernel_size)
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    """The constructor of `Conv1d`, `Conv2d` and `Conv3d`."""

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        n = self._dims
        if not isinstance(padding, str):
            padding = repeated(padding, n)
        sizes = repeated(kernel_size, n), repeated(stride, n), padding, repeated(dilation, n)
        rest: tuple[Any, ...] = (groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, *sizes, False, (0,) * n, *rest)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input padded by another mode than zeros, and the padding left to do: none."""
        sides = self._reversed_padding_repeated_twice
        return F.pad(input, sides, mode=self.padding_mode), (0,) * self._dims


class Conv1d(_Conv):
    """Slides kernels along a signal (N, C, L), or (C, L)."""

    _dims = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Slides kernels over images (N, C, H, W), or (C, H, W)."""

    _dims = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Slides kernels through volumes (N, C, D, H, W), or (C, D, H, W)."""

    _dims = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """What all transposed convolutions share: the choice among several possible output sizes."""

    def _output_padding(
        self,
        input: Tensor,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        """What must be added at the end of each dimension to reach the size that was asked for."""
        if output_size is None:
            return _single(self.output_padding)
        n, whole = num_spatial_dims, input.dim()
        extra = whole - n
        if len(output_size) == whole:
            output_size = output_size[extra:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {whole}D input, output_size must have {n} or {n + 2} "
                f"elements (got {len(output_size)})"
            )
        smallest = [
            (input.size(d + extra) - 1) * stride[d]
            - 2 * padding[d]
            + (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        largest = [least + stride[d] - 1 for d, least in enumerate(smallest)]
        for size, least, most in zip(output_size, smallest, largest, strict=True):
            if not least <= size <= most:
                raise ValueError(
                    f"requested an output size of {output_size}, but valid sizes range from "
                    f"{smallest} to {largest} (for an input of {input.size()[2:]})"
                )
        return [size - least for size, least in zip(output_size, smallest, strict=True)]


class _ConvTranspose(_ConvTransposeNd):
    """The constructor of `ConvTranspose1d`, `ConvTranspose2d` and `ConvTranspose3d`.

    >>> import lucerne as torch
    >>> layer = torch.nn.ConvTranspose1d(4, 2, 3, stride=2)
    >>> layer(torch.randn(1, 4, 5), output_size=(12,)).shape
    torch.Size([1, 2, 12])
    """

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        n = self._dims
        window = repeated(kernel_size, n), repeated(stride, n)
        sizes = *window, repeated(padding, n), repeated(dilation, n)
        more = repeated(output_padding, n)
        rest: tuple[Any, ...] = (groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, *sizes, True, more, *rest)

    def _all_options(self, input: Tensor, output_size: Any) -> tuple[Any, ...]:
        """What follows weight and bias in a call of the function."""
        if self.padding_mode != "zeros":
            raise ValueError(
                f"Only `zeros` padding mode is supported for ConvTranspose{self._dims}d"
            )
        stride, padding, dilation = self.stride, self.padding, self.dilation
        more: Any = self.output_padding
        if output_size is not None:
            more = self._output_padding(
                input, output_size, stride, padding, self.kernel_size, self._dims, dilation
            )
        return stride, padding, more, self.groups, dilation


class ConvTranspose1d(_ConvTranspose):
    """The gradient of `Conv1d` with respect to its input, as a layer: signals grow."""

    _dims = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """The spread signal, of the given size if there is one."""
        options = self._all_options(input, output_size)
        return F.conv_transpose1d(input, self.weight, self.bias, *options)


class ConvTranspose2d(_ConvTranspose):
    """The gradient of `Conv2d` with respect to its input, as a layer: images grow."""

    _dims = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """The spread images, of the given size if there is one."""
        options = self._all_options(input, output_size)
        return F.conv_transpose2d(input, self.weight, self.bias, *options)


class ConvTranspose3d(_ConvTranspose):
    """The gradient of `Conv3d` with respect to its input, as a layer: volumes grow."""

    _dims = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """The spread volumes, of the given size if there is one."""
        options = self._all_options(input, output_size)
        return F.conv_transpose3d(input, self.weight, self.bias, *options)


class _LazyConvXdMixin(LazyModuleMixin):
    """Takes `in_channels` from the first input.

    >>> import lucerne as torch
    >>> layer = torch.nn.LazyConv2d(4, 3)
    >>> _ = layer(torch.ones(1, 2, 4, 4))
    >>> layer
    Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1))
    """

    _dims: int
    groups: int
    transposed: bool
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    weight: Any
    bias: Any

    def _begin(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        """Parameters without sizes, in place of those made with no channels."""
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """As the layer it becomes, once the sizes are known."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the sizes from the first input."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_shape())  # type: ignore[attr-defined]
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to "
                f"{self.__class__.__name__}, but got input of size: {input.shape}"
            )
        return input.shape[-n - 1]

    def _get_num_spatial_dims(self) -> int:
        return self._dims


class _LazyConv(_LazyConvXdMixin):
    """The constructor of `LazyConv1d`, `LazyConv2d` and `LazyConv3d`."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._begin(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input."""

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvXdMixin):
    """The constructor of the three lazy transposed convolutions."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = (kernel_size, stride, padding, output_padding)
        super().__init__(0, 0, *sizes, groups, False, dilation, padding_mode)
        self._begin(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d
