"""`lucerne run`: torchrun's words, faults that are named, and a run that goes on alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lucerne._src.distributed.run import board, options, watching
from tests.ecosystem import without_torch
from tests.processes import checkpoints, faults

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")


def test_a_killed_rank_is_named_and_the_run_goes_on() -> None:
    found = faults.run("kill:1:6", 2, steps=8)
    assert found.code == 0, found.text
    assert "rank 1 " in found.verdict
    assert "SIGKILL" in found.verdict
    assert "train.py:" in found.verdict  # where it was
    assert "from step 5" in found.text


@pytest.mark.nightly
def test_a_run_that_went_on_is_the_undisturbed_one() -> None:
    wrong, found = faults.kills(4, ranks=2)
    assert [w for w in wrong if "same end True" not in w] == []
    assert len(found) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["stop", "slow", "stuck", "raise", "save", "init"])
def test_faults_are_named(kind: str) -> None:
    extra = ("--stuck-after", "4") if kind == "stuck" else ()
    found = faults.run(f"{kind}:1:7", 2, extra=extra)
    assert found.code == 0, found.text
    assert "rank 1" in found.verdict
    assert ("Starting again" in found.text) is (kind != "slow")


@pytest.mark.nightly
def test_a_program_of_pytorch_runs_behind_import_torch(tmp_path: Path) -> None:
    packages = without_torch.folder(tmp_path / "site")
    script = Path(__file__).with_name("torch_script.py")
    python = [sys.executable, "-S", "-m", "lucerne.as_torch", str(script)]
    agent = ["-m", "lucerne", "run", "--nproc-per-node", "2", "--no-python"]
    done = without_torch.run(packages, *agent, *python)
    assert done.stdout == "ok 2 True\n", done.stderr


def test_the_words_of_torchrun_are_known() -> None:
    words = """--standalone --nproc_per_node=2 --max-restarts 3 --rdzv_backend c10d
        --rdzv-endpoint=h:1 -m a.b --lr 3"""
    found = options.parsed(words.split())
    assert (found.standalone, found.nproc_per_node, found.max_restarts) == (True, "2", 3)
    assert (found.module, found.program, found.arguments) == (True, "a.b", ["--lr", "3"])
    for wrong in ("0", "3:2", "x"):
        with pytest.raises(ValueError, match="--nnodes is N or MIN:MAX"):
            options.machines(wrong)
    with pytest.raises(ValueError, match="--nproc-per-node is a number"):
        options.ranks_here("many")
    with pytest.raises(ValueError, match="no setting 'odd'"):
        options.settings("odd=1")


def test_two_machines_meet(tmp_path: Path) -> None:
    """Two agents on this machine, as if on two; they need one token."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE'\n"
        "os.write(1, (' '.join(os.environ[n] for n in names.split()) + chr(10)).encode())\n"
    )
    environment = {**os.environ, "LUCERNE_JOB_TOKEN": "shared"}
    port = 20000 + os.getpid() % 20000
    command = [
        sys.executable, "-m", "lucerne.distributed.run", "--nnodes=2", "--nproc-per-node=2",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", str(program),
    ]  # fmt: skip
    agents = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    lines = [line for a in agents for line in a.communicate(timeout=90)[0].splitlines()]
    assert [a.returncode for a in agents] == [0, 0]
    assert sorted(lines) == ["0 4 0 2 0 2", "1 4 1 2 0 2", "2 4 0 2 1 2", "3 4 1 2 1 2"]


def test_the_board_says_where_a_rank_is(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    board.make(path, 2)
    view, mine = board.BoardView(path), board.Board(path, 1)
    mine.enters("g", 3, "all_reduce float32[2] SUM", "a.py:1 in f")
    mine.waits([0])
    said = view.read(1)
    assert view.read(0) is None
    assert said is not None
    assert (said["seq"], said["waits"]) == (3, [0])
    assert watching.where(said) == "; it was in #3 all_reduce float32[2] SUM at a.py:1 in f"
    mine.leaves()
    assert "after #3 all_reduce" in watching.where(view.read(1) or {})
    told: list[str] = []
    watch = watching.Watching([os.getpid()] * 2, view, path, 0, told.append)
    assert watch.look(0.0) == ""
    assert told == []


def test_a_checkpoint_is_whole_or_the_one_before() -> None:
    assert checkpoints.flips(60) == 60
    killed, wrong = checkpoints.killed_saves(6)
    assert wrong == []
    assert killed >= 3
