"""Groups of ranks: the world, parts of it, and who is who in them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from lucerne._src import capture
from lucerne._src.base.config import launch_variable
from lucerne._src.distributed.meeting import rendezvous
from lucerne._src.distributed.meeting.stores import seconds_of
from lucerne._src.distributed.processes import backends
from lucerne._src.distributed.processes.backends import BackendName
from lucerne._src.distributed.processes.group import ProcessGroup
from lucerne._src.distributed.processes.world import Current, world


class GroupMember:
    """What stands for a group that this rank is not in."""

    NON_GROUP_MEMBER = -100
    WORLD = None


class _GroupNames(type):
    """`group.WORLD` is the world as it is now."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return Current.world.default if Current.world is not None else None


class group(metaclass=_GroupNames):
    """`group.WORLD`: the group of all ranks, None before `init_process_group`."""


def member(given: Any) -> ProcessGroup | None:
    """The group that a call names; None: this rank is not in it, and has nothing to do.

    Whoever asks is going to talk to others, once and now: no graph can hold that.
    """
    capture.refuse("what processes do together is kept out of graphs")
    return _found(given)


def _found(given: Any) -> ProcessGroup | None:
    if given is None:
        return world().default
    if given is GroupMember.NON_GROUP_MEMBER or given == GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(given, ProcessGroup):
        raise TypeError(f"expected a process group, got {type(given).__name__}")
    return given


def number_in(
    pg: ProcessGroup, name: str, rank: int | None, in_group: int | None, default: int | None = None
) -> int:
    """A rank's number in the group, from its number in the world or in the group."""
    if rank is not None and in_group is not None:
        raise ValueError(f"Can't specify both {name} and group_{name}")
    if in_group is not None:
        if not 0 <= in_group < pg.size():
            raise ValueError(f"group_{name}={in_group} is not in a group of {pg.size()} ranks")
        return in_group
    if rank is None:
        if default is None:
            raise ValueError(f"Must specify {name} or group_{name}")
        return default
    return get_group_rank(pg, rank)


def get_rank(group: Any = None) -> int:
    """This process's number in a group; -1: it is not in it."""
    pg = _found(group)
    return -1 if pg is None else pg.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes are in a group; -1: this one is not."""
    pg = _found(group)
    return -1 if pg is None else pg.size()


def get_backend(group: Any = None) -> BackendName:
    """How a group talks."""
    pg = member(group)
    if pg is None:
        raise ValueError("Invalid process group specified")
    return BackendName(pg.backend)


def get_backend_config(group: Any = None) -> str:
    """How a group talks, for each type of device."""
    return f"cpu:{get_backend(group)}"


def get_default_backend_for_device(device: Any) -> str:
    """The backend that serves a device: there is one, for the cpu."""
    name = str(device).partition(":")[0]
    if name != "cpu":
        raise ValueError(f"Default backend not registered for device : {name}")
    return BackendName.GLOO


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in a group of a rank of the world."""
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The number in the world of a rank of a group."""
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks of a group, by their numbers in the world."""
    pg = member(group)
    return [] if pg is None else pg.ranks


def get_pg_count() -> int:
    """How many groups this process has made."""
    return len(world().groups)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine."""
    found = rendezvous.local_rank()
    if found is not None:
        return found
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context"
    )


def is_torchelastic_launched() -> bool:
    """Whether `lucerne run` (or torchrun) started this process."""
    return launch_variable("TORCHELASTIC_RUN_ID") is not None


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks. All ranks of the world call it, those outside as well, unless
    `use_local_synchronization`; who is outside gets `GroupMember.NON_GROUP_MEMBER`."""
    found = world()
    if pg_options is not None or device_id is not None:
        raise ValueError("new_group: pg_options and device_id are nccl's; tcp has none")
    members = list(range(found.size)) if ranks is None else list(ranks)
    if sort_ranks:
        members = sorted(members)
    if len(set(members)) != len(members) or not members:
        raise ValueError(f"new_group: ranks are to be different, got {members}")
    if any(not 0 <= rank < found.size for rank in members):
        raise ValueError(f"The new group's rank should be within the world, got {members}")
    name = backends.choose(backend) if backend is not None else found.backend
    patience = found.timeout if timeout is None else seconds_of(timeout)
    if use_local_synchronization:
        if found.rank not in members:
            return None
        key = ",".join(map(str, members))
        label = f"local {key} {found.next_local(key)}"
    else:
        found.count += 1
        label = str(found.count)
    if found.rank not in members:
        return GroupMember.NON_GROUP_MEMBER
    return found.group(label, members, name, patience, group_desc or "")


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """The world in groups of `group_size` neighbours (default: one for each machine)."""
    if group is not None and group is not world().default:
        raise ValueError("new_subgroups: groups are cut from the world; leave group out")
    if group_size is None:
        group_size = int(launch_variable("LOCAL_WORLD_SIZE") or world().size)
    size = world().size
    if group_size <= 0 or size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by group_size={group_size}")
    rows = [list(range(start, start + group_size)) for start in range(0, size, group_size)]
    return new_subgroups_by_enumeration(rows, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the ranks listed; the one this rank is in, and all."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    listed = [rank for row in ranks_per_subgroup_list for rank in row]
    if len(set(listed)) != len(listed):
        raise ValueError("The ranks of subgroups must not repeat")
    made, mine = [], None
    for row in ranks_per_subgroup_list:
        made.append(new_group(row, timeout, backend, pg_options, group_desc=group_desc))
        if world().rank in row:
            mine = made[-1]
    return mine, made


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: datetime.timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """The part of a group that this rank is in, when it is split (ranks are the group's)."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = member(parent_pg)
    if parent is None:
        return None
    rows = [[parent.ranks[i] for i in row] for row in split_ranks]
    mine = next((row for row in rows if world().rank in row), None)
    if mine is None:
        return None
    found: ProcessGroup = new_group(
        mine, timeout, backend or parent.backend, pg_options, True, group_desc, sort_ranks=False
    )
    return found


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = 0,
    pg_options: Any = None,
) -> ProcessGroup:
    """A group without some of its ranks (numbers in the group), which need not come."""
    if shrink_flags:
        raise ValueError("shrink_group: shrink_flags are nccl's; tcp has none")
    parent = member(group)
    if parent is None or parent.rank() in ranks_to_exclude:
        raise ValueError("shrink_group: ranks that are left out must not call it")
    rest = [rank for i, rank in enumerate(parent.ranks) if i not in ranks_to_exclude]
    found: ProcessGroup = new_group(rest, None, parent.backend, pg_options, True, sort_ranks=False)
    return found
