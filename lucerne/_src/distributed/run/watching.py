"""What the agent sees of ranks that are alive: stopped, silent, or waited for by the others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from lucerne._src.distributed.run.board import BoardView

LOOK = 0.1
STOPPED = 1.0
"""Seconds in the state "stopped" until a rank is given up."""
WAITED = 1.5
"""Seconds that ranks wait for another until it is named."""
SILENT = 3.0
STACK_WAIT = 0.12


def where(said: dict[str, Any]) -> str:
    """The last collective of a rank, in words."""
    if not said.get("seq"):
        return ""
    when = "in" if said.get("call") else "after"
    call = said.get("call") or said.get("last", "")
    return f"; it was {when} #{said['seq']} {call} at {said.get('line')}"


class Watching:
    """The ranks of one machine in one generation."""

    def __init__(
        self, pids: list[int], view: BoardView, path: str, first: int, say: Callable[[str], None]
    ) -> None:
        self._pids, self._view, self._path, self._first, self._say = pids, view, path, first, say
        self._next = 0.0
        self._stopped: dict[int, float] = {}
        self._told: set[Any] = set()

    def look(self, stuck: float) -> str:
        """Why the generation has to end; empty: it goes on. What is only slow is told."""
        now = time.time()
        if now < self._next:
            return ""
        self._next = now + LOOK
        rows = {k: self._view.read(k) for k in range(len(self._pids))}
        for local, pid in enumerate(self._pids):
            verdict = self._alive(local, pid, rows[local], now)
            if verdict:
                return verdict
        return self._waiting({k: r for k, r in rows.items() if r}, now, stuck)

    def _alive(self, local: int, pid: int, said: dict[str, Any] | None, now: float) -> str:
        name = f"rank {self._first + local} (process {pid})"
        if state_of(pid) == "T":
            since = self._stopped.setdefault(local, now)
            if now - since >= STOPPED:
                return f"{name} is stopped (by SIGSTOP or a debugger){where(said or {})}"
            return ""
        self._stopped.pop(local, None)
        if said and now - said["beat"] > SILENT and ("silent", local) not in self._told:
            self._told.add(("silent", local))
            self._say(
                f"{name} is silent for {now - said['beat']:.1f} s: it is in native code that holds "
                f"Python's lock, or gets no processor{where(said)}"
            )
        return ""

    def _waiting(self, rows: dict[int, dict[str, Any]], now: float, stuck: float) -> str:
        late: dict[int, list[dict[str, Any]]] = {}
        for said in rows.values():
            if said["call"] and now - said["since"] > WAITED:
                for rank in said["waits"]:
                    late.setdefault(rank, []).append(said)
        for rank, waiters in late.items():
            theirs = rows.get(rank - self._first)
            first = waiters[0]
            if theirs and theirs.get("waits"):
                continue  # it waits itself: the cause is further on
            key = ("late", rank, first.get("group"), first["seq"])
            seconds = now - min(said["since"] for said in waiters)
            over = stuck > 0 and seconds > stuck
            if key in self._told and not over:
                continue
            self._told.add(key)
            text = (
                f"{len(waiters)} ranks of this machine wait since {seconds:.1f} s in "
                f"#{first['seq']} {first['call']} at {first['line']} for rank {rank}"
            )
            if theirs is not None:
                text += f"{where(theirs)}; now it is at {self.place(rank - self._first)}"
            if over:
                return f"rank {rank} is stuck: {text}"
            self._say(f"slow: {text}")
        return ""

    # -- stacks ----------------------------------------------------------------------------------

    def place(self, local: int) -> str:
        """The innermost line of the user's that a rank runs."""
        text = self.stack(local)
        main = text.partition("Current thread")[2] or text
        lines = [line.strip() for line in main.splitlines() if line.strip().startswith("File ")]
        users = [line for line in lines if "/lucerne/_src/" not in line and "<frozen" not in line]
        return (users or lines or ["an unknown line"])[0].removeprefix("File ")

    def stack(self, local: int) -> str:
        """What each thread of a rank runs, from its fault handler."""
        path = f"{self._path}.stack.{local}"
        if self._view.read(local) is None or not os.path.exists(path):
            return "(it has no process group yet)"
        if state_of(self._pids[local]) in ("T", "Z", ""):
            return "(it is stopped, or ended)"
        before = os.path.getsize(path)
        try:
            os.kill(self._pids[local], signal.SIGUSR1)
        except OSError:
            return "(it ended)"
        end = time.monotonic() + STACK_WAIT
        while os.path.getsize(path) == before and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.005)
        with open(path, encoding="utf-8", errors="replace") as file:
            file.seek(before)
            return file.read()

    def stacks(self) -> str:
        """Of all ranks of this machine, with what each said last."""
        parts = []
        for local, pid in enumerate(self._pids):
            said = self._view.read(local) or {}
            parts.append(
                f"rank {self._first + local} (process {pid}){where(said)}\n{self.stack(local)}"
            )
        return "\n".join(parts)


def state_of(pid: int) -> str:
    """The letter of a process's state; empty: there is none, or the system does not say."""
    return _stat(pid, 0)


def began(pid: int) -> str:
    """When a process began, in the system's count: its number may come again."""
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""
