"""Every op beside PyTorch, one thread: where are we slow?

    python -m benchmarks.survey                         all ops: forward, small and large
    python -m benchmarks.survey --backward              forward and backward too
    python -m benchmarks.survey --op 'pool|scatter'     those whose name matches
    python -m benchmarks.survey --tiers T0 T1 --json F  some tiers; figures to a file
    python -m benchmarks.survey --show F                the tables of a run that was saved

Each op of torch's op database that Lucerne has is called with the database's first sample (small:
what a call costs) and with a call of realistic size (large; `sizes.py` has the table), in float32.
The sides take turns in one process; what counts is the processor time of one thread, the best of
several short runs. A run over everything takes some twenty minutes: it is a nightly tool.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.suite import BEST_MALLOC

CHILD = "SURVEY_CHILD"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__)
    parser.add_argument("--op", default="", help="a regular expression or a list with commas")
    parser.add_argument("--tiers", nargs="*", default=["T0", "T1", "T2"])
    parser.add_argument("--backward", action="store_true", help="time forward and backward too")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for one comparison")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds one call may take")
    parser.add_argument("--top", type=int, default=None, help="lines of the table")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--show", type=Path, default=None, help="a saved run")
    return parser.parse_args(words)


def main() -> int:
    options = parse(sys.argv[1:])
    if options.show is None and CHILD not in os.environ:
        # torch's better malloc settings are read when a process starts.
        environment = {**os.environ, **BEST_MALLOC, CHILD: "1"}
        command = [sys.executable, "-m", "benchmarks.survey", *sys.argv[1:]]
        return subprocess.run(command, env=environment).returncode
    return run(options)


def run(options: argparse.Namespace) -> int:
    # Imported here: torch and its op database take seconds, which the parent need not pay.
    from benchmarks.survey import report, rows

    found = report.load(options.show) if options.show else rows.collect(options)
    if options.json:
        report.save(found, options.json)
    print(report.table(found, options.top))
    notes = report.untimed(found)
    print(f"\nnot timed, or with other values than torch's:\n{notes}" if notes else "")
    print(report.summary(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
