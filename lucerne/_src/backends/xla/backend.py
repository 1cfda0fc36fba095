"""The backend object: memory as cells, calls and whole graphs as XLA programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lucerne._src.backends.contract.backend import (
    Backend,
    Buffer,
    Exchange,
    Executable,
    Runner,
    TensorState,
)
from lucerne._src.backends.contract.placement import MeshLayout
from lucerne._src.backends.contract.planned import Planner
from lucerne._src.backends.xla.cells import ArrayCell
from lucerne._src.backends.xla.checks import PendingChecks
from lucerne._src.backends.xla.chips import chip_of
from lucerne._src.backends.xla.mesh_calls import (
    PLACING,
    PlacingCall,
    place,
    place_parts,
    refill,
    tensor_layout,
    tensor_part,
    value_of_tensor,
)
from lucerne._src.backends.xla.planned_calls import PlannedCall, PlannedStep
from lucerne._src.backends.xla.planning import XlaPlanning
from lucerne._src.backends.xla.programs import CallProgram, StepProgram
from lucerne._src.backends.xla.several import Several, connect, on_host
from lucerne._src.backends.xla.types import is_known
from lucerne._src.backends.xla.walk import has_rule, is_walkable
from lucerne._src.base import dtype as dt
from lucerne._src.base.config import config
from lucerne._src.base.device import device
from lucerne._src.base.process import forks
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op

_NONZERO = "nonzero"
_WIDE = (dt.float64, dt.complex128)
_WORTH_KEEPING = 0.2
"""Programs that took so many seconds are kept on disk."""


class XlaBackend(Backend):
    """XLA, on the device that JAX takes by default."""

    contract_version = 9
    own_memory = True

    def __init__(self) -> None:
        self.pending = PendingChecks()
        connect()
        if config.cache_dir and not jax.config.jax_compilation_cache_dir:
            _keep_programs(str(config.cache_dir))
        forks.in_child(self.pending.refuse)

    @forks.once
    def engine(self) -> Any:
        """The device that tensors lie on. (JAX looks for devices now, and not before: a plan is
        made without them.)"""
        return jax.local_devices()[0]

    @property
    def platform(self) -> str:
        return self.engine.platform if XlaPlanning.now is None else XlaPlanning.now.chip.platform

    def devices(self) -> list[device]:
        return [device("xla")]

    def about(self) -> Mapping[str, Any]:
        stats = self.engine.memory_stats() or {}
        return {
            "platform": f"{self.engine.platform} ({self.engine.device_kind})",
            "engine": f"jax {jax.__version__}",
            "memory": stats.get("bytes_limit"),
        }

    # ---- memory --------------------------------------------------------------------------------

    allocate = staticmethod(ArrayCell)  # (in front of each eager call: no frame in between)

    def address(self, buffer: Buffer) -> int:
        return id(buffer)

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        if XlaPlanning.now is not None:
            return ArrayCell(data.nbytes)
        flat = np.array(data).reshape(-1).view(np.uint8)
        return ArrayCell(flat.nbytes, flat)

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        if XlaPlanning.now is not None:
            return XlaPlanning.now.look(buffer)
        self.pending.look()
        found: np.ndarray[Any, Any] = buffer.bytes()
        return found

    def write(self, buffer: Buffer, start: int, data: np.ndarray[Any, Any]) -> None:
        if XlaPlanning.now is not None:
            return
        flat = np.asarray(data).reshape(-1).view(np.uint8)
        whole = buffer.bytes() if start or flat.nbytes < buffer.nbytes else np.empty(0, np.uint8)
        if whole.nbytes:
            whole[start : start + flat.nbytes] = flat
        refill(buffer, whole if whole.nbytes else flat[: buffer.nbytes].copy())

    def synchronize(self) -> None:
        for array in jax.live_arrays():
            array.block_until_ready()
        self.pending.look()

    # ---- meshes --------------------------------------------------------------------------------

    def mesh_size(self) -> int:
        return len(jax.devices()) if XlaPlanning.now is None else XlaPlanning.now.chip.count

    def mesh_here(self) -> tuple[int, ...]:
        if Several.count == 1:
            return tuple(range(self.mesh_size()))
        return tuple(k for k, d in enumerate(jax.devices()) if d in jax.local_devices())

    def talk(self, exchange: Exchange) -> None:
        Several.exchange = exchange

    def lay_parts(self, t: TensorState, layout: MeshLayout, parts: Sequence[TensorState]) -> None:
        self.pending.check()
        place_parts(t, layout, parts)

    def lay_out(self, t: TensorState, layout: MeshLayout | None, terms: Any = None) -> None:
        self.pending.check()
        place(t, layout, terms)

    def layout_of(self, t: TensorState) -> MeshLayout | None:
        return tensor_layout(t)

    def part(self, t: TensorState, k: int) -> tuple[Buffer, TensorMeta]:
        self.pending.look()
        return tensor_part(t, k)

    def fuses(self, op: Op) -> bool:
        return op.qualified in PLACING

    def fuse(self, graph: Graph) -> Executable | None:
        alone = len(graph.nodes) == 1 and graph.nodes[0].op.qualified in PLACING
        return PlacingCall(graph) if alone else None

    def plan(self, chip: str, calls: int = 0) -> Planner:
        return XlaPlanning(chip_of(chip), calls)

    # ---- programs ------------------------------------------------------------------------------

    def takes(self, dtype: dt.dtype) -> bool:
        return is_known(dtype) and not (dtype in _WIDE and self.platform == "tpu")

    def supports(self, op: Op) -> bool:
        drawn = XlaPlanning.now is not None and op.kind == op_.RANDOM  # (nobody draws)
        return has_rule(op) or op.qualified == _NONZERO or drawn

    def compile(self, graph: Graph) -> Executable:
        self._check(graph)
        if XlaPlanning.now is not None:
            return PlannedCall(graph)
        if graph.nodes[0].op.qualified == _NONZERO:
            return self._nonzero
        return CallProgram(graph, self.pending)

    def take(self, graph: Graph, constants: Mapping[int, Any]) -> Runner | None:
        made_here = (v for n in graph.nodes for v in n.outputs)
        metas = (v.meta for v in (*graph.inputs, *made_here))
        if not all(self.takes(m.dtype) for m in metas if isinstance(m, TensorMeta)):
            return None
        if not is_walkable(graph):
            return None
        kind = StepProgram if XlaPlanning.now is None else PlannedStep
        made = kind(graph, constants, self.pending)
        made.prepare()
        return made

    def _check(self, graph: Graph) -> None:
        for node in graph.nodes:
            if node.op.kind != op_.VIEW and not self.supports(node.op):
                raise NotImplementedError(f"xla has no rule for {node.op.qualified}")
            for v in (*graph.inputs, *node.outputs):
                if isinstance(v.meta, TensorMeta) and not self.takes(v.meta.dtype):
                    raise NotImplementedError(
                        f"xla has no dtype {v.meta.dtype.name} on {self.platform}"
                    )

    def _nonzero(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """How many there are is known to the host alone: so it looks for them."""
        found = np.argwhere(on_host(value_of_tensor(inputs[0])))
        return found.astype(np.int64), dt.int64


def _keep_programs(folder: str) -> None:
    """XLA's programs on disk, beside our own, unless the user has chosen a place."""
    jax.config.update("jax_compilation_cache_dir", f"{folder}/xla")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
