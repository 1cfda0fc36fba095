"""From object files to a shared library: by the system's compiler, by zig, or by the user."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lucerne._src.backends.contract.machines import MACHINES, NATIVE, TargetMachine
from lucerne.export.errors import ExportError

_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 600


def machine_of(target: str) -> TargetMachine | None:
    """The machine of the table that is linked for; None: it is none of them."""
    if target != NATIVE:
        return MACHINES[target]
    kinds = [m for m in MACHINES.values() if is_here(m)]
    return kinds[0] if kinds else None


def is_here(machine: TargetMachine) -> bool:
    return machine.system == sys.platform and machine.kind == platform.machine()


def compiler(machine: TargetMachine) -> list[str] | None:
    """The command that compiles and links C for a machine; None: there is none here."""
    names = list(_COMPILERS) if is_here(machine) else [f"{machine.kind}-linux-gnu-gcc"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine.kind}-linux-gnu"]
    return None


def command(prefix: str, objects: Sequence[str]) -> list[str]:
    """The arguments that make the library."""
    return ["-shared", "-Wl,-z,defs", "-o", f"lib{prefix}.so", *objects, "-lm"]


def example_command(prefix: str) -> list[str]:
    """The arguments that compile the example."""
    files = ["-o", f"{prefix}_example", f"{prefix}_example.c", f"lib{prefix}.so"]
    return ["-O2", *files, "-lm", "-Wl,-rpath,$ORIGIN"]


def run(words: Sequence[str], folder: Path, passed: Sequence[int] = (0,)) -> str:
    """Run a command in a folder; what it printed. Raises what it complains of."""
    done = subprocess.run(
        list(words), cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode not in passed:
        said = (done.stdout + done.stderr).strip()
        raise ExportError(f"build: `{' '.join(words)}` failed ({done.returncode}):\n{said}")
    return done.stdout if done.returncode == 0 else f"not run: {done.stderr}"
