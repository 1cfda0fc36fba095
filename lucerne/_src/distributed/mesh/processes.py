"""Several processes that drive one mesh, as `lucerne run` starts them: one program in each.

What they compute with together goes through the engine. What is decided together (whose numbers
count, whether all call the same program) goes through the default process group, where whoever
comes late or is gone has a name.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from lucerne._src import backends
from lucerne._src.distributed.processes import collectives, points, world
from lucerne._src.tensor.random import api


class Joined:
    """The device types whose meshes this process shares with others."""

    devices: frozenset[str] = frozenset()


def shares(device_type: str) -> bool:
    """Whether several processes drive the meshes of a device."""
    return device_type in Joined.devices


def join(device_type: str) -> None:
    """Find the others, if there are any, before the first mesh is made."""
    engine = backends.get(device_type)
    if shares(device_type) or len(engine.mesh_here()) == engine.mesh_size():
        return
    if not world.is_initialized():
        world.init_process_group()
    engine.talk(exchange)
    api.set_rng_state(from_first(api.get_rng_state()))
    Joined.devices |= {device_type}
    atexit.register(_end)


def exchange(mine: Any) -> list[Any]:
    """What each process says, in the order of ranks."""
    found: list[Any] = [None] * world.world().size
    points.all_gather_object(found, mine)
    return found


def from_first(t: Any) -> Any:
    """The values of rank 0, on the host."""
    made = t.detach().cpu().clone()
    collectives.broadcast(made, 0)
    return made


def _end() -> None:
    """A program that ended by an error leaves at once: at its normal end the engine waits for the
    others, who may be waiting for this one."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        return
    world.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
