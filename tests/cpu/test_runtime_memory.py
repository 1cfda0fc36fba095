"""The allocator: blocks never overlap, sizes are accounted for, guard pages catch errors."""

import ctypes
import gc
import itertools
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, Module
from lucerne._src.backends.cpu.runtime import memory
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.base.errors import OutOfMemoryError

SIZES = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 22), st.integers(0, memory.LARGEST))


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@given(SIZES)
def test_classes_hold_their_sizes_with_little_waste(nbytes: int) -> None:
    number, size = memory.class_of(nbytes)
    assert nbytes <= size <= max(256, nbytes * 5 // 4 + 64)
    assert size % memory.ALIGNMENT == 0
    assert memory.class_of(size) == (number, size)
    assert memory.class_of(size + 1)[0] == number + 1
    assert 0 <= number < memory._CLASSES


@given(st.integers(0, 1 << 21))
def test_compiled_code_has_the_same_classes(nbytes: int) -> None:
    found = memory.allocator()
    before = found.stats()["allocated_bytes"]
    block = memory.HostBlock(nbytes)
    assert found.stats()["allocated_bytes"] - before == memory.class_of(nbytes)[1]
    assert block.address % memory.ALIGNMENT == 0
    del block
    assert found.stats()["allocated_bytes"] == before


def test_blocks_never_overlap() -> None:
    rng = random.Random(0)
    gc.collect()
    found = memory.allocator()
    before = found.stats()["allocated_bytes"]
    live: list[tuple[np.ndarray, int]] = []
    for turn in range(5000):
        most = 3_000_000 if turn % 50 == 0 else 200_000 if turn % 5 == 0 else 3000
        array, mark = memory.allocate(rng.randrange(most)), rng.randrange(256)
        array[:16], array[-16:] = mark, mark
        live.append((array, mark))
        if len(live) > 100:
            array, mark = live.pop(rng.randrange(len(live)))
            assert (array[:16] == mark).all()
            assert (array[-16:] == mark).all()
    ends = sorted((address(a), address(a) + a.nbytes) for a, _ in live if a.nbytes)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
    del array
    held = sum(memory.class_of(a.nbytes)[1] for a, _ in live)
    assert found.stats()["allocated_bytes"] - before == held
    live.clear()
    assert found.stats()["allocated_bytes"] == before


@pytest.mark.parametrize("nbytes", [1, 100, 5000, 100_000, 1 << 20, 5 << 20])
def test_freed_block_is_handed_out_next(nbytes: int) -> None:
    block = memory.HostBlock(nbytes)
    where = block.address
    block.__del__()
    del block.address
    assert memory.HostBlock(nbytes).address == where


def test_large_blocks_go_back_to_the_system() -> None:
    found = memory.allocator()
    found.empty_cache()
    before = found.stats()
    block = memory.HostBlock(40 << 20)
    during = found.stats()
    del block
    kept = found.stats()
    found.empty_cache()
    after = found.stats()
    assert during["reserved_bytes"] - before["reserved_bytes"] == 40 << 20
    assert kept["reserved_bytes"] == during["reserved_bytes"]
    assert kept["cached_bytes"] - before["cached_bytes"] == 40 << 20
    assert after["reserved_bytes"] == before["reserved_bytes"]
    assert after["cached_bytes"] == before["cached_bytes"]


def test_more_than_the_limit_is_not_kept() -> None:
    found = memory.allocator()
    limit = found.word(memory.LIMIT)
    found.empty_cache()
    found._set(memory.LIMIT, found.stats()["cached_bytes"] + (10 << 20))
    try:
        blocks = [memory.HostBlock(6 << 20) for _ in range(3)]
        before = found.stats()["reserved_bytes"]
        blocks.clear()
        assert before - found.stats()["reserved_bytes"] == 12 << 20
    finally:
        found._set(memory.LIMIT, limit)
        found.empty_cache()


@pytest.mark.parametrize("nbytes", [1 << 39, memory.LARGEST + 1, (1 << 63) - 1, -1])
def test_impossible_sizes_raise(nbytes: int) -> None:
    with pytest.raises(OutOfMemoryError, match="can't allocate"):
        memory.allocate(nbytes)


def test_compiled_code_shares_the_memory() -> None:
    def write(m: Module) -> None:
        with m.function("take", [("n", I64)], PTR) as f:
            f.ret(f.call("lucerne_alloc", PTR, [f.args[0]]))
        with m.function("give", [("block", PTR), ("n", I64)]) as f:
            f.call("lucerne_free", VOID, [f.args[0], f.args[1]])

    code = compiled("test_runtime_memory", write)
    take = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code["take"])
    give = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["give"])
    where = take(777)
    give(where, 777)
    assert memory.HostBlock(777).address == where


def test_peak_counts_from_its_reset() -> None:
    found = memory.allocator()
    found.reset_peak()
    start = found.stats()["peak_bytes"]
    block = memory.HostBlock(1 << 20)
    del block
    assert found.stats()["peak_bytes"] - start == 1 << 20
    found.reset_peak()
    assert found.stats()["peak_bytes"] == start


def test_statistics_have_public_names() -> None:
    """They are empty where the backend leaves memory to the system."""
    host = lucerne.memory_stats()
    assert lucerne.memory_allocated() == host.get("allocated_bytes", 0)
    assert lucerne.max_memory_allocated() >= lucerne.memory_allocated()
    assert lucerne.memory_reserved() >= lucerne.memory_allocated()
    lucerne.reset_peak_memory_stats()
    lucerne.empty_cache()
    assert lucerne.memory_stats("reference") == {}


# ---- guard pages ------------------------------------------------------------------------------

GUARDED = """
import ctypes, gc
from lucerne._src.backends.cpu.runtime import memory
from lucerne._src.base.config import config
config.guard_pages = {}
block = memory.HostBlock(100)
assert ctypes.string_at(block.address, 100) == bytes([0xCB]) * 100
assert block.address % 16 == 0
{}
del block
big = memory.allocate(10_000); big[:] = 1; del big
assert memory.allocator().stats()["allocated_bytes"] == 0
print("done")
"""
ATTEMPTS = [
    (16, "ctypes.memset(block.address, 0, 100)", 0),
    (16, "ctypes.memset(block.address + 100, 0, 1)", signal.SIGABRT),
    (16, "ctypes.memset(block.address - 1, 0, 1)", signal.SIGABRT),
    (16, "ctypes.string_at(block.address + 112, 1)", signal.SIGSEGV),
    (16, "ctypes.string_at(block.address - 4096, 1)", signal.SIGSEGV),
    (16, "at = block.address; del block; ctypes.string_at(at, 1)", signal.SIGSEGV),
    (-1, "ctypes.memset(block.address, 0, 100)", 0),
    (-1, "ctypes.memset(block.address + 100, 0, 1)", signal.SIGABRT),
    (-1, "ctypes.string_at(block.address - 1, 1)", signal.SIGSEGV),
    (16, "for i in range(70_000): memory.HostBlock(64 << i % 9)", 0),  # more than the system maps
]


def test_guard_pages_catch_errors() -> None:
    """All attempts in one process that forks: importing the package takes longest."""
    text = (
        "import os, sys\nimport lucerne\n"
        f"for side, attempt in {[attempt for *attempt, _ in ATTEMPTS]!r}:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        f"        exec({GUARDED!r}.format(side, attempt))\n"
        "        os._exit(0)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        # without the fast path nothing allocates before the guards are switched on
        env={**os.environ, "LUCERNE_FAST_PATH": "0"},
    )
    codes = [int(word) for word in done.stdout.split() if word != "done"]
    assert codes == [-expected for *_, expected in ATTEMPTS], done.stderr
    assert done.stderr.count("memory outside a tensor was overwritten") == 3
