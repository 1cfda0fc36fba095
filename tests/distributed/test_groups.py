"""Process groups: equal to gloo, never a hang or a wrong sum, and no stranger gets in."""

from __future__ import annotations

import datetime
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne as lu
import lucerne.distributed as dist
from lucerne._src.distributed.meeting import rendezvous, secret
from lucerne._src.distributed.processes import algorithms
from tests.processes import cases, mistakes, ranks, strangers

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("size", "dtypes"),
    [(2, ("float32",)), pytest.param(4, cases.DTYPES, marks=pytest.mark.nightly)],
)
def test_collectives_are_those_of_gloo(size: int, dtypes: tuple[str, ...]) -> None:
    pytest.importorskip("torch.distributed")
    count, _, wrong = cases.differences(size, dtypes)
    assert wrong == []
    assert count > 60


def _values(rank: int, size: int, place: str) -> Any:
    """Reductions and forms that gloo has not."""
    group = ranks.join(lu, rank, size, place)
    found = {}
    for kind in ("float32", "bfloat16", "int64", "complex64"):
        x = (lu.arange(6) + rank).to(getattr(lu, kind))
        group.all_reduce(x, group.ReduceOp.AVG)
        found[f"avg {kind}"] = x.to(lu.complex64).tolist()
    huge = lu.full((2,), 3e38)
    group.all_reduce(huge)  # (a warning of NumPy's would be an error here)
    found["overflow"] = huge.tolist()
    x = lu.ones(3) * (rank + 1)
    group.all_reduce(x, group.ReduceOp(group.ReduceOp.PREMUL_SUM, 0.5))
    found["premul"] = x.tolist()
    flags = lu.tensor([rank == 0, True, False])
    group.all_reduce(flags)
    found["bool"] = flags.tolist()
    wide = lu.zeros(4, 6)
    part = wide[:, ::2]
    part += rank
    version = part._version
    group.all_reduce(part)
    found["strided"] = wide.tolist()
    found["noted"] = part._version > version
    empty = lu.zeros(0)
    group.all_reduce(empty)
    y = lu.randn(300_001, generator=lu.Generator().manual_seed(rank))
    small = y[:1000].clone()
    group.all_reduce(y)
    group.all_reduce(small)
    found["bits by size"] = bool((y[:1000] == small).all())
    found["sum"] = y.numpy().tobytes()
    works = [group.all_reduce(lu.full((50,), float(k)), async_op=True) for k in range(5)]
    group.barrier()
    found["async"] = [w.result()[0][0].item() for w in works]
    found["future"] = works[0].get_future().wait()[0][0].item()
    group.destroy_process_group()
    return found


def test_values_that_gloo_has_not() -> None:
    found = ranks.results(3, _values, ranks.meeting())
    assert all(row == found[0] for row in found)  # bit for bit, on all ranks
    first = found[0]
    assert first["avg float32"] == first["avg int64"] == [complex(k + 1) for k in range(6)]
    assert first["avg bfloat16"] == first["avg complex64"] == first["avg float32"]
    assert first["premul"] == [3.0] * 3
    assert first["overflow"] == [float("inf")] * 2
    assert first["bool"] == [True, True, False]
    assert first["strided"] == [[3.0, 0.0] * 3] * 4
    assert first["noted"]
    assert first["bits by size"]
    assert first["async"] == [3.0 * k for k in range(5)]
    assert first["future"] == 0.0


def test_the_way_of_the_bytes_does_not_change_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    by_memory = ranks.results(3, _values, ranks.meeting())[0]["sum"]
    monkeypatch.setattr(algorithms.Algorithms, "_shared_room", lambda self: None)
    assert ranks.results(3, _values, ranks.meeting())[0]["sum"] == by_memory


def test_mistakes_are_told_to_every_rank_with_both_lines() -> None:
    assert mistakes.problems(len(mistakes.KINDS), limit=5.0) == []


def _ends(rank: int, size: int, place: str, how: str) -> Any:
    group = ranks.join(lu, rank, size, place)
    x = lu.ones(10)
    group.all_reduce(x)
    if rank == 1:
        if how == "kill with a child" and os.fork() == 0:
            time.sleep(3)  # a worker that lives on, and keeps no connection open
            os._exit(0)
        if how.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leave":
            group.destroy_process_group()
            return None
        if how == "interrupt":
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        if how in ("late", "stuck"):
            time.sleep(2)
            return None
    start = time.monotonic()
    try:
        if how == "interrupt" and rank == 0:
            time.sleep(1.5)
        if how == "recv":
            group.recv(x, 1) if rank != 1 else os._exit(3)
        if how == "late":
            group.monitored_barrier(timeout=datetime.timedelta(seconds=0.5))
        group.all_reduce(x)
    except BaseException as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - start
    return "nothing", 0.0


ENDS = [
    ("kill", "DistBackendError", "rank 1 is gone"),
    ("kill with a child", "DistBackendError", "rank 1 is gone"),
    ("leave", "DistBackendError", "rank 1 is gone"),
    ("recv", "DistBackendError", "rank 1 is gone"),
    ("interrupt", "DistBackendError", "rank 1 ended all_reduce float32[10] SUM at"),
    ("late", "DistBackendError", "Rank 1 failed to pass monitoredBarrier"),
]


@pytest.mark.parametrize(("how", "kind", "text"), ENDS, ids=[row[0] for row in ENDS])
def test_a_rank_that_ends_is_named(how: str, kind: str, text: str) -> None:
    found = ranks.run(3, _ends, ranks.meeting(), how, patience=30)
    for rank in (0, 2):
        word, value = found[rank]
        assert word == "done", found
        assert value[0].startswith(kind), value
        assert text in value[0], value
        assert value[1] < (2.5 if "child" in how else 5.0)
    if how == "interrupt":
        assert found[1][1][0].startswith("KeyboardInterrupt")


def _compiled(rank: int, size: int, place: str) -> Any:
    group = ranks.join(lu, rank, size, place)

    def f(x: Any) -> Any:
        y = x * 2 + group.get_rank()
        group.all_reduce(y)
        return y.sin()

    compiled = lu.compile(f)
    return [compiled(lu.arange(4.0)).tolist() for _ in range(3)], f(lu.arange(4.0)).tolist()


def test_collectives_stand_between_graphs() -> None:
    found = ranks.results(2, _compiled, ranks.meeting())
    assert found[0] == found[1]
    assert found[0][0] == [found[0][1]] * 3


def _times_out(rank: int, size: int, place: str) -> Any:
    group = ranks.join(lu, rank, size, place, timeout=datetime.timedelta(seconds=1))
    if rank:
        time.sleep(3)
        return ""
    with pytest.raises(RuntimeError) as caught:
        group.all_reduce(lu.ones(2))
    return str(caught.value)


def test_a_wait_ends_at_its_timeout() -> None:
    text = ranks.results(2, _times_out, ranks.meeting())[0]
    assert "rank 0 waited 1 s in all_reduce float32[2] SUM at" in text
    assert "test_groups.py" in text
    assert "for rank 1" in text


def test_strangers_stay_outside() -> None:
    assert strangers.knocks(24) == (0, 2)
    found = strangers.fuzz_frames(300)
    assert found["accepted"] == 0
    assert found["refused"] > 250
    assert strangers.fuzz_mail(20) == 0
    assert strangers.one_frame(strangers.good_frame()) == "accepted"


def test_the_users_secret_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret.config, "cache_dir", str(tmp_path / "own"))
    monkeypatch.delenv(secret.TOKEN_VARIABLE, raising=False)
    first = secret.job_secret()
    assert secret.job_secret() == first
    assert (tmp_path / "own" / "token").stat().st_mode & 0o077 == 0
    (tmp_path / "own" / "token").chmod(0o644)
    with pytest.raises(RuntimeError, match="others may read it"):
        secret.job_secret()
    monkeypatch.setenv(secret.TOKEN_VARIABLE, "a")
    assert secret.job_secret() != first


# ---- stores and meetings ------------------------------------------------------------------------


def _stores(tmp_path: Path) -> list[Any]:
    tcp = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    return [
        dist.HashStore(),
        dist.FileStore(str(tmp_path / "file"), 1),
        tcp,
        dist.PrefixStore("p", dist.HashStore()),
        dist.PrefixStore("p", tcp),
    ]


def test_stores_are_alike(tmp_path: Path) -> None:
    for store in _stores(tmp_path):
        store.set_timeout(datetime.timedelta(seconds=0.2))
        store.set("a", "1")
        store.set("b", b"\x00\xff")
        assert (store.get("a"), store.get("b")) == (b"1", b"\x00\xff")
        assert (store.add("n", 2), store.add("n", -1)) == (2, 1)
        assert store.compare_set("a", "1", "2") == b"2"
        assert store.compare_set("a", "1", "3") == b"2"
        assert store.compare_set("new", "", "x") == b"x"
        store.append("a", "4")
        assert store.get("a") == b"24"
        assert store.check(["a", "b"])
        assert not store.check(["a", "zz"])
        assert store.delete_key("b")
        assert not store.delete_key("b")
        store.queue_push("q", "first")
        store.queue_push("q", "second")
        assert store.queue_len("q") == 2
        assert (store.queue_pop("q"), store.queue_pop("q")) == (b"first", b"second")
        with pytest.raises(dist.QueueEmptyError):
            store.queue_pop("q", block=False)
        store.multi_set(["m", "o"], ["1", "2"])
        assert store.multi_get(["m", "o"]) == [b"1", b"2"]
        with pytest.raises(dist.DistStoreError, match="wait timeout after 200ms, keys: "):
            store.wait(["missing"])
        assert store.num_keys() == len(store.list_keys())
        store.barrier("here", 1)


MEETINGS = [
    ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
    ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}, (2, 8)),
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
    ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
    ({"PALS_RANKID": "5", "PALS_NRANKS": "6"}, (5, 6)),
    ({"PMIX_RANK": "5", "PMIX_SIZE": "6"}, (5, 6)),
    ({"JOB_COMPLETION_INDEX": "1", "JOB_PARALLELISM": "2"}, (1, 2)),
    ({}, (None, None)),
]


@pytest.mark.parametrize(("variables", "place"), MEETINGS)
def test_launchers_are_read(
    variables: dict[str, str], place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "launch_variable", variables.get)
    assert rendezvous.own_place() == place


PLACES = [
    ({"MASTER_ADDR": "h", "MASTER_PORT": "7"}, ("h", 7)),
    ({"SLURM_JOB_ID": "71", "SLURM_STEP_NODELIST": "n[3-5]", "SLURM_NNODES": "3"}, ("n3", 20071)),
    ({"SLURM_JOB_ID": "71", "SLURM_JOB_NODELIST": "n3"}, ("localhost", 20071)),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "881000449"}, ("localhost", 20449)),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "run-h-12@1"}, ("localhost", 20121)),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "881000449"}, "MASTER_ADDR and MASTER"),
    ({"MASTER_ADDR": "h"}, "environment variable MASTER_PORT expected"),
]


@pytest.mark.parametrize(("variables", "place"), PLACES)
def test_launchers_say_where_ranks_meet(
    variables: dict[str, str], place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "launch_variable", variables.get)
    if isinstance(place, str):
        with pytest.raises(ValueError, match=place):
            rendezvous._meeting_place(4)
    else:
        assert rendezvous._meeting_place(4) == place


WRONG = [
    (lambda: dist.init_process_group("nccl", init_method="file:///x", rank=0, world_size=1),
     ValueError, "nccl moves tensors of NVIDIA"),
    (lambda: dist.init_process_group("gloo", init_method="tcp://localhost", rank=0, world_size=2),
     ValueError, "needs a port"),
    (lambda: dist.init_process_group("gloo", init_method="odd://x"), RuntimeError, "odd://"),
    (lambda: dist.init_process_group("gloo", store=dist.HashStore(), rank=3, world_size=2),
     ValueError, "rank 3 is not among 2"),
    (lambda: dist.get_rank(), ValueError, "has not been initialized"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_wrong_beginnings_say_what_to_do(call: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
    assert not dist.is_initialized()


@pytest.mark.torch
def test_all_names_of_c10d_are_here() -> None:
    theirs = pytest.importorskip("torch.distributed.distributed_c10d")
    import lucerne.distributed.distributed_c10d as ours

    assert [name for name in theirs.__all__ if not hasattr(dist, name)] == []
    assert [name for name in theirs.__all__ if not hasattr(ours, name)] == []


def test_bfloat16_is_rounded_to_even() -> None:
    from lucerne._src.distributed.processes import reduction

    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    x[:2] = np.nan, np.inf
    ours = reduction._to_bfloat16(x)
    theirs = lu.from_numpy(x).to(lu.bfloat16).view(lu.uint16).numpy()
    assert (ours[2:] == theirs[2:]).all()
    assert ours[1] == theirs[1]
    assert np.isnan(reduction._from_bfloat16(ours[:1])).all()
