"""Convolution beside torch: forward, gradient of the input, gradient of the weight.

    python benchmarks/conv.py                     all shapes, all threads
    python benchmarks/conv.py --single            one thread, processor time (for a busy machine)
    python benchmarks/conv.py --only 3x3 --ops f  some shapes, some of f, x, w

Both sides run in both layouts, in turn; the best of many short runs counts. A ratio is our time
over torch's better layout: below 1 we are faster. torch gets the malloc settings it likes best.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LARGE = str(1 << 34)
SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": LARGE,
    "MALLOC_MMAP_THRESHOLD_": LARGE,
    "LUCERNE_HOST_BACKEND": "cpu",
}


class Shape(NamedTuple):
    batch: int
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        per_output = 2 * self.channels // self.groups * self.kernel**2
        return self.batch * self.outputs * self.out_size**2 * per_output


SHAPES = {
    "3x3 64 56x56": Shape(16, 64, 64, 56, 3),
    "3x3 64 56x56 s2": Shape(16, 64, 64, 56, 3, stride=2),
    "3x3 512 4x4": Shape(32, 512, 512, 4, 3),
    "3x3 128 28x28": Shape(8, 128, 128, 28, 3),
    "1x1 64-256 56x56": Shape(16, 64, 256, 56, 1),
    "1x1 256-64 56x56": Shape(16, 256, 64, 56, 1),
    "7x7 3-64 224 s2": Shape(16, 3, 64, 224, 7, stride=2),
    "depthwise 128 56x56": Shape(16, 128, 128, 56, 3, groups=128),
    "cifar 3-64 32x32": Shape(32, 3, 64, 32, 3),
    "cifar 64 32x32": Shape(32, 64, 64, 32, 3),
    "cifar 64-128 s2": Shape(32, 64, 128, 32, 3, stride=2),
    "cifar 128 16x16": Shape(32, 128, 128, 16, 3),
    "cifar 256 8x8": Shape(32, 256, 256, 8, 3),
    "groups 32 of 4": Shape(8, 128, 128, 28, 3, groups=32),
    "depthwise s2": Shape(16, 128, 128, 56, 3, stride=2, groups=128),
}
BESIDES = {"groups 32 of 4", "depthwise s2"}
"""Shown, but not part of the means: no figure is promised for them."""
OPS = {"f": "forward", "x": "input", "w": "weight"}
Call = Callable[[], Any]


def calls(shape: Shape, op: str, last: bool) -> dict[str, Call]:
    """Ours and torch's for one layout, on the same numbers; they are compared once."""
    import torch

    import lucerne
    from lucerne._src.ops.spatial import convolution

    n, c, o, size, k, stride, groups = shape
    form = torch.channels_last if last else torch.contiguous_format
    dims = [(n, c, size, size), (o, c // groups, k, k), (n, o, shape.out_size, shape.out_size)]
    theirs = [torch.randn(d).to(memory_format=form) for d in dims]
    ours = []
    for t in theirs:
        made = lucerne.empty_strided(tuple(t.shape), t.stride())
        made.copy_(lucerne.from_numpy(t.contiguous().numpy()))
        ours.append(made)
    (x, w, y), (tx, tw, ty) = ours, theirs
    pair = ((stride,) * 2, (shape.padding,) * 2, (1, 1), groups)
    wanted = [op == "x", op == "w", False]

    def torch_backward() -> Any:
        grads = torch.ops.aten.convolution_backward(
            ty, tx, tw, None, pair[0], pair[1], pair[2], False, [0, 0], groups, wanted
        )
        return grads[0] if op == "x" else grads[1]

    mine: dict[str, Call] = {
        "f": lambda: convolution.conv(x, w, None, *pair),
        "x": lambda: convolution.conv_input(y, w, None, (size, size), *pair),
        "w": lambda: convolution.conv_weight(y, x, (k, k), *pair),
    }

    def torch_forward() -> Any:
        return torch.nn.functional.conv2d(tx, tw, None, stride, shape.padding, 1, groups)

    their_call: Call = torch_forward if op == "f" else torch_backward
    check(mine[op]().numpy(), their_call().numpy())
    layout = "last" if last else "first"
    return {f"ours {layout}": mine[op], f"torch {layout}": their_call}


def check(got: Any, want: Any) -> None:
    error = abs(got - want).max() / abs(want).max()
    assert error < 1e-4, f"results differ from torch's by {error}"


def best_times(found: dict[str, Call], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each call: the best of many, all in turn."""
    best = dict.fromkeys(found, math.inf)
    for _ in range(rounds):
        for name, call in found.items():
            if clock is time.perf_counter:
                time.sleep(0.004)  # let the other side's spinning workers sleep
            call()
            for _ in range(3):
                start = clock()
                call()
                best[name] = min(best[name], clock() - start)
    return best


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--ops", default="f,x,w")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    import torch

    import lucerne

    threads = 1 if options.single else torch.get_num_threads()
    torch.set_num_threads(threads)
    lucerne.set_num_threads(threads)
    clock = time.thread_time if options.single else time.perf_counter
    print(f"{threads} threads; milliseconds, and ours over torch's better layout")
    print(
        f"{'shape':22}{'op':9}{'torch':>8}{'last':>8}{'ours':>9}{'last':>8}{'ratio':>8}{'last':>7}"
    )
    ratios: dict[str, list[tuple[float, float]]] = {op: [] for op in OPS}
    for name, shape in SHAPES.items():
        for op in options.ops.split(",") if options.only in name else ():
            found = {**calls(shape, op, last=False), **calls(shape, op, last=True)}
            best = best_times(found, options.rounds, clock)
            torch_best = min(best["torch first"], best["torch last"])
            first, last = (best[f"ours {layout}"] / torch_best for layout in ("first", "last"))
            if name not in BESIDES:
                ratios[op].append((first, last))
            columns = [
                best["torch first"],
                best["torch last"],
                best["ours first"],
                best["ours last"],
            ]
            times = "".join(f"{1e3 * t:{w}.3f}" for t, w in zip(columns, (8, 8, 9, 8), strict=True))
            print(f"{name:22}{OPS[op]:9}{times}{first:8.2f}{last:7.2f}", flush=True)
    for op, pairs in ratios.items():
        if pairs:
            ways = {"channels first": [a for a, _ in pairs], "last": [b for _, b in pairs]}
            ways["the better of each"] = [min(pair) for pair in pairs]
            means = ", ".join(f"{name} {geometric_mean(v):.3f}" for name, v in ways.items())
            print(f"geometric mean, {OPS[op]}: {means}")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, **SETTINGS, "PYTHONPATH": path}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    main()
