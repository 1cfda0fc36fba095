"""What a program is: a generator in `sources/` that trains something and yields its losses.

The sources are written for torch and loaded with either package in torch's place. A program takes
one argument, `run`: `run.steps` says how long, `run.model(m)` marks what its author would compile,
`run.step(f)` a whole step that could be compiled instead. Which of them is compiled, and how, is
the `way` of the run.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.sources import load

SOURCES = Path(__file__).parent / "sources"
STEPS = 16
WAYS = ("eager", "model", "step", "bitwise model", "bitwise step")


@dataclass(frozen=True)
class Program:
    """How the losses of one program are compared."""

    field: str
    limit: float = 1e-5
    """The largest difference to torch's losses, relative to a loss above 1."""
    why: str = ""
    """Of another limit: the stated measure."""
    random: bool = False
    """It draws numbers inside of what is compiled: other ones than eager, but for `bitwise`."""
    strided: bool = False
    """Its loss sends gradients into the model in another layout than the results have, for which
    docs/guide/compile.md ("The same bits") promises no bits: `limit` holds for "bitwise model"
    too."""


def program(field: str, **settings: Any) -> Callable[[Any], Any]:
    def note(made: Any) -> Any:
        made.program = Program(field, **settings)
        return made

    return note


@dataclass
class Run:
    """One run of a program in one way."""

    torch: Any
    way: str = "eager"
    steps: int = STEPS
    compiled: list[Any] = field(default_factory=list)
    has_step: bool = False
    times: list[float] = field(default_factory=list)

    def model(self, made: Any) -> Any:
        return self._compiled(made) if self.way.endswith("model") else made

    def step(self, made: Any) -> Any:
        self.has_step = True
        return self._compiled(made) if self.way.endswith("step") else made

    def _compiled(self, made: Any) -> Any:
        settings = {"mode": "bitwise"} if self.way.startswith("bitwise") else {}
        compiled = self.torch.compile(made, **settings)
        inner = compiled.forward if isinstance(made, self.torch.nn.Module) else compiled
        self.compiled.append(inner)
        return compiled

    @property
    def compiles(self) -> int:
        return sum(getattr(c, "traces", 0) for c in self.compiled)

    @property
    def breaks(self) -> int:
        return sum(len(getattr(c, "breaks", ())) for c in self.compiled)

    @property
    def given_up(self) -> bool:
        return any(getattr(c, "given_up", None) or getattr(c, "left", None) for c in self.compiled)

    def losses(self, made: Any) -> list[tuple[float, ...]]:
        """What the program yields, as numbers."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = []
            for values in made(self):
                losses.append(tuple(_numbers(values)))
                self.times.append(time.perf_counter())
            return losses

    @property
    def milliseconds(self) -> float:
        """Of a step, when all is compiled: the median of the second half."""
        taken = sorted(b - a for a, b in pairwise(self.times[len(self.times) // 2 :]))
        return 1e3 * taken[len(taken) // 2] if taken else 0.0


def _numbers(values: Any) -> Iterator[float]:
    for value in values if isinstance(values, (tuple, list)) else (values,):
        yield float(value)


def found(package: str) -> dict[str, Any]:
    """By name: every program of `sources/`, with `package` in torch's place."""
    programs: dict[str, Any] = {}
    for path in sorted(SOURCES.glob("*.py")):
        for name, made in vars(load(path, package)).items():
            if isinstance(getattr(made, "program", None), Program):
                assert name not in programs, f"two programs are called {name}"
                programs[name] = made
    return programs
