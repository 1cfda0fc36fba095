"""`lucerne.distributed.distributed_c10d`: the module of torch that has the same names."""

from __future__ import annotations

from typing import Any

from lucerne._src.distributed.processes.groups import member as _member
from lucerne._src.distributed.processes.world import world as _current
from lucerne.distributed import *  # noqa: F403


def _get_default_group() -> Any:
    return _current().default


def _get_default_store() -> Any:
    return _current().store


def _rank_not_in_group(group: Any) -> bool:
    return _member(group) is None


def _resolve_process_group(group_name: str) -> Any:
    return _current().groups[group_name]
