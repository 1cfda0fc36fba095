"""Convolutions; a gradient is the transpose of the forward one, which is linear in each operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.matmul import precision_of
from lucerne._src.backends.xla.rules.table import out, out_type, rule, wide_type
from lucerne._src.backends.xla.types import cast
from lucerne._src.ir.graph import Node

Ints = Sequence[int]


def _conv(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, wide: Any
) -> Any:
    letters = "".join(chr(ord("a") + k) for k in range(len(stride)))
    return lax.conv_general_dilated(
        x,
        w,
        tuple(stride),
        [(p, p) for p in padding],
        rhs_dilation=tuple(dilation),
        dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
        feature_group_count=groups,
        precision=precision_of(x),
        preferred_element_type=wide,
    )


def _biased(y: Any, bias: Any, node: Node) -> Any:
    if bias is not None:
        y = y + bias.astype(y.dtype).reshape(-1, *(1,) * (y.ndim - 2))
    return cast(y, out_type(node))


def _transposed(forward: Callable[[Any], Any], g: Any, node: Node) -> Any:
    """What a linear function answers to a result. (XLA has no transposed products of integers:
    float64 holds those of 32 bits exactly.)"""
    wide = np.dtype(wide_type(node))
    wide = wide if wide.kind in "fc" or wide.name == "bfloat16" else np.dtype(np.float64)
    like = jax.ShapeDtypeStruct(tuple(out(node).shape), wide)
    return jax.linear_transpose(forward, like)(g.astype(wide))[0]


def _kind_of(node: Node) -> Any:
    wide = np.dtype(wide_type(node))
    return wide if wide.kind in "fc" else np.dtype(np.float64)


@rule("conv")
def conv(
    node: Node, x: Any, w: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    wide = wide_type(node)
    return _biased(_conv(x, w, stride, padding, dilation, groups, wide), bias, node)


@rule("conv_input")
def conv_input(
    node: Node, g: Any, w: Any, bias: Any, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Any:  # fmt: skip
    wide = _kind_of(node)
    w = w.astype(wide)
    made = _transposed(lambda x: _conv(x, w, stride, padding, dilation, groups, wide), g, node)
    return _biased(made, bias, node)


@rule("conv_weight")
def conv_weight(
    node: Node, g: Any, x: Any, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    wide = _kind_of(node)
    x = x.astype(wide)
    made = _transposed(lambda w: _conv(x, w, stride, padding, dilation, groups, wide), g, node)
    return cast(jnp.asarray(made), out_type(node))
