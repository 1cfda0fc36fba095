"""Scale and shift: the two parameters that follow a normalisation."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn import init
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter


def add_affine(
    layer: Module, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any
) -> None:
    """Register `weight` and `bias` of a shape, or None for one that is not wanted."""
    for name, wanted in (("weight", weight), ("bias", bias)):
        made = Parameter(lu.empty(shape, device=device, dtype=dtype)) if wanted else None
        layer.register_parameter(name, made)


def reset_affine(layer: Any) -> None:
    """Scale 1, shift 0."""
    init.ones_(layer.weight)
    if layer.bias is not None:
        init.zeros_(layer.bias)
