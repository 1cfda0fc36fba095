"""`python -m tests.capture_python [name ...]`: every program both ways, as a table.

`--machine`: the programs of the bytecode machine too, compiled. `--forget 0.33`: with that share of
the instructions unknown to the machine. `--counts`: how many there are of each kind, no more; the
last line is the same on every Python (`tools/pythons.sh` brings those that a machine lacks).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lucerne._src.capture.bytecode import with_instructions_removed
from tests.capture_python import all_programs
from tests.capture_python.machine import compare_case, machine_cases
from tests.capture_python.table import compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs whose names contain one of these")
    parser.add_argument("--verbose", action="store_true", help="tell the differences in full")
    parser.add_argument("--machine", action="store_true", help="those of the machine as well")
    parser.add_argument("--forget", type=float, default=0.0, help="share of unknown instructions")
    parser.add_argument("--seed", type=int, default=0, help="which ones are forgotten")
    parser.add_argument("--counts", action="store_true", help="only what differs, and the sums")
    options = parser.parse_args()
    failed = []
    kinds: Counter[str] = Counter()
    newer: Counter[str] = Counter()
    rows = [(row, compare) for row in all_programs()]
    if options.machine:
        rows += [(one, compare_case) for one in machine_cases()]
    chosen = [r for r in rows if not options.names or any(n in r[0].name for n in options.names)]
    print(f"{'program':44}{'group':16}{'parts':>6}{'breaks':>7}{'ms':>8}")
    with _forgotten(options.forget, options.seed):
        for row, how in chosen:
            began = time.perf_counter()
            wrong, told, kind = _one(row, how)
            (newer if row.group == "syntax" else kinds).update(kind)
            took = 1000 * (time.perf_counter() - began)
            if wrong or not options.counts:
                print(f"{row.name:44}{row.group:16}{told}{took:8.0f} {'DIFFERS' if wrong else ''}")
            if wrong:
                failed.append(row.name)
                for line in wrong if options.verbose else wrong[:3]:
                    print(f"    {line[: 2000 if options.verbose else 300]}")
            sys.stdout.flush()
    print(f"python {sys.version.split()[0]}: {len(chosen)} programs, {len(failed)} differ")
    for name in failed:
        print(f"  {name}")
    if newer:
        print(f"in syntax that Python 3.11 lacks: {_sums(newer)}")
    print(f"in syntax that Python 3.11 knows: {_sums(kinds)}")
    return 1 if failed else 0


def _sums(kinds: Counter[str]) -> str:
    names = ("programs", "equal", "one graph", "in parts", "as they are", "breaks")
    return ", ".join(f"{kinds[name]} {name}" for name in names)


@contextlib.contextmanager
def _forgotten(share: float, seed: int) -> Iterator[None]:
    if not share:
        yield
        return
    with with_instructions_removed(share, seed) as gone:
        print("forgotten:", " ".join(sorted(gone)))
        yield


def _one(row: Any, how: Any) -> tuple[list[str], str, dict[str, int]]:
    """What differs, a text for the table, and what kind of program it is."""
    try:
        wrong, compiled = how(row)
    except Exception:
        return [traceback.format_exc()[-1500:]], " " * 13, {"programs": 1}
    return wrong, _told(compiled), {"programs": 1, "equal": not wrong, **_kind(compiled)}


def _kind(compiled: Any) -> dict[str, int]:
    if compiled.given_up:
        return {"as they are": 1}
    breaks = len(compiled.breaks)
    return {"in parts" if breaks else "one graph": 1, "breaks": breaks}


def _told(compiled: Any) -> str:
    gave_up = "  as is" if compiled.given_up else f"{len(compiled.breaks):7}"
    return f"{len(compiled.entries):6}{gave_up}"


if __name__ == "__main__":
    sys.exit(main())
