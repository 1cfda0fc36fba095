"""`lucerne.distributed`: several processes as one program, in torch's spelling (a window)."""

from __future__ import annotations

from lucerne._src.distributed.meeting.errors import DistBackendError as DistBackendError
from lucerne._src.distributed.meeting.errors import DistError as DistError
from lucerne._src.distributed.meeting.errors import DistNetworkError as DistNetworkError
from lucerne._src.distributed.meeting.errors import DistStoreError as DistStoreError
from lucerne._src.distributed.meeting.errors import QueueEmptyError as QueueEmptyError
from lucerne._src.distributed.meeting.rendezvous import (
    register_rendezvous_handler as register_rendezvous_handler,
)
from lucerne._src.distributed.meeting.rendezvous import rendezvous as rendezvous
from lucerne._src.distributed.meeting.stores import FileStore as FileStore
from lucerne._src.distributed.meeting.stores import HashStore as HashStore
from lucerne._src.distributed.meeting.stores import KeyStore
from lucerne._src.distributed.meeting.stores import PrefixStore as PrefixStore
from lucerne._src.distributed.meeting.tcp_store import TCPStore as TCPStore
from lucerne._src.distributed.parallel import sync_norm as _sync_norm
from lucerne._src.distributed.parallel.reducer import GradBucket as GradBucket
from lucerne._src.distributed.parallel.reducer import Reducer as Reducer
from lucerne._src.distributed.processes.backends import BackendConfig as BackendConfig
from lucerne._src.distributed.processes.backends import BackendName
from lucerne._src.distributed.processes.backends import (
    is_backend_available as is_backend_available,
)
from lucerne._src.distributed.processes.collectives import all_gather as all_gather
from lucerne._src.distributed.processes.collectives import (
    all_gather_coalesced as all_gather_coalesced,
)
from lucerne._src.distributed.processes.collectives import (
    all_gather_into_tensor as all_gather_into_tensor,
)
from lucerne._src.distributed.processes.collectives import all_reduce as all_reduce
from lucerne._src.distributed.processes.collectives import (
    all_reduce_coalesced as all_reduce_coalesced,
)
from lucerne._src.distributed.processes.collectives import all_to_all as all_to_all
from lucerne._src.distributed.processes.collectives import all_to_all_single as all_to_all_single
from lucerne._src.distributed.processes.collectives import barrier as barrier
from lucerne._src.distributed.processes.collectives import broadcast as broadcast
from lucerne._src.distributed.processes.collectives import gather as gather
from lucerne._src.distributed.processes.collectives import monitored_barrier as monitored_barrier
from lucerne._src.distributed.processes.collectives import reduce as reduce
from lucerne._src.distributed.processes.collectives import reduce_scatter as reduce_scatter
from lucerne._src.distributed.processes.collectives import (
    reduce_scatter_tensor as reduce_scatter_tensor,
)
from lucerne._src.distributed.processes.collectives import scatter as scatter
from lucerne._src.distributed.processes.group import ProcessGroup as ProcessGroup
from lucerne._src.distributed.processes.groups import GroupMember as GroupMember
from lucerne._src.distributed.processes.groups import get_backend as get_backend
from lucerne._src.distributed.processes.groups import get_backend_config as get_backend_config
from lucerne._src.distributed.processes.groups import (
    get_default_backend_for_device as get_default_backend_for_device,
)
from lucerne._src.distributed.processes.groups import get_global_rank as get_global_rank
from lucerne._src.distributed.processes.groups import get_group_rank as get_group_rank
from lucerne._src.distributed.processes.groups import get_node_local_rank as get_node_local_rank
from lucerne._src.distributed.processes.groups import get_pg_count as get_pg_count
from lucerne._src.distributed.processes.groups import (
    get_process_group_ranks as get_process_group_ranks,
)
from lucerne._src.distributed.processes.groups import get_rank as get_rank
from lucerne._src.distributed.processes.groups import get_world_size as get_world_size
from lucerne._src.distributed.processes.groups import group as group
from lucerne._src.distributed.processes.groups import (
    is_torchelastic_launched as is_torchelastic_launched,
)
from lucerne._src.distributed.processes.groups import new_group as new_group
from lucerne._src.distributed.processes.groups import new_subgroups as new_subgroups
from lucerne._src.distributed.processes.groups import (
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
)
from lucerne._src.distributed.processes.groups import shrink_group as shrink_group
from lucerne._src.distributed.processes.groups import split_group as split_group
from lucerne._src.distributed.processes.options import (
    AllreduceCoalescedOptions as AllreduceCoalescedOptions,
)
from lucerne._src.distributed.processes.options import AllreduceOptions as AllreduceOptions
from lucerne._src.distributed.processes.options import AllToAllOptions as AllToAllOptions
from lucerne._src.distributed.processes.options import BarrierOptions as BarrierOptions
from lucerne._src.distributed.processes.options import BroadcastOptions as BroadcastOptions
from lucerne._src.distributed.processes.options import DebugLevel as DebugLevel
from lucerne._src.distributed.processes.options import GatherOptions as GatherOptions
from lucerne._src.distributed.processes.options import ReduceOptions as ReduceOptions
from lucerne._src.distributed.processes.options import (
    ReduceScatterOptions as ReduceScatterOptions,
)
from lucerne._src.distributed.processes.options import ScatterOptions as ScatterOptions
from lucerne._src.distributed.processes.options import get_debug_level as get_debug_level
from lucerne._src.distributed.processes.options import record_comm as record_comm
from lucerne._src.distributed.processes.options import reduce_op as reduce_op
from lucerne._src.distributed.processes.options import set_debug_level as set_debug_level
from lucerne._src.distributed.processes.options import (
    set_debug_level_from_env as set_debug_level_from_env,
)
from lucerne._src.distributed.processes.options import supports_complex as supports_complex
from lucerne._src.distributed.processes.points import P2POp as P2POp
from lucerne._src.distributed.processes.points import all_gather_object as all_gather_object
from lucerne._src.distributed.processes.points import batch_isend_irecv as batch_isend_irecv
from lucerne._src.distributed.processes.points import (
    broadcast_object_list as broadcast_object_list,
)
from lucerne._src.distributed.processes.points import gather_object as gather_object
from lucerne._src.distributed.processes.points import irecv as irecv
from lucerne._src.distributed.processes.points import isend as isend
from lucerne._src.distributed.processes.points import recv as recv
from lucerne._src.distributed.processes.points import recv_object_list as recv_object_list
from lucerne._src.distributed.processes.points import scatter_object_list as scatter_object_list
from lucerne._src.distributed.processes.points import send as send
from lucerne._src.distributed.processes.points import send_object_list as send_object_list
from lucerne._src.distributed.processes.reduction import ReduceOp as ReduceOp
from lucerne._src.distributed.processes.work import Work as Work
from lucerne._src.distributed.processes.world import default_pg_timeout as default_pg_timeout
from lucerne._src.distributed.processes.world import destroy_process_group as destroy_process_group
from lucerne._src.distributed.processes.world import init_process_group as init_process_group
from lucerne._src.distributed.processes.world import is_initialized as is_initialized

_sync_norm.bind()
Backend, Store = BackendName, KeyStore
all_gather_single = all_gather_into_tensor
reduce_scatter_single = reduce_scatter_tensor
ProcessGroupGloo = ProcessGroup
GroupName = str


def is_available() -> bool:
    """Whether processes can form groups: always."""
    return True


def is_gloo_available() -> bool:
    """Whether `backend="gloo"` works: the backend tcp answers to it."""
    return True


def is_nccl_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def is_ucc_available() -> bool:
    return False


def is_xccl_available() -> bool:
    return False
