"""torch's operator namespace `torch.ops.aten`, for the few names that exist nowhere else."""

from __future__ import annotations

from lucerne.ir.export import fill as _fill
from lucerne.ops.softmax import _log_softmax_backward_data as _log_softmax_backward_data
from lucerne.ops.softmax import _softmax_backward_data as _softmax_backward_data

_fill(globals(), "ops.aten")

for _fn in [f for f in globals().values() if hasattr(f, "__code__") or hasattr(f, "__wrapped__")]:
    _fn.default = _fn  # an overload of torch's is spelled `aten.name.default`
