"""`python -m tests.replay`: is a change a refactor? What two commits write, compared.

    python -m tests.replay write FOLDER             # all groups, as this checkout does it
    python -m tests.replay compare OLD NEW          # two such folders
    python -m tests.replay against COMMIT           # both in one command (`make replay BASE=...`)

Graphs after each stage, guards, groups, memory, kernel keys and LLVM text of some 1,100 programs.
`--names FILE`: a map of `tools.rooms`, by which module names in the old texts are read.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.replay.compare import differences, files
from tests.replay.groups import GROUPS, write
from tools.rooms.move import load

_PARTS = 4


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    found.add_argument("--names", type=Path, help="a rename map")
    commands = found.add_subparsers(dest="command", required=True)
    one = commands.add_parser("write")
    one.add_argument("folder", type=Path)
    one.add_argument("--group", choices=GROUPS, action="append")
    one.add_argument("--part", type=int, help=argparse.SUPPRESS)
    two = commands.add_parser("compare")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    both = commands.add_parser("against")
    both.add_argument("commit")
    return found


def write_all(folder: Path, groups: list[str], root: Path) -> None:
    """A process for each part of each group, with caches of its own."""
    for group in groups:
        for part in range(_PARTS):
            home = folder / group / str(part)
            print(f"{group} {part + 1} of {_PARTS}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as cache:
                environment = {
                    **os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0",
                    "OMP_NUM_THREADS": "1", "LUCERNE_CACHE_DIR": cache,
                    "LUCERNE_DUMP": str(home),
                }  # fmt: skip
                command = [sys.executable, "-m", "tests.replay", "write", str(home)]
                command += ["--group", group, "--part", str(part)]
                subprocess.run(command, env=environment, cwd=root, check=True)


def compare(old: Path, new: Path, names: dict[str, str]) -> int:
    found = differences(old, new, names)
    print("\n".join(map(str, found[:40])))
    print(f"{len(files(new))} files, {len(found)} differ")
    return int(bool(found))


def against(commit: str, names: dict[str, str]) -> int:
    here = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run(["git", "worktree", "add", "--detach", str(place / "old"), commit],
                       cwd=here, check=True)  # fmt: skip
        try:
            write_all(place / "of old", list(GROUPS), place / "old")
            write_all(place / "of new", list(GROUPS), here)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place / "old")], cwd=here)
        return compare(place / "of old", place / "of new", names)


def main() -> int:
    options = parser().parse_args()
    names = load(options.names) if options.names else {}
    if options.command == "compare":
        return compare(options.old, options.new, names)
    if options.command == "against":
        return against(options.commit, names)
    if options.part is not None:
        write(options.group[0], options.folder, options.part, _PARTS)
    else:
        write_all(options.folder, options.group or list(GROUPS), Path(__file__).parents[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
