"""What this machine can do at best: the figures that measured times are to be read against.

    python -m lucerne.profiler.limits            # a table; --anew measures again

The host's backend measures them (about a second, once; they are kept on disk per user). A backend
that does not is measured from outside, with a matrix product and a copy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from lucerne._src import backends
from lucerne._src.tensor import api as lu

_TRIES = 200
_SIDE = 256
_COPIED = 8 << 20


@dataclass(frozen=True)
class Limits:
    """The best that was measured. Rates of arithmetic are those of one core.

    >>> found = Limits("a machine", 2, {"float32": {"fma": 100.0, "tiles": 300.0}}, memory_gbs=20.0)
    >>> found.gflops("float32"), found.gflops("float32", threads=1)
    (600.0, 300.0)
    >>> found.least_seconds(flops=6e9, nbytes=1e9, dtype="float32")
    0.05
    """

    processor: str
    threads: int
    """How many threads kernels use."""
    peaks: Mapping[str, Mapping[str, float]]
    """GFLOP/s of one core: by the name of the dtype, then by "fma" (vectors) or "tiles"."""
    memory_gbs: float
    """GB/s read and written by all threads together, far outside the caches."""
    memory_gbs_core: float = 0.0
    l2_gbs: float = 0.0
    last_level_gbs: float = 0.0
    cache_bytes: Mapping[str, int] = field(default_factory=dict)
    parallel_us: float = 0.0
    """To hand work to all threads and to take it back."""
    launch_us: float = 0.0
    """One eager call on tensors of one element: what an op costs that does nothing."""

    def gflops(self, dtype: Any = "float32", threads: int | None = None) -> float:
        """The peak for a dtype, with the best unit there is. What has no unit of its own (integers,
        bools) is computed at the rate of float32."""
        name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        of_core = self.peaks.get(name) or self.peaks["float32"]
        return max(of_core.values()) * (self.threads if threads is None else threads)

    def gbs(self, nbytes: int | None = None, threads: int | None = None) -> float:
        """The bandwidth for a working set of so many bytes (None: more than the caches hold)."""
        count = self.threads if threads is None else threads
        whole = self.memory_gbs if count > 1 else self.memory_gbs_core or self.memory_gbs
        if nbytes is None:
            return whole
        if nbytes <= count * self.cache_bytes.get("L2", 0):
            return max(self.l2_gbs * count, whole)
        if nbytes <= self.cache_bytes.get("last", 0):
            return max(self.last_level_gbs * count, whole)
        return whole

    def least_seconds(
        self, flops: float, nbytes: float, dtype: Any = "float32", threads: int | None = None
    ) -> float:
        """No kernel that does this work is faster: arithmetic and memory at their best, at once."""
        arithmetic = flops / self.gflops(dtype, threads) / 1e9
        return max(arithmetic, nbytes / self.gbs(int(nbytes), threads) / 1e9)

    def table(self) -> str:
        """All figures as text."""
        rows: list[tuple[str, str, str]] = [
            (f"{name}, {unit}", f"{rate:,.0f}", f"{rate * self.threads:,.0f}")
            for name, units in self.peaks.items()
            for unit, rate in units.items()
        ]
        head = f"{self.processor}, {self.threads} threads\n"
        lines = [f"{'GFLOP/s':<24}{'one core':>12}{'all':>12}"]
        lines += [f"{name:<24}{one:>12}{every:>12}" for name, one, every in rows]
        lines += ["", f"{'GB/s':<24}{'one core':>12}{'all':>12}"]
        for name, one_core, every_core in (
            (f"L2 ({_size(self.cache_bytes.get('L2', 0))})", self.l2_gbs, None),
            (f"last level ({_size(self.cache_bytes.get('last', 0))})", self.last_level_gbs, None),
            ("memory", self.memory_gbs_core, self.memory_gbs),
        ):
            first = f"{one_core:,.1f}" if one_core else ""
            last = f"{every_core:,.1f}" if every_core else ""
            if first or last:
                lines.append(f"{name:<24}{first:>12}{last:>12}".rstrip())
        lines += ["", "microseconds", f"{'an eager call':<24}{self.launch_us:>12.3f}"]
        if self.parallel_us:
            lines.append(f"{'all threads, awake':<24}{self.parallel_us:>12.3f}")
        return head + "\n".join(lines)


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MB" if nbytes else "unknown"


_known: dict[int, Limits] = {}


def limits(*, anew: bool = False) -> Limits:
    """The limits of this machine: known, else from disk, else measured now (about a second)."""
    threads = lu.get_num_threads()
    if anew or threads not in _known:
        figures = dict(backends.get(backends.HOST).limits(anew=anew)) or _from_outside(threads)
        figures["launch_us"] = _launch_us()
        _known[threads] = Limits(**figures)
    return _known[threads]


def _best(run: Callable[[], Any], tries: int) -> float:
    best = float("inf")
    for _ in range(tries):
        began = perf_counter()
        run()
        best = min(best, perf_counter() - began)
    return best


def _launch_us() -> float:
    a, b = lu.ones(1), lu.ones(1)

    def many() -> None:
        for _ in range(100):
            a + b

    many()
    return _best(many, _TRIES // 4) / 100 * 1e6


def _from_outside(threads: int) -> dict[str, Any]:
    """Figures of a backend that has no way to measure itself."""
    peaks = {}
    for dtype in (lu.float32, lu.float64):
        a = lu.ones(_SIDE, _SIDE, dtype=dtype)
        seconds = _best(lambda a=a: a @ a, 10)  # type: ignore[misc]
        peaks[dtype.name] = {"product": 2 * _SIDE**3 / seconds / 1e9 / threads}
    x = lu.ones(_COPIED // 4)
    rate = 2 * _COPIED / _best(x.clone, 10) / 1e9
    name = f"backend {type(backends.get(backends.HOST)).__name__}"
    return {"processor": name, "threads": threads, "peaks": peaks, "memory_gbs": rate}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What this machine can do at best, measured.")
    parser.add_argument("--anew", action="store_true", help="measure again, keep the better")
    options = parser.parse_args(arguments)
    print(limits(anew=options.anew).table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
