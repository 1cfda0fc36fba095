"""Do an exercise: `python -m tests.exercises 3 > mine.py`, then `... 3 mine.py`; `all` tries ours.

Kernels are kept apart from those of other programs: they are found by the names of ops, and the
reader will change what a name means.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main(given: list[str]) -> int:
    from tests.exercises import room  # the folder of kernels is looked up at the first import

    if given == ["all"]:
        for number in room.FILES:
            module = room.exercise(number)
            told = [room.verdict(number, answer) for answer in (module.start, module.solution)]
            print(json.dumps([number, *told]), flush=True)
        return 0
    if not given or not given[0].isdigit() or len(given) > 2:
        print(__doc__)
        for number, path in room.FILES.items():
            print(f"{number:3} {path.stem[4:].replace('_', ' ')}")
        return 2
    number = int(given[0])
    if len(given) == 1:
        room.exercise(number)
        print(room.starting_point(number), end="")
        return 0
    wrong = room.verdict(number, room.answer_of(Path(given[1])))
    print(f"exercise {number}: {wrong or 'passes'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kernels:
        os.environ["LUCERNE_CACHE_DIR"] = kernels
        status = main(sys.argv[1:])
    sys.exit(status)
