"""Functions whose program is one for all sizes: name -> (function, shapes by size)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import nn

Row = tuple[Callable[..., Any], Callable[[int], tuple[tuple[int, ...], ...]]]


def _images(n: int) -> tuple[tuple[int, ...], ...]:
    return ((2, 3, n + 5, n + 7),)


def _batch(*rest: int) -> Callable[[int], tuple[tuple[int, ...], ...]]:
    return lambda n: ((n, *rest),)


def _attention(q: Any) -> Any:
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def _positions(x: Any) -> Any:
    return x + torch.arange(x.shape[0], dtype=torch.float32).unsqueeze(1)


def _written(x: Any) -> Any:
    y = x.clone()
    y[1:] += x[:-1]
    return y


torch.manual_seed(0)
_LINEAR, _SECOND = nn.Linear(24, 40), nn.Linear(40, 24)
_NORM, _BATCH_NORM = nn.LayerNorm(24), nn.BatchNorm2d(3).eval()
_CONV, _TABLE = nn.Conv2d(3, 4, 3, padding=1), nn.Embedding(50, 24)

ROWS: dict[str, Row] = {
    "element-wise": (lambda x: (x * 2 + 1).relu().exp() / 3, _batch(24)),
    "strided": (lambda x: x.t() * 2 + x.t().sin(), _batch(24)),
    "a step of two": (lambda x: x[::2] - x[0], _batch(24)),
    "broadcast": (lambda x: x - x.mean(0) + x[:, :1], _batch(24)),
    "whole sums": (lambda x: (x.sum(), x.square().mean(), x.std()), _batch(24)),
    "rows": (lambda x: (x.sum(-1), x.amax(1), x.var(1)), _batch(24)),
    "columns": (lambda x: (x.sum(0), x.amin(0), x.norm(dim=0)), _batch(24)),
    "softmax of rows": (lambda x: x.softmax(-1), _batch(24)),
    "softmax of columns": (lambda x: x.log_softmax(0), _batch(24)),
    "layer norm": (lambda x: _NORM(x), _batch(24)),
    "linear": (lambda x: _SECOND(F.gelu(_LINEAR(x))), _batch(24)),
    "gram": (lambda x: x @ x.t(), _batch(24)),
    "inner": (lambda x: x.t() @ x, _batch(24)),
    "a vector": (lambda x: x @ x[0], _batch(24)),
    "batched products": (lambda x: x @ x.transpose(1, 2), _batch(6, 5)),
    "long batched products": (lambda x: x.transpose(0, 1) @ x.permute(1, 2, 0), _batch(6, 5)),
    "attention": (_attention, lambda n: ((2, 3, n, 8),)),
    "convolution": (lambda x: _CONV(x).relu(), _images),
    "convolution of a batch": (lambda x: _CONV(x).relu(), _batch(3, 9, 9)),
    "pooling": (lambda x: F.max_pool2d(x, 2), _images),
    "batch norm": (lambda x: _BATCH_NORM(x), _images),
    "views": (lambda x: x.reshape(-1, 2, 12).transpose(0, 1).reshape(2, -1), _batch(24)),
    "joined": (lambda x: torch.cat([x, x * 2], 0), _batch(24)),
    "stacked": (lambda x: torch.stack([x, x.flip(0)], 1), _batch(24)),
    "padded": (lambda x: F.pad(x, (1, 2, 3, 0)), _batch(24)),
    "halves": (lambda x: x.chunk(2, 1)[1] * x[:, :12], _batch(24)),
    "positions": (_positions, _batch(24)),
    "sizes as numbers": (lambda x: x.sum(0) / x.shape[0] + x.shape[0], _batch(24)),
    "sums along": (lambda x: x.cumsum(0), _batch(24)),
    "triangles": (lambda x: (x @ x.t()).tril(), _batch(24)),
    "compared": (lambda x: torch.where(x > 0, x, -x).sum(0), _batch(24)),
    "picked rows": (lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)], _batch(24)),
    "written over": (_written, _batch(24)),
    "a table": (lambda x: _TABLE((x[:, :3].abs() * 10).long().clamp(max=49)), _batch(24)),
    "the largest": (lambda x: x.argmax(-1), _batch(24)),
    "sorted": (lambda x: x.sort(0).values, _batch(24)),
    "two sizes": (lambda x, y: (x @ y).relu(), lambda n: ((n, 24), (24, n + 3))),
    "two that are equal": (lambda x, y: x + y, lambda n: ((n, 24), (n, 1))),
    "bfloat16": (lambda x: _LINEAR(x).bfloat16().relu().float(), _batch(24)),
    "complex": (lambda x: torch.complex(x, x * 2).abs(), _batch(24)),
    "class scores": (lambda x: F.cross_entropy(x, x.argmax(-1).clamp(max=5)), _batch(24)),
}  # fmt: skip
