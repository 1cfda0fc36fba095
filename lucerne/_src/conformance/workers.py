"""Runs of other processes: a kernel that crashes or hangs ends its op, not the run.

A worker is the same command with `--worker`. It is given names of ops, one line each, and answers
each with one line of JSON. When it dies, or says nothing for too long, the op it was at has failed,
and another worker goes on with the next.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from lucerne._src.base.process import forks
from lucerne._src.conformance.cases import TIERS, Case
from lucerne._src.conformance.run import Outcome

Answer = dict[str, Any]
_START_SECONDS = 300.0
"""How long a worker may take until it can be asked: it reads all cases first."""


def ops_of(cases: Sequence[Case]) -> list[str]:
    """The ops in the order they are run: the most needed tier first."""
    ordered = sorted(cases, key=lambda case: TIERS.index(case.tier))
    return list(dict.fromkeys(case.op for case in ordered))


def as_data(o: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {
        "op": o.op, "tier": o.tier, "dtype": o.dtype, "passed": o.passed, "total": o.total,
        "first_failure": o.first_failure, "needs": sorted(o.needs), "fallbacks": dict(o.fallbacks),
    }  # fmt: skip


def from_data(row: dict[str, Any]) -> Outcome:
    kept = {k: row[k] for k in ("op", "tier", "dtype", "passed", "total", "first_failure")}
    made = Outcome(**kept)
    made.needs = set(row["needs"])
    made.fallbacks = collections.Counter(row["fallbacks"])
    return made


class Worker:
    """One process that answers."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self.command, self.seconds = command, seconds
        self.process: subprocess.Popen[str] | None = None

    def ask(self, op: str) -> Answer | str:
        """Its answer; or, in words, how it ended without one."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            begun = self._line(self.process, "", max(self.seconds, _START_SECONDS))
            if not isinstance(begun, dict):
                return f"could not begin: {begun}"
        return self._line(self.process, op + "\n", self.seconds)

    def _line(self, process: subprocess.Popen[str], question: str, seconds: float) -> Answer | str:
        """What it says next, or how it ended."""
        hung = threading.Event()
        assert process.stdin is not None
        assert process.stdout is not None

        def give_up() -> None:
            hung.set()
            process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            process.stdin.write(question)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line.endswith("\n"):
            answer: Answer = json.loads(line)
            return answer
        self.end()
        return f"hung for {seconds:g} s" if hung.is_set() else _ended(process)

    def end(self) -> None:
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process = None


def _ended(process: subprocess.Popen[str]) -> str:
    code = process.wait()
    if code >= 0:
        return f"its process ended with status {code}"
    return f"its process crashed: {signal.Signals(-code).name}"


def failed(cases: Sequence[Case], op: str, why: str) -> list[Outcome]:
    """Outcomes of an op whose worker gave none."""
    found: dict[tuple[str, str], Outcome] = {}
    for case in cases:
        if case.op == op:
            o = found.setdefault((case.tier, case.dtype), Outcome(op, case.tier, case.dtype))
            o.total += 1
            o.first_failure = why
    return list(found.values())


class Progress:
    """A file of answers, one line each: a run that was ended goes on where it was."""

    def __init__(self, path: Path | None, head: dict[str, Any]) -> None:
        self.path, self.head = path, head
        self.known: dict[str, Answer] = {}
        if path is not None and path.exists():
            lines = [json.loads(x) for x in path.read_text(encoding="utf-8").splitlines() if x]
            if lines and lines[0] != head:
                raise ValueError(
                    f"{path} is of another run: {lines[0]}, this one is {head}. Choose another "
                    "file, or remove it."
                )
            self.known = {line["op"]: line for line in lines[1:]}
        elif path is not None:
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def add(self, answer: Answer) -> None:
        self.known[answer["op"]] = answer
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(answer) + "\n")


def run_apart(
    cases: Sequence[Case],
    command: Sequence[str],
    *,
    jobs: int = 1,
    seconds: float = 300.0,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Answer]:
    """Every op in some worker; answers in the order of the ops."""
    kept = progress or Progress(None, {})
    ops = ops_of(cases)
    waiting = collections.deque(op for op in ops if op not in kept.known)
    lock = forks.lock()

    def work() -> None:
        worker = Worker(command, seconds)
        while True:
            with lock:
                if not waiting:
                    break
                op = waiting.popleft()
                tell(f"{len(ops) - len(waiting)} of {len(ops)} ops: {op}")
            found = worker.ask(op)
            if isinstance(found, str):
                rows = [as_data(o) for o in failed(cases, op, found)]
                found = {"op": op, "outcomes": rows, "bill": []}
            with lock:
                kept.add(found)
        worker.end()

    threads = [threading.Thread(target=work) for _ in range(max(jobs, 1))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return (kept.known[op] for op in ops)


def serve(answer: Callable[[str], Answer], questions: TextIO | None = None) -> None:
    """The worker's side. What kernels print goes to the error stream."""
    to_parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    to_parent.write("{}\n")
    to_parent.flush()
    for line in questions or sys.stdin:
        to_parent.write(json.dumps(answer(line.strip())) + "\n")
        to_parent.flush()
