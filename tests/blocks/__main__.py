"""`python -m tests.blocks [NAME ...]`: every block compiled against eager, as a table.

`--every` tries every layout at every shape, `--torch` eager against torch by the same source.
"""

from __future__ import annotations

import argparse
import sys
import time

import lucerne
from tests.blocks.rows import found
from tests.blocks.trial import Trial


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", action="store_true", help="every layout at every shape")
    parser.add_argument("--torch", action="store_true", help="eager against torch")
    parser.add_argument("--seed", type=int, default=0, help="of the order of shapes")
    parser.add_argument("--show", type=int, default=3, help="differences told for each block")
    options = parser.parse_args()
    blocks = found("lucerne")
    theirs = found("torch") if options.torch else {}
    calls = wrong = 0
    worst, bad = 0.0, []
    print(
        f"{'block':28} {'calls':>5} {'raise':>5} {'differ':>6} {'as eager':>8} "
        f"{'worst':>8} {'traces':>6} seconds, breaks"
    )
    for name in options.names or blocks:
        began = time.perf_counter()
        trial = Trial(lucerne, blocks[name])
        if options.torch:
            trial = trial.beside(theirs[name], options.every)
        else:
            trial.run(options.every, options.seed)
        calls, wrong = calls + trial.calls, wrong + len(trial.differences)
        worst = max(worst, trial.worst)
        never = trial.raised == trial.calls  # then nothing was compared
        wrong += never
        bad += [name] * bool(trial.differences or never)
        notes = " ".join(sorted(trial.breaks)) + " given up" * trial.given_up
        seconds = time.perf_counter() - began
        print(
            f"{name:28} {trial.calls:5} {trial.raised:5} {len(trial.differences):6} "
            f"{trial.rounding:8} {trial.worst:8.1e} {trial.traces:6} {seconds:5.1f} s {notes}",
            flush=True,
        )
        for one in trial.differences[: options.show]:
            print(f"    {one}", flush=True)
    names = options.names or list(blocks)
    print(
        f"{len(names)} blocks, {calls} calls, {wrong} differ beyond 1e-5 (worst {worst:.1e}) {bad}"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
