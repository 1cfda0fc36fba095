"""`lucerne.distributed.tensor`: tensors on a mesh of devices (a window)."""

from __future__ import annotations

from lucerne._src.backends.contract.placement import Partial as Partial
from lucerne._src.backends.contract.placement import Placement as Placement
from lucerne._src.backends.contract.placement import Replicate as Replicate
from lucerne._src.backends.contract.placement import Shard as Shard
from lucerne._src.distributed.mesh import dtensor as _dtensor
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh as DeviceMesh
from lucerne._src.distributed.mesh.device_mesh import init_device_mesh as init_device_mesh
from lucerne._src.distributed.mesh.dtensor import DTensor as DTensor
from lucerne._src.distributed.mesh.dtensor import distribute_tensor as distribute_tensor
from lucerne._src.distributed.mesh.dtensor import empty as empty
from lucerne._src.distributed.mesh.dtensor import full as full
from lucerne._src.distributed.mesh.dtensor import local_parts as local_parts
from lucerne._src.distributed.mesh.dtensor import ones as ones
from lucerne._src.distributed.mesh.dtensor import rand as rand
from lucerne._src.distributed.mesh.dtensor import randn as randn
from lucerne._src.distributed.mesh.dtensor import zeros as zeros
from lucerne._src.distributed.mesh.modules import distribute_module as distribute_module

__all__ = [
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "local_parts",
    "ones",
    "rand",
    "randn",
    "zeros",
]
_dtensor.bind()
