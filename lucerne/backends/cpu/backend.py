"""The backend object: host memory, and graphs compiled to machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne import backends
from lucerne.backends.api import CONTRACT_VERSION, Buffer, Executable
from lucerne.backends.cpu.eager import native
from lucerne.backends.cpu.rules import fused
from lucerne.backends.cpu.rules.table import RULES
from lucerne.backends.cpu.runtime import memory, pool
from lucerne.base.device import device
from lucerne.ir import op as op_
from lucerne.ir.graph import Graph
from lucerne.ir.op import Op


class CpuBackend:
    """Machine code made by LLVM; what has no rule runs on the reference backend, and is counted."""

    contract_version = CONTRACT_VERSION

    def __init__(self) -> None:
        self.fallbacks: dict[str, int] = {}
        """How many graphs of each op were handed to the reference backend."""
        self._native: native.Native | None = None

    def fast_path(self) -> native.Native:
        """The native tensor type and dispatcher."""
        if self._native is None:
            self._native = native.load()
        return self._native

    def devices(self) -> list[device]:
        return [device("cpu")]

    def allocate(self, nbytes: int) -> Buffer:
        return memory.allocate(nbytes) if self._native is None else self._native.allocate(nbytes)

    @property
    def memory(self) -> memory.Allocator:
        """Statistics of the host's memory."""
        return memory.allocator()

    def set_threads(self, n: int) -> None:
        pool.set_threads(n)

    def set_flush_denormal(self, on: bool) -> bool:
        return pool.set_flush_denormal(on)

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        made = self.allocate(data.nbytes)
        self.to_host(made)[:] = data.reshape(-1).view(np.uint8)
        return made

    def address(self, buffer: Buffer) -> int:
        if isinstance(buffer, np.ndarray):
            return int(buffer.__array_interface__["data"][0])
        return int(buffer.address)

    def supports(self, op: Op) -> bool:
        known = op.qualified in RULES or op.kind in (op_.POINTWISE, op_.REDUCTION, op_.VIEW)
        return known or backends.get("reference").supports(op)

    def compile(self, graph: Graph) -> Executable:
        found = None
        if len(graph.nodes) == 1:
            node = graph.nodes[0]
            rule = RULES.get(node.op.qualified) or RULES.get(node.op.kind)
            found = None if rule is None else rule(node)
        if found is not None:
            return found
        for node in graph.nodes:
            name = node.op.qualified
            self.fallbacks[name] = self.fallbacks.get(name, 0) + 1
        return backends.get("reference").compile(graph)

    def fuses(self, op: Op) -> bool:
        return fused.fuses(op)

    def fuse(self, graph: Graph) -> Executable | None:
        found: Executable | None = fused.fuse(graph)
        return found
