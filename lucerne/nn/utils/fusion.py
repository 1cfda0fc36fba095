"""A batch norm folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn.parameter import Parameter


def _scale_and_shift(
    bias: Any, mean: Any, variance: Any, eps: float, weight: Any, shift: Any
) -> tuple[Any, Any]:
    """What a batch norm does to a channel: (factor, new bias)."""
    factor = weight * lu.rsqrt(variance + eps)
    return factor, (bias - mean) * factor + shift


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `bn(conv(x))` does in evaluation mode."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )  # fmt: skip
    return fused


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does the work of a batch norm as well."""
    weight_dtype = conv_w.dtype
    bias_dtype = weight_dtype if conv_b is None else conv_b.dtype
    if conv_b is None:
        conv_b = lu.zeros_like(bn_rm)
    bn_w = lu.ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = lu.zeros_like(bn_rm) if bn_b is None else bn_b
    factor, bias = _scale_and_shift(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    weight = (conv_w * factor.reshape(shape)).to(weight_dtype)
    return (
        Parameter(weight, conv_w.requires_grad),
        Parameter(bias.to(bias_dtype), conv_b.requires_grad),
    )


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what `bn(linear(x))` does in evaluation mode."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if not (linear.out_features == bn.num_features or bn.num_features == 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that does the work of a batch norm as well."""
    weight_dtype = linear_w.dtype
    bias_dtype = weight_dtype if linear_b is None else linear_b.dtype
    if linear_b is None:
        linear_b = lu.zeros_like(bn_rm)
    factor, bias = _scale_and_shift(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    weight = linear_w * factor.unsqueeze(-1).to(weight_dtype)
    return (
        Parameter(weight, linear_w.requires_grad),
        Parameter(bias.to(bias_dtype), linear_b.requires_grad),
    )
