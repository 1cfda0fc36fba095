"""The proof that results do not depend on threads: bit for bit equal for 1, 2 and 4 of them, and
from process to process.

A child process computes everything in `WORK` (expressions as in `sized`, large enough to be split)
with each number of threads in turn, plans made anew for each, and prints hashes. The parent starts
several and compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lucerne
from lucerne._src.conformance.cases import leaves
from lucerne._src.tensor.eager import plans
from tests.cpu.proof.cases import run_row
from tests.cpu.proof.large import WORK, runs_backward

THREADS = (1, 2, 4)
PROCESSES = 20


def hashes(threads: int, *, quick: bool) -> dict[str, str]:
    """Every result of `WORK` with so many threads; the first dtype of each if `quick`."""
    lucerne.set_num_threads(threads)
    plans.clear_plans()
    found = {}
    for row, dtypes in WORK.items():
        for dtype in dtypes[:1] if quick else dtypes:
            results = run_row(row, dtype, 1, backward=runs_backward(row, dtype))
            found[f"{row} {dtype}"] = _hash(results)
    return found


def _hash(results: Any) -> str:
    digest = hashlib.sha256()
    for t in leaves(results):
        if t is not None:
            digest.update(t.detach().contiguous().view(-1).view(lucerne.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _sources() -> list[tuple[str, int]]:
    """The package's files and when they were changed."""
    found = Path(lucerne.__file__).parent.rglob("*.py")
    return sorted((str(path), path.stat().st_mtime_ns) for path in found)


def main(options: argparse.Namespace) -> int:
    """The parent, or with `--threads` a child."""
    if options.threads:
        counts = map(int, options.threads.split(","))
        print(json.dumps({n: hashes(n, quick=options.quick) for n in counts}))
        return 0
    began, sources = time.perf_counter(), _sources()
    seen: dict[str, set[str]] = {}
    processes = options.processes or (PROCESSES if options.full else 4)
    for number in range(processes):
        # Each begins with another number of threads: plans of that process are made for it.
        turned = THREADS[number % 3 :] + THREADS[: number % 3]
        for found in child(turned if number < 3 else turned[:1]).values():
            for name, value in found.items():
                seen.setdefault(name, set()).add(value)
    if _sources() != sources:
        print("the package was edited meanwhile: results of different code can't be compared")
        return 2
    different = [name for name, values in seen.items() if len(values) > 1]
    for name in different:
        print(f"differs ({len(seen[name])} results): {name}")
    print(
        f"{len(seen)} results, threads {THREADS}, {processes} processes: "
        f"{len(different)} differ ({time.perf_counter() - began:.0f} s)"
    )
    return 1 if different else 0


def child(threads: tuple[int, ...], *, quick: bool = False) -> dict[str, dict[str, str]]:
    """The hashes of a fresh process, by number of threads."""
    command = [sys.executable, "-m", "tests.cpu.proof", "determinism", "--threads"]
    environment = {**os.environ, "LUCERNE_THREADS": str(threads[0])}
    command += [",".join(map(str, threads)), *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a child failed ({done.returncode}):\n{done.stderr[-2000:]}")
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found
