"""The long runs: `python -m tests.threads adding` and `python -m tests.threads forking`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.threads import adding, forking


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.threads")
    parser.add_argument("what", choices=("adding", "forking"))
    parser.add_argument("--passes", type=int, default=10_000, help="of each thread")
    parser.add_argument("--forks", type=int, default=500, help="beside every mix of busy threads")
    parser.add_argument("--mix", default="", help="of forking: one mix alone, as compiling+eager")
    given = parser.parse_args()
    wrong = 0
    if given.what == "adding":
        for way in adding.WAYS:
            began = time.monotonic()
            lost = adding.lost(way, given.passes)
            wrong += lost
            print(
                f"{way}: {adding.THREADS} x {given.passes} passes, {lost} wrong elements, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    else:
        for mix in [tuple(given.mix.split("+"))] if given.mix else forking.mixes():
            began = time.monotonic()
            hung, failed = forking.hangs(mix, given.forks)
            wrong += hung + failed
            print(
                f"{' + '.join(mix)}: {given.forks} forks, {hung} hang, {failed} fail, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
