"""What the examples share: options, the choice of framework, progress, loss log and plot.

Every `train.py` begins so, and runs on Lucerne and on PyTorch without another change:

    args = common.options("what this example does", steps=200, batch=32)
    torch = common.framework(args)
    run = common.Run(args)
    run.initial(model)
    for step in run:
        ...
        run.loss(loss)
    run.finish()
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def options(description: str, **defaults: Any) -> argparse.Namespace:
    """Read the command line; each keyword is an option with its default, beside the usual ones."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--framework", choices=["lucerne", "torch"], default="lucerne")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="how many threads to use")
    parser.add_argument("--log", type=Path, help="write losses and times to this JSON file")
    compiling = "compile the model: as one graph, or in parts if it has to be"
    parser.add_argument("--compile", choices=["whole", "parts"], help=compiling)
    parser.add_argument("--plot", type=Path, help="draw the losses into this PNG file")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def framework(args: argparse.Namespace) -> Any:
    """The framework, seeded."""
    torch = importlib.import_module(args.framework)
    torch.manual_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)
    return torch


class Run:
    """The training loop: counts `args.steps` steps, shows a bar, keeps every loss."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.losses: list[float] = []
        self.numbers: dict[str, Any] = {}
        self.seconds = 0.0

    def __iter__(self) -> Iterator[int]:
        start = time.perf_counter()
        for step in range(self.args.steps):
            yield step
            self.seconds = time.perf_counter() - start
            self._show(step + 1)
        print(file=sys.stderr)

    def initial(self, model: Any) -> None:
        """Keep a digest of the weights it begins with: the same for both frameworks. With
        `--compile` the model is compiled here."""
        found = hashlib.sha256()
        for name, value in model.state_dict().items():
            found.update(name.encode() + value.numpy().tobytes())
        self.numbers["initial"] = found.hexdigest()
        if self.args.compile:
            exact = {"mode": "bitwise"} if self.args.framework == "lucerne" else {}
            model.compile(fullgraph=self.args.compile == "whole", **exact)

    def loss(self, value: Any) -> None:
        """Keep the loss of this step, a number or a tensor with one element."""
        self.losses.append(value.item() if hasattr(value, "item") else value)

    def note(self, **numbers: Any) -> None:
        """Keep and print results, such as an accuracy."""
        self.numbers |= numbers
        print("  ".join(f"{name} {value}" for name, value in numbers.items()))

    def _show(self, done: int) -> None:
        steps = self.args.steps
        if not sys.stderr.isatty() and done % max(1, steps // 10):
            return
        left = self.seconds / done * (steps - done)
        bar = "#" * (30 * done // steps)
        end = "" if sys.stderr.isatty() else "\n"
        loss = f"{self.losses[-1]:.4f}" if self.losses else ""
        line = f"\r[{bar:30}] {done}/{steps}  loss {loss}  {left:.0f} s left "
        print(line, end=end, file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Show the curve, and write log and plot if asked."""
        shown = f"{self.losses[0]:.4f} -> {self.losses[-1]:.4f}" if self.losses else "no steps"
        print(f"{self.args.framework}: loss {shown} in {self.seconds:.1f} s")
        print(sparkline(self.losses))
        if self.args.log:
            found = {"framework": self.args.framework, "seed": self.args.seed, **self.numbers}
            found |= {"seconds": self.seconds, "losses": self.losses}
            self.args.log.write_text(json.dumps(found))
        if self.args.plot:
            plot(self.losses, self.args.plot)


def sparkline(values: list[float], width: int = 70) -> str:
    """The curve in one line of text."""
    count = min(width, len(values))
    means = []
    for i in range(count):
        part = values[i * len(values) // count : (i + 1) * len(values) // count]
        means.append(sum(part) / len(part))
    if not means:
        return ""
    low, high = min(means), max(means)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (m - low) / (high - low or 1))] for m in means)


def plot(values: list[float], path: Path) -> None:
    """The curve as a PNG, if matplotlib is installed."""
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install matplotlib)")
        return
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(values)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    figure.savefig(path, dpi=120, bbox_inches="tight")
