"""`python -m tests.func vmap`: every op of T0 and T1 under vmap against a Python loop.

`python -m tests.func compositions`: transforms of transforms, compiled against uncompiled.
"""

import argparse
import sys
import time
from collections import Counter

import torch

from tests.conformance import catalog
from tests.conformance.bridge import lucerne_bridge
from tests.func import compositions
from tests.func.against_loop import Verdict, check


def report(verdicts: list[Verdict], verbose: bool) -> int:
    """The table, and what failed. 0 if at least 98 % of the ops agree with the loop."""
    for verdict in verdicts:
        shown = verdict.failures or (verdict.refusals if verbose else [])
        for line in shown[: 20 if verbose else 2]:
            print(f"{verdict.outcome:8} {verdict.name}: {line}")
    used = Counter[str]()
    for verdict in verdicts:
        used.update(verdict.fallbacks)
    print("\none call for each of the batch:", dict(used) or "never")
    refused = [v.name for v in verdicts if v.outcome == "refused"]
    print("refused for some calls, as by torch (dynamic shapes, values looked at):", refused)
    empty = [v.name for v in verdicts if v.outcome == "empty"]
    print("no tensor to map over:", empty)
    good = 0
    counted = 0
    for tier in sorted({v.tier for v in verdicts}):
        of_tier = [v for v in verdicts if v.tier == tier and v.outcome not in ("refused", "empty")]
        right = sum(v.outcome == "ok" for v in of_tier)
        calls = sum(v.calls for v in of_tier)
        share = right / max(len(of_tier), 1)
        print(f"{tier}: {right} of {len(of_tier)} ops agree ({share:.1%}), {calls} calls")
        good, counted = good + right, counted + len(of_tier)
    print(f"all: {good} of {counted} ({good / max(counted, 1):.1%}), must be at least 98 %")
    return 0 if good >= 0.98 * counted else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.func")
    parser.add_argument("what", choices=["vmap", "compositions"])
    parser.add_argument("--tiers", default="T0,T1")
    parser.add_argument("--op", default="", help="names, or a regular expression")
    parser.add_argument("--max-samples", type=int, default=6)
    parser.add_argument("--grad", action="store_true", help="vmap(grad(op)) instead of vmap(op)")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--every", action="store_true", help="each pair of each function")
    options = parser.parse_args()
    if options.what == "compositions":
        return compositions.table(options.every)
    bridge = lucerne_bridge()
    verdicts = []
    start = time.time()
    for entry in catalog.select(options.op, options.tiers.split(",")):
        if not options.grad or entry.differentiable(torch.float32):
            verdicts.append(check(entry, options.max_samples, bridge, options.grad))
    code = report(verdicts, options.verbose)
    print(f"{time.time() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
