"""Reading and writing at positions: the batch is one more position."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.index.advanced import index_nd, index_put_nd
from lucerne._src.tensor.base import TensorBase
from lucerne.func.batching.level import Call, padded_rank, rule


class Places:
    """The positions of a call: which dimensions they are of, and where their result goes.

    `order` has the dimensions with positions first, then the others; `rank` is the number of
    dimensions of the positions, which stand at `at` among those of the result.
    """

    def __init__(self, call: Call, ndim: int) -> None:
        indices, flags = call.values[1], call.batched[1] or (False,) * len(call.values[1])
        self.dims = [d for d, i in enumerate(indices) if isinstance(i, TensorBase)]
        rest = [d for d in range(ndim) if d not in self.dims]
        self.order = [*self.dims, *rest]
        metas = [m for m in call.metas[1] if m is not None]
        self.rank = max((m.ndim for m in metas), default=0)
        self.together = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        self.at = self.dims[0] if self.together else 0
        self.many = any(flags)
        self.indices = [
            padded_rank(indices[d], self.rank) if flags[d] else indices[d] for d in self.dims
        ]
        self.back = [self.order.index(d) for d in range(ndim)]

    def batch(self, call: Call, device: Any) -> Any:
        """Positions in the batch: each with its own."""
        return arange(call.size, device=device).view(-1, *(1,) * self.rank)

    def placed(self, value: Any) -> Any:
        """(batch, positions, rest) with the positions where they belong."""
        if not self.at:
            return value
        dims = list(range(1, value.ndim))
        positions, rest = dims[: self.rank], dims[self.rank :]
        return value.permute(0, *rest[: self.at], *positions, *rest[self.at :])

    def gathered(self, value: Any) -> Any:
        """Undo `placed`."""
        if not self.at:
            return value
        dims = list(range(1, value.ndim))
        positions = dims[self.at : self.at + self.rank]
        return value.permute(0, *positions, *[d for d in dims if d not in positions])


@rule("index")
def index(call: Call) -> Any:
    value, indices, wrap = call.values
    ndim = call.rank(0)
    places = Places(call, ndim)
    if not call.batched[0]:
        return places.placed(index_nd(value.permute(places.order), tuple(places.indices), wrap))
    if not places.many and places.together:
        return index_nd(value, (None, *indices), wrap)
    moved = value.permute(0, *(d + 1 for d in places.order))
    if not places.many:
        found = index_nd(moved, (None, *places.indices), wrap)
    else:
        found = index_nd(moved, (places.batch(call, value.device), *places.indices), wrap)
    return places.placed(found)


@rule("index_put")
def index_put(call: Call) -> Any:
    value, _, values, accumulate, wrap = call.values
    ndim = call.rank(0)
    places = Places(call, ndim)
    moved = call.full(0).permute(0, *(d + 1 for d in places.order))
    batch = places.batch(call, value.device)
    if isinstance(values, TensorBase):
        shape = _result_shape(call, places)
        full = padded_rank(call.full(2), len(shape)).expand(call.size, *shape)
        values = places.gathered(full)
    found = index_put_nd(moved, (batch, *places.indices), values, accumulate, wrap)
    return found.permute(0, *(d + 1 for d in places.back))


def _result_shape(call: Call, places: Places) -> list[int]:
    """The shape of what the positions read, without the batch."""
    shape = call.metas[0].shape
    rest = [shape[d] for d in places.order[len(places.dims) :]]
    positions = sh.broadcast_shapes(*(m.shape for m in call.metas[1] if m is not None))
    return [*rest[: places.at], *positions, *rest[places.at :]]
