"""Traces for Perfetto and chrome://tracing, and stacks for flame graphs.

The format is a list of events as JSON: `X` is a span (`ts` and `dur` in microseconds), `s` and `f`
are the ends of an arrow from an op to its node of the backward pass, `C` a counter, `M` a name.
Files are written beside their place and moved there, so a reader never sees half of one.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.base.process.profiler_hook import ANNOTATION, COLLECTIVE, PROGRAM
from lucerne._src.io.atomic import write_atomic

_CATEGORIES = {ANNOTATION: "user_annotation", PROGRAM: "compiled_program", COLLECTIVE: "collective"}


@dataclass
class Trace:
    """What a trace file is made of."""

    events: list[Any]
    began_ns: int
    """Of the clock of `time.perf_counter_ns`."""
    memory: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Bytes by category after every change, if the profile looked at memory."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Keys that the user gave, and their values."""
    settings: dict[str, Any] = field(default_factory=dict)


def as_json(trace: Trace, name: str = "") -> dict[str, Any]:
    """The content of a trace file."""
    pid = os.getpid()
    base = trace.began_ns / 1e3
    rows: list[dict[str, Any]] = _names(pid, {e.native_thread for e in trace.events}, base)
    rows += [_span(e, pid, base) for e in trace.events]
    rows += _arrows(trace.events, pid, base)
    for moment, sizes in trace.memory:
        rows.append(
            {"ph": "C", "name": "memory", "pid": pid, "tid": 0, "ts": moment / 1e3, "args": sizes}
        )
    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        **trace.settings,
        **_place(),
        "host_name": socket.gethostname(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": time.time_ns() - time.perf_counter_ns(),
        **trace.metadata,
        "traceEvents": rows,
        "traceName": name,
    }


def _place() -> dict[str, Any]:
    """Which rank this is, under torch's key; nothing without a process group."""
    place = LateBindings.process_place()
    return {} if place is None else {"distributedInfo": {"rank": place[0], "world_size": place[1]}}


def _names(pid: int, threads: set[int], base: float) -> list[dict[str, Any]]:
    common = {"ph": "M", "ts": base, "pid": pid}
    rows: list[dict[str, Any]] = [
        {**common, "name": "process_name", "tid": 0, "args": {"name": "python"}},
        {**common, "name": "process_labels", "tid": 0, "args": {"labels": "CPU"}},
    ]
    for tid in sorted(threads):
        what = f"thread {tid}" + (" (python)" if tid == pid else "")
        rows.append({**common, "name": "thread_name", "tid": tid, "args": {"name": what}})
    return rows


def _span(event: Any, pid: int, base: float) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": event.id}
    if event.sequence_nr >= 0:
        args["Sequence number"] = event.sequence_nr
        args["Fwd thread id"] = event.fwd_thread or 0
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
        args["Input type"] = event.input_types
        args["Concrete Inputs"] = event.concrete_inputs
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    if event.module_hierarchy:
        args["Module Hierarchy"] = ".".join(event.module_hierarchy)
    if event.flops:
        args["flops"] = event.flops
    if event.cpu_memory_usage:
        args["Bytes allocated"] = event.cpu_memory_usage
    args.update(event.extra)
    kind = "compiled_kernel" if "Bytes" in event.extra else _CATEGORIES.get(event.kind, "cpu_op")
    return {
        "ph": "X",
        "cat": kind,
        "name": event.name,
        "pid": pid,
        "tid": event.native_thread,
        "ts": base + event.time_range.start,
        "dur": event.time_range.elapsed_us(),
        "args": args,
    }


def _arrows(events: Iterable[Any], pid: int, base: float) -> list[dict[str, Any]]:
    """From each op to the node of the backward pass that belongs to it."""
    forward: dict[int, Any] = {}
    rows: list[dict[str, Any]] = []
    for event in events:
        if event.sequence_nr < 0:
            continue
        if event.scope == 0:
            forward.setdefault(event.sequence_nr, event)
        elif event.sequence_nr in forward:
            op = forward.pop(event.sequence_nr)
            for phase, end in (("s", op), ("f", event)):
                rows.append(
                    {
                        "ph": phase,
                        "cat": "fwdbwd",
                        "name": "fwdbwd",
                        "id": event.sequence_nr,
                        "pid": pid,
                        "tid": end.native_thread,
                        "ts": base + end.time_range.start,
                        **({"bp": "e"} if phase == "f" else {}),
                    }
                )
    return rows


def write(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a trace; compressed if the name ends in `.gz`."""
    target = Path(path)
    text = json.dumps(as_json(trace, str(target)), separators=(",", ":"), default=str)
    write_text(target, text)


def write_text(target: Path, text: str) -> None:
    """Write a file as a whole or not at all; compressed if its name ends in `.gz`."""
    raw = text.encode()
    made = gzip.compress(raw, mtime=0) if target.suffix == ".gz" else raw
    write_atomic(str(target), lambda write: write(made))


def write_stacks(path: str, events: Iterable[Any], metric: str) -> None:
    """For flame graphs: `outermost;...;innermost microseconds` on each line."""
    sums: dict[str, int] = defaultdict(int)
    for event in events:
        if event.stack:
            value = int(getattr(event, metric))
            if value > 0:
                lines = [s.translate(_PLAIN) for s in reversed(event.stack)]
                sums[";".join([*lines, event.key.translate(_PLAIN)])] += value
    text = "".join(f"{stack} {value}\n" for stack, value in sums.items())
    write_text(Path(path), text)


_PLAIN = str.maketrans(" ;\t\n", "____")
