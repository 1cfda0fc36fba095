"""`python -m tests.sparse.speed`: products of sparse and dense matrices beside PyTorch's.

One thread; both sides take turns in one process; the least of some runs, in processor time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import lucerne

SIZE, COUNT, TIMES = 10_000, 1_000_000, 7


def least(calls: list[Callable[[], Any]]) -> list[float]:
    """Milliseconds of each, taking turns."""
    best = [float("inf")] * len(calls)
    for _ in range(TIMES):
        for i, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[i] = min(best[i], (time.thread_time() - start) * 1000)
    return best


def trained(t: Any, s: Any, d: Any) -> Callable[[], Any]:
    """Forward and both gradients, for a COO matrix."""

    def step() -> None:
        values = s.values().detach().clone().requires_grad_()
        made = t.sparse_coo_tensor(s.indices(), values, s.shape, is_coalesced=True)
        right = d.detach().clone().requires_grad_()
        t.sparse.mm(made, right).sum().backward()

    return step


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lucerne.set_num_threads(1)
    rng = np.random.default_rng(0)
    places, numbers = rng.integers(0, SIZE, (2, COUNT)), rng.random(COUNT, dtype=np.float32)
    made = torch.sparse_coo_tensor(torch.tensor(places), torch.tensor(numbers), (SIZE, SIZE))
    theirs = made.coalesce()
    ours = lucerne.sparse_coo_tensor(
        theirs.indices().numpy(), theirs.values().numpy(), (SIZE, SIZE), is_coalesced=True
    )
    print(f"{SIZE} x {SIZE}, {COUNT} elements, float32, one thread; milliseconds")
    print(f"{'':<34}{'torch':>10}{'lucerne':>10}{'ratio':>8}")
    for width in (1, 16, 64, 128):
        d = rng.random((SIZE, width), dtype=np.float32)
        pair = torch.tensor(d), lucerne.tensor(d)
        forms = {
            "COO": (theirs, ours),
            "CSR": (theirs.to_sparse_csr(), ours.to_sparse_csr()),
        }
        for name, (a, b) in forms.items():
            calls = [partial(torch.sparse.mm, a, pair[0]), partial(lucerne.sparse.mm, b, pair[1])]
            assert np.allclose(calls[0]().numpy(), calls[1]().numpy(), rtol=1e-3)
            show(f"{name} @ dense, {width} columns", *least(calls))
    d = rng.random((SIZE, 64), dtype=np.float32)
    calls = [trained(torch, theirs, torch.tensor(d)), trained(lucerne, ours, lucerne.tensor(d))]
    show("forward and gradients, 64 columns", *least(calls))
    show("coalesce", *least([made.coalesce, unsorted(places, numbers).coalesce]))
    show("to_sparse_csr", *least([theirs.to_sparse_csr, ours.to_sparse_csr]))


def unsorted(places: Any, numbers: Any) -> Any:
    return lucerne.sparse_coo_tensor(places, numbers, (SIZE, SIZE))


def show(name: str, first: float, second: float) -> None:
    print(f"{name:<34}{first:>10.2f}{second:>10.2f}{second / first:>8.2f}")


if __name__ == "__main__":
    main()
