"""Random numbers inside vmap: forbidden, the same for all of the batch, or different for each."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import op as op_
from lucerne._src.ops.copy.join import stack
from lucerne._src.tensor.base import TensorBase
from lucerne.func.batching.level import KINDS, Call, Unbatched, padded_rank

ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)


def draw(call: Call) -> Any:
    """`draw` reads of its input the shape alone; the others its values."""
    mode = call.level.randomness
    if mode == "error":
        raise RuntimeError(ERROR)
    name, values = call.op.name, list(call.values)
    if mode == "same":
        if name == "draw" and call.batched[0]:
            values[0] = values[0].select(0, 0)
        elif call.any_batched:
            return _same_for_each(call)
        return Unbatched(call.run(*values))
    values[0] = call.full(0)
    if name == "draw" and values[1] == "permutation":  # of its own elements, each time
        one = values[0].select(0, 0)
        return stack([call.run(one, *values[1:]) for _ in range(call.size)])
    if name == "draw":
        return call.run(values[0].new_empty(values[0].shape), *values[1:])
    if name == "draw_each" and isinstance(values[2], TensorBase):
        values[2] = padded_rank(call.full(2), call.rank(0))
    if name == "draw_categories" and call.rank(0) == 2:  # rows are drawn one by one
        rows = values[0].reshape(-1, values[0].shape[-1])
        found = call.run(rows, *values[1:])
        return found.reshape(call.size, -1, *found.shape[1:])
    return call.run(*values)


def _same_for_each(call: Call) -> Any:
    raise RuntimeError(
        "Vmap does not currently support same randomness with a batched tensor input. Please use "
        "different randomness with vmap"
    )


KINDS[op_.RANDOM] = draw
