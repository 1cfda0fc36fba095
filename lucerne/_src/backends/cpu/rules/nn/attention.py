"""Attention as one kernel forward and one backward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lucerne._src.backends.cpu.attention import backward, forward, single, tiled, tiled_back
from lucerne._src.backends.cpu.attention.micro import WIDTH
from lucerne._src.backends.cpu.attention.plan import (
    MOST_WIDTH,
    AttentionStructure,
    group_of,
    groups_of,
    row_floats,
    steps,
    tiles,
)
from lucerne._src.backends.cpu.emit.builder import BF16, F16, F32, I8, I64, Type
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, float_word
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.numbers import least, most

_TYPES: dict[dt.dtype, Type] = {dt.float32: F32, dt.bfloat16: BF16, dt.float16: F16}
_MASKS: dict[dt.dtype, Type] = {**_TYPES, dt.bool_: I8}
_TASKS = 64
"""Heads are split until there are about so many tasks."""
_TILES_EACH = 4
"""The fewest tiles of a task: it copies all keys of its head."""


class AttentionSizes:
    """An attention call as (batch, head, position, column); None from `read` when it can't be."""

    def __init__(self, node: Node) -> None:
        query, key, value, mask = operands(node)
        self.query, self.key, self.value, self.mask = query, key, value, mask
        self.causal, self.scale = node.args[-2:]
        self.batch, self.heads, self.queries, self.width = four(query.shape)
        _, self.key_heads, self.keys, _ = four(key.shape)
        self.value_width = value.shape[-1]

    @classmethod
    def read(cls, node: Node) -> AttentionSizes | None:
        query, key, value, mask = operands(node)
        if query.dtype not in _TYPES or (mask is not None and mask.dtype not in _MASKS):
            return None
        if max(t.ndim for t in (query, key, value)) > 4 or (mask is not None and mask.ndim > 4):
            return None
        if not (query.numel and key.numel and value.numel):
            return None
        if max(query.shape[-1], value.shape[-1]) > MOST_WIDTH - 16:
            return None
        q, k, v = four(query.shape), four(key.shape), four(value.shape)
        if q[0] != k[0] or k[:3] != v[:3] or q[1] % k[1] or q[3] != k[3]:
            return None
        whole = (*q[:3], k[2])
        if mask is not None and not all(
            n in (1, m) for n, m in zip(four(mask.shape), whole, strict=True)
        ):
            return None
        return cls(node)

    def structure(self, columns: int) -> AttentionStructure:
        return AttentionStructure(
            _TYPES[self.query.dtype],
            None if self.mask is None else _MASKS.get(self.mask.dtype),
            bool(self.causal),
            row_floats(self.width, self.value_width),
            group_of(columns),
        )

    def fits_tiles(self) -> bool:
        """Whether the matrix tiles of the processor can do it: bfloat16 in rows."""
        if self.query.dtype is not dt.bfloat16 or not has_amx():
            return False
        rows = all(t.strides[-1] == 1 for t in (self.query, self.key, self.value))
        return rows and max(self.width, self.value_width) <= tiled.MOST_WIDTH

    def is_single(self) -> bool:
        """Whether there is one query, which sees all keys, and everything lies in rows."""
        rows = all(t.strides[-1] == 1 for t in (self.query, self.key, self.value))
        return self.queries == 1 and not self.causal and rows

    def fits_tiles_back(self) -> bool:
        """Whether the backward pass can run on matrix tiles: it copies rows of any strides."""
        return self.query.dtype is dt.bfloat16 and has_amx()

    def words(self) -> dict[str, int]:
        """Sizes and strides, as all kernels name them."""
        found = {
            "scale": float_word(self.scale),
            "heads": self.heads,
            "sharing": self.heads // self.key_heads,
            "queries": self.queries,
            "keys": self.keys,
            "width": self.width,
            "value_width": self.value_width,
        }
        for prefix, meta in (("q", self.query), ("k", self.key), ("v", self.value)):
            found.update(zip(steps(prefix, "bhtd"), byte_steps(meta), strict=True))
        found.update(zip(steps("m", "bhtd"), self.mask_steps(), strict=True))
        return found

    def parts(self) -> dict[str, int]:
        """How the forward pass is cut into tasks: by shape alone."""
        pairs, count = self.batch * self.heads, tiles(self.queries)
        wanted = most(1, least(-(-_TASKS // pairs), count // _TILES_EACH))
        part = -(-count // wanted) * WIDTH
        parts = -(-self.queries // part)
        return {"parts": parts, "part": part, "tasks": pairs * parts}

    def kernel(
        self, entry: int, outputs: int, tensors: int, extra: list[int], scratch: int, flops: int
    ) -> NativeKernel:
        """`flops`: operations per pair of positions and column."""
        pairs = self.batch * self.heads * self.queries * self.keys
        return NativeKernel(
            entry,
            outputs,
            tensors + (self.mask is not None),
            extra=extra,
            workspace=scratch * MAX_THREADS,
            work=pairs * self.width * flops / 200,
        )

    def mask_steps(self) -> list[int]:
        """Strides of the mask, zero where it is the same for all."""
        if self.mask is None:
            return [0] * 4
        found = byte_steps(self.mask)
        return [0 if n == 1 else s for n, s in zip(four(self.mask.shape), found, strict=True)]


class CachedSizes(AttentionSizes):
    """A call with one query for each row of a buffer of keys, of which it sees the first ones."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.causal = False
        self.first: TensorMeta = node.args[3].meta

    @classmethod
    def read(cls, node: Node) -> CachedSizes | None:
        query, key, value, _ = operands(node)
        if query.dtype not in _TYPES or not (query.numel and key.numel and value.numel):
            return None
        if max(query.shape[-1], value.shape[-1]) > MOST_WIDTH - 16:
            return None
        q, k, v = query.shape, key.shape, value.shape
        if q[0] != k[0] or k[:3] != v[:3] or q[1] % k[1] or q[3] != k[3]:
            return None
        sizes = cls(node)
        return sizes if sizes.is_single() else None

    def structure(self, columns: int) -> AttentionStructure:
        return replace(super().structure(columns), mask=I64)

    def mask_steps(self) -> list[int]:
        return [self.first.byte_strides[0] if self.batch > 1 else 0, 0, 0, 0]


def operands(node: Node) -> tuple[TensorMeta, TensorMeta, TensorMeta, TensorMeta | None]:
    query, key, value, mask = node.args[:4]
    return query.meta, key.meta, value.meta, None if mask is None else mask.meta


def four(shape: Any) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + tuple(shape)


def byte_steps(meta: TensorMeta) -> list[int]:
    return [0] * (4 - meta.ndim) + list(meta.byte_strides)


@rule("flash_attention")
def attend(node: Node) -> Any:
    sizes = AttentionSizes.read(node)
    if sizes is None:
        return None
    by_tiles = sizes.fits_tiles()
    s = sizes.structure(sizes.value_width)
    words = {**sizes.words(), **sizes.parts(), "columns": groups_of(sizes.value_width)}
    words.update(zip(steps("o", "bht"), byte_steps(node.outputs[0].meta), strict=False))
    if sizes.is_single():
        return _single(sizes, s, words)
    if by_tiles:
        key: Any = ("attention", "tiled", sizes.mask and sizes.mask.dtype.name, s.causal)
        masked = sizes.mask is not None
        words |= tiled.sizes(masked, sizes.keys, sizes.width, sizes.value_width)
        code = compiled(key, lambda m: tiled.write(m, s))
        extra = [words[name] for name in tiled.NUMBERS]
    else:
        words["scratch"] = forward.scratch_bytes(s, sizes.keys)
        code = compiled(("attention", "forward", *s.key), lambda m: forward.write(m, s))
        extra = [words[name] for name in forward.NUMBERS]
    return sizes.kernel(code["attend"], 2, 3, extra, words["scratch"], 4)


def _single(sizes: AttentionSizes, s: AttentionStructure, words: dict[str, int]) -> NativeKernel:
    words["scratch"] = single.scratch_bytes(sizes.keys, sizes.width)
    words["tasks"] = sizes.batch * sizes.heads
    code = compiled(("attention", "single", *s.key), lambda m: single.write(m, s))
    extra = [words[name] for name in single.NUMBERS]
    return sizes.kernel(code["attend"], 2, 3, extra, words["scratch"], 4)


@rule("cached_attention")
def attend_cached(node: Node) -> Any:
    sizes = CachedSizes.read(node)
    if sizes is None:
        return None
    words = {**sizes.words(), **sizes.parts(), "columns": groups_of(sizes.value_width)}
    words.update(zip(steps("o", "bht"), byte_steps(node.outputs[0].meta), strict=False))
    return _single(sizes, sizes.structure(sizes.value_width), words)


@rule("flash_attention_backward")
def attend_back(node: Node) -> Any:
    sizes = AttentionSizes.read(node)
    grad, out, stats = (a.meta for a in node.args[4:7])
    if sizes is None or stats.dtype is not dt.float32 or not stats.contiguous:
        return None
    if not grad.dtype is out.dtype is sizes.query.dtype:
        return None
    s = sizes.structure(sizes.width)

    words = {**sizes.words(), "columns": groups_of(sizes.width)}
    words["tasks"] = sizes.batch * sizes.key_heads
    words["scratch"] = backward.scratch_bytes(s, sizes.keys)
    words["key_room"] = backward.key_room(s, sizes.keys)
    for prefix, meta in zip(
        ("g", "o", "dq", "dk", "dv"), (grad, out, *(v.meta for v in node.outputs)), strict=True
    ):
        words.update(zip(steps(prefix, "bhtd"), byte_steps(meta), strict=True))
    if sizes.fits_tiles_back():
        words |= tiled_back.sizes(s, sizes.keys, sizes.width, sizes.value_width)
        code = compiled(("attention", "tiled back", *s.key), lambda m: tiled_back.write(m, s))
        extra = [words[name] for name in tiled_back.NUMBERS]
    else:
        code = compiled(("attention", "backward", *s.key), lambda m: backward.write(m, s))
        extra = [words[name] for name in backward.NUMBERS]
    return sizes.kernel(code["attend_back"], 3, 6, extra, words["scratch"], 10)
