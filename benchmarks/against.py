"""This checkout against another one: is what was measured before still as fast?

    python -m benchmarks.against /path/to/other/checkout
    python -m benchmarks.against BASE --rounds 40 --only "compiled" --json found.json
    python -m benchmarks.against BASE --smoke

Both run the benchmarks of this checkout, each with its own package, in processes of their own that
take turns. Processor time of one thread, small sizes; the ratio new / old by the best and by the
median of all rounds, each pair of processes started several times. Above the limit: `SLOW`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import kernel_calls, sides, small_calls
from benchmarks.timing import quiet
from benchmarks.worker import ROOT, Worker

NEW, OLD = "new", "old"
STEPS = ("mlp", "gpt", "resnet", "decode")
LIMIT = 1.03
_INNER = 2e-3
"""Seconds that one timing takes at least."""


@dataclass
class Compared:
    """One thing that was measured, in seconds of each round."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {NEW: [], OLD: []})

    @property
    def by_best(self) -> float:
        """new / old of the shortest times."""
        return min(self.seconds[NEW]) / min(self.seconds[OLD])

    @property
    def by_median(self) -> float:
        """new / old of the usual times."""
        return statistics.median(self.seconds[NEW]) / statistics.median(self.seconds[OLD])

    @property
    def is_slow(self) -> bool:
        """Whether both say so: one alone may be a disturbance."""
        return min(self.by_best, self.by_median) > LIMIT

    def __str__(self) -> str:
        new, old = min(self.seconds[NEW]), min(self.seconds[OLD])
        told = "SLOW" if self.is_slow else ""
        return (
            f"{self.name:34s}{1e6 * old:12.2f}{1e6 * new:12.2f}{self.by_best:8.3f}"
            f"{self.by_median:9.3f}{len(self.seconds[NEW]):8d}  {told}"
        )


HEAD = f"{'what':34s}{'old us':>12s}{'new us':>12s}{'best':>8s}{'median':>9s}{'times':>8s}"


@dataclass
class Pair:
    """Where the two packages are, each beside the benchmarks of this checkout."""

    roots: dict[str, Path]
    places: dict[str, Path]
    """Folders with the benchmarks of this checkout and nothing else."""
    caches: dict[str, str]
    rounds: int
    processes: int

    def worker(self, who: str, job: dict[str, Any], **extra: str) -> Worker:
        """A process of one side."""
        where = {"PYTHONPATH": str(self.roots[who]), "LUCERNE_CACHE_DIR": self.caches[who]}
        whole = {"side": sides.OURS, "threads": 1, "small": True, "way": "", "program": "", **job}
        made = Worker(whole, {**where, **extra}, self.places[who])
        if made.error is not None:
            raise RuntimeError(f"{who}: {made.error}")
        return made


def in_turn(pair: Pair, name: str, job: dict[str, Any]) -> Compared:
    """A thing that can be called again and again."""
    row = Compared(name)
    for k in range(pair.processes):
        order = (OLD, NEW) if k % 2 else (NEW, OLD)
        workers = {who: pair.worker(who, job) for who in order}
        try:
            question = {"repeats": 3, "inner": 1, "processor": True}
            took = max(min(w.ask(question)["seconds"]) for w in workers.values())
            question = {"repeats": 3, "inner": max(1, int(_INNER / max(took, 1e-8)))}
            for _ in range(pair.rounds):
                for who in order:
                    quiet(0.05)
                    answer = workers[who].ask({**question, "processor": True})
                    row.seconds[who].append(min(answer["seconds"]))
        finally:
            for worker in workers.values():
                worker.close()
    return row


def fresh(pair: Pair) -> Iterator[Compared]:
    """The first compiled step of a process, and the import before it."""
    rows = {
        name: Compared(name)
        for name in ("import", "first step, empty cache", "first step, kernels known",
                     "first step, program known")
    }  # fmt: skip
    names = list(rows)
    states = [(names[1], "0"), (names[2], "0"), ("", "1"), (names[3], "1")]
    job = {"kind": "first", "program": "gpt", "way": "step"}
    for k in range(pair.processes):
        for who in (OLD, NEW) if k % 2 else (NEW, OLD):
            with tempfile.TemporaryDirectory() as folder:
                for name, programs in states:
                    quiet(0.5)
                    extra = {"LUCERNE_CACHE_DIR": folder, "LUCERNE_PROGRAM_CACHE": programs}
                    with pair.worker(who, job, **extra) as worker:
                        rows["import"].seconds[who].append(worker.first["import"])
                        if name:
                            rows[name].seconds[who].append(worker.first["first"])
    yield from rows.values()


def jobs() -> dict[str, dict[str, Any]]:
    """What is measured in processes that stay."""
    found: dict[str, dict[str, Any]] = {
        name: {"kind": "call", "call": name} for name in (*small_calls.CALLS, *kernel_calls.CALLS)
    }
    for program in STEPS:
        way = sides.ways(program)[sides.OURS][0]
        found[f"step {program}"] = {"kind": "program", "program": program, "way": way}
    return found


def compared(pair: Pair, only: str = "") -> Iterator[Compared]:
    """All rows, one after the other."""
    for name, job in jobs().items():
        if re.search(only, name):
            yield in_turn(pair, name, job)
    if re.search(only, "first step, import"):
        yield from fresh(pair)


def prepared(base: Path, folder: Path, rounds: int, processes: int) -> Pair:
    """Two folders to run in: `benchmarks` is this one's, `lucerne` that of one side."""
    roots, places, caches = {NEW: ROOT, OLD: base.resolve()}, {}, {}
    for who in roots:
        places[who] = folder / who
        places[who].mkdir()
        (places[who] / "benchmarks").symlink_to(ROOT / "benchmarks")
        caches[who] = str(folder / f"{who}-cache")
        Path(caches[who]).mkdir(mode=0o700)
    return Pair(roots, places, caches, rounds, processes)


def main() -> int:
    """Print the table; 1 if something is slower than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against")
    parser.add_argument("base", type=Path, help="the other checkout: old")
    parser.add_argument("--rounds", type=int, default=25, help="turns of each pair of processes")
    parser.add_argument("--processes", type=int, default=4, help="pairs of processes for each row")
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--smoke", action="store_true", help="one round, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    asked = parser.parse_args()
    rounds, processes = (1, 1) if asked.smoke else (asked.rounds, asked.processes)
    rows = []
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        pair = prepared(asked.base, Path(folder), rounds, processes)
        for row in compared(pair, asked.only):
            rows.append(row)
            print(row, flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({r.name: r.seconds for r in rows}))
    slow = [r.name for r in rows if r.is_slow]
    print(f"{len(rows)} rows, {len(slow)} above {LIMIT}: {', '.join(slow) or 'none'}")
    return bool(slow) and not asked.smoke


if __name__ == "__main__":
    sys.exit(main())
