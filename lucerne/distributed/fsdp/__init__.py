"""`lucerne.distributed.fsdp`: parameters cut over a mesh (a window)."""

from __future__ import annotations

from lucerne._src.distributed.mesh.fully_shard import CPUOffloadPolicy as CPUOffloadPolicy
from lucerne._src.distributed.mesh.fully_shard import FSDPModule as FSDPModule
from lucerne._src.distributed.mesh.fully_shard import MixedPrecisionPolicy as MixedPrecisionPolicy
from lucerne._src.distributed.mesh.fully_shard import OffloadPolicy as OffloadPolicy
from lucerne._src.distributed.mesh.fully_shard import fully_shard as fully_shard

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "fully_shard",
]
