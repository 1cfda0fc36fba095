"""How the suite takes time: both sides in turn, on a quiet machine, the best of many short runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Call = Callable[[], Any]

_LOAD = Path("/proc/loadavg")


def runnable() -> int:
    """How many threads of the whole machine want a core now, this one included (1 if unknown)."""
    try:
        return int(_LOAD.read_text().split()[3].split("/")[0])
    except OSError:
        return 1


def quiet(limit: float) -> bool:
    """Wait until nothing else runs, at most `limit` seconds; whether it became quiet."""
    end = time.perf_counter() + limit
    seen = 0
    while time.perf_counter() < end:
        seen = seen + 1 if runnable() <= 1 else 0
        if seen >= 2:
            return True
        time.sleep(0.002)
    return False


class Effort:
    """How long one comparison may take. `pause` lets the other side's idle workers fall asleep.

    `one_thread`: both sides use one thread, and what counts is its processor time: other processes
    then disturb far less, so nothing is waited for.
    """

    def __init__(self, rounds: int, repeats: int, pause: float, seconds: float) -> None:
        self.rounds, self.repeats, self.pause, self.seconds = rounds, repeats, pause, seconds
        self.one_thread = False
        self.noisy, self.taken = 0, 0
        """How many timings began on a busy machine, and how many there were."""


def full_effort() -> Effort:
    return Effort(rounds=12, repeats=4, pause=0.004, seconds=6.0)


def smoke_effort() -> Effort:
    return Effort(rounds=2, repeats=2, pause=0.002, seconds=0.25)


def best_times(
    calls: Mapping[str, Call], effort: Effort, shortest: float = 3e-4
) -> dict[str, float]:
    """Seconds of one call of each, measured in turn so that a disturbance meets all of them.

    Calls shorter than `shortest` are repeated inside one timing. At least one round is made, also
    when the time allowed is over.
    """
    inner = {name: _repetitions(call, shortest) for name, call in calls.items()}
    clock = time.thread_time if effort.one_thread else time.perf_counter
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + effort.seconds
    for _ in range(effort.rounds):
        for name, call in calls.items():
            if not effort.one_thread:
                time.sleep(effort.pause)
                left = end - time.perf_counter()
                effort.taken += 1
                effort.noisy += not quiet(min(0.5, max(left / 4, 0.005)))
            call()
            for _ in range(effort.repeats):
                best[name] = min(best[name], _once(call, inner[name], clock))
        if time.perf_counter() > end:
            break
    return best


def best_in_turn(
    sides: Mapping[str, Call],
    clock: Callable[[], float] = time.thread_time,
    *,
    rounds: int = 0,
    seconds: float = 0.0,
    calls: int = 1,
) -> dict[str, float]:
    """Seconds of one call of each side, the best of many: `rounds` of them, and for `seconds`."""
    best = dict.fromkeys(sides, float("inf"))
    end = time.perf_counter() + seconds
    made = 0
    while made < rounds or time.perf_counter() < end:
        made += 1
        for name, call in sides.items():
            best[name] = min(best[name], _once(call, calls, clock))
    return best


def _repetitions(call: Call, shortest: float) -> int:
    call()
    call()
    took = max(_once(call, 1), 1e-8)
    if took < shortest:
        took = max(_once(call, 5), 1e-8)
    return max(1, int(shortest / took))


def _once(call: Call, number: int, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(number):
        call()
    return (clock() - start) / number
