"""`lucerne._utils`: small helpers of torch's that libraries call by their private names."""

from __future__ import annotations

import sys
import types
from typing import Any

from lucerne._src.tensor.flat_lists import flatten_dense_tensors as _flatten_dense_tensors
from lucerne._src.tensor.flat_lists import unflatten_dense_tensors as _unflatten_dense_tensors
from lucerne._src.tensor.rebuild import device_index as _get_device_index
from lucerne._src.tensor.rebuild import element_size as _element_size
from lucerne._src.tensor.rebuild import rebuild_tensor as _rebuild_tensor
from lucerne._src.tensor.rebuild import rebuild_tensor_v2 as _rebuild_tensor_v2
from lucerne.nn.parameter import rebuild_parameter as _rebuild_parameter

__all__ = [
    "_element_size",
    "_flatten_dense_tensors",
    "_get_device_index",
    "_rebuild_parameter",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_unflatten_dense_tensors",
]


def _get_available_device_type() -> str | None:
    """The kind of accelerator that is there: none."""
    return None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device: `torch.cpu`, `torch.cuda`."""
    found = getattr(sys.modules["lucerne"], device_type, None)
    if not isinstance(found, types.ModuleType):
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as "
            f"'torch.{device_type}'."
        )
    return found
