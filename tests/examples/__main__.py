"""Loss curves of all examples against PyTorch, with the same seed.

python -m tests.examples [NAME ...] --steps 200
python -m tests.examples --fullgraph --steps 4      each compiled as one graph: the same losses
"""

from __future__ import annotations

import argparse
import sys

from tests.examples.curves import (
    APART,
    HEAD,
    TOLERANCE,
    apart,
    both_ways,
    compare,
    compilable,
    names,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="examples; all if none is given")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fullgraph", action="store_true", help="one graph beside eager")
    args = parser.parse_args()
    if args.fullgraph:
        return fullgraph(args.names or compilable(), args.steps)
    print(HEAD)
    passed = True
    for name in args.names or names():
        found = compare(name, args.steps)
        passed &= found.passed
        print(found.line(), flush=True)
    print(
        f"largest: relative difference of the losses over {args.steps} steps, at most {TOLERANCE}"
    )
    return 0 if passed else 1


def fullgraph(chosen: list[str], steps: int) -> int:
    """Each example compiled with `fullgraph=True`: the losses are those without compiling."""
    print(f"{'example':20}{'steps':>6}{'losses':>10}{'last loss':>14}{'eager':>10}{'compiled':>10}")
    failed = []
    for name in chosen:
        try:
            plain, compiled = both_ways(name, "whole", steps)
        except RuntimeError as error:
            print(f"{name:20}{steps:6}    FAILED: {str(error).strip().splitlines()[-1][:160]}")
            failed.append(name)
            continue
        largest = apart(compiled, plain)
        same = largest <= APART.get(name, 0.0)
        failed += [] if same else [name]
        seconds = f"{plain['seconds']:8.1f} s{compiled['seconds']:8.1f} s"
        told = "equal" if not largest else f"{largest:.0e}" if same else "DIFFER"
        print(f"{name:20}{steps:6}{told:>10}{plain['losses'][-1]:14.6f}{seconds}", flush=True)
    print(f"{len(chosen)} examples as one graph, {len(failed)} differ or are not one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
