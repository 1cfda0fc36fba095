"""The three primitives of convolution, and the checks torch makes before one runs.

A convolution is bilinear, so its two derivatives and all of theirs are again one of three maps
between input, weight and output: `conv`, `conv_input` (the transposed convolution) and
`conv_weight`.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.ops.checks import conj_of


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Positions at which a dilated kernel fits into a padded row."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def conv_layout(shape: sh.Shape, *operands: TensorMeta) -> sh.Shape:
    """Channels last when an operand is (four dimensions only, as torch on CPU), else contiguous."""
    if len(shape) == 4:
        for m in operands:
            if sh.suggested_format(m.shape, m.strides) is lo.channels_last:
                return sh.format_strides(shape, lo.channels_last)
    return sh.contiguous_strides(shape)


def _check_ranks(image: sh.Shape, weight: sh.Shape, *settings: Any) -> None:
    """Settings of a convolution of `image` (N, C, n...) with `weight` (O, C/groups, k...), whoever
    calls it: a user, a file, the compiler."""
    stride, padding, dilation, groups = settings
    ranks = {len(weight), len(image), *(2 + len(s) for s in settings[:3])}
    if len(weight) < 3 or len(ranks) > 1:
        raise RuntimeError(
            f"a convolution of {list(image)} with {list(weight)} has another number of dimensions "
            f"than its stride {list(stride)}, padding {list(padding)} or dilation {list(dilation)}"
        )
    check_settings(stride, padding, dilation, (0,), groups)
    if any(v > _LARGEST for s in settings[:3] for v in s):
        raise RuntimeError(
            f"stride {list(stride)}, padding {list(padding)} and dilation {list(dilation)} of a "
            f"convolution must be below {_LARGEST}"
        )


def _check_maps(image: sh.Shape, weight: sh.Shape, out: sh.Shape, *settings: Any) -> None:
    """That `out` (N, O, m...) can be such a convolution; m may be cropped."""
    groups = settings[3]
    if (
        image[0] != out[0]
        or out[1] != weight[0]
        or image[1] != weight[1] * groups
        or weight[0] % groups
    ):
        raise RuntimeError(
            f"a convolution with {groups} groups of {list(image)} with {list(weight)} can't be "
            f"{list(out)}"
        )
    for row in zip(image[2:], weight[2:], out[2:], *settings[:3], strict=True):
        size, kernel, m, *setting = row
        if not all(type(v) is int for v in row):  # a capture for all sizes: no decision here
            continue
        if kernel < 1 or m < 0 or size < 0 or m > max(output_size(size, kernel, *setting), 0):
            raise RuntimeError(
                f"a convolution of {list(image)} with {list(weight)} can't be {list(out)}"
            )


def _check_bias(bias: Any, channels: int) -> None:
    if bias is not None and tuple(bias.shape) != (channels,):
        raise RuntimeError(f"a bias of {list(bias.shape)} for {channels} channels")


_LARGEST = 1 << 31


def bounded_stride(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """A stride that is larger than what there is to step over, as the smallest such one: kernels
    lay pixels out by their residue of it."""
    if stride <= _USUAL_STRIDE:
        return stride
    return min(stride, max(size + 2 * padding - dilation * (kernel - 1), 1))


_USUAL_STRIDE = 16
"""Smaller ones are left alone, so that no capture depends on the sizes for their sake."""


def _conv_meta(
    input: TensorMeta,
    weight: TensorMeta,
    bias: TensorMeta | None,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    groups: int,
) -> TensorMeta:
    _check_ranks(input.shape, weight.shape, stride, padding, dilation, groups)
    _check_bias(bias, weight.shape[0])
    sizes = (
        output_size(*row)
        for row in zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    )
    shape = (input.shape[0], weight.shape[0], *sizes)
    _check_maps(input.shape, weight.shape, shape, stride, padding, dilation, groups)
    return make_meta(input.dtype, shape, conv_layout(shape, input, weight), input.device)


def _summed_channels(g: Tensor) -> Tensor:
    return g.sum((0, *range(2, g.ndim)))


def crop(x: Tensor, shape: sh.Shape) -> Tensor:
    """The leading part of each spatial dimension."""
    for d in range(2, len(shape)):
        if x.shape[d] != shape[d]:
            x = x.narrow(d, 0, shape[d])
    return x


@structural(
    internal=True,
    meta=_conv_meta,
    name="conv",
    out=False,
    vjp={
        "input": lambda g, weight, input_meta, stride, padding, dilation, groups: conv_input(
            g, conj_of(weight), None, input_meta.shape[2:], stride, padding, dilation, groups
        ),
        "weight": lambda g, input, weight_meta, stride, padding, dilation, groups: conv_weight(
            g, conj_of(input), weight_meta.shape[2:], stride, padding, dilation, groups
        ),
        "bias": lambda g: _summed_channels(g),
    },
    autocast="lower",
    images=(0,),
    torch="convolution",
)
def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
) -> Tensor:
    """Slide `weight` (O, C/groups, k...) over `input` (N, C, n...): (N, O, m...)."""


def _conv_input_meta(
    input: TensorMeta,
    weight: TensorMeta,
    bias: TensorMeta | None,
    size: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    groups: int,
) -> TensorMeta:
    shape = (input.shape[0], weight.shape[1] * groups, *size)
    _check_ranks(shape, weight.shape, stride, padding, dilation, groups)
    _check_bias(bias, shape[1])
    _check_maps(shape, weight.shape, input.shape, stride, padding, dilation, groups)
    return make_meta(input.dtype, shape, conv_layout(shape, input, weight), input.device)


@structural(
    internal=True,
    meta=_conv_input_meta,
    name="conv_input",
    out=False,
    vjp={
        "input": lambda g, weight, input_meta, stride, padding, dilation, groups: crop(
            conv(g, conj_of(weight), None, stride, padding, dilation, groups), input_meta.shape
        ),
        "weight": lambda g, input, weight_meta, stride, padding, dilation, groups: conv_weight(
            conj_of(input), g, weight_meta.shape[2:], stride, padding, dilation, groups
        ),
        "bias": lambda g: _summed_channels(g),
    },
    autocast="lower",
    images=(0,),
    torch="convolution_backward",
)
def conv_input(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    size: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
) -> Tensor:
    """The transpose of `conv`: (N, O, m...) and (O, C/groups, k...) to (N, C, size...)."""


def _conv_weight_meta(
    g: TensorMeta,
    input: TensorMeta,
    size: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    groups: int,
) -> TensorMeta:
    _check_ranks(input.shape, (0, 0, *size), stride, padding, dilation, groups)
    shape = (g.shape[1], input.shape[1] // groups, *size)
    _check_maps(input.shape, shape, g.shape, stride, padding, dilation, groups)
    return make_meta(g.dtype, shape, conv_layout(shape, g, input), g.device)


@structural(
    internal=True,
    meta=_conv_weight_meta,
    name="conv_weight",
    out=False,
    vjp={
        "g_out": lambda g, input, g_out_meta, stride, padding, dilation, groups: crop(
            conv(conj_of(input), g, None, stride, padding, dilation, groups), g_out_meta.shape
        ),
        "input": lambda g, g_out, input_meta, stride, padding, dilation, groups: conv_input(
            conj_of(g_out), g, None, input_meta.shape[2:], stride, padding, dilation, groups
        ),
    },
    images=(0, 1),
    torch="convolution_backward",
)
def conv_weight(
    g_out: Tensor,
    input: Tensor,
    size: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
) -> Tensor:
    """How `conv` answers to its weight: (N, O, m...) and (N, C, n...) to (O, C/groups, size...)."""


# ---- checks -----------------------------------------------------------------------------------


def to_list(value: Any, n: int, name: str) -> sh.Shape:
    """A number for every dimension, or one for each."""
    given = (value,) if isinstance(value, int) else value
    if isinstance(given, (float, str)) or not hasattr(given, "__iter__"):
        raise TypeError(
            f"argument '{name}' must be int or a tuple of ints, not {type(value).__name__}"
        )
    found = tuple(to_int(v) for v in given)
    if any(not -(1 << 63) <= v < 1 << 63 for v in found):
        raise RuntimeError("Overflow when unpacking long long")
    if len(found) == 1:
        return found * n
    if len(found) != n:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {n} values to match the "
            f"convolution dimensions, but got {name}={list(found)}"
        )
    return found


def check_rank(input: Tensor, n: int, name: str) -> bool:
    """Whether the input has a batch dimension; raises unless it has `n` spatial dimensions."""
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input "
            "of "
            f"size: {list(input.shape)}"
        )
    return bool(input.ndim == n + 2)


def check_settings(
    stride: sh.Shape, padding: sh.Shape, dilation: sh.Shape, output_padding: sh.Shape, groups: int
) -> None:
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise RuntimeError("dilation should be greater than zero")


def check_types(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    kind = CXX_TYPES.get(input.dtype, input.dtype.name)
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype is not input.dtype:
            raise RuntimeError(
                f"Input type ({kind}) and {name} type "
                f"({CXX_TYPES.get(other.dtype, other.dtype.name)}) "
                "should be the same"
            )
    if input.dtype is dt.bool_:
        raise NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'Bool'")


CXX_TYPES = {
    dt.float32: "float", dt.float64: "double", dt.float16: "c10::Half",
    dt.bfloat16: "c10::BFloat16", dt.complex64: "c10::complex<float>",
    dt.complex128: "c10::complex<double>", dt.int64: "long int", dt.int32: "int",
    dt.int16: "short int", dt.int8: "signed char", dt.uint8: "unsigned char", dt.bool_: "bool",
}  # fmt: skip


def check_weight(input: Tensor, weight: Tensor, groups: int, transposed: bool) -> None:
    """Channels of input and weight must agree."""
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    shape = list(weight.shape)
    if input.ndim != weight.ndim:
        raise RuntimeError(
            f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional "
            f"weight{shape}, "
            f"but got {input.ndim}-dimensional input of size {list(input.shape)} instead"
        )
    if shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            "got "
            f"weight of size {shape} instead"
        )
    if shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            "but "
            f"got weight of size [{shape}] instead"
        )
    wanted = shape[0] if transposed else shape[1] * groups
    if input.shape[1] != wanted:
        lead = f"Given transposed={int(transposed)}" if transposed else f"Given groups={groups}"
        raise RuntimeError(
            f"{lead}, weight of size {shape}, expected input{list(input.shape)} to have {wanted} "
            f"channels, but got {input.shape[1]} channels instead"
        )


def check_bias(weight: Tensor, bias: Tensor | None, channels: int, transposed: bool) -> None:
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != channels):
        lead = f"Given transposed={int(transposed)}, weight" if transposed else "Given weight"
        raise RuntimeError(
            f"{lead} of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{channels} "
            f"elements, but got bias of size {list(bias.shape)} instead"
        )


def check_fits(input: Tensor, weight: Tensor, padding: sh.Shape, dilation: sh.Shape) -> None:
    """The dilated kernel must not be larger than the padded input."""
    padded = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
    kernel = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    if math.prod(weight.shape[2:]) == 0 or any(p < k for p, k in zip(padded, kernel, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel "
            f"size: ({' x '.join(map(str, kernel))}). Kernel size can't be greater than actual "
            "input "
            "size"
        )
