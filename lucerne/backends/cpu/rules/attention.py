"""Attention as one kernel forward and one backward."""

from __future__ import annotations

import struct
from typing import Any

from lucerne.backends.cpu.attention import backward, forward
from lucerne.backends.cpu.attention.micro import WIDTH
from lucerne.backends.cpu.attention.plan import (
    MOST_WIDTH,
    Structure,
    group_of,
    groups_of,
    row_floats,
    tiles,
)
from lucerne.backends.cpu.emit.builder import BF16, F16, F32, I8, Module, Type
from lucerne.backends.cpu.rules.table import rule
from lucerne.backends.cpu.runtime.code import compiled
from lucerne.backends.cpu.runtime.kernel import Kernel
from lucerne.backends.cpu.runtime.pool import MAX_THREADS
from lucerne.base import dtype as dt
from lucerne.ir.graph import Node
from lucerne.ir.meta import TensorMeta

_TYPES: dict[dt.dtype, Type] = {dt.float32: F32, dt.bfloat16: BF16, dt.float16: F16}
_MASKS: dict[dt.dtype, Type] = {**_TYPES, dt.bool_: I8}
_TASKS = 32
"""Heads are split until there are about so many tasks."""
_TILES_EACH = 4
"""The fewest tiles of a task: it copies all keys of its head."""


class Sizes:
    """An attention call as (batch, head, position, column); None from `read` when it can't be."""

    def __init__(self, node: Node) -> None:
        query, key, value, mask = (None if a is None else a.meta for a in node.args[:4])
        self.query, self.key, self.value, self.mask = query, key, value, mask
        self.causal, self.scale = node.args[-2:]
        self.batch, self.heads, self.queries, self.width = four(query.shape)
        _, self.key_heads, self.keys, _ = four(key.shape)
        self.value_width = value.shape[-1]

    @classmethod
    def read(cls, node: Node) -> Sizes | None:
        query, key, value, mask = (None if a is None else a.meta for a in node.args[:4])
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

    def structure(self, columns: int) -> Structure:
        return Structure(
            _TYPES[self.query.dtype],
            None if self.mask is None else _MASKS[self.mask.dtype],
            bool(self.causal),
            row_floats(self.width, self.value_width),
            group_of(columns),
        )

    def mask_steps(self) -> list[int]:
        """Strides of the mask, zero where it is the same for all."""
        if self.mask is None:
            return [0] * 4
        found = byte_steps(self.mask)
        return [0 if n == 1 else s for n, s in zip(four(self.mask.shape), found, strict=True)]


def four(shape: Any) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + tuple(shape)


def byte_steps(meta: TensorMeta) -> list[int]:
    return [0] * (4 - meta.ndim) + list(meta.byte_strides)


def double_word(x: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return found


@rule("flash_attention")
def attend(node: Node) -> Any:
    sizes = Sizes.read(node)
    if sizes is None:
        return None
    s = sizes.structure(sizes.value_width)

    def write(m: Module) -> None:
        forward.write(m, s)

    code = compiled(("attention", "forward", *s.key), write)
    pairs, count = sizes.batch * sizes.heads, tiles(sizes.queries)
    parts = max(1, min(-(-_TASKS // pairs), count // _TILES_EACH))
    part = -(-count // parts) * WIDTH
    parts = -(-sizes.queries // part)
    scratch = forward.scratch_bytes(s, sizes.keys)
    words = {
        "scale": double_word(sizes.scale),
        "heads": sizes.heads,
        "sharing": sizes.heads // sizes.key_heads,
        "queries": sizes.queries,
        "keys": sizes.keys,
        "width": sizes.width,
        "value_width": sizes.value_width,
        "columns": groups_of(sizes.value_width),
        "parts": parts,
        "part": part,
        "tasks": pairs * parts,
        "scratch": scratch,
    }
    places = [*byte_steps(sizes.query), *byte_steps(sizes.key), *byte_steps(sizes.value)]
    places += byte_steps(node.outputs[0].meta)[:3] + sizes.mask_steps()
    extra = [*words.values(), *places]
    assert len(extra) == len(forward.NUMBERS)
    return Kernel(
        code["attend"],
        2,
        3 + (sizes.mask is not None),
        extra=extra,
        workspace=scratch * MAX_THREADS,
        work=pairs * sizes.queries * sizes.keys * sizes.width * 4 / 200,
    )


@rule("flash_attention_backward")
def attend_back(node: Node) -> Any:
    sizes = Sizes.read(node)
    grad, out, stats = (a.meta for a in node.args[4:7])
    if sizes is None or stats.dtype is not dt.float32 or not stats.contiguous:
        return None
    if not grad.dtype is out.dtype is sizes.query.dtype:
        return None
    s = sizes.structure(sizes.width)

    def write(m: Module) -> None:
        backward.write(m, s)

    code = compiled(("attention", "backward", *s.key), write)
    scratch = backward.scratch_bytes(s, sizes.keys)
    words = {
        "scale": double_word(sizes.scale),
        "heads": sizes.heads,
        "sharing": sizes.heads // sizes.key_heads,
        "queries": sizes.queries,
        "keys": sizes.keys,
        "width": sizes.width,
        "value_width": sizes.value_width,
        "columns": groups_of(sizes.width),
        "tasks": sizes.batch * sizes.key_heads,
        "scratch": scratch,
        "key_room": backward.key_room(s, sizes.keys),
    }
    places = [*byte_steps(sizes.query), *byte_steps(sizes.key), *byte_steps(sizes.value)]
    places += sizes.mask_steps() + byte_steps(grad) + byte_steps(out)
    places += [step for v in node.outputs for step in byte_steps(v.meta)[:3]]
    extra = [*words.values(), *places]
    assert len(extra) == len(backward.NUMBERS)
    return Kernel(
        code["attend_back"],
        3,
        6 + (sizes.mask is not None),
        extra=extra,
        workspace=scratch * MAX_THREADS,
        work=sizes.batch * sizes.heads * sizes.queries * sizes.keys * sizes.width * 10 / 200,
    )
