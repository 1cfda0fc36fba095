"""`python -m tests.users [NAME ...]`: every program compiled in every way, beside torch."""

import sys
import time

import torch

from tests.users.scripts import REFUSED, WAYS, differences, programs


def main(names: list[str]) -> int:
    """Print a table; the number of programs that differ."""
    torch.set_num_threads(1)
    bad = ran = 0
    for name in names or list(programs()):
        for way in WAYS:
            why = REFUSED.get((name, way))
            if why is not None:
                print(f"{name:24} {way:10} refused: {why}", flush=True)
                continue
            began = time.perf_counter()
            try:
                found = differences(name, way)
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            ran, bad = ran + 1, bad + bool(found)
            said = "the same" if not found else "\n".join(found[:5])
            print(f"{name:24} {way:10} {time.perf_counter() - began:6.1f} s  {said}", flush=True)
    print(f"{ran} programs, {bad} differ, {len(REFUSED)} refused")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
