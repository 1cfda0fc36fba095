"""What this machine can do: the peaks that the measured rates are to be read against."""

from __future__ import annotations

import numpy as np

from benchmarks.timing import Effort, best_times
from lucerne._src.backends.cpu.limits import peaks

COPY_BYTES = 1 << 26


def limits(effort: Effort) -> dict[str, float]:
    """GFLOP/s of one core (f32 multiply-add, bf16 tiles), GB/s of a copy (read and write)."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    times = best_times({"copy": lambda: np.copyto(target, source)}, effort)
    rates = peaks()
    found = {
        "fma_gflops_core": rates["float32"]["fma"],
        "copy_gbs_core": 2 * COPY_BYTES / times["copy"] / 1e9,
    }
    if "tiles" in rates["bfloat16"]:
        found["tiles_gflops_core"] = rates["bfloat16"]["tiles"]
    return found
