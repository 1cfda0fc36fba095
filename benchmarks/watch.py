"""What `detect_nonfinite()` costs compiled training steps, watched and unwatched in turns.

    python -m benchmarks watch             GPT and MLP, whole steps and in two programs
    python -m benchmarks watch --small     small sizes, for CI
    python -m benchmarks watch --rounds 40

One thread, processor time of each call; each round is a block of calls one way, then the other
way. What is compared is the lower quartile of all calls: who else runs on the machine empties the
caches for the others. What is copied and looked at once in 256 calls, when the watch begins and
ends, is timed apart, and counted in with its 256th part.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks import programs, weights
from benchmarks.timing import Call
from lucerne._src.base.config import config
from lucerne._src.capture.finite.journal import MOST_CALLS

_CALLS = MOST_CALLS
_MOST_TIMED = 64


def whole(torch: Any, training: Any) -> Call:
    """The step as one program."""
    step = torch.compile(training.step)
    return lambda: step(*training.batch)


def two_programs(torch: Any, training: Any) -> Call:
    """The loss compiled, `backward()` called from outside, the optimizer's step compiled."""
    loss, update = torch.compile(training.loss), torch.compile(lambda: training.optimizer.step())

    def step() -> Any:
        training.optimizer.zero_grad()
        found = loss(*training.batch)
        found.backward()
        update()
        return found

    return step


def measured(torch: Any, call: Call, rounds: int, seconds: float) -> tuple[float, float]:
    """Seconds a call, unwatched and watched."""
    for _ in range(4):
        call()
    with torch.detect_nonfinite():
        began = time.process_time()
        call()
        took = time.process_time() - began
    calls = min(_MOST_TIMED, max(1, int(seconds / rounds / 2 / max(took, 1e-4))))
    edges: list[float] = []
    ways: list[tuple[Callable[[], AbstractContextManager[Any]], list[float]]] = [
        (nullcontext, []),
        (torch.detect_nonfinite, []),
    ]
    for _ in range(rounds):
        for watch, times in ways:
            began = time.process_time()
            with watch():
                call()
                middle = time.process_time()
                end = middle
                for _ in range(calls):
                    call()
                    before, end = end, time.process_time()
                    times.append(end - before)
            if watch is not nullcontext:
                edges.append(middle - began + time.process_time() - end)
    off, on = (statistics.quantiles(times, n=4)[0] for _, times in ways)
    return off, on + max(statistics.quantiles(edges, n=4)[0] - on, 0.0) / _CALLS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=25.0, help="for each line")
    options = parser.parse_args(arguments)
    torch = importlib.import_module("lucerne")
    torch.set_num_threads(1)
    config.payoff_calls = 0  # (compiled code is what is measured)
    small = options.small
    models = {
        "GPT": lambda: programs.gpt(torch, weights.SMALL_GPT if small else weights.CHAR_GPT),
        "MLP": lambda: programs.mlp(torch, weights.SMALL_MLP if small else weights.MLP),
    }
    print(f"{'':<24}{'off':>11}{'on':>11}{'ratio':>8}")
    for name, make in models.items():
        for way, compiled in (("one program", whole), ("two programs", two_programs)):
            off, on = measured(torch, compiled(torch, make()), options.rounds, options.seconds)
            row = f"{name + ', ' + way:<24}{1e3 * off:>8.3f} ms{1e3 * on:>8.3f} ms{on / off:>8.3f}"
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
