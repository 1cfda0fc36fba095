"""Blocks of GGUF as codes.

| kind | numbers | block | number |
|---|---|---|---|
| Q8_0 | 32 | f16 d, i8 q[32] | d q |
| Q4_0 | 32 | f16 d, u8 q[16]: low halves 0 to 15, high ones 16 to 31 | d (q - 8) |
| Q4_K | 256 | f16 d, f16 m, 8 pairs of 6 bits (s, t), 4 bits q[256] | d s q - m t |
| Q6_K | 256 | low 4 bits, high 2 bits, i8 s[16], f16 d | d s (q - 32) |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import INT4, INT8, MIDDLE, arranged, arranged_scales
from lucerne._src.quantization.codes import QuantizedWeight
from lucerne._src.tensor import api as lu

Array = np.ndarray[Any, Any]
Parts = tuple[Array, Array, Array | None]
"""Codes, scales and bases of blocks: (blocks, groups, group), (blocks, groups) twice."""

PLAIN: dict[int, dt.dtype] = {
    0: dt.float32, 1: dt.float16, 24: dt.int8, 25: dt.int16, 26: dt.int32, 27: dt.int64,
    28: dt.float64, 30: dt.bfloat16,
}  # fmt: skip
"""GGUF's kinds that are plain numbers."""


@dataclass(frozen=True)
class BlockKind:
    """How a kind of block is read."""

    name: str
    numbers: int
    nbytes: int
    stored: str
    group: int
    read: Callable[[Array], Parts]


def opened(raw: Array, kind: int, shape: tuple[int, ...]) -> QuantizedWeight:
    """A matrix in blocks as codes."""
    how = BLOCKS[kind]
    rows, columns = shape
    with np.errstate(all="ignore"):  # a scale may be any float16
        codes, scale, base = how.read(raw.reshape(-1, how.nbytes))
    return QuantizedWeight(
        codes=arranged(lu.from_numpy(codes.astype(np.uint8).reshape(rows, columns)), how.stored),
        scale=_scales(scale, rows),
        base=None if base is None else _scales(base, rows),
        rows=rows,
        columns=columns,
        group_size=how.group,
        stored=how.stored,
    )


def _scales(numbers: Array, rows: int) -> Any:
    return arranged_scales(lu.from_numpy(numbers.reshape(rows, -1).astype(np.float32)))


def _half(raw: Array) -> Array:
    """The float16 of each block as float32."""
    made: Array = np.ascontiguousarray(raw).view(np.float16).astype(np.float32)
    return made


def _q8_0(raw: Array) -> Parts:
    codes = raw[:, 2:] ^ 128  # signed to unsigned with 128 for zero
    return codes[:, None], _half(raw[:, :2]), None


def _q4_0(raw: Array) -> Parts:
    codes = np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], 1)
    return codes[:, None], _half(raw[:, :2]), None


def _q4_k(raw: Array) -> Parts:
    d, least = _half(raw[:, :2]), _half(raw[:, 2:4])
    six = raw[:, 4:16]
    low, high, both = six[:, :4], six[:, 4:8], six[:, 8:]
    scale = np.concatenate([low & 63, (both & 15) | (low >> 6) << 4], 1)
    offset = np.concatenate([high & 63, (both >> 4) | (high >> 6) << 4], 1)
    words = raw[:, 16:].reshape(-1, 4, 1, 32)
    codes = np.concatenate([words & 15, words >> 4], 2).reshape(-1, 8, 32)
    steps = d * scale
    return codes, steps, steps * MIDDLE[INT4] - least * offset


def _q6_k(raw: Array) -> Parts:
    low = raw[:, :128].reshape(-1, 2, 2, 32)
    high = raw[:, 128:192].reshape(-1, 2, 1, 32)
    fours = np.concatenate([low & 15, low >> 4], 2)  # (blocks, halves, quarters, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    codes = (fours | (high >> shifts & 3) << 4).reshape(-1, 16, 16)
    scale = _half(raw[:, 208:210]) * raw[:, 192:208].view(np.int8)
    return codes + np.uint8(MIDDLE[INT8] - 32), scale, None


BLOCKS: dict[int, BlockKind] = {
    2: BlockKind("Q4_0", 32, 18, INT4, 32, _q4_0),
    8: BlockKind("Q8_0", 32, 34, INT8, 32, _q8_0),
    12: BlockKind("Q4_K", 256, 144, INT4, 32, _q4_k),
    14: BlockKind("Q6_K", 256, 210, INT8, 16, _q6_k),
}
"""By GGUF's number."""
