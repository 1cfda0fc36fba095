"""`lucerne.utils.dlpack`: exchange memory with other libraries."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from lucerne._src.tensor.interop.outside import from_dlpack as from_dlpack


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()


DLDeviceType = IntEnum(
    "DLDeviceType",
    {
        "kDLCPU": 1,
        "kDLCUDA": 2,
        "kDLCUDAHost": 3,
        "kDLOpenCL": 4,
        "kDLVulkan": 7,
        "kDLMetal": 8,
        "kDLVPI": 9,
        "kDLROCM": 10,
        "kDLROCMHost": 11,
        "kDLExtDev": 12,
        "kDLCUDAManaged": 13,
        "kDLOneAPI": 14,
        "kDLWebGPU": 15,
        "kDLHexagon": 16,
        "kDLMAIA": 17,
    },
)
"""Kinds of devices, as the DLPack standard numbers them."""
