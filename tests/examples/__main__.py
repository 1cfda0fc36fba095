"""Loss curves of all examples against PyTorch, with the same seed.

python -m tests.examples [NAME ...] --steps 200
"""

from __future__ import annotations

import argparse
import sys

from tests.examples.curves import HEAD, TOLERANCE, compare, names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="examples; all if none is given")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
