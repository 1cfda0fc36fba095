"""The classes of torch.nn that module_db lacks: rows of our own, run through the same comparison.

A row builds a module from a framework (`lambda t: t.nn.Dropout(0.3)`), makes inputs in torch, and
says in which modes to run; `use` replaces the plain call where a class is not called (ModuleList).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.conformance.bridge import Bridge
from tests.conformance.modules.samples import Case, Use, call

BOTH = (True, False)
TRAIN = (True,)
EVAL = (False,)

Build = Callable[[Any], Any]
Inputs = Callable[[], list[Any]]


@dataclass(frozen=True)
class Row:
    """One module, its inputs and its modes."""

    build: Build
    inputs: Inputs = list
    modes: tuple[bool, ...] = TRAIN
    use: Use | None = call
    lazy: bool = False


def numbers(*shape: int, seed: int = 0, grad: bool = True) -> torch.Tensor:
    """Fixed normal numbers."""
    drawn = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(np.asarray(drawn)).requires_grad_(grad)


def given(*shapes: tuple[int, ...]) -> Inputs:
    """Inputs of these shapes."""
    return lambda: [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]


def cases(rows: list[Row]) -> list[Case]:
    """The cases of a class, one for each row and mode."""
    return [
        Case(
            label=f"{'train' if training else 'eval'}#{i}",
            make=functools.partial(_make, row.build),
            args=row.inputs(),
            training=training,
            lazy=row.lazy,
            use=row.use,
        )
        for i, row in enumerate(rows)
        for training in row.modes
    ]


def _make(build: Build, bridge: Bridge) -> Any:
    return build(bridge.module)
