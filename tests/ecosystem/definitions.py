"""What torchvision's operators on boxes mean, as loops in NumPy: nothing of a framework is used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def read(maps: Array, y: float, x: float) -> Array:
    """Linear between the points of maps; at their border as on it, and 0 behind."""
    height, width = maps.shape[-2:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(maps.shape[:-2])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    low, right = min(top + 1, height - 1), min(left + 1, width - 1)
    a, b = y - top, x - left
    above = (1 - b) * maps[..., top, left] + b * maps[..., top, right]
    return (1 - a) * above + a * ((1 - b) * maps[..., low, left] + b * maps[..., low, right])


def nearest(x: float) -> int:
    return math.floor(abs(x) + 0.5) * (1 if x > 0 else -1)


def every_bin(
    maps: Array, rois: Array, bins: tuple[int, int], placed: bool, value: Callable[..., float]
) -> Array:
    """A value of the map, the box and the bin, for each."""
    channels = maps.shape[1] // (bins[0] * bins[1] if placed else 1)
    found = np.zeros((len(rois), channels, *bins))
    for k, c, p, q in itertools.product(*map(range, found.shape)):
        at = (c * bins[0] + p) * bins[1] + q if placed else c
        found[k, c, p, q] = value(maps[int(rois[k, 0]), at], rois[k, 1:], bins, p, q)
    return found


def sampled(scale: float, ratio: int, aligned: bool) -> Callable[..., Any]:
    def value(map_: Array, box: Array, bins: tuple[int, int], p: int, q: int) -> Any:
        left, top, right, bottom = box * scale - (0.5 if aligned else 0)
        tall, wide = bottom - top, right - left
        if not aligned:
            tall, wide = max(tall, 1), max(wide, 1)
        m, n = (ratio or math.ceil(e / b) for e, b in zip((tall, wide), bins, strict=True))
        points = [
            read(
                map_,
                top + (p + (i + 0.5) / m) * tall / bins[0],
                left + (q + (j + 0.5) / n) * wide / bins[1],
            )
            for i, j in itertools.product(range(m), range(n))
        ]
        return sum(points) / max(len(points), 1)

    return value


def lined(
    scale: float, further: int, cut: int, of: Callable[[Array], float]
) -> Callable[..., float]:
    """Of the whole lines of a bin: `further` more are a box's, and `cut` of the map in none."""

    def value(map_: Array, box: Array, bins: tuple[int, int], p: int, q: int) -> float:
        left, top, right, bottom = (nearest(x * scale) for x in box)
        spans = []
        for first, last, b, k, n in (
            (top, bottom, bins[0], p, map_.shape[0]),
            (left, right, bins[1], q, map_.shape[1]),
        ):
            each = max(last - first + further, 1) / b
            ends = math.floor(k * each) + first, math.ceil((k + 1) * each) + first
            spans.append(slice(*(min(max(e, 0), n - cut) for e in ends)))
        part = map_[spans[0], spans[1]]
        return of(part) if part.size else 0.0

    return value


def overlap(a: Array, b: Array) -> float:
    shared = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None).prod()
    return float(shared / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - shared))


def suppressed(dets: Array, scores: Array, most: float) -> list[int]:
    """Boxes by score, without those that overlap one before by more."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if all(overlap(dets[i], dets[j]) <= most for j in kept):
            kept.append(int(i))
    return kept
