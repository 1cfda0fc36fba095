"""Random numbers from counters: the formula of the op table, so the bits are those of the host."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lucerne._src.backends.xla.layout import positions
from lucerne._src.backends.xla.machine import MACHINE
from lucerne._src.backends.xla.rules.table import rule
from lucerne._src.backends.xla.types import cast, jtype
from lucerne._src.base import shape as sh
from lucerne._src.ir.graph import Node
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand
from lucerne._src.ops.random.counted import (
    counted_key,
    counted_number,
    counted_value,
    counted_word,
    takes_one_word,
)

_KEY: Any = counted_key.op.body  # type: ignore[attr-defined]
_NUMBER: Any = counted_number.op.body  # type: ignore[attr-defined]
_WORD: Any = counted_word.op.body  # type: ignore[attr-defined]
_VALUE: Any = counted_value.op.body  # type: ignore[attr-defined]


@rule("counted_draw")
def counted_draw(
    node: Node, key: Any, size: Any, strides: Any, distribution: str, first: Any, second: Any,
    stream: int, dtype: Any, device: Any,
) -> Any:  # fmt: skip
    steps = strides if strides is not None else sh.contiguous_strides(size)
    kind = np.dtype(np.int64) if type(first) is int else dtype.compute.storage
    numbers = [Operand(MACHINE, jnp.asarray(x, kind)) for x in (first, second)]
    words = [
        _KEY(*[Operand(MACHINE, x) for x in (key[0], key[1], jnp.int64(stream))], k) for k in (0, 1)
    ]
    at = Operand(MACHINE, positions(size, steps, 0))
    if takes_one_word(distribution, dtype):
        found = _NUMBER(_WORD(at, *words), *numbers, distribution, dtype)
    else:
        found = _VALUE(at, *words, *numbers, distribution, dtype)
    return cast(found.raw, jtype(dtype))
