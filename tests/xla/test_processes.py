"""Meshes that several processes drive (`lucerne run`): the same numbers, and no waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lucerne.distributed import checkpoint

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

import jax

from tests.xla import ranks
from tests.xla.meshes import MeshTraining

ROOT = Path(__file__).parents[2]


def run(
    folder: Path, count: int, *checks: str, each: int = 1, fails: bool = False
) -> tuple[list[dict[str, Any]], str]:
    """What each rank of a job has found, and what `lucerne run` said."""
    flags = f"--xla_force_host_platform_device_count={each}"
    environment = {**os.environ, "XLA_FLAGS": flags, "DEVICES_EACH": str(each)}
    done = subprocess.run(
        [sys.executable, "-m", "lucerne", "run", "--nproc-per-node", str(count), "-m",
         "tests.xla.ranks", str(folder), *checks],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert (done.returncode != 0) is fails, done.stderr[-5000:]
    files = [folder / f"{rank}.json" for rank in range(count)]
    return [json.loads(f.read_text()) for f in files if f.exists()], done.stderr


TWO, FSDP = {"all-gather": 2, "all-reduce": 3}, {"all-gather": 57, "all-reduce": 5}
JOBS: dict[tuple[int, int], dict[str, dict[str, int]]] = {
    (2, 1): {
        "two layers:DDP": {"all-gather": 2, "all-reduce": 5},
        "two layers:FSDP": TWO,
        "two layers:TP": {"all-reduce": 1},
        "GPT:FSDP": FSDP,
        "GPT:TP": {"all-reduce": 8},
    },
    (4, 1): {
        "two layers:FSDP": TWO,
        "two layers:TP": {"all-reduce": 1},
        "two layers:FSDP x TP": {"all-gather": 2, "all-reduce": 4},
        "uneven:FSDP": TWO,
        "GPT:FSDP": FSDP,
        "GPT:TP": {"all-reduce": 8},
    },
    (2, 4): {"two layers:FSDP x TP": {"all-gather": 2, "all-reduce": 4}},
}
"""By processes and the devices of each: models, plans, and how often each collective stands in a
step's program. (The numbers are those of one process with as many devices: `test_mesh.COUNTS`.)"""


def test_two_processes_are_one_program(tmp_path: Path) -> None:
    """In one job: all that is quick."""
    training = "training:two layers:FSDP:3"
    saved = f"saved:{tmp_path / 'state'}"
    checks = (training, "parts_of_a_batch", "tensors", "refused", saved)
    found, _ = run(tmp_path, 2, *checks)
    wanted = MeshTraining("two layers", "one").losses(3)
    for row in found:
        assert row[training]["losses"] == pytest.approx(wanted, abs=2e-6)
        if jax.__version__.startswith("0.10."):
            assert row[training]["collectives"] == TWO
        batch = row["parts_of_a_batch"]
        assert batch["parts"] == pytest.approx(batch["whole"], abs=2e-6)
        _check_refusals(row["refused"])
    assert [row["tensors"] for row in found] == [
        {"rank": k, "local": k, "world": 2} for k in range(2)
    ]
    assert found[0][saved] == found[1][saved]
    _check_files(tmp_path / "state")
    assert _loaded_here(tmp_path / "state") == found[0][saved]


REFUSALS = [
    "NotImplementedError: a mesh of 1 of the 2 devices of all processes",
    "NotImplementedError: DeviceMesh.get_group",
    "ProcessesDifferError: add2 at ",
    "the argument 1 of rank 1 is not that of rank 0. What lies on no mesh is whole",
    "the program of rank 1 is not that of rank 0",
    "parts are cut as torch.chunk cuts",
    "ValueError: from_local: parts differ that ",
    "of the mesh is another process's, which alone sees its part: full_tensor()",
    "is not that of rank 0. What lies on no mesh is whole, and has to be the same in every process",
]


def _check_refusals(found: list[str]) -> None:
    assert len(found) == len(REFUSALS)
    for text, wanted in zip(found, REFUSALS, strict=True):
        assert wanted in text
        assert "test_processes" in text or "ranks.py" in text or " at " not in text.split(":")[1]


def _check_files(folder: Path) -> None:
    """Each rank has written its own half of each parameter and moment."""
    values = checkpoint.FileSystemReader(folder).read_metadata().values
    cut = [v for name, v in values.items() if "model" in name or "exp_avg" in name]
    assert len(cut) == 12
    for v in cut:
        assert [chunk.sizes[0] for chunk in v.chunks] == [v.shape[0] // 2] * 2
        assert len({chunk.file for chunk in v.chunks}) == 2


def _loaded_here(folder: Path) -> list[str]:
    """The same state, on one device of this process."""
    state = ranks.trained("one", 1)
    checkpoint.load(state, checkpoint_id=folder)
    return ranks.values(state)


@pytest.mark.nightly
@pytest.mark.parametrize("job", JOBS, ids="{0[0]} x {0[1]}".format)
def test_a_step_trains_as_on_one_device(job: tuple[int, int], tmp_path: Path) -> None:
    checks = {row: f"training:{row}:10" for row in JOBS[job]}
    found, _ = run(tmp_path, job[0], *checks.values(), each=job[1])
    assert len(found) == job[0]
    for row, check in checks.items():
        wanted = MeshTraining(row.partition(":")[0], "one").losses(10)
        for said in found:
            assert said[check]["losses"] == pytest.approx(wanted, abs=2e-6), row
            if jax.__version__.startswith("0.10."):
                assert said[check]["collectives"] == JOBS[job][row], row


@pytest.mark.nightly
def test_state_saved_by_two_processes_is_loaded_by_any_number(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    [one, _], _ = run(tmp_path, 2, f"saved:{folder}")
    wanted = one[f"saved:{folder}"]
    for count, form in ((2, "TP"), (4, "FSDP"), (4, "FSDP x TP")):
        check = f"loaded:{folder}:{form}"
        found, _ = run(tmp_path, count, check)
        assert [said[check] for said in found] == [wanted] * count
    assert _loaded_here(folder) == wanted


@pytest.mark.nightly
def test_four_processes_have_the_same_tensors(tmp_path: Path) -> None:
    found, _ = run(tmp_path, 4, "drawn", "tensors")
    assert len({said["drawn"] for said in found}) == 1
    assert [said["tensors"]["local"] for said in found] == [0, 1, 2, 3]


@pytest.mark.nightly
def test_the_example_goes_to_a_mesh_of_processes_by_one_flag() -> None:
    script = str(ROOT / "examples/llama/llama.py")
    run = [sys.executable, "-m", "lucerne", "run", "--nproc-per-node", "4", script]
    found = []
    for command in ([sys.executable, script], [*run, "--mesh", "data=2,model=2"]):
        environment = {**os.environ, "XLA_FLAGS": ""}
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        rows = [line.split(": ") for line in done.stdout.splitlines() if line.startswith("step ")]
        found.append([float(value) for _, value in rows])
    assert len(found[0]) == 5
    assert found[1] == pytest.approx(found[0], abs=1.1e-5)  # (five digits are printed)


@pytest.mark.nightly
@pytest.mark.parametrize(("how", "said"), [("kill", "SIGKILL"), ("raise", "exit code 1")])
def test_a_rank_that_dies_is_named_and_nobody_waits(how: str, said: str, tmp_path: Path) -> None:
    found, text = run(tmp_path, 2, f"dies:{how}", fails=True)
    assert found == []
    [verdict] = [line for line in text.splitlines() if "No restarts are left" in line]
    assert "rank 1 " in verdict
    assert said in verdict
    assert "tests/xla" in verdict, "where it was"
    assert time.time() - (tmp_path / "died").stat().st_mtime < 20
