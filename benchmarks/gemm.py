"""Matrix products beside PyTorch's: kernels alone, packing at call and with packed weights.

    python -m benchmarks.gemm                     float32, bfloat16, float64 and small shapes
    python -m benchmarks.gemm --dtype bfloat16    one type
    python -m benchmarks.gemm --only 1024,dX      some shapes

Calls are interleaved, each waits for a quiet machine, the best of many counts. The last line of a
table is the geometric mean of the ratios (our time / torch's).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import Effort, best_times
from lucerne._src.backends.cpu.gemm.choose import product_kernel
from lucerne._src.backends.cpu.gemm.kinds import KINDS
from lucerne._src.backends.cpu.gemm.prepack import prepack
from lucerne._src.backends.cpu.gemm.shape import describe
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.meta import TensorMeta, make_meta

HOST = device("cpu")
LARGE = [
    # name, rows, columns, k, layouts of A and B ("t": transposed)
    ("512", 512, 512, 512, "nn"), ("1024", 1024, 1024, 1024, "nn"),
    ("2048", 2048, 2048, 2048, "nn"),
    ("qkv", 1024, 1152, 384, "nn"), ("qkv.T", 1024, 1152, 384, "nt"),
    ("mlp up", 1024, 1536, 384, "nn"), ("mlp up.T", 1024, 1536, 384, "nt"),
    ("mlp down.T", 1024, 384, 1536, "nt"), ("head.T", 1024, 8192, 384, "nt"),
    ("dX", 1024, 384, 8192, "nn"), ("dW qkv", 1152, 384, 1024, "tn"),
    ("dW head", 8192, 384, 1024, "tn"), ("digits", 64, 256, 784, "nn"),
    ("digits.T", 64, 256, 784, "nt"), ("dW digits", 256, 784, 64, "tn"),
]  # fmt: skip
SMALL = [
    # name, shape of A, shape of B, layouts
    ("4x4", (4, 4), (4, 4), "nn"), ("10k of 4x4", (10000, 4, 4), (10000, 4, 4), "nn"),
    ("1k of 16x16", (1000, 16, 16), (1000, 16, 16), "nn"),
    ("q k.T", (96, 128, 64), (96, 64, 128), "nt"), ("p v", (96, 128, 128), (96, 128, 64), "nn"),
    ("64x10x256.T", (64, 256), (256, 10), "nt"), ("64x256x10", (64, 10), (10, 256), "nn"),
    ("32", (32, 32), (32, 32), "nn"), ("64.T", (64, 64), (64, 64), "nt"),
    ("128", (128, 128), (128, 128), "nn"), ("256", (256, 256), (256, 256), "nn"),
    ("x W.T", (1, 4096), (4096, 4096), "nt"), ("x W", (1, 4096), (4096, 4096), "nn"),
    ("4 rows W.T", (4, 4096), (4096, 4096), "nt"), ("8 rows W.T", (8, 4096), (4096, 4096), "nt"),
    ("A x", (1000, 1000), (1000, 1), "nn"), ("A.T x", (1000, 1000), (1000, 1), "tn"),
    ("dot", (1, 1000000), (1000000, 1), "nn"), ("outer", (1000, 1), (1, 1000), "nn"),
    ("tall", (100000, 8), (8, 8), "nn"),
]  # fmt: skip


class Outside:
    """A torch tensor as kernels see tensors."""

    def __init__(self, t: torch.Tensor) -> None:
        self.kept = t
        name = str(t.dtype).removeprefix("torch.")
        self._meta: TensorMeta = make_meta(dt.by_name(name), tuple(t.shape), t.stride(), HOST)
        self._storage, self._offset = self, 0

    def data_ptr(self) -> int:
        return self.kept.data_ptr()


def operand(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> torch.Tensor:
    if layout == "t":
        return operand((*shape[:-2], shape[-1], shape[-2]), "n", dtype).transpose(-1, -2)
    return torch.randn(shape).to(dtype)


def compared(a: torch.Tensor, b: torch.Tensor, effort: Effort, packed: bool) -> dict[str, float]:
    """Seconds of one call: torch's, ours, and ours with B packed before."""
    c = torch.matmul(a, b)
    mine = torch.empty_like(c)
    left, right, out = Outside(a), Outside(b), Outside(mine)
    product = describe(left._meta, right._meta, out._meta)
    assert product is not None
    kernel = product_kernel(KINDS[left._meta.dtype.name], product)
    calls: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.matmul(a, b, out=c),
        "ours": kernel.bind([left, right], [out]),
    }
    if packed:
        ready = prepack(right)
        kernel = ready.product(left._meta, out._meta)
        calls["packed"] = kernel.bind([left, ready], [out])
    for name, call in calls.items():
        call()
        if name != "torch":
            error = ((mine.double() - a.double() @ b.double()).abs().max() / c.abs().max()).item()
            assert error < 0.02, f"{name} is wrong by {error}"
    return best_times(calls, effort)


def report(title: str, rows: list[tuple[str, torch.Tensor, torch.Tensor]], packed: bool) -> None:
    print(f"\n{title:<14} {'torch ms':>10} {'ours':>10} {'packed':>10} {'ratio':>7} {'packed':>7}")
    ratios: dict[str, list[float]] = {"ours": [], "packed": []}
    noisy = taken = 0
    for name, a, b in rows:
        effort = Effort(rounds=12, repeats=4, pause=0.004, seconds=5.0)
        best = compared(a, b, effort, packed)
        noisy, taken = noisy + effort.noisy, taken + effort.taken
        cells, shares = "", ""
        for key, found in ratios.items():
            if key not in best:
                cells, shares = cells + f" {'':>10}", shares + f" {'':>7}"
                continue
            found.append(best[key] / best["torch"])
            cells += f" {best[key] * 1e3:>10.4f}"
            shares += f" {found[-1]:>7.3f}"
        print(f"{name:<14} {best['torch'] * 1e3:>10.4f}{cells}{shares}", flush=True)
    means = " ".join(f"{k} {_mean(r):.3f} (worst {max(r):.3f})" for k, r in ratios.items() if r)
    print(f"geometric mean: {means}; {noisy} of {taken} timings began on a busy machine")


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", default="float32,bfloat16,float64,small")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    torch.set_num_threads(2)
    for title in given.dtype.split(","):
        small = title == "small"
        dtype = torch.float32 if small else getattr(torch, title)
        listed = SMALL if small else [(n, (m, k), (k, c), how) for n, m, c, k, how in LARGE]
        rows = [
            (name, operand(a, how[0], dtype), operand(b, how[1], dtype))
            for name, a, b, how in listed
            if not only or name in only
        ]
        report(title, rows, packed=not small)


if __name__ == "__main__":
    main()
