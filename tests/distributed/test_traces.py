"""Profiles of all ranks as one timeline."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import lucerne as lu
from lucerne.distributed.distributed_c10d import _get_default_store
from lucerne.profiler import merge_traces, profile
from tests.processes import ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")
LATE = 0.5
"""Seconds that one rank comes after the others are about to wait for it."""


def _profiled(rank: int, size: int, place: str, folder: str, late: int) -> Any:
    dist = ranks.join(lu, rank, size, place)
    dist.barrier()
    with profile() as prof:
        store = _get_default_store()
        if rank == late:
            store.wait([f"here {other}" for other in range(size) if other != late])
            time.sleep(LATE)
        store.set(f"here {rank}", "")
        dist.all_reduce(lu.ones(5))
        dist.all_reduce(lu.ones(5), async_op=True).wait()
    name = f"{folder}/{rank}.json" + (".gz" if rank else "")
    prof.export_chrome_trace(name)
    dist.barrier()
    return name


def test_one_timeline_says_who_waited_for_whom(tmp_path: Path) -> None:
    paths = ranks.results(3, _profiled, ranks.meeting(), str(tmp_path), 1)
    first, second = merge_traces(paths, tmp_path / "all.json")
    assert (first.name, first.last, first.number + 1) == ("gloo:all_reduce", 1, second.number)
    assert first.waits_us[1] == 0.0
    assert min(first.waits_us[rank] for rank in (0, 2)) > 0
    made = json.loads((tmp_path / "all.json").read_text())
    rows = [row for row in made["traceEvents"] if row.get("cat") == "collective"]
    assert {row["pid"] for row in rows} == {0, 1, 2}
    assert {row["args"]["Call"] for row in rows} == {"all_reduce float32[5] SUM"}
    assert all("test_traces.py:" in row["args"]["Line"] for row in rows)
    waits = {r["pid"]: r["args"]["Wait us"] for r in rows if r["args"]["Number"] == first.number}
    assert waits == first.waits_us
    ends = [row["ts"] + row["dur"] for row in rows if row["args"]["Number"] == first.number]
    starts = [row["ts"] for row in rows if row["args"]["Number"] == first.number]
    assert min(ends) >= max(starts)  # one clock: nobody leaves before the last has come
    names = {
        r["pid"]: r["args"]["name"] for r in made["traceEvents"] if r["name"] == "process_name"
    }
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}


def test_what_is_no_trace_of_a_rank_is_refused(tmp_path: Path) -> None:
    good = {"host_name": "h", "baseTimeNanoseconds": 1, "distributedInfo": {"rank": 0}}
    late, odd = (
        {"traceEvents": [{"ts": "x"}]},
        {"distributedInfo": {"rank": "0"}, "traceEvents": []},
    )
    for wrong in ("", "[1]", "{}", json.dumps({**good, **late}), json.dumps({**good, **odd})):
        (tmp_path / "a.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"no trace of a rank|no number"):
            merge_traces([tmp_path / "a.json"], tmp_path / "all.json")
    (tmp_path / "b.json.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(ValueError, match="no trace of a rank"):
        merge_traces([tmp_path / "b.json.gz"], tmp_path / "all.json")
    (tmp_path / "a.json").write_text(json.dumps({**good, "traceEvents": []}))
    with pytest.raises(ValueError, match="two traces are of rank 0"):
        merge_traces([tmp_path / "a.json"] * 2, tmp_path / "all.json")
    with pytest.raises(ValueError, match="no traces"):
        merge_traces([], tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()
