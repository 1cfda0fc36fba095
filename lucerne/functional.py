"""`lucerne.functional`: where torch keeps some functions, for code that imports them there."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu

_NAMES = (
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes",
    "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "meshgrid", "norm",
    "split", "stft", "tensordot", "unique", "unique_consecutive", "unravel_index",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(lu, name)
    raise AttributeError(f"module 'lucerne.functional' has no attribute {name!r}")
