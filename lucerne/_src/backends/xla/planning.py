"""Planning: programs are traced and compiled for devices that are not here, and nothing runs.

While it goes on, cells hold the shapes of arrays and where they would lie (`ShapeDtypeStruct`), so
a model of any size takes no memory, and a program is compiled when it is known to matter.
"""

from __future__ import annotations

import linecache
import math
from collections import Counter
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, SingleDeviceSharding

from lucerne._src.backends.contract.planned import Chip, PlanError, PlannedProgram, Planner
from lucerne._src.backends.xla.chips import topology_of
from lucerne._src.base.process.source_location import describe, user_place


class XlaPlanning(Planner):
    """What is planned in this process."""

    now: ClassVar[XlaPlanning | None] = None
    """The planning under way."""

    def __init__(self, chip: Chip, calls: int) -> None:
        self.chip, self.calls = chip, calls
        self.eager, self.looks = Counter(), Counter()
        self.runs: list[Any] = []
        """Programs (`planned_calls.PlannedRun`), in the order in which they were first called."""
        self._devices: list[Any] = []

    def __enter__(self) -> Self:
        if XlaPlanning.now is not None:
            raise PlanError("a plan is being made already")
        # (Set before JAX begins: no device of this machine is touched, and no program is kept that
        # is for another one.)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_compilation_cache", False)
        count = self.chip.count if self.chip.platform == "cpu" else 1
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError as error:
            raise PlanError(
                "a plan must begin before the device is used: make it in a process of its own"
            ) from error
        XlaPlanning.now = self
        return self

    def __exit__(self, *_: object) -> None:
        XlaPlanning.now = None

    def programs(self) -> list[PlannedProgram]:
        """Compile what has not been yet, and tell of all. Of programs that one line calls, those
        that were called but once before another one took their place are only named: the first
        step, which makes an optimizer's state, is one."""
        settled = {run.name for run in self.runs if run.calls > 1}
        found = []
        for run in self.runs:
            if run.calls > 1 or run.name not in settled:
                run.compile()
            found.append(run.told())
        return found

    def devices(self, count: int) -> list[Any]:
        """So many devices, on paper."""
        if self.chip.platform == "cpu":
            return list(jax.devices())
        if len(self._devices) < count:
            self._devices = self._topology(count)
        return self._devices

    def _topology(self, count: int) -> list[Any]:
        asked = topology_of(self.chip, count)
        try:
            found = topologies.get_topology_desc(**asked)
        except Exception as error:
            raise PlanError(
                f"XLA can't compile for {self.chip.name} here ({type(error).__name__}: {error}): "
                f"{_INSTALL[self.chip.platform]}. `--chip cpu:N` needs no plug-in."
            ) from error
        return list(found.devices)

    # ---- cells ---------------------------------------------------------------------------------

    def alone(self) -> SingleDeviceSharding:
        """Where an array lies that is on no mesh."""
        return SingleDeviceSharding(self.devices(1)[0])

    def look(self, cell: Any) -> np.ndarray[Any, Any]:
        """The bytes of a cell, which nobody knows: a number with a point gets a placeholder."""
        meta, line = cell.meta, describe(user_place())
        if meta is not None and meta.numel == 1 and meta.dtype.is_floating_point:
            self.looks[short_line(line)] += 1
            return np.full(1, np.nan).astype(cell.array.dtype).view(np.uint8)
        what = "a tensor" if meta is None else f"a {meta.dtype} tensor of shape {tuple(meta.shape)}"
        raise PlanError(
            f"{line} looks at the values of {what}: item(), tolist(), numpy(), "
            "print, save, `if` on a tensor, or a result whose shape depends on them. Nothing is "
            "computed in a plan, so there are none. Keep that line out of the planned part: behind "
            "a condition, or after the last step (`--calls N` ends the script when a program was "
            "called N times). A single floating-point number, as a loss is, may be looked at: it "
            "is nan"
        )


_INSTALL = {
    "gpu": "`pip install lucerne[plan]` brings the plug-in (no driver and no GPU is needed)",
    "tpu": "`pip install libtpu` in the version that this jax names (no TPU is needed)",
}


def short_line(text: str) -> str:
    """`file:line`, and the code there.

    >>> short_line("/home/me/train.py:12 in <module>")
    'train.py:12'
    """
    path, _, rest = text.partition(":")
    number = rest.split(" ")[0]
    code = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    name = path.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{number}" + (f"  {code}" if code else "")


def struct(shape: Any, kind: Any, sharding: Any = None) -> jax.ShapeDtypeStruct:
    """An array that is none."""
    return jax.ShapeDtypeStruct(tuple(shape), kind, sharding=sharding)


def share_of(x: Any) -> int:
    """Bytes of an array on each device."""
    sharding = x.sharding
    cut = sharding.shard_shape(x.shape) if isinstance(sharding, NamedSharding) else x.shape
    return math.prod(cut) * int(np.dtype(x.dtype).itemsize)
