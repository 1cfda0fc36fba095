"""A device that compiles and never computes: for tests of the layers above, without arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import Backend, Buffer, Executable
from lucerne._src.base.device import device
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.ir.op import Op


class NullBackend(Backend):
    """Keeps bytes (so tensors exist), checks graphs, runs nothing."""

    contract_version = 5

    def __init__(self) -> None:
        self.compiled: list[Graph] = []

    def devices(self) -> list[device]:
        return [device("null")]

    def allocate(self, nbytes: int) -> Buffer:
        return np.zeros(nbytes, np.uint8)

    def to_host(self, buffer: Buffer) -> np.ndarray:
        return np.asarray(buffer)

    def from_host(self, data: np.ndarray) -> Buffer:
        return data.copy()

    def address(self, buffer: Buffer) -> int:
        return int(buffer.__array_interface__["data"][0])

    def supports(self, op: Op) -> bool:
        return op.is_primitive

    def compile(self, graph: Graph) -> Executable:
        verify(graph)
        self.compiled.append(graph)
        return _nothing


def _nothing(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    return None


def make() -> Backend:
    return NullBackend()
