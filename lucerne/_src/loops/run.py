"""From a program to something that runs: the backend's own way if it has one, else step by step."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.contract.backend import Runner
from lucerne._src.backends.contract.step_runner import StepRunner
from lucerne._src.ir.program import Program


def make_runner(program: Program, backend: Any) -> Runner:
    """`runner(arguments, numbers, results)` runs the program; results are allocated already."""
    assemble = getattr(backend, "assemble", None)
    made: Runner = StepRunner(program, backend) if assemble is None else assemble(program)
    return made
