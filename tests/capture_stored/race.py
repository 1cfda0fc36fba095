"""Processes that ask for one program, store it, take it away, and are killed at any time.

`python -m tests.capture_stored.race FOLDER ROUNDS MODE` is one of them. Mode "die" kills itself
with half of a file written.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lucerne._src.base.process import sealed_folder as base_folder
from tests.capture_stored.bench import Bench, given, subject

ROOT = Path(__file__).resolve().parents[2]


class Plain:
    """`monkeypatch` for a process that never undoes anything."""

    def setattr(self, owner: Any, name: str, value: Any) -> None:
        setattr(owner, name, value)


def _die_in_write(file: int, raw: bytes) -> None:
    os.write(file, raw[: len(raw) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, rounds: int, mode: str) -> None:
    """Ask, compare, sometimes take the file away; prints how often it was found."""
    bench = Bench(Path(folder), Plain())
    chance = random.Random(os.getpid())
    x = given()
    right = subject(x).tolist()
    print("ready", flush=True)
    for k in range(rounds):
        if chance.random() < 0.5:
            for path in bench.files:
                path.unlink(missing_ok=True)
        if mode == "die" and k == rounds - 1:
            for path in bench.files:
                path.unlink(missing_ok=True)
            base_folder._write_all = _die_in_write
        found, _ = bench.ask(subject, x)
        if found.tolist() != right:
            print("wrong", flush=True)
            sys.exit(3)
    # what is there now must be whole, or be found not to be
    print(f"hits {bench.account.hits} stale {bench.account.stale} torn {bench.cache.refused}")


def started(folder: Path, rounds: int, mode: str = "live") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.capture_stored.race", str(folder), str(rounds), mode]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def run(folder: Path, processes: int, rounds: int, kills: int) -> dict[str, int]:
    """So many at once, some killed at a random moment and some in the middle of a write.

    Returns what happened: hits, wrong results, files that were torn when read, leftovers.
    """
    done = {"hits": 0, "wrong": 0, "torn": 0, "stale": 0, "killed": 0, "ended": 0}
    chance = random.Random(0)
    running: list[subprocess.Popen[str]] = []
    left = kills
    while left > 0 or done["ended"] < processes:
        while len(running) < processes:
            mode = "die" if left > 0 and chance.random() < 0.5 else "live"
            running.append(started(folder, rounds if mode == "live" else 3, mode))
        time.sleep(chance.uniform(0.05, 0.4))
        if left > 0 and chance.random() < 0.5:
            chance.choice(running).send_signal(signal.SIGKILL)
        for p in [p for p in running if p.poll() is not None]:
            running.remove(p)
            left -= _counted(p, done)
    for p in running:
        p.wait()
        _counted(p, done)
    return done


def _counted(p: subprocess.Popen[str], done: dict[str, int]) -> int:
    """Take down how a process ended; 1 if it was killed."""
    out = p.communicate()[0]
    if p.returncode == -signal.SIGKILL:
        done["killed"] += 1
        return 1
    if p.returncode != 0 or "wrong" in out:
        done["wrong"] += 1
        return 0
    words = out.split()
    done["hits"] += int(words[words.index("hits") + 1])
    done["stale"] += int(words[words.index("stale") + 1])
    done["torn"] += int(words[words.index("torn") + 1])
    done["ended"] += 1
    return 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
