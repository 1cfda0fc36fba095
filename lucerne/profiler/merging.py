"""The traces of all ranks in one timeline, and who waited for whom in each collective."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucerne.profiler.chrome import write_text

CATEGORY = "collective"


@dataclass(frozen=True)
class CollectiveWait:
    """One collective of a group: how long each rank was there before the last one came."""

    name: str
    group: str
    number: int
    waits_us: dict[int, float]
    last: int
    """The rank that came last."""


def merge_traces(
    paths: Iterable[str | os.PathLike[str]], target: str | os.PathLike[str]
) -> list[CollectiveWait]:
    """Write one trace of those that ranks exported, in which a process is a rank; collectives have
    `Wait us`, the time until the last rank came. They are also given back, in the order of time.

    Ranks of one machine have one clock; between machines, times are as exact as their clocks.
    """
    found: dict[int, dict[str, Any]] = {}
    for path in paths:
        trace = _read(Path(path))
        rank = trace["distributedInfo"]["rank"]
        if rank in found:
            raise ValueError(f"merge_traces: two traces are of rank {rank}; {path} is the second")
        found[rank] = trace
    if not found:
        raise ValueError("merge_traces: there are no traces to merge")
    clocks: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for rank, trace in sorted(found.items()):
        base = trace["baseTimeNanoseconds"] / 1e3
        rows += _of_rank(rank, trace, clocks.setdefault(trace["host_name"], base))
    start = min((row["ts"] for row in rows), default=0.0)
    for row in rows:
        row["ts"] -= start
    waits = _waits(rows)
    made = {
        "schemaVersion": 1, "displayTimeUnit": "ms", "ranks": sorted(found), "traceEvents": rows,
    }  # fmt: skip
    write_text(Path(target), json.dumps(made, separators=(",", ":")))
    return waits


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        trace = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        rows, rank = trace["traceEvents"], trace["distributedInfo"]["rank"]
        trace["host_name"], trace["baseTimeNanoseconds"] + 0
        right = isinstance(rank, int) and all(isinstance(r["ts"] + 0, int | float) for r in rows)
    except (ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise ValueError(
            f"merge_traces: {path} is no trace of a rank ({type(error).__name__}: {error}). Export "
            "it by export_chrome_trace while the process group is there"
        ) from None
    if not right:
        raise ValueError(f"merge_traces: {path} has a rank or a time that is no number")
    made: dict[str, Any] = trace
    return made


def _of_rank(rank: int, trace: dict[str, Any], base: float) -> list[dict[str, Any]]:
    """The rows of one rank, in the time of all."""
    made = []
    for row in trace["traceEvents"]:
        new = {**row, "pid": rank, "ts": row["ts"] + base}
        if row.get("ph") == "M" and row.get("name") == "process_name":
            new["args"] = {"name": f"rank {rank}"}
        if "id" in row:
            new["id"] = f"{rank}.{row['id']}"  # (arrows of two ranks are not one)
        made.append(new)
    made.append(
        {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "ts": made[0]["ts"],
         "args": {"sort_index": rank}} if made else
        {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "ts": base,
         "args": {"name": f"rank {rank}"}}
    )  # fmt: skip
    return made


def _waits(rows: list[dict[str, Any]]) -> list[CollectiveWait]:
    together: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("cat") == CATEGORY:
            args = row["args"]
            together.setdefault((args["Group"], args["Number"]), []).append(row)
    made = []
    for (group, number), spans in together.items():
        last = max(spans, key=lambda row: row["ts"])
        waits = {}
        for row in spans:
            waits[row["pid"]] = row["args"]["Wait us"] = round(last["ts"] - row["ts"], 3)
        made.append((last["ts"], CollectiveWait(last["name"], group, number, waits, last["pid"])))
    return [wait for _, wait in sorted(made, key=lambda pair: pair[0])]
