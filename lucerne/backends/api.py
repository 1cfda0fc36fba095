"""The contract of a backend: move bytes, and compile a graph of primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from lucerne.base.device import device
from lucerne.ir.graph import Graph
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Op
from lucerne.ir.program import Program

CONTRACT_VERSION = 2
"""Raised when this file changes in a way that an existing backend would notice."""

Buffer = Any
"""Bytes on a device, as the backend holds them. Host backends use a one-dimensional uint8 array."""


class TensorState(Protocol):
    """What an executable sees of a tensor."""

    _meta: TensorMeta
    _storage: Any
    _offset: int
    _array: Any
    """A slot the backend may use to keep its own handle of this tensor."""


class Executable(Protocol):
    """A compiled graph. Reads `inputs`, writes into `outputs`, which are allocated already.

    Returns None, or for ops with data-dependent shapes the list of result arrays.
    """

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorState]) -> Any: ...


class Backend(Protocol):
    """Two abilities. Everything else the framework derives."""

    contract_version: int

    def devices(self) -> list[device]: ...

    def allocate(self, nbytes: int) -> Buffer:
        """Fresh bytes, aligned to 64, contents undefined."""

    def to_host(self, buffer: Buffer) -> np.ndarray:
        """The bytes as a uint8 array (shared when the device's memory is the host's)."""

    def from_host(self, data: np.ndarray) -> Buffer:
        """A buffer with these bytes."""

    def address(self, buffer: Buffer) -> int:
        """Where the bytes are: what `data_ptr` reports."""

    def compile(self, graph: Graph) -> Executable:
        """An executable for a graph of primitives; eager hands over graphs of one op."""

    def supports(self, op: Op) -> bool:
        """Whether `compile` takes this op."""


class Fusing(Protocol):
    """What a backend may have besides: composites as one kernel.

    A composite is an op written with other ops; without this ability eager runs them one by one. A
    composite with a `meta` of its own arrives as a graph of that one node, any other as the graph
    of the primitives its body calls.
    """

    def fuses(self, op: Op) -> bool:
        """Whether calls of this composite should be offered at all. Must not depend on data."""

    def fuse(self, graph: Graph) -> Executable | None:
        """One executable for the whole graph, or None: its ops then run one by one."""


class Runner(Protocol):
    """A program that is ready to run."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        """Run all steps. Arguments have the metas the program was made for."""


class Assembling(Protocol):
    """What a backend may have besides: whole programs in one call.

    Without it the steps run one by one, each compiled by `fuse` or `compile`.
    """

    def assemble(self, program: Program) -> Runner: ...


class Counting(Protocol):
    """What a backend that passes some graphs on to another one should have, so that it shows."""

    fallbacks: dict[str, int]
    """How many graphs of each op (by qualified name) were passed on."""
