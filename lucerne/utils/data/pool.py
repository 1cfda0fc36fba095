"""The parent's side of workers: hand out tasks, collect results, and see to it that they live.

A worker that dies, or is stopped, is replaced and its tasks are done again (what a sample gives
does not depend on who loads it). A sample that kills its worker twice is an error that names it.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import signal
import socket
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.process.shared_memory import AVAILABLE, SharedBlock
from lucerne.utils.data import channel as channels
from lucerne.utils.data import wire
from lucerne.utils.data.channel import Channel
from lucerne.utils.data.errors import ExceptionWrapper, describe_keys
from lucerne.utils.data.launch import Launcher
from lucerne.utils.data.slots import Leases
from lucerne.utils.data.worker import AT, EPOCH_WORD, IDLE, LINE, OPENING, Free, Ready, Result, Task

LOOK_EVERY = 0.5
"""Seconds between two looks at workers while waiting."""
STOPPED_FOR = 1.5
"""A worker stopped by a signal for so long is replaced."""
SLOW_SAMPLE = 5.0
"""A sample that takes so long is named in a warning, once."""
SLOW_START = 30.0
"""A worker that takes so long to start is named in a warning."""
STUCK_SAMPLE = 300.0
"""A sample with a key that takes so long is tried again by a new worker (streams may wait)."""
MOST_RESPAWNS = 8
"""So many workers are replaced in one epoch before the loader gives up."""
GRACE = 2.0
"""How long workers may take to end by themselves."""

_live: weakref.WeakSet[Pool] = weakref.WeakSet()


@dataclasses.dataclass
class Member:
    """A worker process as the parent knows it."""

    id: int
    process: Any
    channel: Channel
    leases: Leases
    tasks: dict[int, Task] = dataclasses.field(default_factory=dict)
    ready: bool = False
    seen: tuple[int, int] = (IDLE, IDLE)
    """Task and sample it was last seen at,"""
    since: float = 0.0
    """and since when."""
    stopped_since: float = 0.0
    warned: bool = False

    pid: int = 0

    def __post_init__(self) -> None:
        self.pid = self.process.pid


class Pool:
    """The workers of one loader iterator."""

    def __init__(
        self,
        launcher: Launcher,
        count: int,
        timeout: float,
        most_leased: int,
        greet: Callable[[int], list[Any]],
        note: Callable[[Task, Result], None],
        stamp: int,
    ) -> None:
        """`greet(worker)` gives the messages that a (new) worker needs before its tasks; `note` is
        told of every result that arrives."""
        self.launcher, self.timeout, self.most_leased = launcher, timeout, most_leased
        self.greet, self.note = greet, note
        self.owner = os.getpid()
        self.stamp = stamp
        """Which epoch counts."""
        self.results: dict[int, tuple[Result, Any]] = {}
        """Finished tasks that nobody took yet: the result and its batch."""
        self.respawns = 0
        self.killers: Counter[Any] = Counter()
        self.early_deaths = 0
        self.page = SharedBlock.make(LINE * count) if AVAILABLE else None
        self.members: list[Member] = []
        _live.add(self)
        try:
            for worker_id in range(count):
                self.members.append(self._start(worker_id))
        except BaseException:
            self.close()
            raise

    # ---- starting and ending ----

    def _start(self, worker_id: int) -> Member:
        ours, theirs = channels.pair()
        try:
            return self._started(worker_id, ours, theirs)
        except BaseException:
            ours.close()
            raise

    def _started(self, worker_id: int, ours: socket.socket, theirs: socket.socket) -> Member:
        close = [m.channel.fileno() for m in self.members if m.channel.open] + [ours.fileno()]
        if self.page is not None:
            line = LINE * worker_id
            EPOCH_WORD.pack_into(self.page.map, line, self.stamp)
            AT.pack_into(self.page.map, line + EPOCH_WORD.size, IDLE, IDLE)
        with theirs:
            process = self.launcher.start(worker_id, theirs, close)
        channel = Channel(ours, blocking=False)
        member = Member(worker_id, process, channel, Leases(self.most_leased))
        member.since = time.monotonic()
        data, files = self.launcher.setup(worker_id, self.page)
        channel.send(data, files)
        for message in self.greet(worker_id):
            channel.send(wire.message(message))
        return member

    def close(self, grace: float = GRACE) -> None:
        """End all workers: those that don't by themselves in time are killed."""
        _live.discard(self)
        members, self.members = self.members, []
        if os.getpid() != self.owner:
            return
        for member in members:
            member.channel.close()
        deadline = time.monotonic() + grace
        for member in members:
            while member.process.is_alive() and time.monotonic() < deadline:
                if is_stopped(member.pid):
                    break
                member.process.join(0.05)
            _end(member)

    def begin_epoch(self, stamp: int, greet: bool) -> None:
        """What was asked for before is not wanted any more; unless new, all are greeted again."""
        self.stamp = stamp
        self.results.clear()
        self.respawns, self.early_deaths = 0, 0
        self.killers.clear()
        for member in self.members:
            if self.page is not None:
                EPOCH_WORD.pack_into(self.page.map, LINE * member.id, stamp)
            member.tasks.clear()
            for message in self.greet(member.id) if greet else []:
                member.channel.send(wire.message(message))

    # ---- tasks ----

    def submit(self, worker_id: int, task: Task) -> None:
        member = self.members[worker_id]
        member.tasks[task.number] = task
        self._send(member, task)

    def _send(self, member: Member, task: Task) -> None:
        free = member.leases.returned()
        if free:
            member.channel.send(wire.message(Free(free)))
        member.channel.send(wire.message(task))

    def load(self, worker_id: int) -> int:
        """How many tasks a worker has."""
        return len(self.members[worker_id].tasks)

    def wait(self, done: Callable[[], bool]) -> None:
        """Return when `done()`, which looks at `results`, is true."""
        start = time.monotonic()
        now = start
        for member in self.members:  # the clock runs only while we wait
            member.since, member.stopped_since = now, 0.0
        looked = now
        while True:
            self._collect()
            if done():
                return
            if not self.members:
                raise RuntimeError(
                    "DataLoader: the workers have ended after an error; iterate anew"
                )
            left = LOOK_EVERY if not self.timeout else self.timeout - (now - start)
            ready = self._sleep(max(0.0, min(LOOK_EVERY, left)))
            now = time.monotonic()
            self._bury(ready)
            if now - looked >= LOOK_EVERY:
                looked = now
                self._look(now)
            if self.timeout and now - start >= self.timeout:
                self._collect()
                if done():
                    return
                self._time_out()

    def _sleep(self, seconds: float) -> set[int]:
        """Until a worker says something, takes something, or dies; the files that tell it."""
        sentinels = [] if sys.platform == "win32" else [m.process.sentinel for m in self.members]
        open_ends = [m.channel for m in self.members if m.channel.open]
        return channels.wait_any(open_ends, sentinels, seconds)

    def _collect(self) -> None:
        """Take in all messages that have arrived."""
        for member in self.members:
            if member.channel.has_more:
                member.channel.flush()
            for data, files in member.channel.receive():
                self._take(member, wire.unpack(data), files)

    def _take(self, member: Member, message: Any, files: list[int]) -> None:
        if isinstance(message, Ready):
            member.ready = True
            if message.error is not None:
                self._fail_to_start(message.error)
            return
        result: Result = message
        task = member.tasks.pop(result.number, None) if result.stamp == self.stamp else None
        if task is None:
            if result.place is not None:
                member.leases.drop(result.place, files)
            return
        batch = None
        try:
            if result.place is not None:
                batch = member.leases.open(result.data, result.place, files)
        except Exception as error:  # the batch has things that can't be made here
            result.error = ExceptionWrapper(error, f"in a batch of DataLoader worker {member.id}")
        self.results[result.number] = (result, batch)
        self.note(task, result)

    def _fail_to_start(self, error: ExceptionWrapper) -> None:
        self.close()
        error.reraise()

    # ---- watching ----

    def _bury(self, ready: set[int]) -> None:
        """Replace the workers that died."""
        for member in list(self.members):
            if member.channel.open and member.process.sentinel not in ready:
                continue
            for data, files in member.channel.receive():
                self._take(member, wire.unpack(data), files)
            if self.members[member.id] is member:
                self._replace(member, _cause(member))

    def _look(self, now: float) -> None:
        """Workers that live, but don't get on."""
        for member in list(self.members):
            if is_stopped(member.pid):
                member.stopped_since = member.stopped_since or now
                if now - member.stopped_since >= STOPPED_FOR:
                    self._replace(member, "was stopped (SIGSTOP) and did not continue")
                continue
            member.stopped_since = 0.0
            if not member.ready and now - member.since >= SLOW_START and not member.warned:
                member.warned = True
                notices.warn(
                    f"DataLoader worker {member.id} (pid {member.pid}) has been starting for "
                    f"{now - member.since:.0f} s (reading the dataset, or in worker_init_fn)."
                )
            at = self._at(member)
            if at != member.seen or at[0] in (IDLE, OPENING) or not member.tasks:
                member.seen = at
                member.since = now if member.ready else member.since
                continue
            task = member.tasks.get(at[0])
            if now - member.since >= SLOW_SAMPLE and not member.warned:
                member.warned = True
                notices.warn(
                    f"DataLoader worker {member.id} (pid {member.pid}) has been loading "
                    f"{self._sample(member)} for {now - member.since:.0f} s, and the program waits "
                    "for it. Pass timeout= to get an error instead, or look at this sample."
                )
            if now - member.since >= STUCK_SAMPLE and task is not None and task.shard < 0:
                self._replace(member, f"did not get on for {STUCK_SAMPLE:.0f} s")

    def _at(self, member: Member) -> tuple[int, int]:
        if self.page is None:
            return IDLE, IDLE
        task, position = AT.unpack_from(self.page.map, LINE * member.id + EPOCH_WORD.size)
        return task, position

    def _culprit(self, member: Member) -> Any:
        """Which sample a worker was at: a key, or (part, position) of a stream; None if at none."""
        number, position = self._at(member)
        task = member.tasks.get(number)
        if task is None:
            return None
        if task.shard >= 0:
            return "stream", task.shard, position
        if self.launcher.job.auto_collation and isinstance(task.keys, list | tuple):
            return task.keys[position] if 0 <= position < len(task.keys) else tuple(task.keys)
        return task.keys

    def _sample(self, member: Member) -> str:
        """The sample a worker is at, in words."""
        number, position = self._at(member)
        task = member.tasks.get(number)
        if task is None:
            waiting = next(iter(member.tasks.values()), None)
            if waiting is None or waiting.shard >= 0:
                return "no sample"
            return f"no sample (next: batch {describe_keys(waiting.keys)})"
        if task.shard >= 0:
            return f"sample {position} of part {task.shard} of the stream"
        culprit = self._culprit(member)
        if isinstance(task.keys, list) and culprit in task.keys:
            return f"sample {culprit!r} of the batch {describe_keys(task.keys)}"
        return f"sample {describe_keys(culprit)}"

    def _replace(self, member: Member, cause: str) -> None:
        """A new worker instead of one that is dead or must die; its tasks are done again."""
        culprit, sample = self._culprit(member), self._sample(member)
        lost = f"DataLoader worker {member.id} (pid {member.pid}) {cause} at {sample}"
        _end(member)
        self.respawns += 1
        self.early_deaths += not member.ready
        if culprit is not None:
            self.killers[repr(culprit)] += 1
        if self.killers[repr(culprit)] >= 2 or self.early_deaths >= 2:
            self._give_up(member, lost, culprit)
        if self.respawns > MOST_RESPAWNS:
            self._give_up(member, f"{lost}, after {MOST_RESPAWNS} others", None)
        notices.warn(
            f"{lost}. A new worker loads its samples again. A process killed by SIGKILL has often "
            "run out of memory; a segmentation fault comes from a library that the dataset calls.",
            RuntimeWarning,
        )
        fresh = self._start(member.id)
        self.members[member.id] = fresh
        for task in member.tasks.values():
            fresh.tasks[task.number] = task
            self._send(fresh, task)

    def _give_up(self, member: Member, lost: str, culprit: Any) -> None:
        self.close(grace=0.1)
        hint = "Set num_workers=0 to see where it happens."
        if culprit is not None:
            hint = f"It is the second worker that this sample ended. {hint}"
        elif not member.ready:
            hint = (
                "It ended before it had its dataset: can the script be imported without running "
                '(is its code under `if __name__ == "__main__":`), and the dataset be pickled?'
            )
        raise RuntimeError(
            f"DataLoader worker (pid(s) {member.pid}) exited unexpectedly: {lost}. {hint}"
        )

    def _time_out(self) -> None:
        places = [
            f"worker {m.id} (pid {m.pid}) is at {self._sample(m)}" for m in self.members if m.tasks
        ]
        self.close(grace=0.1)
        raise RuntimeError(
            f"DataLoader timed out after {self.timeout} seconds: {'; '.join(places)}"
        )


def _end(member: Member) -> None:
    """Kill a worker (a stopped one too) and let the system forget it."""
    member.channel.close()
    with contextlib.suppress(OSError, AttributeError):
        member.process.kill()
    member.process.join(GRACE)


def _cause(member: Member) -> str:
    """How a worker ended, in words."""
    member.process.join(1.0)
    code = member.process.exitcode
    if code is None:
        return "closed its channel"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"
    return f"exited with code {code}"


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal (where the system tells)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] == b"T"


@atexit.register
def _close_all() -> None:
    """Before multiprocessing waits for its children: a stopped one would keep it waiting."""
    for pool in list(_live):
        with contextlib.suppress(Exception):
            pool.close()
