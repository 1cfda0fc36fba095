"""`python -m tests.programs.pays [NAME ...]`: does compiling pay, for every program of the set?

Each program runs three times side by side, a step of each in turn: our eager, ours compiled (the
model, and the whole step where a program has one), torch's eager. After the first steps, in which
all is compiled and what does not pay is left, the lower quartile of the next ones is compared.
Beside it: CPU seconds of the first step, breaks, and what was left to eager.

    python -m tests.programs.pays gpt bert --way step
    python -m tests.programs.pays --no-torch --json found.json
    python -m tests.programs.pays --torch-compile          torch's compiled beside it (slow)
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from lucerne._src.base.config import Config, config
from tests.programs.rows import Run, found

WARM, TIMED = 30, 20
LIMIT = 1.05
WAYS = ("model", "step")


class Side:
    """One run of a program, step by step."""

    def __init__(self, package: str, made: Any, way: str) -> None:
        torch = importlib.import_module(package)
        torch.manual_seed(0)
        self.run = Run(torch, way, WARM + TIMED)
        self.steps = iter(made(self.run))
        self.times: list[float] = []
        self.first = 0.0

    def advance(self) -> None:
        """One step more, timed."""
        self.run.torch.set_grad_enabled(True)  # (some yield out of `no_grad`)
        cpu, began = time.process_time(), time.perf_counter()
        next(self.steps)
        self.times.append(time.perf_counter() - began)
        self.first = self.first or time.process_time() - cpu

    @property
    def milliseconds(self) -> float:
        """Of a step, undisturbed: the lower quartile of those after the first."""
        timed = sorted(self.times[WARM:])
        return 1e3 * timed[len(timed) // 4]


@dataclass
class Found:
    """One program compiled in one way."""

    name: str
    way: str
    eager: float
    compiled: float
    torch: float
    first: float
    breaks: int
    left: bool
    rival: float = 0.0
    """torch's compiled; 0: not asked for, or it failed."""
    rival_first: float = 0.0

    @property
    def ratio(self) -> float:
        """Compiled against our own eager."""
        return self.compiled / self.eager

    def __str__(self) -> str:
        against = f"{self.compiled / self.torch:8.2f}" if self.torch else f"{'-':>8}"
        if self.rival:
            against += f"{self.compiled / self.rival:8.2f}{self.rival_first:8.2f}"
        told = f"{self.breaks} breaks" if self.breaks else "one graph"
        told += ", left to eager" if self.left else ""
        slow = "  SLOW" if self.ratio > LIMIT else ""
        return (
            f"{self.name:22}{self.way:6}{self.eager:9.3f}{self.compiled:9.3f}{self.ratio:7.2f}"
            f"{self.first:8.2f}{against}  {told}{slow}"
        )


HEAD = f"{'program':22}{'way':6}{'eager':>9}{'compiled':>9}{'ratio':>7}{'first s':>8}{'/torch':>8}"
RIVAL = f"{'/compile':>8}{'first s':>8}"
UNITS = f"\n{'':28}{'ms':>9}{'ms':>9}"


def rival(theirs: Any, way: str) -> tuple[float, float]:
    """torch's compiled, by itself: milliseconds of a step, CPU seconds of the first; noughts if it
    fails."""
    importlib.import_module("torch._dynamo").reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            side = Side("torch", theirs, way)
            for _ in range(WARM + TIMED):
                side.advance()
        except Exception as error:  # whatever its compiler says
            print(f"torch.compile: {type(error).__name__}", file=sys.stderr)
            return 0.0, 0.0
    return side.milliseconds, side.first


def measured(name: str, way: str, ours: Any, theirs: Any | None) -> Found | None:
    """None: the program compiles nothing that way."""
    sides = [Side("lucerne", ours, "eager"), Side("lucerne", ours, way)]
    if theirs is not None:
        sides.append(Side("torch", theirs, "eager"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(WARM + TIMED):
            for side in sides if k % 2 else reversed(sides):
                side.advance()
            if not sides[1].run.compiled:
                return None
    eager, compiled, *rest = sides
    run = compiled.run
    torch = rest[0].milliseconds if rest else 0.0
    times = eager.milliseconds, compiled.milliseconds, torch
    return Found(name, way, *times, compiled.first, run.breaks, run.given_up)


def all_of(
    names: list[str], ways: tuple[str, ...], with_torch: bool, with_rival: bool = False
) -> Iterator[Found]:
    """Every program in every way, one after the other."""
    ours = found("lucerne")
    theirs = found("torch") if with_torch else {}
    for name in names or ours:
        for way in ways:
            row = measured(name, way, ours[name], theirs.get(name))
            if row is not None and with_rival and name in theirs:
                row.rival, row.rival_first = rival(theirs[name], way)
            if row is not None:
                yield row


def summary(rows: list[Found]) -> str:
    """What the whole set says."""
    slow = sorted((r for r in rows if r.ratio > LIMIT), key=lambda r: -r.ratio)
    firsts = sorted(r.first for r in rows)
    lines = [
        f"{len(rows)} rows, {len(slow)} above {LIMIT} of our own eager"
        + (": " + ", ".join(f"{r.name} {r.way} {r.ratio:.2f}" for r in slow) if slow else ""),
        f"geometric mean against our own eager {geometric_mean([r.ratio for r in rows]):.2f}",
        f"one graph: {sum(not r.breaks for r in rows)}; left to eager: {sum(r.left for r in rows)}",
        f"first step, CPU: median {firsts[len(firsts) // 2]:.2f} s, worst {firsts[-1]:.2f} s",
    ]
    if all(r.torch for r in rows):
        against = geometric_mean([r.compiled / r.torch for r in rows])
        lines.insert(2, f"geometric mean against torch's eager {against:.2f}")
    both = [r for r in rows if r.rival]
    if both:
        ratio = geometric_mean([r.compiled / r.rival for r in both])
        theirs = geometric_mean([r.rival / r.torch for r in both])
        first = sorted(r.rival_first for r in both)[len(both) // 2]
        lines.append(
            f"torch.compile ({len(both)} rows): {theirs:.2f} of torch's eager, first {first:.1f}"
            f" s; ours against it {ratio:.2f}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.pays")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--no-torch", action="store_true", help="against our own eager alone")
    parser.add_argument("--torch-compile", action="store_true", help="torch's compiled as well")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(found("lucerne")))
    if unknown:
        parser.error(
            f"no such program: {', '.join(unknown)}. There are: {', '.join(found('lucerne'))}"
        )
    config.payoff_calls = Config().payoff_calls  # as users have it
    print(HEAD + (RIVAL if asked.torch_compile else "") + UNITS)
    rows = []
    ways = (asked.way,) if asked.way else WAYS
    for row in all_of(asked.names, ways, not asked.no_torch, asked.torch_compile):
        rows.append(row)
        print(row, flush=True)
    print(summary(rows))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(r) for r in rows]))
    return int(any(r.ratio > LIMIT for r in rows))


if __name__ == "__main__":
    sys.exit(main())
