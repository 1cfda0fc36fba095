"""The thread pool of the kernels, itself written in LLVM IR.

`lucerne_pfor(task, block, n)` runs `void task(ptr block, i64 chunk, i64 tid)` for every chunk in
[0, n). The caller takes part as tid 0 and waits for the chunks only, never for a worker that has
not woken: a small job ends at once even if every worker sleeps. A call from inside a task, or from
a second Python thread while the pool is in use, runs its chunks serially as tid 0 (so a nested
call needs its own block). Workers start at the first parallel call, not at import.

How a job is handed out. One 64-bit ticket holds `epoch << 32 | taken last << 16 | taken first`;
whoever wants a chunk advances it by compare-and-exchange. Threads with an even number take the
first chunk that is left, the others the last one: in kernels that follow each other a thread then
works on the same end of a tensor, whose bytes are in its cache. Chunks beyond `_MOST` are handed
out several at a time. A new job raises the epoch. After the last chunk the ticket is poisoned
*before* the fields of the job change, so that a worker that comes late can never claim a chunk of
the next job with what it read of the old one.

Workers spin for about 100 us, then sleep on the epoch half of the ticket. `sleepers` is counted so
that a caller whose workers all spin makes no system call. Workers take over the floating-point
mode of the caller for each job (rounding, flushing of denormals), and block all signals.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST, WRITES_ONLY, Target
from lucerne._src.backends.cpu.runtime import symbols
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from lucerne._src.base.config import config
from lucerne._src.base.process import forks

SPINS = 6000
"""Pauses before a worker sleeps: 100 us where a pause is short (16 ns). Less than that, and workers
sleep between two calls of a small program from Python."""
_JOIN_SPINS = 4000
_POISON = (1 << 31) - 1
_SIDE_BITS = 16
_MOST = (1 << 15) - 1
"""Pieces of a job: fewer than what a poisoned ticket says was taken."""

# The layout of the pool's variable. What different threads write stands on different cache lines.
_TICKET, _EPOCH, _DONE, _SLEEPERS = 0, 4, 64, 128
_TASK, _BLOCK, _COUNT, _LIMIT, _MODE, _GROUP = 192, 200, 208, 216, 224, 232
_BUSY, WANTED, _RUNNING, SPINS_AT = 256, 264, 272, 280
_MUTEX, _CONDITION, _SIZE = 320, 448, 576
VARIABLE = "lucerne_pool"

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_SIG_SETMASK = 2 if HOST.system.startswith("linux") else 3
_SIGNAL_SET_BYTES = 128
_FLUSH_BITS = 0x8040  # flush to zero, denormals are zero


# ---- the code of the pool ---------------------------------------------------------------------


class _Writer:
    """Writes the pool for one processor and one way to sleep ("futex" or "condition")."""

    def __init__(self, m: Module, target: Target, sleep: str) -> None:
        self.m, self.target, self.sleep = m, target, sleep

    def write(self) -> None:
        self.m.variable(VARIABLE, f"[{_SIZE} x i8]", align=64, shown=True)
        self._wait()
        self._wake()
        self._drain()
        self._worker()
        self._spawn()
        self._parallel_for()
        self._set_flush()

    def _at(self, f: LLVMFunction, offset: int) -> LLVMValue:
        return f.at(f.symbol(VARIABLE), offset)

    def _pause(self, f: LLVMFunction) -> None:
        if self.target.is_x86:
            f.call("llvm.x86.sse2.pause", VOID, [])
        elif self.target.is_arm:
            f.call("llvm.aarch64.hint", VOID, [f.constant(1, I32)])

    def _futex(self, f: LLVMFunction, *args: LLVMValue) -> None:
        number = _FUTEX_NUMBER[self.target.machine]
        f.call("syscall", I64, [number, self._at(f, _EPOCH), *args], more_after=1)

    def _wait(self) -> None:
        """Sleep while the epoch is still `last`."""
        with self.m.function("pool_wait", [("last", I32)], internal=True) as f:
            [last] = f.args
            if self.sleep == "futex":
                f.atomic("add", self._at(f, _SLEEPERS), 1, I32)
                zero = f.zero(PTR)
                self._futex(f, f.constant(_FUTEX_WAIT_PRIVATE), f.convert("zext", last, I64), zero)
                f.atomic("sub", self._at(f, _SLEEPERS), 1, I32)
                return
            mutex = self._at(f, _MUTEX)
            f.call("pthread_mutex_lock", I32, [mutex])
            f.atomic("add", self._at(f, _SLEEPERS), 1, I32)
            same = f.compare("eq", f.atomic_load(I32, self._at(f, _EPOCH), "seq_cst"), last)
            with f.if_(same):
                f.call("pthread_cond_wait", I32, [self._at(f, _CONDITION), mutex])
            f.atomic("sub", self._at(f, _SLEEPERS), 1, I32)
            f.call("pthread_mutex_unlock", I32, [mutex])

    def _wake(self) -> None:
        """Wake up to `n` sleepers."""
        with self.m.function("pool_wake", [("n", I64)], internal=True) as f:
            if self.sleep == "futex":
                self._futex(f, f.constant(_FUTEX_WAKE_PRIVATE), f.args[0])
                return
            f.call("pthread_mutex_lock", I32, [self._at(f, _MUTEX)])
            f.call("pthread_cond_broadcast", I32, [self._at(f, _CONDITION)])
            f.call("pthread_mutex_unlock", I32, [self._at(f, _MUTEX)])

    def _drain(self) -> None:
        """Claim and run chunks as long as the ticket is of this epoch and has some left."""
        params = [("tid", I64), ("epoch", I32)]
        with self.m.function("pool_drain", params, internal=True) as f:
            tid, epoch = f.args
            task = f.atomic_load(PTR, self._at(f, _TASK))
            block = f.atomic_load(PTR, self._at(f, _BLOCK))
            count = f.atomic_load(I64, self._at(f, _COUNT))
            group = f.atomic_load(I64, self._at(f, _GROUP))
            pieces = f.ceil_div(count, group)
            from_end = f.compare("ne", tid & 1, 0)
            step = f.select(from_end, f.constant(1 << _SIDE_BITS), 1)
            ticket_place = self._at(f, _TICKET)
            with f.while_([f.atomic_load(I64, ticket_place)]) as loop:
                [ticket] = loop.carried
                ticket_epoch = f.convert("trunc", f.bits("lshr", ticket, 32), I32)
                first = ticket & ((1 << _SIDE_BITS) - 1)
                last = f.bits("lshr", ticket, _SIDE_BITS) & ((1 << _SIDE_BITS) - 1)
                claimable = f.compare("eq", ticket_epoch, epoch) & (first + last < pieces)
                with f.if_(claimable) as try_:
                    seen, claimed = f.compare_exchange(ticket_place, ticket, ticket + step)
                    with f.if_(claimed) as run:
                        piece = f.select(from_end, pieces - 1 - last, first)
                        start = piece * group
                        stop = f.minimum(start + group, count)
                        with f.loop(start, stop) as chunks:
                            f.call_at(task, VOID, [block, chunks.index, tid])
                        done = f.convert("trunc", stop - start, I32)
                        f.atomic("add", self._at(f, _DONE), done, I32, "release")
                        run.give(f.atomic_load(I64, ticket_place))
                    with run.else_():
                        run.give(seen)
                    try_.give(run.results[0])
                with try_.else_():
                    try_.give(ticket)
                loop.again(claimable, try_.results[0])

    def _worker(self) -> None:
        """The life of one worker: wait for an epoch it has not seen, and help."""
        with self.m.function("pool_worker", [("number", PTR)], PTR, internal=True) as f:
            tid = f.convert("ptrtoint", f.args[0], I64)
            epoch_place = self._at(f, _EPOCH)
            with f.while_([f.constant(0, I32)]) as life:
                [last] = life.carried
                spins = f.load(I64, self._at(f, SPINS_AT))
                with f.while_([f.constant(0)]) as spin:
                    epoch = f.atomic_load(I32, epoch_place)
                    self._pause(f)
                    same = f.compare("eq", epoch, last)
                    spin.again(same & (spin.carried[0] < spins), spin.carried[0] + 1)
                with f.if_(same):
                    f.call("pool_wait", VOID, [last])
                with f.if_(f.compare("ne", epoch, last)):
                    self._take_over_mode(f)
                    limit = f.atomic_load(I64, self._at(f, _LIMIT))
                    with f.if_(tid < limit):
                        f.call("pool_drain", VOID, [tid, epoch])
                life.again(f.compare("eq", f.constant(0), 0), epoch)
            f.ret(0)

    def _take_over_mode(self, f: LLVMFunction) -> None:
        if self.target.is_x86:
            f.call("llvm.x86.sse.ldmxcsr", VOID, [self._at(f, _MODE)])

    def _spawn(self) -> None:
        """Start the workers that are wanted and missing, detached, with all signals blocked."""
        with self.m.function("pool_spawn", [], internal=True) as f:
            handle, everything, before = (f.stack(_SIGNAL_SET_BYTES, 16) for _ in range(3))
            f.call("sigfillset", I32, [everything])
            mask = f.constant(_SIG_SETMASK, I32)
            f.call("pthread_sigmask", I32, [mask, everything, before])
            running = f.load(I64, self._at(f, _RUNNING))
            wanted = f.load(I64, self._at(f, WANTED))
            with f.loop(running + 1, wanted) as loop:
                number = f.convert("inttoptr", loop.index, PTR)
                made = f.call(
                    "pthread_create", I32, [handle, f.zero(PTR), f.symbol("pool_worker"), number]
                )
                with f.if_(f.compare("eq", made, 0)) as good:
                    f.call("pthread_detach", I32, [f.load(PTR, handle)])
                    f.store(loop.index, self._at(f, _RUNNING))
                with good.else_():
                    # The system gives no more threads: be content with those there are.
                    f.store(f.load(I64, self._at(f, _RUNNING)) + 1, self._at(f, WANTED))
            f.call("pthread_sigmask", I32, [mask, before, f.zero(PTR)])

    def _parallel_for(self) -> None:
        params = [("task", PTR), ("block", PTR), ("n", I64)]
        with self.m.function("lucerne_pfor", params) as f:
            task, block, n = f.args
            wanted = f.load(I64, self._at(f, WANTED))
            several = (n > 1) & (n < _POISON) & (wanted > 1)
            with f.if_(several) as ask:
                _, free = f.compare_exchange(
                    self._at(f, _BUSY), f.constant(0, I32), 1, "acquire monotonic"
                )
                ask.give(free)
            with ask.else_():
                ask.give(several)
            with f.if_(ask.results[0]):
                self._parallel_job(f, task, block, n)
                f.ret()
            with f.loop(0, n) as loop:
                f.call_at(task, VOID, [block, loop.index, 0])

    def _parallel_job(
        self, f: LLVMFunction, task: LLVMValue, block: LLVMValue, n: LLVMValue
    ) -> None:
        with f.if_(f.load(I64, self._at(f, _RUNNING)) + 1 < f.load(I64, self._at(f, WANTED))):
            f.call("pool_spawn", VOID, [])
        wanted, running = f.load(I64, self._at(f, WANTED)), f.load(I64, self._at(f, _RUNNING))
        self._publish(f, task, block, n, wanted)
        ticket_place = self._at(f, _TICKET)
        epoch = f.bits("lshr", f.atomic_load(I64, ticket_place), 32) + 1
        f.atomic("xchg", ticket_place, epoch << 32)
        sleepers = f.atomic_load(I32, self._at(f, _SLEEPERS), "seq_cst")
        with f.if_(sleepers > 0):
            # A sleeper beyond the limit would swallow a wake-up: then wake all.
            count = f.select(wanted > running, n - 1, _POISON)
            f.call("pool_wake", VOID, [count])
        f.call("pool_drain", VOID, [0, f.convert("trunc", epoch, I32)])
        self._join(f, f.convert("trunc", n, I32))
        f.atomic_store((epoch << 32) | _POISON, ticket_place)
        f.atomic_store(f.constant(0, I32), self._at(f, _BUSY))

    def _publish(
        self, f: LLVMFunction, task: LLVMValue, block: LLVMValue, n: LLVMValue, limit: LLVMValue
    ) -> None:
        group = f.ceil_div(n, _MOST)
        published = (
            (task, _TASK), (block, _BLOCK), (n, _COUNT), (limit, _LIMIT), (group, _GROUP),
        )  # fmt: skip
        for v, place in published:
            f.atomic_store(v, self._at(f, place))
        if self.target.is_x86:
            f.call("llvm.x86.sse.stmxcsr", VOID, [self._at(f, _MODE)])
        f.atomic_store(f.constant(0, I32), self._at(f, _DONE), "monotonic")

    def _join(self, f: LLVMFunction, n: LLVMValue) -> None:
        """Wait until `n` chunks are done: spin, then give the core away."""
        with f.while_([f.constant(0)]) as wait:
            [tries] = wait.carried
            missing = f.compare("ne", f.atomic_load(I32, self._at(f, _DONE)), n)
            with f.if_(missing):
                with f.if_(tries < _JOIN_SPINS) as patient:
                    self._pause(f)
                with patient.else_():
                    f.call("sched_yield", I32, [])
            wait.again(missing, tries + 1)

    def _set_flush(self) -> None:
        """Switch flushing of denormals for the calling thread; false where that can't be done."""
        with self.m.function("lucerne_set_flush", [("on", I64)], I64) as f:
            if not self.target.is_x86:
                f.ret(0)
                return
            place = f.stack(16, 16)
            f.call("llvm.x86.sse.stmxcsr", VOID, [place])
            cleared = f.load(I32, place) & ~_FLUSH_BITS
            on = f.compare("ne", f.args[0], 0)
            f.store(f.select(on, cleared | _FLUSH_BITS, cleared), place)
            f.call("llvm.x86.sse.ldmxcsr", VOID, [place])
            f.ret(1)


def way_to_sleep() -> str:
    """How workers sleep on the machine that is written for."""
    return "futex" if HOST.system == "linux" and HOST.machine in _FUTEX_NUMBER else "condition"


def write_pool(sleep: str) -> Callable[[Module], None]:
    return lambda m: _Writer(m, HOST, sleep).write()


# ---- the pool of this process -----------------------------------------------------------------


def _cores() -> int:
    """Cores this process may use; two hardware threads of one core count once. What is written for
    elsewhere does not depend on this machine."""
    if WRITES_ONLY:
        return 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (allowed or 1) // HOST.threads_per_core)


MAX_THREADS = min(64, max(4, _cores(), config.threads))
"""No task ever sees a tid of this or more: scratch per thread is sized by it."""


class Pool:
    """One pool: its code and its variable."""

    def __init__(self, code: Code, threads: int) -> None:
        self.code, self.base = code, code[VARIABLE]
        ctypes.c_int64.from_address(self.base + SPINS_AT).value = SPINS
        self.set_threads(threads)

    def set_threads(self, n: int) -> None:
        ctypes.c_int64.from_address(self.base + WANTED).value = min(n, MAX_THREADS)

    def set_spins(self, n: int) -> None:
        ctypes.c_int64.from_address(self.base + SPINS_AT).value = n

    def workers(self) -> int:
        """How many workers were started."""
        return ctypes.c_int64.from_address(self.base + _RUNNING).value

    def forget_workers(self) -> None:
        """In a forked child: no worker exists; they start anew at the next parallel call."""
        wanted = ctypes.c_int64.from_address(self.base + WANTED).value
        spins = ctypes.c_int64.from_address(self.base + SPINS_AT).value
        ctypes.memset(self.base, 0, _SIZE)
        self.set_threads(wanted)
        self.set_spins(spins)


def make_pool(threads: int) -> Pool:
    """A pool of its own; the process uses the one of `pool()`."""
    sleep = way_to_sleep()
    code = compiled(("pool", sleep), write_pool(sleep))
    made = Pool(code, threads)
    forks.in_child(made.forget_workers)
    return made


@dataclass
class _State:
    threads: int
    pool: Pool | None = None


_state = _State(min(MAX_THREADS, config.threads or _cores()))


def pool() -> Pool:
    """The pool of this process, made when first asked for."""
    if _state.pool is None:
        _state.pool = make_pool(_state.threads)
    return _state.pool


def threads() -> int:
    """How many threads kernels use now. For scratch per thread use MAX_THREADS."""
    return _state.threads


def set_threads(n: int) -> None:
    """From now on kernels use `n` threads, the caller's included (at most MAX_THREADS)."""
    if n < 1:
        raise ValueError(f"the number of threads must be positive, got {n}")
    _state.threads = min(n, MAX_THREADS)
    if _state.pool is not None:
        _state.pool.set_threads(_state.threads)


def set_flush_denormal(on: bool) -> bool:
    """Let this thread, and workers while they work for it, treat denormals as zero. False where
    the processor can't. Denormals are kept unless this is called."""
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(pool().code["lucerne_set_flush"])
    return bool(call(int(on)))


symbols.provide("lucerne_pfor", lambda: pool().code["lucerne_pfor"])
symbols.provide("lucerne_threads", lambda: pool().base + WANTED)
