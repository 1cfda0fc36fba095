"""The table of programs, and how one of them is run both ways.

A program is a factory: it returns a function of one tensor and what there is to be seen besides its
result (lists, objects, modules). Both sides get a fresh one. It is called four times, with another
size in between; after each call the result or the error, what was printed, and the state are
written down.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

import lucerne as torch
from tests.capture.observe import Observer, differences

SIZES = (4, 4, 6, 4)


@dataclass(frozen=True)
class Program:
    """One program of the table."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], Any]]

    @property
    def group(self) -> str:
        """The module it stands in."""
        return self.make.__module__.rpartition("programs_")[2]


PROGRAMS: list[Program] = []


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a factory into the table."""
    PROGRAMS.append(Program(make.__name__, make))
    return make


def inputs() -> list[Any]:
    """The argument of each call: the same numbers for both sides."""
    drawn = np.random.default_rng(5)
    found = [torch.tensor(drawn.standard_normal((n, 3)).astype(np.float32)) for n in SIZES]
    found[3] = -found[3]
    return found


def run(row: Program, through: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """What is seen of four calls, and the function that was called."""
    torch.manual_seed(0)
    random.seed(0)
    fn, state = row.make()
    fn = through(fn)
    seen = []
    for x in inputs():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = fn(x)
            except Exception as error:
                result = error
        look = Observer()
        seen.append(
            {
                "result": look.see(result),
                "printed": printed.getvalue(),
                "warned": [t for t in map(_text, told) if "runs uncompiled" not in t],
                "state": look.see(state() if isinstance(state, FunctionType) else state),
                "x": look.see(x),
                "grad mode": torch.is_grad_enabled(),
            }
        )
    return seen, fn


def _text(told: warnings.WarningMessage) -> str:
    return str(told.message)


def compare(row: Program, **options: Any) -> tuple[list[str], Any]:
    """Where the compiled side differs from the eager one, and the compiled function."""
    want, _ = run(row, lambda fn: fn)
    have, compiled = run(row, lambda fn: torch.compile(fn, **options))
    return list(_differences(want, have)), compiled


def _differences(want: list[Any], have: list[Any]) -> Iterator[str]:
    for k, (a, b) in enumerate(zip(want, have, strict=True)):
        yield from differences(a, b, f"call {k}")
