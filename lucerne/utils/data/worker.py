"""The main function of a worker process: load what the parent asks for, until it is gone."""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import struct
from collections.abc import Callable
from multiprocessing import forkserver
from typing import Any

import numpy as np

from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.process.shared_memory import SharedBlock
from lucerne._src.tensor import api as lu
from lucerne.multiprocessing.signals import (
    die_of_crashes,
    die_with,
    leave_interrupts_to_parent,
)
from lucerne.utils.data import wire
from lucerne.utils.data._utils import collate as collating
from lucerne.utils.data._utils import worker as who
from lucerne.utils.data._utils.fetch import MapFetcher
from lucerne.utils.data._utils.worker import WorkerInfo
from lucerne.utils.data.channel import Channel
from lucerne.utils.data.errors import ExceptionWrapper, describe_keys
from lucerne.utils.data.seeds import SampleSeeds
from lucerne.utils.data.shards import Shard, ShardHost
from lucerne.utils.data.slots import Slots

# A worker's line on the page that it shares with the parent: the epoch that counts (written by the
# parent), then the task and the sample's position in it (written by the worker).
LINE = 64
EPOCH_WORD = struct.Struct("<q")
AT = struct.Struct("<qq")
IDLE = -1
OPENING = -2


@dataclasses.dataclass
class Job:
    """What a worker needs to load samples: the same for all workers of a loader."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], Any] | None
    streaming: bool
    auto_collation: bool
    batch_size: int | None
    drop_last: bool
    num_workers: int
    base_seed: int
    slot_budget: int
    slots_kept: int


@dataclasses.dataclass
class Setup:
    """The first message to a worker. Its files: the page, then the block of the job if any."""

    worker_id: int
    has_page: bool
    job: bytes | None = None
    """The pickled job; its buffers lie in the block."""
    layout: wire.Layout | None = None
    inline: list[bytes] | None = None
    block_bytes: int = 0


@dataclasses.dataclass
class Epoch:
    """Begin an epoch: `per_sample` tells whether each sample is seeded on its own."""

    stamp: int
    base_seed: int
    number: int
    per_sample: bool


@dataclasses.dataclass
class Open:
    """Open a part of a stream."""

    stamp: int
    shard: int
    total: int
    alone: bool
    """Whether this worker has no other part."""
    skip: int
    state: Any


@dataclasses.dataclass
class Task:
    """Load a batch: of these keys, or the next of a part of a stream."""

    stamp: int
    number: int
    keys: Any = None
    occurrences: list[int] | None = None
    shard: int = -1


@dataclasses.dataclass
class Free:
    """Slots that may be filled again."""

    slots: list[int]


@dataclasses.dataclass
class Result:
    """What became of a task: a batch, an error, or the end of a part of a stream."""

    stamp: int
    number: int
    data: bytes = b""
    place: Any = None
    error: ExceptionWrapper | None = None
    end: bool = False
    samples: int = 0
    state: Any = None


@dataclasses.dataclass
class Ready:
    """The worker has its dataset; or why not."""

    error: ExceptionWrapper | None = None


def main(sock: socket.socket, parent: int, close: list[int], job: Job | None) -> None:
    """Run a worker. `parent` is who must not die before us, 0 if that can't be watched; `close`
    are files of other workers that a fork left open here."""
    leave_interrupts_to_parent()
    die_of_crashes()
    if parent:
        die_with(parent)
    _cover(close)
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:  # the server must end when the program does
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    channel = Channel(sock, blocking=True)
    try:
        data, files = channel.wait()
        Worker(channel, wire.unpack(data), files, job).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent closed the channel, or is gone


def _cover(files: list[int]) -> None:
    """Close files that objects of the forked parent still know by number."""
    if files:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in files:
            os.dup2(nothing, fd)
        os.close(nothing)


class Stale(Exception):  # noqa: N818  (not an error: the epoch is over)
    """The parent has begun another epoch: nobody waits for this task."""


class Worker:
    """The state of a worker process."""

    def __init__(self, channel: Channel, setup: Setup, files: list[int], job: Job | None) -> None:
        lu.set_num_threads(1)
        self.channel, self.id = channel, setup.worker_id
        self.page: Any = SharedBlock(files.pop(0), LINE * (self.id + 1)) if setup.has_page else None
        self.line = LINE * self.id
        self.task: Task | None = None
        self.position = IDLE
        self.seeds: SampleSeeds | None = None
        self.epoch = Epoch(0, 0, 0, False)
        self.shards: dict[int, Shard] = {}
        self._broken: Exception = RuntimeError("this part of the stream was never opened")
        try:
            self._prepare(job if job is not None else self._load_job(setup, files))
            channel.send(wire.message(Ready()))
        except Exception as error:
            where = f"in DataLoader worker process {self.id}"
            channel.send(wire.message(Ready(ExceptionWrapper(error, where))))
            raise EOFError from error

    def _load_job(self, setup: Setup, files: list[int]) -> Job:
        """The job from its pickle: memory beside it is shared by all workers until written to."""
        assert setup.job is not None
        buffers: list[Any] = [bytearray(b) for b in setup.inline or []]
        if setup.layout:
            block = SharedBlock(files.pop(0), setup.block_bytes, private=True)
            block.close_fd()
            buffers = wire.cut(block.array, setup.layout)
        found: Job = wire.unpack(setup.job, buffers, files)
        return found

    def _prepare(self, job: Job) -> None:
        """Seed as PyTorch does, then let the user's `worker_init_fn` run."""
        self.job = job
        self.slots = Slots(job.slot_budget, job.slots_kept)
        seed = job.base_seed + self.id
        lu.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        if job.streaming:
            self.host = ShardHost(
                job.dataset, job.collate_fn, job.batch_size, job.drop_last, job.init_fn,
                self._next_of_stream,
            )  # fmt: skip
            return
        who.set_worker_info(WorkerInfo(self.id, job.num_workers, seed, job.dataset))
        if job.init_fn is not None:
            job.init_fn(self.id)
        self.fetcher = MapFetcher(job.dataset, job.auto_collation, job.collate_fn)

    def run(self) -> None:
        while True:
            data, _ = self.channel.wait()
            message = wire.unpack(data)
            match message:
                case Task():
                    self._do(message)
                case Free():
                    self.slots.released(message.slots)
                case Epoch():
                    self.epoch = message
                    self.shards.clear()
                    self.seeds = (
                        SampleSeeds(message.base_seed, message.number)
                        if message.per_sample
                        else None
                    )
                case Open():
                    self._open(message)

    def _open(self, message: Open) -> None:
        self.task = None
        self._note(OPENING, 0)
        try:
            self.shards[message.shard] = self.host.open(
                message.shard, message.total, message.alone, self.seeds, self.epoch.base_seed,
                message.skip, message.state,
            )  # fmt: skip
        except Exception as error:
            self._broken = error  # told when a batch is asked for
            self.shards.pop(message.shard, None)
        self._note(IDLE, IDLE)

    # ---- tasks ----

    def _do(self, task: Task) -> None:
        try:
            self._mark_at(task, 0)
            self.slots.begin()
            with collating.stacking_into(self.slots.allocate):
                result, batch = self._load(task)
            data, buffers = wire.pack(batch)
            del batch
            result.data = data
            result.place, files = self.slots.store(buffers)
            self._note(IDLE, IDLE)
            self.channel.send(wire.message(result), files)
            self.slots.sent(result.place)
        except Stale:
            self.slots.abandon()
            self._note(IDLE, IDLE)
            self.channel.send(wire.message(Result(task.stamp, task.number)))
        except Exception as error:
            self.slots.abandon()
            self._note(IDLE, IDLE)
            self.channel.send(wire.message(self._failure(task, error)))
        if not self.channel.open:
            raise EOFError

    def _load(self, task: Task) -> tuple[Result, Any]:
        result = Result(task.stamp, task.number)
        if task.shard < 0:
            return result, self.fetcher.fetch(task.keys, self._next_sample)
        shard = self.shards.get(task.shard)
        if shard is None:
            raise self._broken
        try:
            batch = shard.next_batch()
        except StopIteration:
            result.end, batch = True, None
        result.samples = shard.fetcher.taken
        result.state = shard.state()
        return result, batch

    def _failure(self, task: Task, error: Exception) -> Result:
        entry_failed(error)
        where = f"in DataLoader worker process {self.id}"
        wrapped = ExceptionWrapper(error, where, self._sample_text(task))
        ended = task.shard >= 0
        return Result(task.stamp, task.number, error=wrapped, end=ended)

    def _sample_text(self, task: Task) -> str:
        if task.shard >= 0:
            shard = self.shards.get(task.shard)
            return f"At sample {shard.at} of its part of the stream." if shard is not None else ""
        if not self.job.auto_collation:
            return f"While loading sample {task.keys!r}."
        if self.fetcher.single and 0 <= self.position < len(task.keys):
            key = task.keys[self.position]
            return f"While loading sample {key!r} of the batch {describe_keys(task.keys)}."
        return f"While loading the batch {describe_keys(task.keys)}."

    def _next_sample(self, position: int) -> None:
        """Called before each sample: tell where we are, and seed."""
        task = self.task
        assert task is not None
        self._mark_at(task, position)
        if self.seeds is not None:
            keys = task.keys if self.job.auto_collation else [task.keys]
            key = keys[position] if len(keys) else 0
            self.seeds.sow(key, task.occurrences[position] if task.occurrences else 0)

    def _next_of_stream(self, position: int) -> None:
        if self.task is not None:
            self._mark_at(self.task, position)

    def _mark_at(self, task: Task, position: int) -> None:
        self.task, self.position = task, position
        self._note(task.number, position)
        page = self.page
        if page is not None and task.stamp < EPOCH_WORD.unpack_from(page.map, self.line)[0]:
            raise Stale

    def _note(self, task: int, position: int) -> None:
        if self.page is not None:
            AT.pack_into(self.page.map, self.line + EPOCH_WORD.size, task, position)
