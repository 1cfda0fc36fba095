"""Classes that several modules of `torch.distributed` show: one object, so `isinstance` agrees."""

from __future__ import annotations

from typing import Any

from lucerne._src.as_torch.kinds import classes

WHY = (
    "Process groups and DistributedDataParallel are here; this is not part of Lucerne yet. The "
    "class is here for annotations and `isinstance`."
)
_HOMES = {
    "distributed.fsdp": (
        "CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel "
        "MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig"
    ),
}
_MADE: dict[str, Any] = {
    name: entry.make(f"torch.{home}", name, WHY)
    for home, names in _HOMES.items()
    for name, entry in classes(names).items()
}


def __getattr__(name: str) -> Any:
    if name in _MADE:
        return _MADE[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
