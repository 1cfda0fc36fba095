"""`python -m tests.memory [model ...]`: estimates against measured peaks, as a table."""

from __future__ import annotations

import sys

import lucerne as torch
from tests.memory.compare import LIMIT, compared
from tests.memory.models import MODELS, WAYS


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    worst = 0.0
    print(f"{'model':<12} {'way':<12} {'estimate':>10} {'measured':>10} {'off':>7}")
    for name in names or list(MODELS):
        for way in WAYS:
            estimate, measured, _ = compared(name, way)
            off = estimate / measured - 1
            worst = max(worst, abs(off))
            mark = "" if abs(off) <= LIMIT else "  <-"
            sizes = f"{estimate / 1e6:>7.1f} MB {measured / 1e6:>7.1f} MB"
            print(f"{name:<12} {way:<12} {sizes} {off:>+7.1%}{mark}", flush=True)
    print(f"worst: {worst:.1%} (limit {LIMIT:.0%})")
    return worst > LIMIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
