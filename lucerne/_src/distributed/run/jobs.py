"""`lucerne ranks`: the jobs of `lucerne run` on this machine, read from their boards.

Reading disturbs nobody: a board is a file in memory that each rank writes its own row of. Beside it
the agent says who it is. Folders of other users are not looked into.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import tempfile
import time
from typing import Any

from lucerne._src.distributed.run.board import BoardView
from lucerne._src.distributed.run.watching import began, state_of
from lucerne._src.io.atomic import write_atomic

PREFIX = "lucerne-run-"
JOB = "job.json"
MEMORY = "/dev/shm"


def new_folder() -> str:
    """Where a generation's board is: in memory, if the system has such a folder."""
    room = MEMORY if os.access(MEMORY, os.W_OK) else None
    return tempfile.mkdtemp(prefix=PREFIX, dir=room)


def describe(folder: str, **what: Any) -> None:
    """Say whose board is in a folder."""
    me = os.getpid()
    text = json.dumps({"agent": me, "began": began(me), **what})
    write_atomic(os.path.join(folder, JOB), lambda write: write(text.encode()))


def running(rooms: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The jobs of this user whose agents are alive, each with a row for each rank."""
    found = []
    for room in rooms or dict.fromkeys((MEMORY, tempfile.gettempdir())):
        for folder in sorted(glob.glob(os.path.join(room, PREFIX + "*"))):
            job = _job(folder)
            if job is not None:
                found.append(job)
    return found


def _job(folder: str) -> dict[str, Any] | None:
    try:
        if os.stat(folder).st_uid != os.getuid():
            return None
        with open(os.path.join(folder, JOB), encoding="utf-8") as file:
            said = json.load(file)
        agent, first, count = int(said["agent"]), int(said["first"]), int(said["count"])
        view = BoardView(os.path.join(folder, "board"))
        if state_of(agent) == "" or began(agent) != said["began"]:
            return None  # it was killed, and its folder stayed
        rows = [_row(view.read(k), first + k) for k in range(min(count, view.rows))]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it ends just now, or is none
    return {**said, "rows": rows}


def _row(said: dict[str, Any] | None, rank: int) -> dict[str, Any]:
    if said is None:
        return {"rank": rank, "state": "starting"}
    pid, now = said["process"], time.time()
    state = {"T": "stopped", "Z": "ended", "": "ended"}.get(state_of(pid), "")
    if not state:
        state = "in" if said.get("call") else "after" if said.get("seq") else "joined"
    return {
        "rank": rank, "process": pid, "state": state, "seconds": round(now - said["since"], 3),
        "number": said.get("seq"), "call": said.get("call") or said.get("last", ""),
        "line": said.get("line"), "waits_for": said.get("waits"), "heard": said.get("heard", ""),
        "silent": round(now - said["beat"], 3),
    }  # fmt: skip


def text(job: dict[str, Any]) -> str:
    """One job, a line for each rank."""
    lines = [
        f"lucerne run (process {job['agent']}): {job['program']}, start {job['generation']}, "
        f"{len(job['rows'])} of {job['world']} ranks are on this machine"
    ]
    for row in job["rows"]:
        head = f"{row['rank']:>5}  {row.get('process', ''):>8}  {row['state']:<9}"
        if "seconds" not in row:
            lines.append(head.rstrip())
            continue
        tail = f"#{row['number']} {row['call']} at {row['line']}" if row["number"] else ""
        if row["waits_for"]:
            tail += f", waits for rank {', '.join(map(str, row['waits_for']))}"
        if row["heard"]:
            tail += f", was told: {row['heard']}"
        lines.append(f"{head}{row['seconds']:>9.2f} s  {tail}".rstrip())
    return "\n".join(lines)


def add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--json", action="store_true", help="as JSON, one job in a line")


def show(options: argparse.Namespace) -> int:
    """Entry point of `lucerne ranks`."""
    found = running()
    for job in found:
        print(json.dumps(job) if options.json else text(job))
    if not found:
        print("no job of `lucerne run` is running here", file=sys.stderr)
    return 0 if found else 1
