"""torch's operator namespace `torch.ops.aten`, for the few names that exist nowhere else."""

from __future__ import annotations

from lucerne.ir.export import fill as _fill

_fill(globals(), "ops.aten")
