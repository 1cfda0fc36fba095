"""A real torch that the compiled parts of torchvision and torchaudio do not fit: their releases for
a CPU alone are not on the index. Operators that scenarios call are here by their definitions.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.ecosystem import definitions

BOXES = "Tensor dets, Tensor scores, float iou_threshold"
ASKED = (  # by imports, and never called
    "_roi_align_backward", "ps_roi_align", "_ps_roi_align_backward", "roi_pool",
    "_roi_pool_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d",
    "_deform_conv2d_backward", "qnms", "qroi_align",
)  # fmt: skip
ALIGNED = (
    "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned"
)


def complete(torch: Any) -> Any:
    """On a real torch: operators, and tolerance for parts that do not load. Keep what it gives."""
    if "lucerne" in str(torch.__version__):
        return None
    load = torch.ops.load_library

    def tolerant(path: Any) -> None:
        try:
            load(path)
        except OSError as error:
            print(f"not loaded: {error}")

    torch.ops.load_library = tolerant
    library = torch.library.Library("torchvision", "FRAGMENT")
    audio = torch.library.Library("_torchaudio", "FRAGMENT")
    loops = torch.library.Library("torchaudio", "FRAGMENT")
    for name in ("_lfilter_core_loop", "_overdrive_core_loop"):  # as ASKED
        loops.define(f"{name}(Tensor x) -> Tensor")
    for place, name, says in (
        (library, "_cuda_version", -1),
        (audio, "cuda_version", -1),
        (audio, "is_align_available", False),
    ):
        place.define(f"{name}() -> {type(says).__name__}")
        place.impl(name, lambda says=says: says, "CompositeExplicitAutograd")
    for name, given in (("nms", BOXES), ("roi_align", ALIGNED), *((n, BOXES) for n in ASKED)):
        library.define(f"{name}({given}) -> Tensor")

    def nms(dets: Any, scores: Any, most: float) -> Any:
        given = dets.detach().numpy(), scores.detach().numpy()
        return torch.tensor(definitions.suppressed(*given, most)).long()

    def roi_align(x: Any, rois: Any, scale: float, h: int, w: int, ratio: int, half: bool) -> Any:
        value = definitions.sampled(scale, max(ratio, 0), half)
        found = torch.empty(len(rois), x.shape[1], h, w, dtype=x.dtype)
        maps = x.detach().double().numpy()
        for k, (n, *box) in enumerate(rois.double().tolist()):
            for p, q in itertools.product(range(h), range(w)):
                bin_ = value(maps[int(n)], np.array(box), (h, w), p, q)
                found[k, :, p, q] = torch.from_numpy(bin_)
        return found

    library.impl("nms", nms, "CPU")
    library.impl("roi_align", roi_align, "CPU")
    return library, audio, loops
