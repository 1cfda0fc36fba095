"""One program in every way: how far its losses are from torch's, and what compiling cost."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from typing import Any

from tests.programs.rows import STEPS, WAYS, Program, Run

Losses = list[tuple[float, ...]]
_ON_AVERAGE = 0.25
"""Programs that draw inside of what is compiled draw other numbers there: the mean of their losses
is compared, relative to torch's."""


def deviation(want: Losses, got: Losses) -> float:
    """The largest difference of two losses, relative to those above 1; infinite if some lack."""
    if [len(row) for row in want] != [len(row) for row in got]:
        return math.inf
    worst = 0.0
    for a, b in zip(sum(want, ()), sum(got, ()), strict=True):
        if a != b and not (math.isnan(a) and math.isnan(b)):
            apart = abs(a - b) / max(1.0, abs(a))
            worst = max(worst, apart) if math.isfinite(apart) else math.inf
    return worst


def mean_deviation(want: Losses, got: Losses) -> float:
    a, b = (sum(map(sum, losses)) for losses in (want, got))
    return abs(a - b) / max(abs(a), 1e-9) if len(want) == len(got) else math.inf


@dataclass
class Cell:
    """A program run in one way."""

    way: str
    deviation: float = 0.0
    milliseconds: float = 0.0
    compiles: int = 0
    breaks: int = 0
    given_up: bool = False
    limit: float = 0.0
    error: str = ""

    @property
    def good(self) -> bool:
        return not self.error and self.deviation <= self.limit


@dataclass
class Row:
    name: str
    program: Program
    torch_milliseconds: float = 0.0
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Cell]:
        return [c for c in self.cells.values() if not c.good]


def ran(package: str, made: Any, way: str, steps: int) -> tuple[Losses, Run]:
    torch = importlib.import_module(package)
    torch.manual_seed(0)
    run = Run(torch, way, steps)
    return run.losses(made), run


def measured(
    name: str, ours: Any, theirs: Any, steps: int = STEPS, ways: tuple[str, ...] = WAYS
) -> Row:
    """`theirs` is the same program on torch; None compares with our own eager losses alone."""
    row = Row(name, ours.program)
    want, has_step = None, True
    if theirs is not None:
        want, run = ran("torch", theirs, "eager", steps)
        row.torch_milliseconds = run.milliseconds
    eager: Losses | None = None
    for way in dict.fromkeys(("eager", *ways)):
        if way.endswith("step") and not has_step:
            continue
        cell = row.cells[way] = Cell(way)
        try:
            losses, run = ran("lucerne", ours, way, steps)
        except Exception as error:
            cell.error = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
            continue
        if eager is None:
            eager, has_step = losses, run.has_step
        if way != "eager" and not run.compiled:
            del row.cells[way]
            continue
        cell.milliseconds = run.milliseconds
        cell.compiles, cell.breaks, cell.given_up = run.compiles, run.breaks, run.given_up
        _judge(cell, row.program, want, eager, losses)
    return row


def _judge(
    cell: Cell, program: Program, want: Losses | None, eager: Losses, losses: Losses
) -> None:
    if cell.way.startswith("bitwise"):
        excused = program.strided and cell.way == "bitwise model"
        cell.limit, cell.deviation = program.limit * excused, deviation(eager, losses)
    elif program.random and cell.way != "eager":
        cell.limit, cell.deviation = _ON_AVERAGE, mean_deviation(want or eager, losses)
    else:
        cell.limit, cell.deviation = program.limit, deviation(want or eager, losses)
