"""Faults of ranks under `lucerne run`: who is named, how soon, and how the run goes on."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass
class Outcome:
    """What a run under the agent showed."""

    code: int
    text: str
    named: float
    """Seconds from the fault until the agent named somebody; -1: it did not."""
    ended: float
    """Seconds from the fault until the ranks of that generation were gone (they start again)."""
    verdict: str
    digest: str


def run(
    fault: str, ranks: int = 4, restarts: int = 1, seconds: float = 120.0, folder: str = "",
    extra: tuple[str, ...] = (), steps: int = 30,
) -> Outcome:  # fmt: skip
    """One run of `tests.processes.train`, with times taken from its lines as they come."""
    with tempfile.TemporaryDirectory() as room:
        command = [
            sys.executable, "-m", "lucerne", "run", "--nproc-per-node", str(ranks),
            "--max-restarts", str(restarts), *extra, "-m", "tests.processes.train",
            folder or os.path.join(room, "checkpoint"), "--fault", fault, "--steps", str(steps),
        ]  # fmt: skip
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        lines: list[tuple[float, str]] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.time(), line.rstrip()))
        code = process.wait()
        process.stdout.close()
        timer.cancel()
    return _outcome(code, lines)


def _outcome(code: int, lines: list[tuple[float, str]]) -> Outcome:
    text = "\n".join(line for _, line in lines)
    fault = re.search(r"fault \w+ at ([\d.]+)", text)
    began = float(fault[1]) if fault else 0.0
    named = [(at, line) for at, line in lines if line.startswith("[lucerne run]")]
    first = named[0] if named else (began - 1.0, "")
    over = [at for at, line in named if "Starting again" in line or "No restarts" in line]
    digest = re.search(r"digest (\w+)", text)
    return Outcome(
        code, text, first[0] - began, over[0] - began if over else -1.0, first[1],
        digest[1] if digest else "",
    )  # fmt: skip


KINDS = ("kill", "save", "init", "kill")


def kills(count: int, ranks: int = 4, seed: int = 0) -> tuple[list[str], list[Outcome]]:
    """Ranks that are killed at random steps: what went wrong, and all outcomes."""
    draw = random.Random(seed)
    expected = run("none:0:0", ranks).digest
    wrong, outcomes = [], []
    for number in range(count):
        kind, rank, step = KINDS[number % len(KINDS)], draw.randrange(ranks), draw.randrange(1, 29)
        found = run(f"{kind}:{rank}:{step}", ranks)
        outcomes.append(found)
        name = f"rank {rank} "
        ok = found.code == 0 and found.digest == expected and name in found.verdict
        if not ok or found.named > 0.5 or found.ended > 1.0:
            wrong.append(
                f"{kind} of rank {rank} at step {step}: code {found.code}, same end "
                f"{found.digest == expected}, named {found.named:.2f} s, ended {found.ended:.2f} "
                f"s: {found.verdict}"
            )
    return wrong, outcomes
