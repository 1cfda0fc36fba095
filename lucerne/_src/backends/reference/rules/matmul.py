"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("batch_matmul")
def batch_matmul(input: Array, other: Array) -> Array:
    if input.dtype == np.float16:
        input, other = input.astype(np.float32), other.astype(np.float32)
    product: Array = np.matmul(input, other)
    return product
