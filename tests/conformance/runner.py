"""Run tasks in worker processes, so that neither a hang nor a crash can stop the others.

Workers are forked after torch's op database is loaded (5 s) and before anything has computed, so
starting one, or replacing a dead one, is cheap. Each imports the framework under test by itself.
"""

import functools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from tests.conformance import catalog, metrics
from tests.conformance.bridge import Bridge, lucerne_bridge
from tests.conformance.context import Limits
from tests.conformance.metrics import Task
from tests.conformance.result import Tally, describe, trace_of

ORPHAN_PAUSE = 5.0  # seconds between looks whether the parent is still there

MakeBridge = Callable[[], Bridge]
Tick = Callable[[int, int], None]  # tasks done, tasks in all


@dataclass(frozen=True)
class Options:
    """How to run."""

    jobs: int = 2
    timeout: float = 120.0  # seconds for one task
    limits: Limits = field(default_factory=Limits)
    make_bridge: MakeBridge = lucerne_bridge


@dataclass
class Worker:
    """A process, and the task it has in hand."""

    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    deadline: float = 0.0

    def give(self, task: Task, timeout: float) -> None:
        self.task = task
        self.deadline = time.monotonic() + timeout
        self.pipe.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass
class Pool:
    """Workers and the tasks that wait for one."""

    options: Options
    waiting: list[Task]
    workers: list[Worker] = field(default_factory=list)

    def run(self) -> Iterator[list[Tally]]:
        """The tallies of each task, as they come."""
        try:
            for _ in range(min(self.options.jobs, len(self.waiting))):
                self._start()
            while self.workers:
                yield from self._collect()
        finally:
            for worker in self.workers:
                worker.stop()

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_work, args=(theirs, self.options), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 and later warn of any thread
            process.start()
        theirs.close()
        worker = Worker(process, ours)
        self.workers.append(worker)
        self._next(worker)

    def _next(self, worker: Worker) -> None:
        if self.waiting:
            worker.give(self.waiting.pop(), self.options.timeout)
        else:
            self.workers.remove(worker)
            worker.stop()

    def _collect(self) -> Iterator[list[Tally]]:
        """Wait for the first event: an answer, a death or a deadline."""
        pause = max(0.0, min(w.deadline for w in self.workers) - time.monotonic())
        ready = wait([worker.pipe for worker in self.workers], timeout=pause)
        for worker in list(self.workers):
            if worker.pipe in ready:
                yield self._answer(worker)
            elif time.monotonic() > worker.deadline:
                yield self._give_up(worker, "timeout", f"over {self.options.timeout:g} s")

    def _answer(self, worker: Worker) -> list[Tally]:
        try:
            tallies: list[Tally] = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            code = worker.process.exitcode
            return self._give_up(worker, "crash", f"the worker died (exit code {code})")
        self._next(worker)
        return tallies

    def _give_up(self, worker: Worker, check: str, message: str) -> list[Tally]:
        """The task has failed; put a new worker in the old one's place."""
        task = worker.task
        assert task is not None
        self.workers.remove(worker)
        worker.stop()
        if self.waiting:
            self._start()
        return metrics.lost(task, check, message)


def run(
    tasks: list[Task],
    options: Options,
    tick: Tick | None = None,
    done: list[Tally] | None = None,
) -> list[Tally]:
    """All tasks, in workers; results in the order of the tasks' names. `done` has those so far."""
    if metrics.needs_op_database(tasks):
        catalog.load()
    metrics.load_classes(tasks)
    done = [] if done is None else done
    pool = Pool(options, list(reversed(tasks)))
    for count, tallies in enumerate(pool.run(), 1):
        done += tallies
        if tick is not None:
            tick(count, len(tasks))
    return sorted(done, key=lambda tally: (tally.tier, tally.entry, tally.metric, tally.dtype))


def run_here(tasks: list[Task], options: Options) -> list[Tally]:
    """All tasks in this process: for a single op, where an author may want a debugger."""
    torch.set_num_threads(1)
    bridge = functools.cache(options.make_bridge)
    return [tally for task in tasks for tally in _perform(task, bridge, options)]


def _work(pipe: Connection, options: Options) -> None:
    """The life of a worker."""
    torch.set_num_threads(1)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    bridge = functools.cache(options.make_bridge)
    parent = os.getppid()
    while True:
        while not pipe.poll(ORPHAN_PAUSE):
            if os.getppid() != parent:
                return  # killed without a word: siblings may still hold our pipe open
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        pipe.send(_perform(task, bridge, options))


def _perform(task: Task, bridge: MakeBridge, options: Options) -> list[Tally]:
    began = time.perf_counter()
    try:
        tallies = metrics.perform(task, bridge(), options.limits)
    except Exception as error:
        tallies = metrics.lost(task, "harness", describe(error), trace_of(error))
    for tally in tallies:
        tally.seconds = time.perf_counter() - began
    return tallies
