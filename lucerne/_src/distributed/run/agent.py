"""The agent: it starts the ranks of a machine, watches them, names who failed, and starts again.

It sees the end of a process at once, a stopped one by its state, and one that others wait for by
what they write on the board. What it kills is a generation: ranks of the next one find neither
addresses nor frames of the last.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from lucerne._src.base.config import (
    ENGINE_VARIABLE,
    child_environment,
    launch_variable,
    set_launch_variable,
)
from lucerne._src.distributed.meeting.errors import DistError
from lucerne._src.distributed.meeting.secret import TOKEN_VARIABLE
from lucerne._src.distributed.run import board, jobs, schedulers, watching
from lucerne._src.distributed.run.meeting import MachinePlace, Meeting
from lucerne._src.distributed.run.options import parsed, ranks_here
from lucerne._src.distributed.run.worker import BOARD_VARIABLE
from lucerne._src.io.atomic import write_atomic

COLLECT = 0.06
"""Seconds in which ranks that ended by one cause are seen together."""


def say(text: str) -> None:
    print(f"[lucerne run] {text}", file=sys.stderr, flush=True)


class Agent:
    """One `lucerne run`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.count = ranks_here(options.nproc_per_node)
        self.token = launch_variable(TOKEN_VARIABLE) or secrets.token_hex(32)
        self.signal = 0
        self.folder = ""
        self.processes: list[subprocess.Popen[bytes]] = []

    # -- a job -----------------------------------------------------------------------------------

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        set_launch_variable(TOKEN_VARIABLE, self.token)
        meeting = Meeting(self.options, self.count)
        try:
            return self._generations(meeting)
        except DistError as error:
            say(f"ended: {error}")
            return 1
        finally:
            self._end_all()
            meeting.close()

    def _note(self, number: int, frame: Any) -> None:
        self.signal = number

    def _generations(self, meeting: Meeting) -> int:
        most = self.options.max_restarts
        for generation in range(most + 1):
            place, _ = meeting.join(generation)
            self._start(meeting, place, generation)
            try:
                verdict = self._watch(meeting, place)
            finally:
                self._end_all()
                shutil.rmtree(self.folder, ignore_errors=True)
            if self.signal:
                say(f"ended by signal {signal.Signals(self.signal).name}")
                return 128 + self.signal
            if not verdict:
                meeting.finished()
                return 0
            meeting.tell(verdict)
            left = most - generation
            say(f"{verdict}. {f'Starting again, {left} left' if left else 'No restarts are left'}")
        return 1

    # -- ranks -----------------------------------------------------------------------------------

    def _start(self, meeting: Meeting, place: MachinePlace, generation: int) -> None:
        self.folder = jobs.new_folder()
        path = os.path.join(self.folder, "board")
        board.make(path, self.count)
        self.board = board.BoardView(path)
        self.place = place
        self.processes = [
            subprocess.Popen(
                self._command(), env=self._environment(meeting, place, generation, path, local)
            )
            for local in range(self.count)
        ]
        jobs.describe(
            self.folder, program=shlex.join([self.options.program, *self.options.arguments]),
            generation=generation, first=place.first, count=self.count, world=place.world,
        )  # fmt: skip
        self.watching = watching.Watching(
            [p.pid for p in self.processes], self.board, path, place.first, say
        )

    def _command(self) -> list[str]:
        options = self.options
        if options.no_python:
            return [options.program, *options.arguments]
        how = ["-m"] if options.module else []
        return [sys.executable, "-u", *how, options.program, *options.arguments]

    def _environment(
        self, meeting: Meeting, place: MachinePlace, generation: int, path: str, local: int
    ) -> dict[str, str]:
        rank = place.first + local
        made = {
            "RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": place.world,
            "LOCAL_WORLD_SIZE": self.count, "GROUP_RANK": place.node,
            "GROUP_WORLD_SIZE": place.nodes, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": place.world,
            "ROLE_NAME": self.options.role, "MASTER_ADDR": meeting.host,
            "MASTER_PORT": meeting.port, "TORCHELASTIC_RESTART_COUNT": generation,
            "TORCHELASTIC_MAX_RESTARTS": self.options.max_restarts,
            "TORCHELASTIC_RUN_ID": self.options.rdzv_id, "TORCHELASTIC_USE_AGENT_STORE": True,
            TOKEN_VARIABLE: self.token, BOARD_VARIABLE: path, ENGINE_VARIABLE: place.engine,
        }  # fmt: skip
        if self.options.local_addr:
            made["LUCERNE_ADDRESS"] = self.options.local_addr
        if self.count > 1 and launch_variable("OMP_NUM_THREADS") is None:
            made["OMP_NUM_THREADS"] = 1
        return child_environment({name: str(value) for name, value in made.items()})

    def _watch(self, meeting: Meeting, place: MachinePlace) -> str:
        """Until all ranks ended well (empty), or why they have to end."""
        stuck = self.options.stuck_after
        while not self.signal:
            codes = [p.poll() for p in self.processes]
            if all(code == 0 for code in codes):
                return ""
            if any(code not in (None, 0) for code in codes):
                return self._blame()
            verdict = self.watching.look(stuck) or meeting.hears()
            if verdict:
                self._report(verdict)
                return verdict
            time.sleep(self.options.monitor_interval)
        return ""

    def _blame(self) -> str:
        """Whose end came first: not one that ended because it was told of another's."""
        time.sleep(COLLECT)
        wrong = []
        for local, process in enumerate(self.processes):
            code = process.poll()
            if code in (None, 0):
                continue
            said = self.board.read(local) or {}
            victim = bool(said.get("heard"))
            wrong.append((victim, code >= 0, local, code, said))
        _, _, local, code, said = min(wrong, key=lambda row: row[:3])
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        verdict = (
            f"rank {self.place.first + local} (process {self.processes[local].pid}) ended {how}"
            f"{watching.where(said)}"
        )
        self._report(verdict)
        return verdict

    def _report(self, verdict: str) -> None:
        text = f"{verdict}\n\n{self.watching.stacks()}"
        folder = self.options.log_dir
        if folder:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"report-{time.time_ns()}.txt")
            write_atomic(path, lambda write: write(text.encode()))
            say(f"report with the stack of each rank: {path}")

    def _end_all(self) -> None:
        """SIGTERM, a moment, SIGKILL; nothing of a generation is left."""
        running = [p for p in self.processes if p.poll() is None]
        for process in running:
            process.terminate()
        end = time.monotonic() + self.options.grace
        while time.monotonic() < end and any(p.poll() is None for p in running):
            time.sleep(0.01)
        for process in running:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()


def run(options: argparse.Namespace) -> int:
    """Entry point of `lucerne run`."""
    try:
        if options.print:
            sys.stdout.write(schedulers.printed(options, parsed([options.program])))
            return 0
        if options.image:
            raise ValueError("--image goes with --print jobset only")
        return Agent(options).run()
    except (ValueError, DistError) as error:
        say(str(error))
        return 2
