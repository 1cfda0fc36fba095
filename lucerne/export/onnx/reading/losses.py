"""Losses by class, and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne.export.onnx.reading.step import Step
from lucerne.export.onnx.reading.table import operator


def _negative_likelihood(
    x: Any, target: Any, weight: Any, reduction: str, ignore_index: int | None
) -> Any:
    at = target.to(lu.int64)
    kept = lu.ones(at.shape, dtype=lu.bool) if ignore_index is None else at != ignore_index
    at = lu.where(kept, at, lu.zeros_like(at))
    by = lu.ones(at.shape, dtype=x.dtype) if weight is None else weight[at]
    by = lu.where(kept, by, lu.zeros_like(by))
    loss = -x.gather(1, at.unsqueeze(1)).squeeze(1) * by
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / by.sum()


@operator("NegativeLogLikelihoodLoss")
def negative_likelihood(
    n: Step, x: Any, target: Any, weight: Any = None, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:  # fmt: skip
    return _negative_likelihood(x, target, weight, reduction, ignore_index)


@operator("SoftmaxCrossEntropyLoss")
def cross_entropy(n: Step, x: Any, target: Any, weight: Any = None, *, reduction: str = "mean",
                  ignore_index: int | None = None) -> Any:  # fmt: skip
    logs = lu.log_softmax(x, 1)
    return [_negative_likelihood(logs, target, weight, reduction, ignore_index), logs]


@operator("NonMaxSuppression", numbers=(2, 3, 4))
def non_max_suppression(n: Step, boxes: Any, scores: Any, most: Any = None, overlap: Any = None,
                        least: Any = None, *, center_point_box: int = 0) -> Any:  # fmt: skip
    count = 0 if most is None else n.number(most)
    limit = 0.0 if overlap is None else n.number(overlap)
    corners = boxes.numpy().astype(np.float64)
    if center_point_box:
        centre, half = corners[..., :2], corners[..., 2:] / 2
        corners = np.concatenate([centre - half, centre + half], -1)
    low = np.minimum(corners[..., :2], corners[..., 2:])
    high = np.maximum(corners[..., :2], corners[..., 2:])
    found: list[tuple[int, int, int]] = []
    for batch, by_class in enumerate(scores.numpy()):
        for label, row in enumerate(by_class):
            order = [k for k in np.argsort(-row, kind="stable")
                     if least is None or row[k] > n.number(least)]  # fmt: skip
            chosen: list[int] = []
            for k in order:
                if len(chosen) >= count:
                    break
                if all(_share(low[batch], high[batch], k, j) <= limit for j in chosen):
                    chosen.append(int(k))
            found += [(batch, label, k) for k in chosen]
    return lu.tensor(np.array(found, np.int64).reshape(-1, 3))


def _share(low: Any, high: Any, a: int, b: int) -> float:
    """The area of the intersection over that of the union."""
    common = np.clip(np.minimum(high[a], high[b]) - np.maximum(low[a], low[b]), 0, None).prod()
    areas = [(high[k] - low[k]).prod() for k in (a, b)]
    whole = areas[0] + areas[1] - common
    return float(common / whole) if whole > 0 else 0.0
