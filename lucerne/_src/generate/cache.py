"""Keys and values of what was read and written so far, in buffers that never change their size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucerne._src.base import dtype as dt
from lucerne._src.ops.nn.cached_attention import cached_attention
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor


class KVCache:
    """Room for `capacity` tokens in each of `batch` rows, and how far each row is filled.

    A model takes it as `model(tokens, cache=cache)` and asks it three things: `places(count)`,
    where the tokens of this call stand; `attend(layer, q, k, v)`, attention of the layer's queries
    to all keys so far, these among them; and, before its last layer, `last(x)`, which leaves of
    each row what belongs to its last token. (A model that returns logits for all tokens is fine,
    and slower.) The model does not say how many tokens were real: `advance` does, afterwards.

    How far a row is filled is a tensor, `lengths`: one program serves every length.

    >>> import lucerne as torch
    >>> from lucerne.generate import KVCache
    >>> cache = KVCache(layers=1, batch=1, heads=2, size=4, capacity=8)
    >>> q = k = v = torch.ones(1, 2, 3, 4)
    >>> cache.attend(0, q, k, v).shape, cache.advance(), cache.lengths
    (torch.Size([1, 2, 3, 4]), None, tensor([3]))
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        size: int,
        capacity: int,
        *,
        spare: int = 0,
        dtype: dt.dtype = dt.float32,
    ) -> None:
        if min(layers, batch, heads, size, capacity) < 1 or spare < 0:
            raise ValueError(
                "KVCache: layers, batch, heads, size and capacity are at least 1, got "
                f"{(layers, batch, heads, size, capacity)} and spare={spare}"
            )
        shape = (batch, heads, capacity + spare, size)
        self.capacity = capacity
        self.keys = [lu.zeros(shape, dtype=dtype) for _ in range(layers)]
        self.values = [lu.zeros(shape, dtype=dtype) for _ in range(layers)]
        self.lengths = lu.zeros(batch, dtype=dt.int64)
        self.counts: Tensor | None = None
        """How many tokens of a call are real, row by row; None: all of them."""

    @classmethod
    def of(
        cls, keys: Sequence[Tensor], values: Sequence[Tensor], lengths: Tensor, counts: Tensor
    ) -> KVCache:
        """The cache that these tensors are: what a compiled function makes of its arguments."""
        made = cls.__new__(cls)
        made.keys, made.values, made.lengths, made.counts = (
            list(keys),
            list(values),
            lengths,
            counts,
        )
        made.capacity = keys[0].shape[2]
        return made

    def row(self, index: int) -> KVCache:
        """One row as a cache of its own, in the same memory."""
        made = KVCache.__new__(KVCache)
        made.keys = [k[index : index + 1] for k in self.keys]
        made.values = [v[index : index + 1] for v in self.values]
        made.lengths, made.counts = self.lengths[index : index + 1], None
        made.capacity = self.capacity
        return made

    @property
    def batch(self) -> int:
        """Rows."""
        return int(self.lengths.shape[0])

    def places(self, count: int) -> Tensor:
        """Where the next `count` tokens of each row stand: (batch, count)."""
        return self.lengths.unsqueeze(1) + lu.arange(count)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None = None
    ) -> Tensor:
        """Keep keys and values (batch, heads, count, size); attention to all that are there.

        Queries may have several times as many heads. A query sees what stands before it, and
        itself.
        """
        rows = lu.arange(query.shape[0]).unsqueeze(1)
        at = self.places(query.shape[2])
        # Writing beyond the buffer is an error of the index, in eager mode and compiled.
        self.keys[layer][rows, :, at] = key.transpose(1, 2)
        self.values[layer][rows, :, at] = value.transpose(1, 2)
        if scale is None:
            scale = 1 / math.sqrt(query.shape[-1])
        made: Tensor = cached_attention(
            query, self.keys[layer], self.values[layer], self.lengths, scale
        )[0]
        self._seen = query.shape[2]
        return made

    def last(self, x: Tensor) -> Tensor:
        """Of `x` (batch, count, ...) what belongs to the last real token of each row."""
        if x.shape[1] == 1:
            return x
        if self.counts is None:
            return x[:, -1:]
        at = (self.counts - 1).clamp(min=0)
        return x[lu.arange(x.shape[0]), at].unsqueeze(1)

    def advance(self) -> None:
        """The tokens of the last call are part of what was said (`counts` of each row)."""
        self.lengths.add_(self._seen if self.counts is None else self.counts)

    def clear(self) -> None:
        """Forget everything. (What is left in the buffers is never seen.)"""
        self.lengths.zero_()

    def follow(self, parents: Tensor, length: int) -> None:
        """Row i goes on from what row `parents[i]` was; rows are filled up to `length`."""
        for buffer in (*self.keys, *self.values):
            part = buffer[:, :, :length]
            part.copy_(part.index_select(0, parents))
