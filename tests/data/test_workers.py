"""Worker processes: how batches travel, what errors say, and what happens when things break."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.base.process.shared_memory import SharedBlock
from lucerne.utils.data import DataLoader, Dataset, channel, get_worker_info, wire
from lucerne.utils.data import pool as pools
from lucerne.utils.data import seeds as seeds
from lucerne.utils.data import slots as slots_module
from lucerne.utils.data.launch import Launcher
from lucerne.utils.data.seeds import SampleSeeds
from tests.data import faults
from tests.data.samples import Augmented, Deadly, Raises, Stream, Stuck, plain
from tests.support.pace import fastest, slowness

pytestmark = pytest.mark.filterwarnings(
    "ignore:DataLoader worker [0-9]+ .* loads its samples again:RuntimeWarning"
)


def batches(loader: Any) -> list[Any]:
    return [plain(batch) for batch in loader]


def expected_of(dataset: Any, **options: Any) -> list[Any]:
    lucerne.manual_seed(1)
    return batches(DataLoader(dataset, reproducible=True, **options))


# ---- determinism ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [None, "fork", "spawn", "forkserver"])
def test_all_ways_to_start_give_the_same(method: str | None) -> None:
    lucerne.manual_seed(1)
    found = []
    for workers in (1, 2) if method is None else (2,):
        lucerne.manual_seed(1)
        loader = DataLoader(
            Augmented(9), 2, shuffle=True, num_workers=workers, multiprocessing_context=method,
            reproducible=True, persistent_workers=True,
        )  # fmt: skip
        found.append([batches(loader), batches(loader)])
    lucerne.manual_seed(1)
    loader = DataLoader(Augmented(9), 2, shuffle=True, reproducible=True)
    wanted = [batches(loader), batches(loader)]
    assert all(two == wanted for two in found)
    assert wanted[0] != wanted[1]


def test_seeding_in_this_process_leaves_no_trace() -> None:
    lucerne.manual_seed(4)
    loader = DataLoader(Augmented(6), 2, reproducible=True)
    iterator = iter(loader)
    before = lucerne.get_rng_state(), np.random.get_state()[1].tolist()
    next(iterator)
    assert lucerne.equal(lucerne.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_a_sample_drawn_twice_is_augmented_twice() -> None:
    lucerne.manual_seed(4)
    found = batches(DataLoader(Augmented(3), 4, sampler=[1, 1, 2, 1], num_workers=1))
    [[keys, draws, *_]] = found
    assert keys == [1, 1, 2, 1]
    assert len(set(draws)) == 4


def test_seeds_spread() -> None:
    found = {
        SampleSeeds(base, epoch).seed_for(key, again)
        for base in (0, 1, 2**62)
        for epoch in range(3)
        for key in (*range(50), "a", ("a", 1), -1)
        for again in range(2)
    }
    assert len(found) == 3 * 3 * 53 * 2


def test_seeding_a_sample_is_cheap() -> None:
    some = SampleSeeds(1, 2)

    def sow() -> None:
        for _ in range(50):
            some.sow(7)

    assert fastest(sow, 20) / 50 < 60e-6 * slowness()  # 15 us on a quiet machine


def _seed_and_id(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.seen = (worker_id, info.id, info.num_workers, info.seed - worker_id)


class Told(Dataset[Any]):
    """Says what its worker was told."""

    seen: Any = None

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return self.seen


def test_worker_init_fn_and_info() -> None:
    loader = DataLoader(Told(), batch_size=None, num_workers=2, worker_init_fn=_seed_and_id)
    found = [tuple(row) for row in loader]
    assert [row[:3] for row in found] == [(0, 0, 2), (1, 1, 2)] * 2
    assert len({row[3] for row in found}) == 1


# ---- how batches travel -----------------------------------------------------------------------


class Large(Dataset[Any]):
    """Arrays and tensors of many kinds, a third of a megabyte."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> Any:
        big = lucerne.full((3, 100, 100), float(i))
        row = lucerne.arange(1000)[i * 10 : i * 10 + 10]
        half = lucerne.full((7,), i, dtype=lucerne.bfloat16)
        return {"big": big, "row": row, "half": half, "name": f"s{i}", "n": i}


def _as_is(batch: Any) -> Any:
    return batch


def test_tensors_lie_in_shared_slots_that_are_reused() -> None:
    loader = DataLoader(Large(), 4, num_workers=1)
    addresses = set()
    for number, batch in enumerate(loader):
        assert batch["big"].shape == (4, 3, 100, 100)
        assert (
            batch["big"][:, 0, 0, 0].tolist() == batch["n"].tolist() == batch["half"][:, 0].tolist()
        )
        assert batch["row"][:, 3].tolist() == [(4 * number + j) * 10 + 3 for j in range(4)]
        assert batch["name"] == [f"s{4 * number + j}" for j in range(4)]
        addresses.add(batch["big"].data_ptr())
    assert len(addresses) < 6, "6 batches, and no slot was used twice"


def test_a_kept_batch_is_not_overwritten() -> None:
    loader = DataLoader(Large(), 2, num_workers=2)
    views = [batch["big"][1].numpy() for batch in loader]
    gc.collect()
    assert [int(view[0, 0, 0]) for view in views] == list(range(1, 24, 2))
    lists = list(DataLoader(Large(), 1, num_workers=1, prefetch_factor=1))
    assert [int(batch["big"][0, 0, 0, 0]) for batch in lists] == list(range(24))


def test_batches_can_be_written() -> None:
    for batch in DataLoader(Large(), 4, num_workers=1):
        batch["big"].add_(1)
        assert batch["big"][0, 0, 0, 0] == batch["n"][0] + 1


@pytest.mark.parametrize("collate", [_as_is, None])
def test_strange_batches(collate: Any) -> None:
    found = list(DataLoader(Large(), 3, num_workers=2, collate_fn=collate))
    wanted = list(DataLoader(Large(), 3, collate_fn=collate))
    assert plain(found) == plain(wanted)


class Kept:
    """A collate function that keeps what it made: its memory must not be reused."""

    def __init__(self) -> None:
        self.first: Any = None

    def __call__(self, batch: Any) -> Any:
        made = lucerne.utils.data.default_collate([item["big"] for item in batch])
        if self.first is None and made.shape[0] == 2 and batch[0]["n"] >= 2:
            self.first = made
        return [made, -1.0 if self.first is None else float(self.first[0, 0, 0, 0])]


def test_a_collate_function_may_keep_its_batch() -> None:
    found = [kept for _, kept in DataLoader(Large(), 2, num_workers=1, collate_fn=Kept())]
    assert found == [-1.0] + [2.0] * 11


def test_without_room_in_shared_memory_batches_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "_slot_budget", lambda self: 3 << 20)
    wanted = plain(list(DataLoader(Large(), 4)))
    assert plain(list(DataLoader(Large(), 4, num_workers=2))) == wanted
    monkeypatch.setattr(DataLoader, "_slot_budget", lambda self: 0)
    assert plain(list(DataLoader(Large(), 4, num_workers=2))) == wanted


def test_no_memory_is_an_error_and_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="more than half of the memory"):
        SharedBlock.make(1 << 62)

    def full(nbytes: int) -> SharedBlock:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slots_module.SharedBlock, "make", full)
    slots = slots_module.Slots(1 << 30, 2)
    slots.begin()
    place, files = slots.store([memoryview(bytes(1 << 20))])
    assert place.inline is not None
    assert files == []


def test_large_arrays_of_a_dataset_are_shared_by_workers() -> None:
    class_ = Shared(np.arange(1 << 20, dtype=np.float64))
    loader = DataLoader(
        class_, batch_size=None, num_workers=2, multiprocessing_context="forkserver"
    )
    found = list(loader)
    assert [value for value, _ in found] == [0.0, 1.0, 2.0, 3.0]
    assert all("memfd:lucerne" in kind for _, kind in found)


class Shared(Dataset[Any]):
    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        address = self.array.__array_interface__["data"][0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return float(self.array[i]), line
        return float(self.array[i]), ""


def test_mapped_files_are_mapped_again(tmp_path: Path) -> None:
    values = np.arange(5000, dtype=np.uint16).reshape(50, 100)
    values.tofile(tmp_path / "tokens.bin")
    file = np.memmap(tmp_path / "tokens.bin", np.uint16, "r", shape=(50, 100))
    for part in (file, file[10:20, ::2], file.T, file[3]):
        packed = wire.Packed(part)
        assert packed.buffers == []
        again = wire.unpack(packed.data)
        assert type(again) is np.memmap
        assert again.tolist() == part.tolist()
    found = DataLoader(Rows(file[5:]), batch_size=None, num_workers=1)
    assert plain(list(found)) == values[5:9, 7].tolist()


class Rows(Dataset[Any]):
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return int(self.rows[i, 7])


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, RuntimeError])
def test_an_exception_keeps_its_type_and_names_the_sample(error: type[Exception]) -> None:
    loader = DataLoader(Raises(8, 5, error), 2, num_workers=2)
    found = []
    iterator = iter(loader)
    found += [plain(next(iterator))[0] for _ in range(2)]
    with pytest.raises(error) as raised:
        next(iterator)
    text = str(raised.value)
    assert text.startswith(f"Caught {error.__name__} in DataLoader worker process 0.\nOriginal Tr")
    assert "bad sample 5" in text
    assert "While loading sample 5 of the batch [4, 5]." in text
    assert found == [[0, 1], [2, 3]]
    assert plain(next(iterator))[0] == [6, 7]


def test_an_exception_here_names_the_sample() -> None:
    with pytest.raises(ValueError, match="bad sample 5") as raised:
        batches(DataLoader(Raises(8, 5, ValueError), 2))
    assert raised.value.__notes__ == ["While loading sample 5."]


class NoInit(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return i


def _fail(worker_id: int) -> None:
    raise ValueError("no such drive")


def test_an_exception_in_worker_init_fn() -> None:
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker process"):
        batches(DataLoader(NoInit(), num_workers=1, worker_init_fn=_fail))


def test_timeout_names_the_sample() -> None:
    start = time.monotonic()
    iterator = iter(DataLoader(Stuck(8, 3), 2, num_workers=2, timeout=1.5))
    next(iterator)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 1.5 sec.* sample 3 of the"):
        next(iterator)
    with pytest.raises(RuntimeError, match="ended after an error"):
        next(iterator)
    assert time.monotonic() - start < 5 * slowness()


class Strange:
    """Can be pickled, but not made again outside of workers."""

    def __reduce__(self) -> Any:
        return _only_in_workers, ()


def _only_in_workers() -> Any:
    assert get_worker_info() is not None, "not in a worker"


def test_a_batch_that_cannot_be_read_is_an_error() -> None:
    iterator = iter(DataLoader(range(2), num_workers=1, collate_fn=_make_strange))
    for _ in range(2):
        with pytest.raises(AssertionError, match="not in a worker"):
            next(iterator)


def _make_strange(batch: Any) -> Any:
    return Strange()


def test_a_slow_sample_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(pools, "SLOW_SAMPLE", 0.3)
    monkeypatch.setattr(pools, "STUCK_SAMPLE", 0.6)
    with (
        pytest.warns(UserWarning, match=r"has been loading sample 3 of the batch \[2, 3\] for"),
        pytest.raises(RuntimeError, match=r"did not get on .* at sample 3 .* second worker"),
    ):
        batches(DataLoader(Stuck(8, 3), 2, num_workers=2))


HOW = [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP, -3]


@pytest.mark.parametrize("how", HOW)
def test_a_sample_that_kills_twice_is_named(how: int) -> None:
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"exited unexpectedly.* at sample 5 of the batch"):
        batches(DataLoader(Deadly(8, 5, how), 2, num_workers=2))
    assert time.monotonic() - start < 10 * slowness()


@pytest.mark.parametrize("how", HOW)
def test_a_sample_that_kills_once_is_loaded_again(how: int, tmp_path: Path) -> None:
    wanted = expected_of(Augmented(8), batch_size=2)
    lucerne.manual_seed(1)
    dataset = Deadly(8, 5, how, str(tmp_path / "once"))
    loader = DataLoader(dataset, 2, num_workers=2, reproducible=True)
    with pytest.warns(RuntimeWarning, match=r"DataLoader worker \d .* at sample 5 of the batch"):
        assert batches(loader) == wanted


@pytest.mark.parametrize("name", ["KILL", "SEGV", "STOP"])
def test_killed_at_random(name: str) -> None:
    faults.run(2 if name == "STOP" else 6, [name], seed=1)


@pytest.mark.parametrize(("method", "stopped"), [("auto", True), ("fork", False)])
def test_killed_program_leaves_nothing(method: str, stopped: bool) -> None:
    faults.kill_program(method, stopped, 0.05)


def test_leaving_early_ends_the_workers() -> None:
    loader = DataLoader(Augmented(1000), 2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    pids = [member.pid for member in iterator._pool.members]
    del iterator
    assert faults.gone(pids, 3.0)


def test_files_stay_few() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    batches(DataLoader(Large(), 2, num_workers=2))
    before = count()
    for _ in range(3):
        batches(DataLoader(Large(), 2, num_workers=2))
    assert count() <= before + 1


# ---- fork -------------------------------------------------------------------------------------


@pytest.fixture
def busy_thread() -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="busy")
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_with_threads_warns(busy_thread: None) -> None:
    loader = DataLoader(NoInit(), num_workers=1, multiprocessing_context="fork")
    with pytest.warns(UserWarning, match=r"forked while other threads run \(.*busy"):
        assert len(batches(loader)) == 2


def test_what_cannot_be_pickled_is_forked() -> None:
    class Local(NoInit):
        def __getitem__(self, i: int) -> Any:
            return i * 2

    loader = DataLoader(Local(), num_workers=1, collate_fn=lambda batch: batch)
    assert batches(loader) == [[0], [2]]


# ---- streams, epochs --------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_stream_in_parts(workers: int) -> None:
    found = [plain(batch)[0] for batch in DataLoader(Stream(10), 2, num_workers=workers)]
    parts = [list(range(w, 10, workers)) for w in range(workers)]
    chunks = [[part[i : i + 2] for i in range(0, len(part), 2)] for part in parts]
    wanted = [c[turn] for turn in range(5) for c in chunks if turn < len(c)]
    assert found == wanted


def test_persistent_workers_start_anew() -> None:
    loader = DataLoader(Augmented(12), 2, num_workers=2, persistent_workers=True, shuffle=True)
    iterator = iter(loader)
    pids = {member.pid for member in iterator._pool.members}
    next(iterator)
    whole = batches(loader)
    assert sorted(key for batch in whole for key in batch[0]) == list(range(12))
    assert {member.pid for member in loader._iterator._pool.members} == pids


def test_any_order_gives_every_batch_once() -> None:
    found = batches(DataLoader(Augmented(30), 2, num_workers=3, in_order=False))
    assert sorted(key for batch in found for key in batch[0]) == list(range(30))


def test_sowing_is_seeding() -> None:
    seeds.sow((123 << 32) + 45)
    found = random.random(), random.gauss(0, 1), np.random.rand(), lucerne.rand(2).tolist()
    random.seed((123 << 32) + 45)
    np.random.seed(123)
    lucerne.manual_seed((123 << 32) + 45)
    assert found == (
        random.random(), random.gauss(0, 1), np.random.rand(), lucerne.rand(2).tolist(),
    )  # fmt: skip


def test_a_start_that_fails_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def pair() -> Any:
        made.extend(socket.socketpair())
        return made[-2], made[-1]

    def fail(*_: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(channel, "pair", pair)
    monkeypatch.setattr(Launcher, "start", fail)
    with pytest.raises(OSError, match="no more processes"):
        next(iter(DataLoader(Large(), 2, num_workers=2)))
    assert [sock.fileno() for sock in made] == [-1, -1]


SCRIPT = """
import lucerne as torch
SCALE = 1
class DS(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return i * SCALE
if __name__ == "__main__":
    SCALE = 10
    class Late(DS): pass
    loaded = {"torch": torch}
    exec('''class Plugin(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return i * 10''', loaded)
    for kind in (DS, Late, loaded["Plugin"]):
        loader = torch.utils.data.DataLoader(kind(), batch_size=4, num_workers=1)
        print(next(iter(loader)).tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers import the script again")
def test_workers_see_what_the_script_set_and_defined(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(lucerne.__file__).parents[1])},
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["[0, 10, 20, 30]"] * 3, ran.stderr
    assert ran.stderr == ""


def test_workers_end_at_once_though_others_were_forked_after_them() -> None:
    """Those have copies of the sockets of the first."""
    first = iter(DataLoader(Augmented(8), 2, num_workers=2, multiprocessing_context="fork"))
    next(first)
    second = iter(DataLoader(Augmented(8), 2, num_workers=2, multiprocessing_context="fork"))
    next(second)
    start = time.monotonic()
    first._pool.close(grace=60)
    assert time.monotonic() - start < 5 * slowness()
    assert len(list(second)) == 3
