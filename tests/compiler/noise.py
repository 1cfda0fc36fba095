"""How far rounding alone moves the results of a program: PyTorch with every op rounded otherwise.

Asked for only when two results differ: a difference that rounding explains is no mistake (a
subtraction of nearly equal numbers, a comparison of nearly equal ones).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.compiler.outcome import Outcome, run
from tests.compiler.program import Program, function

RUNS = 6
_EPS = {
    torch.float32: 2.0**-23,
    torch.float64: 2.0**-52,
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
}

# Ops that move or select: they round nothing.
EXACT = {
    "abs", "amax", "amin", "arange", "cat", "clamp", "clamp_", "clamp_min", "clone", "copy_",
    "cummax", "detach", "embedding", "eye", "fill", "fill_", "flip", "full", "full_like",
    "gather", "hardtanh", "index", "index_fill", "index_fill_", "index_put_", "index_select",
    "masked_fill", "masked_fill_", "max", "max_pool2d_with_indices", "maximum", "min",
    "minimum", "nan_to_num", "neg", "neg_", "new_zeros", "ones_like", "relu", "relu_", "repeat",
    "roll", "scatter", "sort", "stack", "threshold", "topk", "tril", "triu", "where", "zero_",
    "zeros", "zeros_like", "upsample_nearest2d", "constant_pad_nd", "lift_fresh",
    "scalar_tensor", "empty", "empty_like", "new_empty", "new_empty_strided", "ones", "fmax",
    "fmin", "select_backward", "slice_backward",
}  # fmt: skip


# Ops of many roundings, which a nudge of their results alone doesn't show: a row of equal numbers
# is normalised to noughts only by a mean that is right in its last bit. This can't be tighter: a
# nudge of a result is a share of it, and a share of nought is nought, however much was cancelled
# on the way to it; what a mean that is off by one bit does shows in what comes in only. No compiled
# result is accepted by this in the bitwise mode, and in the other one it is asked for only where
# the tolerances fail.
COMPOSED = {
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward",
    "_fused_rms_norm", "_fused_rms_norm_backward", "var", "std", "var_mean", "std_mean",
    "linalg_vector_norm", "_log_softmax", "_softmax", "_log_softmax_backward_data",
    "_softmax_backward_data", "logsumexp",
}  # fmt: skip


class Shaken(TorchDispatchMode):
    """Every result that was rounded is left, or moved to a neighbour, by chance; of ops that round
    many times also what they are given."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in COMPOSED:
            args = tuple(self._nudged(a) for a in args)
        out = func(*args, **(kwargs or {}))
        if name in EXACT or func.is_view or (name == "_to_copy"):
            return out
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, torch.Tensor) and t.dtype in _EPS and t.numel():
                self._shake(t)
        return out

    def _nudged(self, a: Any) -> Any:
        if not isinstance(a, torch.Tensor) or a.dtype not in _EPS or not a.numel():
            return a
        copied = a.clone(memory_format=torch.contiguous_format)
        self._shake(copied)
        return copied

    def _shake(self, t: Any) -> None:
        u = torch.randint(-1, 2, t.shape, generator=self.rng).double()
        t.copy_(t.double() * (1 + u * _EPS[t.dtype]))


def spread(program: Program, variant: int = 0) -> dict[str, Any]:
    """For each tensor of an outcome the distance between its least and greatest values."""
    fn = function(program, torch)
    seen: list[Outcome] = []
    for k in range(RUNS):
        with Shaken(k):
            seen.append(run(program, torch, fn, variant))
    if any(o.error for o in seen):
        return {}
    made = {}
    for name, first in seen[0].tensors.items():
        stacked = np.stack([o.tensors[name].values.astype(np.float64) for o in seen])
        with np.errstate(all="ignore"):
            made[name] = stacked.max(0) - stacked.min(0)
        eps = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(first.dtype, 0.0)
        made[name] = made[name] + np.abs(stacked[0]) * eps * (made[name] > 0)
    return made
