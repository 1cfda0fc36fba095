"""The last column: a second process, which finds what the first one has stored, in another state.

Each process runs the first call of every row, compiled and as it is. The first one stores programs;
the second has changed each state before its first call. `python -m tests.effects --processes`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.capture.cache.disk import lookup
from tests.effects import cells
from tests.effects.all_kinds import KINDS
from tests.effects.columns import COLUMNS
from tests.effects.text import fits, source
from tests.support import settings

COLUMNS_STORED = ("before", "map", "map a function", "reduce")


def programs(names: list[str], folder: Path) -> list[tuple[str, Path]]:
    """The text of each cell as a file: what was stored goes by the files of code."""
    found = []
    for kind in KINDS.values():
        if names and not any(n in kind.name or n == kind.group for n in names):
            continue
        for column in map(COLUMNS.get, COLUMNS_STORED):
            if column is not None and fits(kind, column, "closure"):
                path = folder / f"cell_{len(found)}.py"
                path.write_text(source(kind, column, "closure"))
                found.append((f"{kind.name} / {column.name}", path))
    return found


def first_call(path: Path, changes: list[float], compiled: bool) -> Any:
    """What the first call of a program gives after so many changes."""
    scope: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    fn, change, state, undo, more = scope["make"]()
    cells.seed()
    try:
        for k in changes:
            change(k)
        called = torch.compile(fn, mode="bitwise") if compiled else fn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = called(torch.linspace(-1.0, 1.0, 3), *more)
        return [repr(cells._seen(result)), repr(state())]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        undo()


def work(listed: list[tuple[str, str]], changes: list[float]) -> None:
    """In a process of its own: what both ways give, as JSON."""
    config.payoff_calls = 0
    found = {}
    for name, path in listed:
        before = lookup.account.hits
        with settings.kept():
            pair = [first_call(Path(path), changes, compiled) for compiled in (False, True)]
        found[name] = [*pair, lookup.account.hits - before]
    print(json.dumps(found))


def compare(names: list[str]) -> tuple[int, int, list[str]]:
    """Cells, how many were found stored in the second process, and what differs there."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        listed = [(name, str(path)) for name, path in programs(names, root)]
        (root / "listed.json").write_text(json.dumps(listed))
        environment = {**os.environ, "LUCERNE_CACHE_DIR": str(root / "cache")}
        environment["LUCERNE_PROGRAM_CACHE"] = "1"
        hits, wrong = 0, []
        for changes in ([], [2.0], []):
            command = [sys.executable, "-m", "tests.effects.processes"]
            command += [str(root / "listed.json"), json.dumps(changes)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                return len(listed), hits, [done.stderr[-2000:]]
            for name, (want, have, hit) in json.loads(done.stdout.splitlines()[-1]).items():
                hits += hit
                if want != have:
                    wrong.append(f"{name} {changes}: {want}, compiled {have}")
        return len(listed), hits, wrong


if __name__ == "__main__":
    work(json.loads(Path(sys.argv[1]).read_text()), json.loads(sys.argv[2]))
