"""`python -m tests.cpu.proof`: see `parser`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

SETTINGS = {"LUCERNE_HOST_BACKEND": "cpu", "LUCERNE_FAST_PATH": "0"}
"""The watched backend sees every call: machine code in front of it would hide the second one."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.cpu.proof", description=__doc__)
    what = ("guard", "determinism", "budget")
    made.add_argument("what", nargs="?", default="guard", choices=what)
    made.add_argument("--full", action="store_true", help="all dtypes, sizes and layouts")
    made.add_argument("--op", action="append", default=[], help="ops with this in their name")
    made.add_argument("--every", action="store_true", help="list ops without problems too")
    made.add_argument("--refusals", action="store_true", help="list calls that raised, and why")
    made.add_argument("--processes", type=int, default=0)
    return made


def main() -> int:
    options = parser().parse_args()
    if options.what == "guard":
        os.environ.update(SETTINGS)  # before the package is imported
        return importlib.import_module("tests.cpu.proof.guard").main(
            full=options.full, ops=options.op, every=options.every, refusals=options.refusals,
            processes=options.processes,
        )  # fmt: skip
    os.environ["LUCERNE_HOST_BACKEND"] = "cpu"
    return importlib.import_module(f"tests.cpu.proof.{options.what}").main(full=options.full)


if __name__ == "__main__":
    sys.exit(main())
