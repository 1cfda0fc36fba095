"""From a program to something that runs: the backend's own way if it has one, else step by step."""

from __future__ import annotations

from lucerne._src.backends.contract.backend import Backend, Runner
from lucerne._src.backends.contract.step_runner import StepRunner
from lucerne._src.ir.program import Program


def make_runner(program: Program, backend: Backend) -> Runner:
    """`runner(arguments, numbers, results)` runs the program; results are allocated already."""
    return backend.assemble(program) or StepRunner(program, backend)
