"""`python -m tests.capture_cases`: compiled against eager, where one thing changes between calls.

Runs on any Python we support; needs neither pytest nor PyTorch. `--group`, `--name` choose cases
(parts of names, by commas), `--sample N` takes every N-th, `--seconds` is for one case.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.capture_cases.all_rows import CASES
from tests.capture_cases.runs import judged

LEAST = 2500
MOST_DOCUMENTED = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.capture_cases", description=__doc__)
    parser.add_argument("--group", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    names = given.name.split(",")
    chosen = [
        c for c in CASES if given.group in ("", c.group) and any(name in c.name for name in names)
    ][:: given.sample]
    counts: dict[str, Counter[str]] = {}
    for case in chosen:
        verdict = judged(case, given.seconds)
        counts.setdefault(case.group, Counter())[verdict.kind] += 1
        if not verdict.is_good:
            print(f"{verdict.kind:8} {case.group} | {case.name}: {verdict.text}", flush=True)
    for group, row in counts.items():
        print(f"{group:12}", ", ".join(f"{kind} {n}" for kind, n in sorted(row.items())))
    total = sum(counts.values(), Counter())
    good = total["same"] + total["documented"]
    print(f"{total['same']} the same, {total['documented']} documented, of {len(chosen)}")
    return 0 if good == len(chosen) and total["documented"] <= MOST_DOCUMENTED else 1


if __name__ == "__main__":
    sys.exit(main())
