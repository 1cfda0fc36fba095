"""Random numbers from counters: the formula of the op table, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference.machine import MACHINE
from lucerne._src.backends.reference.table import rule
from lucerne._src.base import shape as sh
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand
from lucerne._src.ops.random.counted import (
    counted_key,
    counted_number,
    counted_value,
    counted_word,
    takes_one_word,
)

Array = np.ndarray[Any, Any]
_KEY: Any = counted_key.op.body  # type: ignore[attr-defined]
_NUMBER: Any = counted_number.op.body  # type: ignore[attr-defined]
_WORD: Any = counted_word.op.body  # type: ignore[attr-defined]
_VALUE: Any = counted_value.op.body  # type: ignore[attr-defined]


@rule("counted_draw")
def counted_draw(
    key: Array, size: Any, strides: Any, distribution: str, first: Any, second: Any, stream: int,
    dtype: Any, device: Any,
) -> Array:  # fmt: skip
    steps = strides if strides is not None else sh.contiguous_strides(size)
    index = np.zeros(tuple(size), np.int64)
    for d, (n, step) in enumerate(zip(size, steps, strict=True)):
        shape = [1] * len(size)
        shape[d] = n
        index += np.arange(n, dtype=np.int64).reshape(shape) * step
    seed, offset = np.asarray(key[0]), np.asarray(key[1])
    kind = np.int64 if type(first) is int else dtype.compute.storage
    numbers = [Operand(MACHINE, np.asarray(x, kind)) for x in (first, second)]
    with np.errstate(over="ignore"):  # NumPy warns of numbers that start anew, of arrays it doesn't
        made = [Operand(MACHINE, np.asarray(x)) for x in (seed, offset, np.int64(stream))]
        words = [_KEY(*made, k) for k in (0, 1)]
        at = Operand(MACHINE, index)
        if takes_one_word(distribution, dtype):
            found = _NUMBER(_WORD(at, *words), *numbers, distribution, dtype)
        else:
            found = _VALUE(at, *words, *numbers, distribution, dtype)
    return np.asarray(found.raw)
