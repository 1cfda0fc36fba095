"""A fused RMS norm written as a tile kernel, forward and backward, beside the formula.

    python -m benchmarks.tile                4096 x 1024, one thread, processor time
    python -m benchmarks.tile --threads 2    the same by the clock, on two threads
    python -m benchmarks.tile --small        a small size, for CI

All sides run in this process, in turn, on the same numbers; gradients must agree. The kernel is the
one of docs/tile_kernels.md. It must take at most 0.7 of the time of torch's formula.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 0.7
EPS = 1e-6
PAGE = Path(__file__).parents[1] / "docs" / "tile_kernels.md"


def kernel_of_the_page() -> Callable[..., Any]:
    """`rms_norm` as the documentation has it, with its derivative."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    scope: dict[str, Any] = {"__name__": "page", "print": lambda *_: None}
    for text in blocks[:2]:
        exec(compile(text, str(PAGE), "exec"), scope)
    found: Callable[..., Any] = scope["rms_norm"]
    return found


def formula(torch: Any, x: Any, w: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * w


class Side:
    """One way to compute it, with its own tensors."""

    def __init__(self, torch: Any, rows: int, columns: int, call: Callable[..., Any]) -> None:
        draw = np.random.default_rng(0)
        x, w, g = (draw.standard_normal(s).astype("float32") for s in (
            (rows, columns), columns, (rows, columns)))  # fmt: skip
        self.x, self.w = torch.from_numpy(x).requires_grad_(), torch.from_numpy(w).requires_grad_()
        self.g, self.call = torch.from_numpy(g), call

    def __call__(self) -> None:
        self.x.grad = self.w.grad = None
        self.call(self.x, self.w).backward(self.g)


def sides(rows: int, columns: int) -> dict[str, Side]:
    ours, theirs = importlib.import_module("lucerne"), importlib.import_module("torch")
    kernel = kernel_of_the_page()
    compiled = ours.compile(lambda x, w: formula(ours, x, w))
    calls = {
        "tile kernel": (ours, lambda x, w: kernel(x, w, EPS)),
        "torch, formula": (theirs, lambda x, w: formula(theirs, x, w)),
        "lucerne, formula": (ours, lambda x, w: formula(ours, x, w)),
        "lucerne, compiled": (ours, compiled),
    }
    return {name: Side(t, rows, columns, call) for name, (t, call) in calls.items()}


def check(made: dict[str, Side]) -> None:
    """All sides have the same gradients."""
    for side in made.values():
        side()
    first = made["torch, formula"]
    for name, side in made.items():
        for mine, wanted in ((side.x.grad, first.x.grad), (side.w.grad, first.w.grad)):
            gap = np.abs(mine.numpy() - wanted.numpy()).max() / np.abs(wanted.numpy()).max()
            if not gap < 1e-4:
                raise SystemExit(f"{name}: gradients differ by {gap:.1e}")


def measure(made: dict[str, Side], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """The best time of each side, in milliseconds."""
    best = dict.fromkeys(made, float("inf"))
    for _ in range(rounds):
        for name, side in made.items():
            began = clock()
            side()
            best[name] = min(best[name], (clock() - began) * 1e3)
    return best


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tile", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(arguments)
    for name in ("lucerne", "torch"):
        importlib.import_module(name).set_num_threads(options.threads)
    rows, columns = (256, 512) if options.small else (4096, 1024)
    made = sides(rows, columns)
    check(made)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    best = measure(made, options.rounds, clock)
    mine = best["tile kernel"]
    print(
        f"RMS norm, forward and backward, {rows} x {columns} float32, {options.threads} thread(s)"
    )
    for name, ms in best.items():
        print(f"{name:<20} {ms:8.2f} ms   kernel / it {mine / ms:5.2f}")
    ratio = mine / best["torch, formula"]
    print(f"against torch's formula: {ratio:.2f} (must be at most {LIMIT})")
    return int(ratio > LIMIT and not options.small)


if __name__ == "__main__":
    sys.exit(main())
