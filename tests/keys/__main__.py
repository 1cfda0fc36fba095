"""`python -m tests.keys [CALL ...]`: all pairs of values of arguments, 70 calls, 8 dtypes."""

import sys
import time

from tests.keys.pairs import CALLS, DTYPES, VALUES, confused


def main(names: list[str]) -> int:
    """Print what is confused, and the count."""
    bad, chosen, began = 0, names or list(CALLS), time.monotonic()
    for number, name in enumerate(chosen):
        print(f"{name}: {number} of {len(chosen)} calls, {time.monotonic() - began:.0f} s",
              file=sys.stderr, flush=True)  # fmt: skip
        for dtype in DTYPES:
            for line in confused(name, dtype):
                bad += 1
                print(line, flush=True)
    count = len(chosen)
    pairs = count * len(DTYPES) * len(VALUES) ** 2
    print(f"{count} calls x {len(DTYPES)} dtypes x {len(VALUES)} values: {pairs} pairs, {bad} bad")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
