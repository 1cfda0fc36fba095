"""`python -m tests.cpu.proof`: see `parser`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.cpu.proof", description=__doc__)
    what = ("guard", "determinism", "native", "programs", "budget", "planted")
    made.add_argument("what", nargs="?", default="guard", choices=what)
    made.add_argument("--full", action="store_true", help="all dtypes, sizes and layouts")
    sources = ("sized", "large", "frozen", "entries", "tiles", "compiled")
    made.add_argument("--source", default="", choices=sources, help="only cases from there")
    made.add_argument("--op", action="append", default=[], help="ops with this in their name")
    made.add_argument("--every", action="store_true", help="list ops without problems too")
    made.add_argument("--refusals", action="store_true", help="list calls that raised, and why")
    made.add_argument("--processes", type=int, default=0)
    made.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--threads", default="", help=argparse.SUPPRESS)
    return made


def main() -> int:
    options = parser().parse_args()
    os.environ["LUCERNE_HOST_BACKEND"] = "cpu"  # before the package is imported
    if options.what in ("guard", "planted"):
        os.environ["LUCERNE_FAST_PATH"] = "0"  # it would hide all calls but the first
    found: int = importlib.import_module(f"tests.cpu.proof.{options.what}").main(options)
    return found


if __name__ == "__main__":
    sys.exit(main())
