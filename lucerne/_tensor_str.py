"""`lucerne._tensor_str`: how tensors are printed."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.format import OPTIONS as PRINT_OPTS
from lucerne._src.tensor.format import add_suffixes as _add_suffixes
from lucerne._src.tensor.format import printoptions as printoptions
from lucerne._src.tensor.format import set_printoptions as set_printoptions
from lucerne._src.tensor.interop.outside import contents as _tensor_str

__all__ = [
    "PRINT_OPTS", "_add_suffixes", "_str", "_tensor_str", "printoptions", "set_printoptions",
]  # fmt: skip


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor, or of one with these contents."""
    if tensor_contents is None:
        return repr(self)
    return f"tensor({tensor_contents})"
