"""All-reduce between processes of one machine, against PyTorch's gloo, in turns.

    python -m benchmarks processes [--ranks 2 4] [--rounds 9] [--sizes 4096 65536 ...]

The ranks of both sides live all the time, and sleep while the other side is measured. A round is
some calls of one size; the figure is the best round of each side, in milliseconds for one call.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
LIMIT_MEAN, LIMIT_WORST = 1.0, 1.3


def rank_main(side: str, rank: int, size: int, meeting: str, orders: Connection) -> None:
    """A rank: it measures what it is told, and rank 0 says how long it took."""
    if side == "lucerne":
        import lucerne as m
        import lucerne.distributed as dist
    else:
        import torch as m
        import torch.distributed as dist

        m.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    dist.all_reduce(m.ones(1))
    orders.send("ready")
    while (order := orders.recv()) is not None:
        nbytes, calls = order
        x = m.ones(nbytes // 4)
        dist.all_reduce(x)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        took = (time.perf_counter() - start) / calls
        assert float(x[0]) == float(x[-1])
        orders.send(took)
    dist.destroy_process_group()


class Side:
    """The ranks of one framework."""

    def __init__(self, name: str, size: int, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.ranks = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            args = (name, rank, size, os.path.join(folder, f"{name}{size}"), theirs)
            process = context.Process(target=rank_main, args=args, daemon=True)
            process.start()
            self.pipes.append(ours)
            self.ranks.append(process)
        for pipe in self.pipes:
            pipe.recv()

    def measure(self, nbytes: int, calls: int) -> float:
        for pipe in self.pipes:
            pipe.send((nbytes, calls))
        return max(pipe.recv() for pipe in self.pipes)

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.ranks:
            process.join()


def compare(size: int, sizes: tuple[int, ...], rounds: int) -> list[tuple[int, float, float]]:
    """For each size the best time of both sides."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side("lucerne", size, folder), Side("torch", size, folder)]
        for nbytes in sizes:
            calls = max(1, min(50, (8 << 20) // nbytes))
            found: list[list[float]] = [[], []]
            for _ in range(rounds):
                for times, side in zip(found, sides, strict=True):
                    times.append(side.measure(nbytes, calls))
            rows.append((nbytes, min(found[0]), min(found[1])))
            print(line(size, *rows[-1]), flush=True)
        for side in sides:
            side.end()
    return rows


def line(size: int, nbytes: int, ours: float, theirs: float) -> str:
    return (
        f"{size} ranks {nbytes >> 10:>7} KiB: lucerne {ours * 1e3:9.3f} ms, gloo "
        f"{theirs * 1e3:9.3f} ms, ratio {ours / theirs:.2f}"
    )


def summary(ratios: list[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    fits = mean <= LIMIT_MEAN and max(ratios) <= LIMIT_WORST
    return (
        f"geometric mean {mean:.2f} (at most {LIMIT_MEAN}), worst {max(ratios):.2f} (at most "
        f"{LIMIT_WORST}): {'fits' if fits else 'DOES NOT FIT'}"
    )


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options = parser.parse_args(arguments)
    every: list[float] = []
    for size in options.ranks:
        rows = compare(size, tuple(options.sizes), options.rounds)
        ratios = [ours / theirs for _, ours, theirs in rows]
        every += ratios
        print(f"{size} ranks: {summary(ratios)}")
    print(f"all: {summary(every)}")
    return 0 if "DOES NOT" not in summary(every) else 1


if __name__ == "__main__":
    raise SystemExit(main())
