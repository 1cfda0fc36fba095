"""Throughput of `DataLoader` with workers, against PyTorch's, on samples of one megabyte.

    python -m benchmarks.dataloader [--workers 2] [--batch 16] [--batches 60] [--rounds 5]

Rounds of both take turns, so that other load on the machine hits both alike. Each round is one
epoch with persistent workers; the first epoch of each (starting workers) is shown apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
import torch.utils.data as theirs

import lucerne
import lucerne.utils.data as ours

MEGABYTE = 1 << 18  # float32 values


class Arrays:
    """One NumPy array of 1 MB for each sample, cut from one that is in the cache of no core."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.source = np.arange(MEGABYTE * 8, dtype=np.float32).reshape(8, MEGABYTE)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if i >= self.length:
            raise IndexError(i)
        return self.source[i % 8], i


class TheirTensors(Arrays):
    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(self.source[i % 8]), i


class OurTensors(Arrays):
    def __getitem__(self, i: int) -> Any:
        return lucerne.from_numpy(self.source[i % 8]), i


class Made(Arrays):
    """A new array for each sample, as decoding would make."""

    def __getitem__(self, i: int) -> Any:
        return self.source[i % 8] + np.float32(i), i


def epoch(loader: Any, total: int) -> float:
    start = time.perf_counter()
    seen = 0.0
    for x, i in loader:
        seen += float(x[0, 1]) + len(i)
    assert seen > 0
    return total / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    total = args.batch * args.batches
    options = {"batch_size": args.batch, "num_workers": args.workers, "persistent_workers": True}
    print(f"{args.workers} workers, batches of {args.batch} x 1 MB, samples/s (median of rounds)")
    print(f"{'dataset':16}{'torch':>10}{'lucerne':>10}{'ratio':>8}   first epoch: torch, lucerne")
    rows = [
        ("numpy arrays", Arrays(total), Arrays(total)),
        ("tensors", TheirTensors(total), OurTensors(total)),
        ("made arrays", Made(total), Made(total)),
    ]
    for name, a, b in rows:
        rivals = [theirs.DataLoader(a, **options), ours.DataLoader(b, **options)]
        first = [epoch(loader, total) for loader in rivals]
        rates: list[list[float]] = [[], []]
        for _ in range(args.rounds):
            for found, loader in zip(rates, rivals, strict=True):
                found.append(epoch(loader, total))
        t, l = (statistics.median(found) for found in rates)
        print(f"{name:16}{t:10.0f}{l:10.0f}{l / t:8.2f}   {first[0]:.0f}, {first[1]:.0f}")


if __name__ == "__main__":
    main()
