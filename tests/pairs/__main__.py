"""`python -m tests.pairs`: all pairs, then random trees, compiled against eager.

    python -m tests.pairs                          # all pairs, forward and gradient
    python -m tests.pairs --trees 0:50000          # trees by their seeds
    python -m tests.pairs --pairs 0:3000 --around vmap --base "3x2x1x1"
    python -m tests.pairs --trees 0:5000 --wide    # longer rows that are parts of others

Programs have numbers, so a run can go on where another ended. A child process does a thousand at
a time: one that crashes is told like any other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from lucerne._src.base.config import config
from tests.pairs.check import AROUND, LEFT_OUT, RAISES, RIGHT, UNSTEADY, WRONG, checked
from tests.pairs.functions import functions
from tests.pairs.programs import BASES, WIDE, Program, pair_count, pairs, tree

_PART = 1000


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.pairs", description=__doc__)
    made.add_argument("--pairs", type=_range, help=f"first:last of {pair_count()}")
    made.add_argument("--trees", type=_range, help="first:last seed")
    made.add_argument("--wide", action="store_true", help="trees of longer rows, not side by side")
    made.add_argument("--base", default="4x6", choices=[*BASES, *WIDE], help="what x is, of pairs")
    made.add_argument("--around", default="", choices=list(AROUND), help="how calls are made")
    made.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    made.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return made


def programs(options: argparse.Namespace) -> Iterator[Program]:
    if options.pairs is not None:
        yield from pairs(options.pairs, options.base)
    made = functions()
    for seed in options.trees or ():
        yield tree(seed, made, wide=options.wide)


def child(options: argparse.Namespace) -> int:
    """One line of JSON for each program."""
    config.verify_fusion = True
    config.program_cache = False
    for program in programs(options):
        print(json.dumps({"name": program.name}), flush=True)
        found = checked(program, options.around)
        print(json.dumps({"what": found.what, "text": found.text}), flush=True)
    return 0


def run_part(options: argparse.Namespace, kind: str, part: range, counts: Counter[str]) -> None:
    command = [
        sys.executable, "-m", "tests.pairs", "--child", f"--{kind}", f"{part.start}:{part.stop}",
        "--base", options.base, "--around", options.around, *["--wide"][: options.wide],
    ]  # fmt: skip
    name = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if "name" in told:
                name = told["name"]
                continue
            counts[told["what"]] += 1
            if told["what"] in (WRONG, RAISES):
                print(f"{told['what'].upper()} {name}\n    {told['text']}", flush=True)
    if process.returncode:
        counts[RAISES] += 1
        print(f"CRASHED ({process.returncode}) {name}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.child:
        return child(options)
    if options.pairs is None and options.trees is None:
        options.pairs = range(pair_count())
    counts: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    for kind in ("pairs", "trees"):
        numbers = getattr(options, kind) or range(0)
        for start in range(numbers.start, numbers.stop, _PART):
            if time.monotonic() > end:
                break
            part = range(start, min(start + _PART, numbers.stop))
            run_part(options, kind, part, counts)
            print(f"{kind} to {part.stop}: {summary(counts)}", flush=True)
    return int(bool(counts[WRONG] or counts[RAISES]))


def summary(counts: Counter[str]) -> str:
    ran = sum(counts.values()) - counts[LEFT_OUT]
    order = (RIGHT, WRONG, RAISES, UNSTEADY, LEFT_OUT)
    return f"{ran} programs, " + ", ".join(f"{counts[what]} {what}" for what in order)


if __name__ == "__main__":
    sys.exit(main())
