"""Weights of convolutions in channels-last order."""

from __future__ import annotations

from typing import Any

from lucerne.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d


def _convert(module: Any, memory_format: Any, kinds: tuple[type, ...]) -> Any:
    if isinstance(module, kinds):
        module.weight.data = (  # type: ignore[attr-defined]
            module.weight.detach().clone().contiguous(memory_format=memory_format)  # type: ignore[attr-defined]
        )
    for child in module.children():
        _convert(child, memory_format, kinds)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lay out the weights of all 2d convolutions below `module` in this order."""
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lay out the weights of all 3d convolutions below `module` in this order."""
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))
