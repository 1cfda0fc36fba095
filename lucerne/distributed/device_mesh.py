"""`lucerne.distributed.device_mesh`: devices as a grid (a window)."""

from __future__ import annotations

from lucerne._src.distributed.mesh.device_mesh import DeviceMesh as DeviceMesh
from lucerne._src.distributed.mesh.device_mesh import init_device_mesh as init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
