"""`lucerne.nn.parallel.distributed`: a module trained by several processes."""

from __future__ import annotations

from lucerne._src.distributed.parallel.ddp import (
    DistributedDataParallel as DistributedDataParallel,
)
