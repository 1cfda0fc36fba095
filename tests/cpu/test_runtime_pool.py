"""The thread pool: every chunk runs once, whatever the workers do; forks and sleep are harmless."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from lucerne._src.backends.cpu.emit.builder import F32, I64, PTR, VOID, Module
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from tests.support.pace import slowness

WIDTH = 40
JOBS = 5000


def _write(m: Module) -> None:
    """Tasks that count their calls, and a driver that runs many jobs of given sizes."""
    task = [("counts", PTR), ("chunk", I64), ("tid", I64)]
    with m.function("count", task) as f:
        counts, chunk, _ = f.args
        f.atomic("add", f.at(counts, chunk, I64), 1, order="monotonic")
    with m.function("count_nested", task) as f:
        f.call("lucerne_pfor", VOID, [f.symbol("count"), f.args[0], WIDTH])
    with m.function("note_tid", task) as f:
        f.store(f.args[2], f.at(f.args[0], f.args[1], I64))
    with m.function("halve", task) as f:
        place = f.at(f.args[0], f.args[1], F32)
        f.store(f.load(F32, place) * 0.5, place)
    with m.function("run", [("task", PTR), ("jobs", I64), ("sizes", PTR), ("blocks", PTR)]) as f:
        task_, jobs, sizes, blocks = f.args
        with f.loop(0, jobs) as loop:
            block = f.load(PTR, f.at(blocks, loop.index, I64))
            size = f.load(I64, f.at(sizes, loop.index, I64))
            f.call("lucerne_pfor", VOID, [task_, block, size])


@pytest.fixture(scope="module")
def code() -> Code:
    return compiled(("test_runtime_pool", WIDTH), _write)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = pool.threads()
    yield
    pool.set_threads(before)
    pool.pool().set_spins(pool.SPINS)


def run_jobs(code: Code, task: str, sizes: np.ndarray, counts: np.ndarray) -> None:
    """Run job i with sizes[i] chunks on row i of `counts`; the GIL is released meanwhile."""
    rows = counts.__array_interface__["data"][0] + np.arange(len(sizes)) * counts.strides[0]
    sizes, rows = sizes.astype(np.int64), rows.astype(np.int64)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code["run"])
    address = [a.__array_interface__["data"][0] for a in (sizes, rows)]
    call(code[task], len(sizes), *address)


def check_jobs(code: Code, jobs: int, seed: int) -> None:
    sizes = np.random.default_rng(seed).integers(0, WIDTH + 1, jobs)
    counts = np.zeros((jobs, WIDTH), np.int64)
    run_jobs(code, "count", sizes, counts)
    np.testing.assert_array_equal(counts, np.arange(WIDTH) < sizes[:, None])


@pytest.mark.parametrize("spins", [2000, 5, 0])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_chunk_runs_once(code: Code, threads: int, spins: int) -> None:
    pool.set_threads(threads)
    pool.pool().set_spins(spins)
    for seed in range(2):
        check_jobs(code, JOBS, seed)


@pytest.mark.parametrize("spins", [2000, 5, 0])
def test_every_chunk_of_100_000_jobs_runs_once(code: Code, spins: int) -> None:
    """More workers than cores: they are stopped at every possible place."""
    pool.set_threads(4)
    pool.pool().set_spins(spins)
    for seed in range(20):
        check_jobs(code, JOBS, seed)


@pytest.mark.parametrize("chunks", [32766, 32767, 32768, 65535, 65536, 200_001])
def test_jobs_of_very_many_chunks(code: Code, chunks: int) -> None:
    """More than a ticket can count: they are handed out several at a time."""
    pool.set_threads(4)
    counts = np.zeros((1, chunks + 64), np.int64)
    run_jobs(code, "count", np.array([chunks]), counts)
    np.testing.assert_array_equal(counts[0], np.arange(chunks + 64) < chunks)


def test_a_thread_works_on_one_end(code: Code) -> None:
    """The caller takes the first chunks and a worker the last ones: no other order is possible."""
    pool.set_threads(2)
    tids = np.zeros((200, WIDTH), np.int64)
    run_jobs(code, "note_tid", np.full(200, WIDTH), tids)
    assert set(np.unique(tids)) <= {0, 1}
    np.testing.assert_array_equal(tids, np.sort(tids, axis=1))


def test_nested_calls_run_their_chunks(code: Code) -> None:
    pool.set_threads(4)
    counts = np.zeros((200, WIDTH), np.int64)
    run_jobs(code, "count_nested", np.full(200, 7), counts)
    assert (counts == 7).all()


def test_python_threads_share_the_pool(code: Code) -> None:
    pool.set_threads(4)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            check_jobs(code, JOBS, seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("threads", [4, 2, 1, 3])
def test_thread_numbers_stay_below_the_limit(code: Code, threads: int) -> None:
    pool.set_threads(threads)
    tids = np.full((500, WIDTH), -1, np.int64)
    run_jobs(code, "note_tid", np.full(500, WIDTH), tids)
    assert tids.min() >= 0
    assert tids.max() < threads <= pool.MAX_THREADS


def test_thread_count_must_be_positive_and_is_capped() -> None:
    with pytest.raises(ValueError, match="positive"):
        pool.set_threads(0)
    pool.set_threads(1000)
    assert pool.threads() == pool.MAX_THREADS


def test_sleeping_by_condition_variable_is_the_same_pool() -> None:
    """What systems without futexes use."""
    own = compiled(("pool", "condition"), pool.write_pool("condition"))
    made = pool.Pool(own, 4)

    def write(m: Module) -> None:
        with m.function("count", [("counts", PTR), ("chunk", I64), ("tid", I64)]) as f:
            f.atomic("add", f.at(f.args[0], f.args[1], I64), 1, order="monotonic")

    task = compiled("test_runtime_pool condition", write)["count"]
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    counts = np.zeros(WIDTH, np.int64)
    for spins, rounds in ((2000, 2000), (0, 2000)):
        made.set_spins(spins)
        for _ in range(rounds):
            call(own["lucerne_pfor"])(task, counts.__array_interface__["data"][0], WIDTH)
    assert (counts == 4000).all()


def test_forked_child_starts_its_own_workers(code: Code) -> None:
    pool.set_threads(2)
    check_jobs(code, 100, 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            none_at_first = pool.pool().workers() == 0
            check_jobs(code, 1000, 1)
            status = 0 if none_at_first and pool.pool().workers() == 1 else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 15
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == (child, 0), "the child hung or failed"
    check_jobs(code, 100, 2)


def test_idle_workers_sleep(code: Code) -> None:
    pool.set_threads(4)
    check_jobs(code, 1000, 0)
    time.sleep(0.02)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.002 * slowness()


def test_workers_block_signals(code: Code) -> None:
    """So that Python's handlers run in Python's threads."""
    pool.set_threads(2)
    check_jobs(code, 100, 0)
    masks = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as file:
            fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
        masks.append(int(fields["SigBlk"], 16))
    assert any(mask & 1 << signal.SIGINT - 1 for mask in masks)


def test_denormals_are_kept_unless_told(code: Code) -> None:
    tiny = np.float32(1e-40)

    def halved() -> np.ndarray:
        values = np.full((1, 4096), tiny)
        run_jobs(code, "halve", np.array([4096]), values)
        return values

    pool.set_threads(2)
    kept = halved()
    assert pool.set_flush_denormal(True)
    flushed = halved()
    assert pool.set_flush_denormal(False)
    assert (kept == tiny / 2).all()
    assert (flushed == 0).all()
    assert (halved() == kept).all()


def test_workers_wait_for_longer_than_python_takes_between_two_calls() -> None:
    """Some 60 us, where a pause takes 16 ns: a worker that sleeps by then costs each call more."""
    assert pool.SPINS * 16e-9 > 90e-6
