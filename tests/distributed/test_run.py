"""`lucerne run`: torchrun's words, faults that are named, and a run that goes on alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lucerne._src.distributed.run import agent, board, jobs, options, watching
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


PRINTED = (
    *("--nnodes", "{}", "--nproc-per-node", "4", "--max-restarts", "3"),
    *("--rdzv-id", "Big_Job", "-m", "a.b", "--name"),
)


def _print(kind: str, nodes: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    words = ["--print", kind, *more, *(word.format(nodes) for word in PRINTED), "x $y"]
    assert agent.run(options.parsed(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("nodes", "asked"), [("1", "1"), ("2", "2"), ("2:8", "2-8")])
def test_the_script_for_slurm_starts_an_agent_on_each_machine(
    nodes: str, asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is run, with stand-ins for Slurm's commands."""
    script = tmp_path / "job.sh"
    script.write_text(_print("slurm", nodes, capsys))
    told = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in script.read_text().splitlines()
        if line.startswith("#SBATCH")
    )
    assert told == {
        "job-name": "big-job", "nodes": asked, "ntasks-per-node": "1", "cpus-per-task": "4",
        "requeue": "", "open-mode": "append",
    }  # fmt: skip
    for name, body in (
        ("scontrol", 'echo "${3%%,*}"'),
        ("srun", 'echo "$LUCERNE_JOB_TOKEN"; printf "%s\\n" "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o700)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n1,n2",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "71", "SLURM_RESTART_COUNT": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, check=True
    )
    said, token, *words = done.stdout.splitlines()
    assert said == "job 71 begins on n1, start 1"
    assert len(token) == 64
    assert words[:5] == ["--kill-on-bad-exit=1", "python", "-m", "lucerne", "run"]
    found = options.parsed(words[5:])
    assert (found.program, found.module, found.arguments) == ("a.b", True, ["--name", "x $y"])
    assert (found.nproc_per_node, found.max_restarts) == ("4", 3)
    if nodes == "1":
        assert found.standalone
    else:
        assert (found.nnodes, found.rdzv_endpoint, found.rdzv_id) == ("2", "n1:20071", "71.1")


def test_the_manifest_of_a_jobset_names_where_machines_meet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = json.loads(_print("jobset", "3", capsys, "--image", "here/train:1"))
    assert (made["kind"], made["metadata"]["name"]) == ("JobSet", "big-job")
    assert made["spec"]["failurePolicy"] == {"maxRestarts": 3}
    (ranks,) = made["spec"]["replicatedJobs"]
    job = ranks["template"]["spec"]
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (3, 3, "Indexed")
    (container,) = job["template"]["spec"]["containers"]
    assert container["image"] == "here/train:1"
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "big-job-token"
    assert container["command"][:4] == ["python", "-m", "lucerne", "run"]
    found = options.parsed(container["command"][4:])
    assert (found.nnodes, found.rdzv_endpoint) == ("3", "big-job-ranks-0-0.big-job:29400")
    assert (found.program, found.arguments) == ("a.b", ["--name", "x $y"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--print jobset a.py", "needs --image"),
        ("--print slurm --image x a.py", "--image goes with --print jobset only"),
        ("--image x a.py", "--image goes with --print jobset only"),
        ("--print slurm --master-port 3 a.py", "--master-port does not go with --print slurm"),
    ],
)
def test_what_a_file_decides_may_not_be_given(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent.run(options.parsed(words.split())) == 2
    assert text in capsys.readouterr().err


def test_a_running_job_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / f"{jobs.PREFIX}x"
    folder.mkdir()
    board.make(str(folder / "board"), 3)
    jobs.describe(str(folder), program="a.py", generation=2, first=4, count=3, world=8)
    mine = board.Board(str(folder / "board"), 1)
    mine.enters("g", 3, "all_reduce float32[2] SUM", "a.py:1 in f")
    mine.waits([4])
    (job,) = jobs.running((str(tmp_path),))
    lines = jobs.text(job).splitlines()
    assert lines[0].startswith(f"lucerne run (process {os.getpid()}): a.py, start 2, 3 of 8 ranks")
    assert lines[1].split() == ["4", "starting"]
    assert lines[2].split()[:3] == ["5", str(os.getpid()), "in"]
    assert lines[2].endswith("#3 all_reduce float32[2] SUM at a.py:1 in f, waits for rank 4")
    mine.leaves()
    assert jobs.running((str(tmp_path),))[0]["rows"][1]["state"] == "after"
    for wrong in ('{"agent": 1}', "[]", "{"):  # no job, and one whose agent is another by now
        (folder / jobs.JOB).write_text(wrong)
        assert jobs.running((str(tmp_path),)) == []
    gone = {"agent": os.getpid(), "began": "0", "first": 0, "count": 3}
    (folder / jobs.JOB).write_text(json.dumps(gone))
    assert jobs.running((str(tmp_path),)) == []
