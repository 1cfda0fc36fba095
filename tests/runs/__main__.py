"""Kill training at random steps, resume it, compare the end with a run that was never stopped.

    python -m tests.runs --cases 50

Each run is killed by SIGKILL once or twice, at random steps, and goes on in a new process with
another number of data workers. At the end all parameters must have the same bits.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 30


def start(folder: str, workers: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.runs.train", folder]
    command += ["--steps", str(STEPS), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: str, workers: int, kill_at: int | None, delay: float = 0.0) -> str | None:
    """A process to its end, which gives the digest; or until it is killed after a step: None."""
    process = start(folder, workers)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        for line in process.stdout:
            word, *rest = line.split()
            if word == "end":
                return rest[0]
            if kill_at is not None and int(word) >= kill_at:
                time.sleep(delay)
                process.send_signal(signal.SIGKILL)
                return None
        raise RuntimeError(f"training ended without a result:\n{process.stderr.read()}")


def case(draw: random.Random) -> tuple[str, str | None]:
    """What was done, and the digest at the end."""
    kills = sorted(draw.sample(range(1, STEPS), draw.choice((1, 1, 2))))
    told = []
    with tempfile.TemporaryDirectory() as folder:
        for kill_at in kills:
            workers = draw.randrange(4)
            told.append(f"killed at {kill_at} with {workers} workers")
            if run(folder, workers, kill_at, draw.random() * 0.01) is not None:
                told[-1] += " (too late: it had ended)"
        workers = draw.randrange(4)
        told.append(f"ended with {workers} workers")
        return ", ".join(told), run(folder, workers, None)


def check(cases: int, seed: int = 0) -> int:
    """How many runs ended with other bits than the undisturbed one; progress as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = run(folder, 0, None)
    draw, wrong, begin = random.Random(seed), 0, time.perf_counter()
    for i in range(cases):
        told, found = case(draw)
        same = found == wanted
        wrong += not same
        left = (time.perf_counter() - begin) / (i + 1) * (cases - i - 1)
        verdict = "same bits" if same else "DIFFERENT"
        print(f"{i + 1:4}/{cases}  {verdict}  {told}  ({left:.0f} s left)", flush=True)
    print(f"{cases - wrong} of {cases} bit-identical to the run that was never stopped")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    return int(check(args.cases, args.seed) > 0)


if __name__ == "__main__":
    sys.exit(main())
