"""Steps that Python runs between two stretches of machine code: draws, and what has no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import Executable
from lucerne._src.backends.contract.step_runner import inputs_of
from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.base.memory import array_over
from lucerne._src.ir.program import CONSTANT, Place, Step, places

_BYTE = np.dtype(np.uint8)


class Window:
    """A storage over memory that may be elsewhere at the next call."""

    __slots__ = ("_buffer", "address", "nbytes", "version")

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.address, self.version = nbytes, 0, 0
        self._buffer: Any = None

    def move(self, address: int) -> None:
        if address != self.address:
            self.address, self._buffer = address, None

    def data_ptr(self) -> int:
        return self.address if self.nbytes else 0

    @property
    def buffer(self) -> np.ndarray[Any, Any]:
        if self._buffer is None:
            self._buffer = array_over(self.address, (self.nbytes,), _BYTE, None, self)
        made: np.ndarray[Any, Any] = self._buffer
        return made

    def host(self) -> np.ndarray[Any, Any]:
        return self.buffer


class HostStep:
    """A step with the objects that its executable sees as tensors."""

    def __init__(self, step: Step, execute: Executable, fixed: Callable[[Place], Spot]) -> None:
        self._step, self._execute = step, execute
        self._spots: dict[Place, Spot] = {}
        for p in (*places(step.inputs), *step.outputs):
            nbytes = p.meta.span * p.meta.dtype.itemsize
            self._spots[p] = fixed(p) if p.kind == CONSTANT else Spot(p.meta, Window(nbytes), 0)

    def __call__(self, address: Callable[[Place], int], numbers: Sequence[Any]) -> None:
        for place, spot in self._spots.items():
            if place.kind != CONSTANT:
                spot._storage.move(address(place))
        inputs = inputs_of(self._step, self._spots.__getitem__, numbers)
        self._execute(inputs, [self._spots[p] for p in self._step.outputs])
