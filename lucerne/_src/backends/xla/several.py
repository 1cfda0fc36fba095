"""Several processes that drive one mesh: how their engines meet, and what must be alike in each.

Each runs the same program. An array over all of them has its parts in each; one on no mesh is each
process's own, and is taken as the same everywhere once it meets one on a mesh. That is checked
where a program is made: ranks that go different ways would wait for each other for ever.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lucerne._src.backends.contract.backend import Exchange
from lucerne._src.base.config import ENGINE_VARIABLE, launch_variable, set_launch_variable

_PLAIN = (
    "What lies on no mesh is whole, and has to be the same in every process: seed them alike, and "
    "give each its own part of a batch with DTensor.from_local(part, mesh, [Shard(0)]) "
    "(docs/guide/mesh.md)."
)


class ProcessesDifferError(RuntimeError):
    """The processes of a mesh are about to do different things."""

    is_for_caller = True
    """(No fault of a compiler: the call can't be made in another way.)"""


class Several:
    """This process among those of its mesh."""

    count = 1
    exchange: Exchange | None = None


def connect() -> None:
    """Meet the engines of the other processes, if `lucerne run` has started several. It must be
    done before jax looks for devices."""
    address, count = launch_variable(ENGINE_VARIABLE), int(launch_variable("WORLD_SIZE") or 1)
    if address and count > 1 and not jax.distributed.is_initialized():
        _meet(address, count, int(launch_variable("RANK") or 0))
        set_launch_variable(ENGINE_VARIABLE, "")  # (processes that are started here are not ranks)
    if jax.distributed.is_initialized():
        Several.count = jax.process_count()


def _meet(address: str, count: int, rank: int) -> None:
    alone = launch_variable("LOCAL_WORLD_SIZE") == "1"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address,
            count,
            rank,
            local_device_ids=None if alone else [int(launch_variable("LOCAL_RANK") or 0)],
            coordinator_bind_address=address if rank == 0 else None,
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {rank} could not meet the others for the device 'xla' at {address}: of a run of "
            f"several processes all must use the device, and before anything else starts jax "
            f"({error})"
        ) from error


# ---- arrays over processes -----------------------------------------------------------------------


def is_over_processes(x: Any) -> bool:
    """Whether other processes have parts of an array."""
    return Several.count > 1 and not getattr(x, "is_fully_addressable", True)


def from_each(x: Any, sharding: NamedSharding) -> Any:
    """An array of this process's own as one over processes: each gives what it is to have.
    (Copies: a device would go on reading the memory that it is given.)"""
    seen = np.asarray(x)
    rows = sharding.addressable_devices_indices_map(x.shape)
    pieces = [jax.device_put(np.array(seen[at]), d) for d, at in rows.items()]
    return jax.make_array_from_single_device_arrays(x.shape, sharding, pieces)


def of_parts(shape: tuple[int, ...], sharding: NamedSharding, parts: Sequence[Any]) -> Any:
    """The array whose parts on this process's devices are given, in the mesh's order."""
    mine = [d for d in sharding.mesh.devices.flat if d in sharding.addressable_devices]
    pieces = [jax.device_put(np.array(x), d) for d, x in zip(mine, parts, strict=True)]
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


@functools.cache
def _gather(mesh: Mesh) -> Any:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))


def on_host(x: Any) -> np.ndarray[Any, Any]:
    """All elements of an array (not to be written to). Of one over processes each must ask."""
    if is_over_processes(x) and not x.is_fully_replicated:
        x = _gather(x.sharding.mesh)(x)
    return np.asarray(x)


# ---- what must be alike --------------------------------------------------------------------------


def agree(what: str, named: Iterable[tuple[str, Any]]) -> None:
    """Raise in every process if one has something else than the first under some name."""
    if Several.exchange is None:
        raise RuntimeError("no mesh of several processes was made (init_device_mesh)")
    mine = [[name, _digest(value)] for name, value in named]
    said = Several.exchange(mine)
    for rank, theirs in enumerate(said):
        pairs = zip(said[0], theirs, strict=False)
        name = next((a[0] for a, b in pairs if a != b), None)
        if name is None and len(theirs) != len(said[0]):
            name = "number of arguments"
        if name is not None:
            raise ProcessesDifferError(
                f"{what}: the {name} of rank {rank} is not that of rank 0. {_PLAIN}"
            )


def _digest(value: Any) -> str:
    if isinstance(value, str):
        data = value.encode()
    else:
        x = np.ascontiguousarray(on_host(value))
        data = f"{x.dtype} {x.shape}".encode() + x.view(np.uint8).data if x.size else b""
    return hashlib.blake2b(data, digest_size=12).hexdigest()
