"""torchvision's operators, in Python: its own are C++ that no other framework can load.

`nms` and `roi_align` compute; the others are known by their schemas, and refuse.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne.library.registry import Library

_ROI = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_BACK = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "_cuda_version() -> int",
    f"roi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BACK}, {_SIZE}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BACK}, {_SIZE}) -> Tensor",
    f"ps_roi_align({_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BACK}, "
    f"int sampling_ratio, {_SIZE}) -> Tensor",
    f"ps_roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BACK}, {_SIZE}) "
    "-> Tensor",
    f"deform_conv2d({_DEFORM}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_CHUNK = 64
"""How many boxes are pooled at once: what lies between the two products grows with it."""


class _Registered:
    library: Library | None = None


def register() -> None:
    """Enter the operators, once."""
    if _Registered.library is not None:
        return
    made = _Registered.library = Library("torchvision", "FRAGMENT")
    kernels = {
        "nms": nms,
        "roi_align": roi_align,
        "_roi_align_backward": roi_align_backward,
        "_cuda_version": lambda: -1,
    }
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        made.define(schema)
        made.impl(
            name, kernels.get(name, refusing("torchvision", name)), "CompositeExplicitAutograd"
        )


def refusing(library: str, name: str) -> Any:
    """A kernel for an operator that is known by its schema alone."""

    def refuse(*args: Any) -> NoReturn:
        raise NotImplementedError(
            f"{library}::{name}: Lucerne has no kernel for this operator of {library} yet; "
            "register one with torch.library.impl"
        )

    return refuse


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Which boxes stay, best first: each drops those it overlaps by more than the threshold."""
    boxes = dets.detach().numpy()
    order = scores.detach().argsort(descending=True, stable=True).numpy()
    left, top, right, bottom = (boxes[:, k] for k in range(4))
    areas = (right - left) * (bottom - top)
    dropped = np.zeros(len(boxes), bool)
    kept = []
    for at, i in enumerate(order):
        if dropped[i]:
            continue
        kept.append(int(i))
        rest = order[at + 1 :]
        width = np.minimum(right[i], right[rest]) - np.maximum(left[i], left[rest])
        height = np.minimum(bottom[i], bottom[rest]) - np.maximum(top[i], top[rest])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            dropped[rest[shared / (areas[i] + areas[rest] - shared) > iou_threshold]] = True
    return lu.tensor(kept, dtype=lu.int64)


def _weights(start: Any, bins: Any, pooled: int, samples: Any, size: int) -> Any:
    """How much each of `size` lines adds to each of `pooled` bins: [boxes, pooled, size].

    A bin is the mean of sample points, each linear between its two lines; so the mean is linear,
    too, and the two directions are independent of each other.
    """
    most = max(1, int(samples.max()))
    p = lu.arange(pooled, dtype=start.dtype).view(1, -1, 1)
    s = lu.arange(most, dtype=start.dtype).view(1, 1, -1)
    count = samples.to(start.dtype).view(-1, 1, 1)
    at = start.view(-1, 1, 1) + (p + (s + 0.5) / count) * bins.view(-1, 1, 1)
    counts = (s < count) & (at >= -1.0) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor()
    high_part = at - low
    low = low.to(lu.int64)
    found = lu.zeros(len(start), pooled, size, dtype=start.dtype)
    each = counts.to(start.dtype) / count.clamp(min=1)
    found.scatter_add_(2, low, (1 - high_part) * each)
    found.scatter_add_(2, (low + 1).clamp(max=size - 1), high_part * each)
    return found


def _both_weights(
    rois: Any, scale: float, pooled: tuple[int, int], size: tuple[int, int], ratio: int,
    aligned: bool,
) -> tuple[Any, Any]:  # fmt: skip
    shift = 0.5 if aligned else 0.0
    left, top, right, bottom = (rois[:, k] * scale - shift for k in range(1, 5))
    found = []
    for begin, end, p, n in ((top, bottom, pooled[0], size[0]), (left, right, pooled[1], size[1])):
        extent = end - begin if aligned else (end - begin).clamp(min=1.0)
        bins = extent / p
        samples = bins.new_full(bins.shape, ratio) if ratio > 0 else bins.ceil()
        found.append(_weights(begin, bins, p, samples, n))
    return found[0], found[1]


def roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    """Boxes of feature maps, each as a picture of `pooled_height` by `pooled_width`."""
    channels, size = input.shape[1], (input.shape[2], input.shape[3])
    pooled = pooled_height, pooled_width
    found = input.new_zeros((len(rois), channels, *pooled))
    for boxes, image in _by_image(rois):
        down, across = _both_weights(
            rois[boxes], spatial_scale, pooled, size, sampling_ratio, aligned
        )
        found[boxes] = lu.einsum("kpy,cyx,kqx->kcpq", down, input[image], across)
    return found


def roi_align_backward(
    grad: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    """The derivative of `roi_align` towards its input: the same weights, the other way."""
    found = grad.new_zeros((batch_size, channels, height, width))
    for boxes, image in _by_image(rois):
        down, across = _both_weights(
            rois[boxes], spatial_scale, (pooled_height, pooled_width), (height, width),
            sampling_ratio, aligned,
        )  # fmt: skip
        found[image] += lu.einsum("kpy,kcpq,kqx->cyx", down, grad[boxes], across)
    return found


def _by_image(rois: Any) -> Any:
    """The numbers of boxes of one picture, a chunk at a time, and its number."""
    images = rois[:, 0].to(lu.int64)
    for image in images.unique().tolist():
        boxes = (images == image).nonzero().flatten()
        for part in boxes.split(_CHUNK):
            yield part, image
