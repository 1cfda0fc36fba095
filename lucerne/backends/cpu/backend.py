"""The backend object: host memory, and graphs compiled to machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne import backends
from lucerne.backends.api import CONTRACT_VERSION, Buffer, Executable
from lucerne.backends.cpu import rules as rules
from lucerne.backends.cpu.rules.table import RULES
from lucerne.base.device import device
from lucerne.ir import op as op_
from lucerne.ir.graph import Graph
from lucerne.ir.op import Op

ALIGNMENT = 64


class CpuBackend:
    """Machine code made by LLVM; what has no rule runs on the reference backend, and is counted."""

    contract_version = CONTRACT_VERSION

    def __init__(self) -> None:
        self.fallbacks: dict[str, int] = {}
        """How many graphs of each op were handed to the reference backend."""

    def devices(self) -> list[device]:
        return [device("cpu")]

    def allocate(self, nbytes: int) -> Buffer:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT
        return raw[start : start + nbytes]

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        made = self.allocate(data.nbytes)
        made[:] = data.reshape(-1).view(np.uint8)
        return made

    def address(self, buffer: Buffer) -> int:
        return int(buffer.__array_interface__["data"][0])

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
