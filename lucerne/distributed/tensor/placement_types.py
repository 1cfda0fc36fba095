"""`lucerne.distributed.tensor.placement_types` (a window)."""

from __future__ import annotations

from lucerne._src.backends.contract.placement import Partial as Partial
from lucerne._src.backends.contract.placement import Placement as Placement
from lucerne._src.backends.contract.placement import Replicate as Replicate
from lucerne._src.backends.contract.placement import Shard as Shard
