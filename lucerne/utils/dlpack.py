"""`lucerne.utils.dlpack`: exchange memory with other libraries."""

from __future__ import annotations

from typing import Any

from lucerne.tensor.interop import from_dlpack as from_dlpack


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()
