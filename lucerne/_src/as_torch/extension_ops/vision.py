"""torchvision's operators: their schemas, kernels, and derivatives.

Those on quantized tensors are known by their schemas alone, and refuse.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from lucerne._src.as_torch.extension_ops import deform, pooling
from lucerne._src.tensor import api as lu
from lucerne.library.registry import Library, register_autograd

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


class _Registered:
    library: Library | None = None


def register() -> None:
    """Enter the operators, once."""
    if _Registered.library is not None:
        return
    made = _Registered.library = Library("torchvision", "FRAGMENT")
    kernels = {
        "nms": nms,
        "_cuda_version": lambda: -1,
        **pooling.KERNELS,
        **deform.KERNELS,
    }
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        made.define(schema)
        made.impl(
            name, kernels.get(name, refusing("torchvision", name)), "CompositeExplicitAutograd"
        )
    for name, (keep, backward) in {**pooling.DERIVATIVES, **deform.DERIVATIVES}.items():
        register_autograd(f"torchvision::{name}", backward, setup_context=keep)


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
