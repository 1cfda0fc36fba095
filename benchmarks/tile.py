"""Tile kernels beside the formulas they stand for.

    python -m benchmarks.tile                RMS norm, 4096 x 1024, one thread, processor time
    python -m benchmarks.tile --threads 2    the same by the clock, on two threads
    python -m benchmarks.tile --small        a small size, for CI
    python -m benchmarks.tile --table        the other kernels of the page, against torch
    python -m benchmarks.tile --shapes       time to compile for fifty shapes, empty cache

All sides run in this process, in turn, on the same numbers; gradients must agree. The kernels are
those of docs/extend/tile_kernels.md. RMS norm must take at most 0.7 of the time of torch's formula.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.timing import best_in_turn

LIMIT = 0.7
EPS = 1e-6
PAGE = Path(__file__).parents[1] / "docs" / "extend" / "tile_kernels.md"


def kernels_of_the_page(most: int | None = None) -> dict[str, Any]:
    """The kernels as the documentation has them, with their derivatives, by name. `most`: how many
    of the examples are run."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    scope: dict[str, Any] = {"__name__": "page", "print": lambda *_: None}
    for text in blocks[:most]:
        exec(compile(text, str(PAGE), "exec"), scope)
    return scope


def kernel_of_the_page() -> Callable[..., Any]:
    """`rms_norm`, with its derivative."""
    found: Callable[..., Any] = kernels_of_the_page(2)["rms_norm"]
    return found


class Case(NamedTuple):
    """A kernel of the page, and what torch is given instead: the formula, op by op, and its own
    fused op where it has one."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    kernel: Callable[[dict[str, Any], list[Any]], Any]
    formula: Callable[[Any, list[Any]], Any]
    fused: Callable[[Any, list[Any]], Any]
    backward: bool


def _softmax(t: Any, a: list[Any]) -> Any:
    e = t.exp(a[0] - a[0].amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _layer_norm(t: Any, a: list[Any]) -> Any:
    c = a[0] - a[0].mean(-1, keepdim=True)
    return c * t.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5) * a[1] + a[2]


def _gelu(t: Any, a: list[Any]) -> Any:
    z = a[0] @ a[1] + a[2]
    return 0.5 * z * (1 + t.erf(z * 0.7071067811865476))


def _attention(t: Any, a: list[Any]) -> Any:
    return t.softmax(a[0] @ a[1].transpose(1, 2) * 0.125, -1) @ a[2]


CASES = [
    Case("softmax, both passes", ((4096, 1024),), lambda k, a: k["softmax"](*a), _softmax,
         lambda t, a: t.softmax(a[0], -1), True),
    Case("layer norm, both passes", ((4096, 1024), (1024,), (1024,)),
         lambda k, a: k["layer_norm"](*a, 1e-5)[0], _layer_norm,
         lambda t, a: t.nn.functional.layer_norm(a[0], (1024,), a[1], a[2]), True),
    Case("product and GELU", ((512, 512), (512, 512), (512,)),
         lambda k, a: k["linear_gelu"](*a), _gelu,
         lambda t, a: t.nn.functional.gelu(t.addmm(a[2], a[0], a[1])), False),
    Case("attention", ((8, 1024, 64),) * 3, lambda k, a: k["flash_attention"](*a, 0.125),
         _attention,
         lambda t, a: t.nn.functional.scaled_dot_product_attention(*(x[None] for x in a))[0],
         False),
]  # fmt: skip


def table(rounds: int, clock: Callable[[], float], small: bool) -> None:
    """Milliseconds of each kernel, of torch's formula and of torch's own op."""
    ours, theirs = importlib.import_module("lucerne"), importlib.import_module("torch")
    known = kernels_of_the_page()
    print(f"{'kernel':<26}{'ms':>8}{'formula':>10}{'kernel/it':>11}{'own op':>9}{'kernel/it':>11}")
    for case in CASES:
        shapes = [tuple(n if n < 256 else n // 8 for n in s) if small else s for s in case.shapes]
        draw = np.random.default_rng(0)
        data = [draw.standard_normal(s).astype("float32") for s in shapes]
        runs: dict[str, Callable[[], Any]] = {
            "kernel": _run(ours, data, case, lambda a, c=case: c.kernel(known, a)),
            "formula": _run(theirs, data, case, lambda a, c=case: c.formula(theirs, a)),
            "own op": _run(theirs, data, case, lambda a, c=case: c.fused(theirs, a)),
        }
        if small and case.name.startswith("layer"):
            del runs["own op"]  # (it is told its sizes)
        found = {name: run() for name, run in runs.items()}
        for name, values in found.items():
            for a, b in zip(values, found["formula"], strict=True):
                gap = np.abs(a - b).max() / np.abs(b).max()
                if not gap < 1e-3:
                    raise SystemExit(f"{case.name}, {name}: differs by {gap:.1e}")
        taken = best_in_turn(runs, clock, rounds=rounds)
        best = {name: seconds * 1e3 for name, seconds in taken.items()}
        mine, formula, own = best["kernel"], best["formula"], best.get("own op", float("nan"))
        print(f"{case.name:<26}{mine:>8.2f}{formula:>10.2f}{mine / formula:>11.2f}{own:>9.2f}"
              f"{mine / own:>11.2f}")  # fmt: skip


def _run(t: Any, data: list[Any], case: Case, call: Callable[[Any], Any]) -> Callable[[], Any]:
    given = [t.from_numpy(d) for d in data]
    if case.backward:
        given = [x.requires_grad_() for x in given]

    def run() -> list[Any]:
        if not case.backward:
            with t.no_grad():
                return [call(given).numpy()]
        out = call(given)
        grads = t.autograd.grad(out, given, out.detach())
        return [out.detach().numpy(), *(g.numpy() for g in grads)]

    return run


def shapes() -> None:
    """Processor time for fifty shapes, of which each was new to the process."""
    ours = importlib.import_module("lucerne")
    known = kernels_of_the_page()
    matmul, softmax = known["matmul"], known["softmax"]
    ours.matmul(ours.ones(8, 8), ours.ones(8, 8))
    for name, call in (
        ("product in blocks of 16", lambda k: matmul(ours.ones(17 + 3 * k, 40 + k),
                                                     ours.ones(40 + k, 21 + 5 * k))),
        ("softmax of rows of 256", lambda k: softmax(ours.ones(3 + 7 * k, 256))),
        ("softmax of rows of 50 to 99", lambda k: softmax(ours.ones(3 + 7 * k, 50 + k))),
    ):  # fmt: skip
        began = time.process_time()
        for k in range(50):
            call(k)
        print(f"{name:<30}{time.process_time() - began:>8.2f} s")


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tile", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    options = parser.parse_args(arguments)
    for name in ("lucerne", "torch"):
        importlib.import_module(name).set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    if options.shapes:
        shapes()
        return 0
    if options.table:
        table(options.rounds, clock, options.small)
        return 0
    rows, columns = (256, 512) if options.small else (4096, 1024)
    made = sides(rows, columns)
    check(made)
    best = best_in_turn(made, clock, rounds=options.rounds)
    mine = best["tile kernel"]
    print(
        f"RMS norm, forward and backward, {rows} x {columns} float32, {options.threads} thread(s)"
    )
    for name, seconds in best.items():
        print(f"{name:<20} {seconds * 1e3:8.2f} ms   kernel / it {mine / seconds:5.2f}")
    ratio = mine / best["torch, formula"]
    print(f"against torch's formula: {ratio:.2f} (must be at most {LIMIT})")
    return int(ratio > LIMIT and not options.small)


if __name__ == "__main__":
    sys.exit(main())
