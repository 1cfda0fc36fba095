"""Options of `LinearCrossEntropyLoss`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_POLICIES = ("accurate", "balanced", "compact", "auto")


@dataclass
class LinearCrossEntropyOptions:
    """How to cut the batch so that the scores never exist as a whole.

    Lucerne checks them and computes the same values in one piece.

    >>> LinearCrossEntropyOptions(acc_policy="compact").chunking_method
    'auto'
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if method not in (None, "auto") and not re.fullmatch(r"\w+:\d+", str(method)):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
