"""Backends that were written for contracts 2 to 4: plain objects that have what they can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import Backend, Buffer, Executable, Runner
from lucerne._src.base.device import device
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Program

LAST_PLAIN = 4
"""The last contract under which a backend was any object."""
OLD_NAMES = {
    "anchors": "heads",
    "prologue_anchors": "catchers",
    "folds_into_loads": "is_free",
    "recomputed_in_readers": "does_itself",
}


class AdaptedRunner(Runner):
    """Whatever an older backend gave as a program."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.launch = getattr(inner, "launch", None)
        self.expect = getattr(inner, "expect", super().expect)  # type: ignore[method-assign]

    def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
        self.inner(arguments, numbers, results)


class AdaptedBackend(Backend):
    """An object of contract 2, 3 or 4 as a backend of this one; what else it has shows through."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.contract_version = inner.contract_version
        self.own_memory = getattr(inner, "own_memory", hasattr(inner, "write"))
        for name in self.OPTIONAL:
            old = OLD_NAMES.get(name, name)
            if name not in ("own_memory", "assemble", "kernels") and hasattr(inner, old):
                setattr(self, name, getattr(inner, old))

    @property
    def abilities(self) -> tuple[str, ...]:
        known: tuple[str, ...] | None = getattr(self.inner, "abilities", None)
        if known is not None:  # (an object around a backend of this contract)
            return known
        own = (name for name in self.OPTIONAL if hasattr(self.inner, OLD_NAMES.get(name, name)))
        return ("own_memory", *own) if self.own_memory else tuple(own)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # (before `__init__`: a copy, a pickle)
            raise AttributeError(name)
        return getattr(self.inner, name)

    def devices(self) -> list[device]:
        found: list[device] = self.inner.devices()
        return found

    def allocate(self, nbytes: int) -> Buffer:
        return self.inner.allocate(nbytes)

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self.inner.to_host(buffer)
        return found

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        return self.inner.from_host(data)

    def address(self, buffer: Buffer) -> int:
        return int(self.inner.address(buffer))

    def supports(self, op: Op) -> bool:
        return bool(self.inner.supports(op))

    def compile(self, graph: Graph) -> Executable:
        found: Executable = self.inner.compile(graph)
        return found

    def assemble(self, program: Program) -> Runner | None:
        own = getattr(self.inner, "assemble", None)
        return None if own is None else AdaptedRunner(own(program))

    @property
    def kernels(self) -> Sequence[tuple[Any, float, bool]]:
        found: Sequence[tuple[Any, float, bool]] = getattr(self.inner, "kernels", ())
        return found
