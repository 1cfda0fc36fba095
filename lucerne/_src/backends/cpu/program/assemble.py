"""From a program to its runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Executable
from lucerne._src.backends.cpu.aot.unit import WrittenProgram
from lucerne._src.backends.cpu.emit.target import WRITES_ONLY
from lucerne._src.backends.cpu.program.compile import executables
from lucerne._src.backends.cpu.program.guarded import GuardedRunner
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.backends.cpu.runtime.llvm import release_code
from lucerne._src.base.config import config
from lucerne._src.ir.program import Program

ORDINARY, POISON, GUARDED = "", "poison", "guarded"


def assemble(
    program: Program, backend: Any, memory: str | None = None
) -> NativeRunner | GuardedRunner | WrittenProgram:
    """Compile the steps and lay them out.

    `memory` (`config.program_memory` unless given): "poison" fills the scratch memory before each
    call with what no result may depend on; "guarded" gives every value pages of its own.
    """
    made = executables(program.steps, backend)
    if WRITES_ONLY:
        return WrittenProgram(program, made)
    runner = runner_of(program, made, backend.native, memory)
    release_code()
    return runner


def runner_of(
    program: Program, made: Sequence[Executable], native: Any, memory: str | None = None
) -> NativeRunner | GuardedRunner:
    """The runner of a program whose steps are compiled."""
    memory = config.program_memory if memory is None else memory
    if memory not in (ORDINARY, POISON, GUARDED):
        raise ValueError(f"program_memory is {memory!r}: expected '', 'poison' or 'guarded'")
    if memory == GUARDED:
        return GuardedRunner(program, made)
    return NativeRunner(program, made, native, poison=memory == POISON)
