"""`lucerne.distributed.optim`: optimizers whose state is shared out among ranks."""

from __future__ import annotations

from lucerne._src.distributed.parallel.zero import (
    ZeroRedundancyOptimizer as ZeroRedundancyOptimizer,
)
