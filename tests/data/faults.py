"""Workers that are killed, stopped or crash: nothing hangs, nothing is lost, nothing is left over.

    python -m tests.data.faults --cases 100

Each case disturbs one epoch and compares what came out with an undisturbed one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lucerne
from lucerne.utils.data import DataLoader
from lucerne.utils.data.pool import is_stopped
from tests.data.samples import Augmented, Stream, plain

SIGNALS = {"KILL": signal.SIGKILL, "SEGV": signal.SIGSEGV, "STOP": signal.SIGSTOP}
LIMIT = 5.0


def epoch(loader: Any, disturb: Any = None) -> tuple[list[Any], float]:
    """All batches, and the longest wait for one."""
    found, longest = [], 0.0
    iterator = iter(loader)
    number = 0
    while True:
        if disturb is not None:
            disturb(number, iterator)
        start = time.monotonic()
        try:
            batch = next(iterator)
        except StopIteration:
            return found, longest
        finally:
            longest = max(longest, time.monotonic() - start)
        found.append(plain(batch))
        number += 1


def make(kind: str, workers: int) -> Any:
    dataset = Stream(40) if kind == "stream" else Augmented(40, size=20000, delay=0.002)
    lucerne.manual_seed(7)
    shuffle = None if kind == "stream" else True
    return DataLoader(dataset, batch_size=4, shuffle=shuffle, num_workers=workers)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


def gone(pids: list[int], limit: float = LIMIT) -> bool:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.02)
    return False


def one_case(name: str, kind: str, rng: random.Random, expected: list[Any]) -> float:
    """Send a signal to a worker at a random moment; the longest wait that followed."""
    workers = rng.randint(1, 3)
    at, who = rng.randrange(8), rng.randrange(workers)
    pids: list[int] = []

    def disturb(number: int, iterator: Any) -> None:
        if number == 0:
            pids.extend(member.pid for member in iterator._pool.members)
        if number == at:
            time.sleep(rng.random() * 0.02)
            victim = iterator._pool.members[who].pid
            pids.append(victim)
            os.kill(victim, SIGNALS[name])

    loader = make(kind, workers)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, longest = epoch(loader, disturb)
    wanted = expected if kind == "map" else sorted(expected)
    if kind == "stream":
        found = sorted(row for batch in found for row in zip(*batch, strict=True))
        wanted = list(range(40))
        found = [row[0] for row in found]
    assert found == wanted, f"{name} {kind}: what came out differs"
    assert longest <= LIMIT, f"{name} {kind}: {longest:.1f} s without a batch"
    assert gone(pids), f"{name} {kind}: workers left over"
    for warning in told:
        assert "worker" in str(warning.message), warning
    return longest


def run(cases: int, names: list[str], seed: int = 0) -> None:
    expected, _ = epoch(make("map", 2))
    for name in names:
        rng = random.Random(f"{name}{seed}")
        waits = []
        for case in range(cases):
            kind = "stream" if case % 4 == 3 else "map"
            waits.append(one_case(name, kind, rng, expected))
        print(f"{name}: {cases} cases, 0 hangs, 0 lost samples, longest wait {max(waits):.2f} s")


# ---- the program itself is killed -------------------------------------------------------------

PROGRAM = """
import os, signal, sys, time
import lucerne
from lucerne.utils.data import DataLoader
from lucerne.utils.data.launch import _server
from tests.data.samples import Augmented
if __name__ == "__main__":
    method = None if sys.argv[1] == "auto" else sys.argv[1]
    loader = DataLoader(Augmented(10**6, 100000), batch_size=4, num_workers=2,
                        multiprocessing_context=method)
    iterator = iter(loader)
    next(iterator)
    pids = [m.pid for m in iterator._pool.members]
    if _server()._forkserver_pid:
        pids.append(_server()._forkserver_pid)
    if sys.argv[2] == "stopped":
        os.kill(pids[0], signal.SIGSTOP)
    print(*pids, flush=True)
    while True:
        time.sleep(0.001)
        if sys.argv[2] != "stopped":
            next(iterator)
"""


def kill_program(method: str, stopped: bool, delay: float) -> None:
    """Kill a program with workers: they end too, and no shared memory is left."""
    before = set(os.listdir("/dev/shm"))
    args = [sys.executable, "-c", PROGRAM, method, "stopped" if stopped else "running"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        time.sleep(delay)
        program.kill()
    assert pids, "the program did not start"
    assert gone(pids), f"{method}: orphans {[p for p in pids if alive(p)]}"
    # (Other tests, of another worker of pytest, may start ranks meanwhile.)
    left = {n for n in os.listdir("/dev/shm") if not n.startswith("lucerne-run-")} - before
    assert not left, f"{method}: shared memory left over: {left}"


def run_kills(cases: int) -> None:
    rng = random.Random(0)
    methods = ["auto", "forkserver", "fork", "spawn"]
    for case in range(cases):
        kill_program(methods[case % 4], stopped=case % 3 == 2, delay=rng.random() * 0.3)
    print(f"program killed: {cases} cases, 0 orphans, 0 files in /dev/shm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--signals", nargs="*", default=list(SIGNALS))
    parser.add_argument("--kills", type=int, default=12)
    args = parser.parse_args()
    start = time.monotonic()
    run(args.cases, args.signals)
    run_kills(args.kills)
    print(f"{time.monotonic() - start:.0f} s")
    assert not is_stopped(os.getpid())


if __name__ == "__main__":
    main()
