"""GGUF, GPTQ and AWQ content made from numbers, by the formats' own descriptions."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

import lucerne as torch

Array = np.ndarray[Any, Any]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def text(s: str) -> bytes:
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def _fact(value: Any) -> tuple[int, bytes]:
    """The kind of a fact, as the format numbers it, and its bytes."""
    if isinstance(value, list):
        kinds = [_fact(each) for each in value]
        head = struct.pack("<IQ", kinds[0][0], len(kinds))
        return 9, head + b"".join(raw for _, raw in kinds)
    if isinstance(value, bool):
        return 7, bytes([value])
    if isinstance(value, str):
        return 8, text(value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 4, struct.pack("<I", value)


def gguf(
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]],
    version: int = 3,
    more: dict[str, Any] | None = None,
    kind: str = "llama",
) -> bytes:
    """A file of tensors given as (shape, kind, content), with `more` facts."""
    facts = text("general.architecture") + struct.pack("<I", 8) + text(kind)
    facts += text("some.list") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3)
    for name, value in (more or {}).items():
        number, raw = _fact(value)
        facts += text(name) + struct.pack("<I", number) + raw
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 2 + len(more or {})) + facts
    body = b""
    for name, (shape, kind, content) in tensors.items():
        sizes = struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += text(name) + struct.pack("<I", len(shape)) + sizes
        head += struct.pack("<IQ", kind, len(body))
        body += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + body


def small_gguf() -> bytes:
    rng = np.random.default_rng(1)
    return gguf({
        "a": ((2, 64), 8, rng.bytes(2 * 2 * 34)),
        "b": ((2, 64), 2, rng.bytes(2 * 2 * 18)),
        "c": ((1, 256), 12, rng.bytes(144)),
        "d": ((1, 256), 14, rng.bytes(210)),
        "e": ((3,), 0, rng.bytes(12)),
    })  # fmt: skip


def _packed(codes: Array, bits: int, order: Any = None) -> Array:
    """The last dimension, so many codes in a word."""
    per = 32 // bits
    grouped = codes.reshape(*codes.shape[:-1], -1, per).astype(np.uint32)
    grouped = grouped[..., list(order)] if order is not None else grouped
    words = (grouped << np.arange(0, 32, bits, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    return words.view(np.int32)


def packed_layer(
    method: str, rows: int, columns: int, group: int, bits: int = 4, shuffled: bool = False
) -> tuple[dict[str, Any], Array]:
    """The tensors of a layer "fc", and the weight that they stand for."""
    rng = np.random.default_rng(2)
    most = 1 << bits
    codes = rng.integers(0, most, (columns, rows))
    zeros = rng.integers(1, most, (columns // group, rows))
    scale = rng.uniform(0.01, 0.02, zeros.shape).astype(np.float16)
    groups = np.arange(columns) // group
    if shuffled:
        groups = rng.permutation(groups)
    weight = (codes - zeros[groups]) * scale[groups].astype(np.float32)
    made: dict[str, Array]
    if method == "awq":
        made = {"qweight": _packed(codes, 4, _AWQ_ORDER), "qzeros": _packed(zeros, 4, _AWQ_ORDER)}
    else:
        made = {"qweight": np.ascontiguousarray(_packed(codes.T, bits).T),
                "qzeros": _packed(zeros - 1, bits), "g_idx": groups.astype(np.int32)}  # fmt: skip
    made["scales"] = scale
    return {f"fc.{k}": torch.from_numpy(v) for k, v in made.items()}, weight.T
