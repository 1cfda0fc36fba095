"""Context parallelism in torch's spelling: inside of a block, sequences are cut over a mesh, and
attention passes keys and values round instead of gathering them.

Ring attention (Liu, Zaharia, Abbeel 2023) in terms of whole values: the sequence is a row of
blocks, one for each device, and a turn of the ring moves the row by one. The engine makes of that
one message from each device to the next. The backward pass makes the weights again from the sums
that the forward pass has kept (Dao et al. 2022).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.placement import Replicate, Shard
from lucerne._src.base.process import tables
from lucerne._src.base.refusals import only
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh
from lucerne._src.distributed.mesh.dtensor import layout_of, place_in_memory
from lucerne._src.ir import dispatch
from lucerne._src.ops.copy.place import placed
from lucerne._src.ops.nn.attention_choice import choice
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.function import Function

_BLOCKS = 0
"""The dimension along which the blocks of a sequence stand: (blocks, ..., positions, features). The
first, so that products, which make one of all dimensions before the last two, leave it cut."""
METHODS = ("allgather", "alltoall")


class _Options:
    """What `set_rotate_method` has said."""

    rotate = METHODS[0]


tables.add_switches(_Options, "rotate")


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values come to every device: "allgather" (all at once) or "alltoall" (in turns
    of a ring: a device never has more than its own part and its neighbour's)."""
    if rotate_method not in METHODS:
        raise NotImplementedError(
            f"Context Parallel does not support using {rotate_method} for kv shards rotation"
        )
    _Options.rotate = rotate_method


# ---- attention -----------------------------------------------------------------------------------


def _turned(row: Any) -> Any:
    """A row of blocks after one turn: each device has what its neighbour had."""
    last = row.shape[_BLOCKS] - 1
    return lu.cat([row.narrow(_BLOCKS, last, 1), row.narrow(_BLOCKS, 0, last)], _BLOCKS)


def _scores(q: Any, k: Any, scale: float, turn: int, causal: bool) -> Any:
    """Of each block of queries with the keys that are there after so many turns."""
    found = (q @ k.transpose(-2, -1)) * scale
    if not causal:
        return found
    count, size = q.shape[_BLOCKS], q.shape[-2]
    at = lu.arange(size, device=q.device)
    if turn == 0:
        return found.masked_fill(at[:, None] < at, -math.inf)
    ahead = lu.arange(count, device=q.device) < turn
    return found.masked_fill(ahead.reshape(count, *[1] * (q.ndim - 1)), -math.inf)


class RingAttention(Function):
    """Attention of (blocks, ..., positions, features), one block for each device of a ring."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, hint: Callable[[Any], Any], scale: float, causal: bool
    ) -> Any:
        ctx.hint, ctx.scale, ctx.causal = hint, scale, causal
        keys, values = k, v
        largest: Any = None
        total: Any = None
        found: Any = None
        for turn in range(q.shape[_BLOCKS]):
            if turn:
                keys, values = hint(_turned(keys)), hint(_turned(values))
            scores = _scores(q, keys, scale, turn, causal)
            most = scores.amax(-1, True)
            most = most if largest is None else lu.maximum(most, largest)
            weights = (scores - most).exp()
            sums, parts = weights.sum(-1, True), weights @ values
            if largest is not None:
                before = (largest - most).exp()
                sums, parts = sums + total * before, parts + found * before
            largest, total, found = most, sums, parts
        found = hint(found / total)
        ctx.save_for_backward(q, k, v, found, largest + total.log())
        return found

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, found, sums = ctx.saved_tensors
        hint, grad = ctx.hint, ctx.hint(grad)
        share = (grad * found).sum(-1, True)
        of_q, of_k, of_v = lu.zeros_like(q), lu.zeros_like(k), lu.zeros_like(v)
        count = q.shape[_BLOCKS]
        for turn in range(count):
            weights = (_scores(q, k, ctx.scale, turn, ctx.causal) - sums).exp()
            of_v = of_v + weights.transpose(-2, -1) @ grad
            of_scores = weights * (grad @ v.transpose(-2, -1) - share) * ctx.scale
            of_q = of_q + of_scores @ k
            of_k = of_k + of_scores.transpose(-2, -1) @ q
            # After the last turn the gradients are where their keys and values began.
            of_k, of_v = hint(_turned(of_k)), hint(_turned(of_v))
            if turn + 1 < count:
                k, v = hint(_turned(k)), hint(_turned(v))
        return of_q, of_k, of_v, None, None, None


@functools.cache
def _kernel(mesh: DeviceMesh, rotate: str) -> Callable[..., Any]:
    """What computes attention inside of the block (`attention_choice.Choice.provided`)."""
    count = mesh.size()

    def hint(x: Any) -> Any:
        return placed(x, mesh.layout([Shard(_BLOCKS)], x.ndim))

    def attention(
        q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: float, gqa: bool
    ) -> Any:
        sizes = {x.shape[-2] for x in (q, k, v)}
        plain = mask is None and not dropout and not gqa and q.device.type == mesh.device_type
        whole = len(sizes) == 1 and not q.shape[-2] % count and q.shape[-2]
        if rotate != "alltoall" or not plain or not whole or q.shape[:-2] != k.shape[:-2]:
            return NotImplemented
        kind = q.dtype
        rows = [
            hint(x.float().unflatten(-2, (count, x.shape[-2] // count)).movedim(-3, _BLOCKS))
            for x in (q, k, v)
        ]
        found = RingAttention.apply(*rows, hint, scale, causal)
        return found.movedim(_BLOCKS, -3).flatten(-3, -2).to(kind)

    return attention


# ---- the block -----------------------------------------------------------------------------------


class context_parallel:
    """Inside, `buffers` (no parameters: the batch, the labels, embeddings of positions) are cut
    over a mesh along their dimensions of the sequence, and `scaled_dot_product_attention` knows it.

    Values stay whole here: the shapes of buffers do not change, and labels or positions that were
    forgotten cost what is sent, not the result.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        *,
        buffers: Sequence[Any] | None = None,
        buffer_seq_dims: Sequence[int] | None = None,
        no_restore_buffers: set[Any] | None = None,
    ) -> None:
        self.mesh, self.buffers = mesh, list(buffers or ())
        self.dims, kept = list(buffer_seq_dims or ()), no_restore_buffers or set()
        if mesh.ndim != 1:
            raise ValueError(f"context_parallel: a mesh of one dimension was expected, got {mesh}")
        if len(self.dims) != len(self.buffers):
            raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
        if any(all(b is not other for other in self.buffers) for b in kept):
            raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
        self.kept = {id(b) for b in kept}
        self.before: list[Any] = []
        self.choice: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        for b, dim in zip(self.buffers, self.dims, strict=True):
            self.before.append(layout_of(b))
            place_in_memory(b, self.mesh, [Shard(dim)])
        self.choice = choice.enabled, choice.provided, choice.warn
        dispatch.state.add_special(1)  # (remembered calls of attention know nothing of this one)
        choice.set(choice.enabled, _kernel(self.mesh, _Options.rotate), choice.warn)

    def __exit__(self, *error: object) -> None:
        choice.set(*self.choice)
        dispatch.state.add_special(-1)
        for b, layout in zip(self.buffers, self.before, strict=True):
            if id(b) not in self.kept:
                backends.get(self.mesh.device_type).lay_out(b, layout)
        self.before.clear()


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Any], seq_dims: Sequence[int], load_balancer: Any = None
) -> list[Any]:
    """Tensors that were cut along their sequence, whole on each device."""
    why = "sequences lie in their own order"
    only("context_parallel_unshard", "load_balancer", load_balancer, None, why)
    if len(seq_dims) != len(buffers):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    return [placed(b, mesh.layout([Replicate()], b.ndim)) for b in buffers]
