"""Real cluster software on this machine: Slurm, Open MPI and Ray start ranks, and start them again.

apt-get install slurm-wlm munge openmpi-bin
python -m tests.processes slurm      # needs root: Slurm's and munge's daemons are started
python -m tests.processes mpi
python -m tests.processes ray PYTHON # an interpreter with ray[train] and `lucerne torch install`
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes.faults import ROOT
from tests.processes.faults import run as run_by_agent

TRAIN = "tests.processes.train"
STEPS = 60
PATIENCE = 240.0
"""Seconds: after that a job hangs."""


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = str(Path(sys.executable).parent)
    return {
        **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([own, os.environ.get("PATH", "")]), **more,
    }  # fmt: skip


def _done(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints; its errors too."""
    found = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return found.stdout


def _digests(text: str) -> list[tuple[str, int]]:
    """(digest of the weights, the step that the run went on from) of each run that ended."""
    return [(d, int(step)) for d, step in re.findall(r"digest (\w+) from step (\d+)", text)]


def _expected() -> str:
    found = run_by_agent("none:0:0", 4, steps=STEPS)
    assert found.digest, found.text
    return found.digest


def _missing(*programs: str) -> list[str]:
    return [f"{name} is not installed" for name in programs if shutil.which(name) is None]


def _same(name: str, text: str, expected: str) -> list[str]:
    found = _digests(text)
    if found != [(expected, 0)]:
        return [f"{name}: {found} for {expected}: {text[-2000:]}"]
    print(f"{name}: the weights of `lucerne run`")
    return []


# ---- Open MPI -----------------------------------------------------------------------------------


def mpi() -> list[str]:
    """Four ranks by `mpirun`."""
    wrong = _missing("mpirun")
    if wrong:
        return wrong
    with tempfile.TemporaryDirectory() as room:
        text = _done(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", sys.executable, "-m",
             TRAIN, f"{room}/checkpoint", "--steps", str(STEPS)], _environment(),
        )  # fmt: skip
    return _same("mpirun -n 4", text, _expected())


# ---- Slurm --------------------------------------------------------------------------------------

_CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
StateSaveLocation={room}/state
SlurmdSpoolDir={room}/spool
SlurmctldPidFile={room}/ctld.pid
SlurmdPidFile={room}/d.pid
SlurmctldLogFile={room}/ctld.log
SlurmdLogFile={room}/d.log
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
ReturnToService=2
KillWait=2
JobAcctGatherType=jobacct_gather/none
NodeName={host} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
SlurmdParameters=config_overrides
"""


@contextlib.contextmanager
def _slurm() -> Iterator[tuple[Path, dict[str, str]]]:
    """A Slurm of this machine with eight slots: its folder and the environment of its users."""
    room = Path(tempfile.mkdtemp(prefix="slurm"))
    for name in ("state", "spool"):
        (room / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    with socket.socket() as one, socket.socket() as other:
        one.bind(("", 0))
        other.bind(("", 0))
        controller, daemon = one.getsockname()[1], other.getsockname()[1]
    text = _CONFIGURATION.format(host=host, room=room, controller=controller, daemon=daemon)
    (room / "slurm.conf").write_text(text)
    environment = _environment(SLURM_CONF=str(room / "slurm.conf"))
    if not Path("/run/munge/munge.socket.2").exists():
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", "munged"], check=True)
    try:
        subprocess.run(["slurmctld"], env=environment, check=True)
        subprocess.run(["slurmd"], env=environment, check=True)
        _wait(lambda: "idle" in _done(["sinfo", "-h"], environment), "the node is idle")
        yield room, environment
    finally:
        for name in ("d.pid", "ctld.pid"):
            _end(room / name)
        shutil.rmtree(room, ignore_errors=True)


def _end(path: Path) -> None:
    """End the daemon whose number stands in a file, and wait until it is gone."""
    if not path.exists():
        return
    number = int(path.read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGTERM)
        for _ in range(100):
            os.kill(number, 0)
            time.sleep(0.1)


def _wait(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"after {PATIENCE:.0f} s it is still not so that {what}")
        time.sleep(0.2)


def slurm() -> list[str]:
    """Four ranks by `srun`; a job of the script that `lucerne run --print slurm` writes, which
    Slurm takes from its node in the middle and starts again."""
    wrong = _missing("slurmctld", "slurmd", "munged", "srun", "sbatch")
    if wrong:
        return wrong
    expected = _expected()
    with _slurm() as (room, environment):
        text = _done(
            ["srun", "-n", "4", sys.executable, "-m", TRAIN, f"{room}/one", "--steps", str(STEPS)],
            environment,
        )
        wrong += _same("srun -n 4", text, expected)
        wrong += _requeued(room, environment, expected)
    return wrong


def _requeued(room: Path, environment: dict[str, str], expected: str) -> list[str]:
    script = subprocess.run(
        [sys.executable, "-m", "lucerne", "run", "--print", "slurm", "--nproc-per-node", "4", "-m",
         TRAIN, f"{room}/two", "--steps", str(STEPS), "--pause", "0.2"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (room / "job.sh").write_text(script)
    output = room / "job.out"
    told = _done(["sbatch", f"--output={output}", f"{room}/job.sh"], environment)
    number = told.split()[-1]

    def text() -> str:
        return output.read_text() if output.exists() else ""

    # (Slurm lets nobody requeue a job in its first seconds.)
    _wait(lambda: "step 20" in text(), f"step 20 is done ({told})")
    _done(["scontrol", "requeue", number], environment)
    # A job that was requeued waits for two minutes unless it is told not to.
    _wait(lambda: " PD " in _done(["squeue", "-j", number], environment), "the job waits")
    _done(["scontrol", "update", f"JobId={number}", "StartTime=now"], environment)
    _wait(lambda: _digests(text()), f"the job has ended: {text()[-2000:]}")
    ((digest, start),) = _digests(text())
    if digest != expected or start < 20:
        return [f"sbatch: went on from step {start}, {digest} for {expected}: {text()[-2000:]}"]
    print(f"sbatch, requeued: went on from step {start}, the weights of a run without that")
    return []


# ---- Ray ----------------------------------------------------------------------------------------


def ray(python: str) -> list[str]:
    """`TorchTrainer` with four workers of which one is killed, in an environment without torch."""
    with tempfile.TemporaryDirectory() as room:
        text = _done(
            [python, "-m", "tests.processes.ray_script", room],
            _environment(RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="600", RAY_DEDUP_LOGS="0"),
        )
    found = re.findall(r"weights (\w+) after (\d+) steps, from step (\d+)", text)
    if len(found) != 2 or found[0][0] != found[1][0] or int(found[1][2]) == 0:
        return [f"ray: {found}: {text[-3000:]}"]
    print(f"ray: a worker was killed, went on from step {found[1][2]}, the weights of a whole run")
    return []
