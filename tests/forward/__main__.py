"""`python -m tests.forward`: forward mode of every op of torch's database, against torch's."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from tests.conformance import catalog
from tests.conformance.bridge import lucerne_bridge
from tests.conformance.context import Context
from tests.conformance.result import Tally, as_record
from tests.forward.against_torch import check, has_forward

GOAL = 0.9


def report(tallies: list[Tally], verbose: bool) -> int:
    """What failed, and the table. 0 if the goal is reached."""
    for tally in tallies:
        for failure in tally.failures[: 20 if verbose else 1]:
            print(f"{tally.entry} {failure.sample} {failure.check}: {failure.message[:160]}")
            if verbose:
                print(failure.trace)
    for tier in sorted({t.tier for t in tallies}):
        of_tier = [t for t in tallies if t.tier == tier]
        right = sum(t.ok for t in of_tier)
        samples = sum(t.samples for t in of_tier)
        print(f"{tier}: {right} of {len(of_tier)} ({right / len(of_tier):.1%}), {samples} samples")
    right = sum(t.ok for t in tallies)
    share = right / max(len(tallies), 1)
    print(f"all: {right} of {len(tallies)} ({share:.1%}), must be at least {GOAL:.0%}")
    return 0 if share >= GOAL else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.forward")
    parser.add_argument("--tiers", default="T0,T1,T2")
    parser.add_argument("--op", default="", help="names, or a regular expression")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--max-samples", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    bridge = lucerne_bridge()
    began = time.time()
    entries = [
        e for e in catalog.select(options.op, options.tiers.split(",")) if has_forward(e, dtype)
    ]
    tallies = [check(Context(e, bridge), dtype, options.max_samples) for e in entries]
    if options.json:
        options.json.write_text(json.dumps([as_record(t) for t in tallies], indent=1))
    code = report(tallies, options.verbose)
    print(f"{time.time() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
