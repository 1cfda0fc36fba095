"""From a program to its runner."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.program.compile import executables
from lucerne._src.backends.cpu.program.guarded import GuardedRunner
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.backends.cpu.runtime.llvm import release_code
from lucerne._src.base.config import config
from lucerne._src.ir.program import Program

ORDINARY, POISON, GUARDED = "", "poison", "guarded"


def assemble(
    program: Program, backend: Any, memory: str | None = None
) -> NativeRunner | GuardedRunner:
    """Compile the steps and lay them out.

    `memory` (`config.program_memory` unless given): "poison" fills the scratch memory before each
    call with what no result may depend on; "guarded" gives every value pages of its own.
    """
    memory = config.program_memory if memory is None else memory
    if memory not in (ORDINARY, POISON, GUARDED):
        raise ValueError(f"program_memory is {memory!r}: expected '', 'poison' or 'guarded'")
    made = executables(program.steps, backend)
    if memory == GUARDED:
        return GuardedRunner(program, made)
    runner = NativeRunner(program, made, backend.native, poison=memory == POISON)
    release_code()
    return runner
