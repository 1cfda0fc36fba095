"""The same bits from every process: what the section `determinism` of `benchmarks.compiled` runs.

Each program runs in many fresh processes, with 1 and with 2 threads. No two are alike: addresses
are the system's choice (ASLR), and strings hash differently, the environment (which lies on the
stack) is longer or shorter, freed memory is filled with another byte. Losses and parameters must be
equal bit for bit. A process that ends with an error, or does not answer, fails the row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.rows import Row
from benchmarks.sides import OURS, OURS_EAGER
from benchmarks.worker import Answer, Worker

AT_ONCE = 2
"""Processes that run at the same time: one starts while another computes."""
STEPS = {"char_gpt": 20}
"""Training steps of programs that take more than the first few."""


@dataclass(frozen=True)
class Work:
    """What the processes of one side compute."""

    side: str
    programs: tuple[str, ...]
    processes: int
    """For each number of threads."""
    small: bool = False
    threads: tuple[int, ...] = (1, 2)

    def jobs(self) -> list[Answer]:
        """The question to each process; the first ones of each number of threads come first."""
        kind = {"side": self.side, "way": "", "program": "", "kind": "digests"}
        more = {"programs": list(self.programs), "small": self.small, "steps": STEPS}
        numbers = itertools.product(range(self.processes), self.threads)
        return [{**kind, **more, "threads": threads} for _, threads in numbers]


@dataclass
class Found:
    """What the processes of one side told."""

    digests: dict[str, list[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        if "error" in answer:
            self.errors.append(answer["error"])
        for program, digest in answer.get("digests", {}).items():
            self.digests.setdefault(program, []).append(digest)


def surroundings(number: int) -> dict[str, str]:
    """Settings that make process `number` unlike the others."""
    return {
        "PYTHONHASHSEED": str(1 + 7919 * number),
        "PADDING": "x" * (37 * number % 4096),
        "MALLOC_PERTURB_": str((53 * number) % 256),
    }


def answered(job: Answer, number: int) -> Answer:
    """What a fresh process answers."""
    with Worker(job, surroundings(number)) as worker:
        return worker.first


def asked(
    work: Work, ask: Callable[[Answer, int], Answer] = answered, at_once: int = AT_ONCE
) -> Found:
    """Ask all processes. The first is waited for: it fills the cache of kernels for the others."""
    found, jobs = Found(), work.jobs()
    found.add(ask(jobs[0], 0))
    with ThreadPoolExecutor(at_once) as pool:
        for answer in pool.map(ask, jobs[1:], range(1, len(jobs))):
            found.add(answer)
    return found


def judged(works: Sequence[Work], found: Iterable[Found]) -> Iterator[Row]:
    """A row for each program: the distinct digests of each side, of which there must be one."""
    told = list(zip(works, found, strict=True))
    for program in dict.fromkeys(p for work in works for p in work.programs):
        mine = [(w, f) for w, f in told if program in w.programs]
        wrong = list(dict.fromkeys(x for w, f in mine for x in _complaints(program, w, f)))
        count = mine[0][0].processes
        row = Row("determinism", f"{program}, 2 x {count} processes", unit="", limit_ours=1)
        row.note = "WRONG: " + "; ".join(wrong) if wrong else "distinct digests"
        for work, answers in mine:
            if program in answers.digests:
                row.sides[work.side] = len(set(answers.digests[program]))
        yield row


def _complaints(program: str, work: Work, found: Found) -> Iterator[str]:
    digests = found.digests.get(program, [])
    missing = work.processes * len(work.threads) - len(digests)
    if missing:
        last = found.errors[-1][-400:] if found.errors else "nothing was said"
        yield f"{work.side}: {missing} processes without an answer, the last one: {last}"
    if len(set(digests)) > 1:
        yield f"{work.side}: {len(set(digests))} different results of {len(digests)} processes"


def works(programs: Sequence[str], processes: int, *, small: bool, eager: bool) -> list[Work]:
    """Compiled programs; with `eager` the same uncompiled, and a longer training."""
    found = [Work(OURS, tuple(programs), processes, small)]
    if eager:
        longer = () if small else ("char_gpt",)
        found.append(Work(OURS_EAGER, (*programs, *longer), processes, small))
    return found
