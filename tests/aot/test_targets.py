"""Four models for every machine that this one can run, itself or by qemu."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from lucerne._src.backends.contract.machines import MACHINES
from lucerne.export import build
from lucerne.export.aot import link
from tests.aot.models import MODELS, exported

_QEMU = {"riscv64": ["-cpu", "rv64,v=true,vlen=128"]}


def _by_qemu(kind: str) -> list[str] | None:
    """The command that runs programs for another kind of machine."""
    qemu, gcc = shutil.which(f"qemu-{kind}-static"), shutil.which(f"{kind}-linux-gnu-gcc")
    if qemu is None or gcc is None:
        return None
    return [qemu, *_QEMU.get(kind, ()), "-L", f"/usr/{kind}-linux-gnu"]


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("target", MACHINES)
def test_results_agree(target: str, model: str, tmp_path: Path) -> None:
    machine = MACHINES[target]
    elsewhere = machine.kind != platform.machine()
    qemu = _by_qemu(machine.kind) if elsewhere else None
    if elsewhere and qemu is None:
        pytest.skip(f"needs qemu-{machine.kind}-static and {machine.kind}-linux-gnu-gcc")
    program, sizes = exported(model)
    made = build(program, tmp_path, target=target, name=model, sizes=sizes)
    said = "\n".join(made.differences)
    if elsewhere:
        words = link.compiler(machine)
        assert words is not None
        assert qemu is not None
        link.run([*words, *link.example_command(model)], tmp_path)
        command = [*qemu, f"./{model}_example"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
    if said.startswith("not run"):
        pytest.skip(f"{target}: {said}")
    assert said.rstrip().endswith("right"), said
