"""`python -m tests.shadow.planted`: wrong-code bugs planted in the compiler, found by shadow mode?

The bugs are those of `tests.compiler.planted`: one line of one file each, changed as it is
imported, in a process of its own. There the programs of `tests.shadow.programs` run under shadow
mode. A bug counts as found when shadow mode (or the checks that follow every stage) stops wrong
code, and as named when it names the stage that the bug is in, and for kernels the op.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compiler import planted as bugs
from tests.compiler.mutants import Planting, changed
from tests.compiler.planted import MUTANTS, Mutant
from tests.shadow.more import ABSENT, MORE, VIEWS

ROOT = Path(__file__).parents[2]
SECONDS = 180
NEEDED = 0.9
ALL = (*MUTANTS, *MORE)

_PROGRAM = {"fusion", "memory plan", "kernel", "assembly"}
RIGHT: dict[str, set[str]] = {
    bugs.FUNCTIONALIZE: {"functionalize"},
    bugs.CSE: {"cse"},
    bugs.DEAD: {"dead", "partition"},
    bugs.FOLD: {"fold"},
    bugs.ARITHMETIC: {"simplify"},
    bugs.MOVES: {"simplify"},
    bugs.SIMPLIFY: {"simplify"},
    VIEWS: {"simplify"},
    bugs.PARTITION: {"partition"},
    bugs.BACKWARD: {"results"},
    bugs.GROUP: _PROGRAM,
    bugs.LOWER: _PROGRAM,
    bugs.MEMORY: _PROGRAM,
    bugs.ENTRY: {"guards", "results"},
    bugs.TRACE: {"capture", "guards"},
    bugs.RECORDER: {"capture", "guards"},
    bugs.MAKING: {"partition", "results"},
    "_src/capture/symbolic/families.py": {"guards"},
    bugs.BLOCKS: {"assembly"},
    ABSENT: {"results", "partition"},
}
"""Which stages it is right to blame for a bug in a file; others: the kernel, with its op."""
KERNELS = {"kernel", "eager kernel"}


@dataclass
class Row:
    mutant: Mutant
    stage: str
    op: str
    text: str
    program: str
    seconds: float

    @property
    def is_found(self) -> bool:
        return bool(self.stage) and self.stage not in ("crash", "silent")

    @property
    def is_named(self) -> bool:
        """The right stage, and for kernels an op of it."""
        if not self.is_found:
            return False
        right = RIGHT.get(self.mutant.file, KERNELS)
        return self.stage in right and (self.stage not in KERNELS or bool(self.op))


# ---- the child


def child(name: str) -> int:
    planting = None
    if name != "none":
        planting = Planting(next(m for m in ALL if m.name == name))
        sys.meta_path.insert(0, planting)
    told = _first_finding()
    told["planted"] = planting is None or planting.planted
    print("\n@" + json.dumps(told), flush=True)
    return 0


def _first_finding() -> dict[str, Any]:
    import lucerne
    from lucerne._src.capture.shadow.shadowing import ShadowError
    from tests.shadow.programs import BITWISE, ROWS, calls

    lucerne.set_num_threads(1)
    for made, mode in [*((r, None) for r in ROWS), *((r, "bitwise") for r in BITWISE)]:
        options = {"shadow": 3, "shadow_action": "raise"}
        compiled: Any = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for compiled, args in calls(made, 0, options=options, mode=mode):
                    compiled(*args)
        except ShadowError as error:
            f = error.finding
            text = f"{f.difference} {f.detail}"
            return {"stage": f.stage, "op": f.op, "text": text, "program": made.__name__}
        except Exception as error:
            text = f"{type(error).__name__} in the stage {getattr(error, 'stage', '?')!r}: {error}"
            return {"stage": refused(text), "op": "", "text": text, "program": made.__name__}
        why = getattr(compiled, "given_up", None)
        if why:
            return {"stage": refused(why), "op": "", "text": why, "program": made.__name__}
    return {"stage": "silent", "op": "", "text": "", "program": ""}


def refused(text: str) -> str:
    """The stage that the compiler itself names when it stops."""
    if " in the stage '" in text:
        return text.partition(" in the stage '")[2].partition("'")[0]
    return f"refused: {text[:60]}"


# ---- the parent


def _copy_tree(to: Path) -> None:
    """The code as it is now: somebody may change it before the last bug is graded."""
    to.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "data")
    for name in ("lucerne", "tests"):
        shutil.copytree(ROOT / name, to / name, ignore=leave)


def run_child(name: str, tree: Path, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.shadow.planted", "--child", name]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(tree)}
    environment.pop("LUCERNE_CACHE_DIR", None)
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"stage": "crash", "op": "", "text": "the clock", "program": "", "planted": True}
    lines = [x for x in done.stdout.splitlines() if x.startswith("@")]
    if not lines:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        text = f"exit {done.returncode}: {last[:200]}"
        return {"stage": "crash", "op": "", "text": text, "program": "", "planted": True}
    found: dict[str, Any] = json.loads(lines[-1][1:])
    return found


def graded(only: list[str], folder: Path) -> list[Row]:
    tree, warm = folder / "tree", folder / "warm"
    _copy_tree(tree)
    warm.mkdir()
    told = run_child("none", tree, warm)
    if told["stage"] != "silent":
        raise SystemExit(f"without a bug there is an alarm: {told}")
    rows = []
    for m in ALL:
        if only and not any(o in m.name or o in m.file for o in only):
            continue
        try:
            changed(m, (tree / "lucerne" / m.file).read_text())
        except LookupError as error:
            print(f"stale: {error}")
            continue
        began = time.perf_counter()
        own = folder / "own"
        shutil.rmtree(own, ignore_errors=True)
        if m.file.startswith("backends"):
            own.mkdir()
        else:
            shutil.copytree(warm, own)
        told = run_child(m.name, tree, own)
        seconds = time.perf_counter() - began
        rows.append(Row(m, told["stage"], told["op"], told["text"], told["program"], seconds))
        print(line(rows[-1]), flush=True)
    return rows


def line(row: Row) -> str:
    word = "named " if row.is_named else "found " if row.is_found else row.stage + " "
    text = row.text.replace("\n", " ")[:110]
    return (
        f"{word:7} {row.seconds:4.0f} s  {row.mutant.file:34} {row.mutant.name:50} "
        f"{row.stage} / {row.op or '-'} ({row.program}): {text}"
    )


def score(rows: list[Row]) -> str:
    shown = [r for r in rows if r.stage != "silent"]
    named, found = (sum(getattr(r, n) for r in rows) for n in ("is_named", "is_found"))
    silent = len(rows) - len(shown)
    return (
        f"{len(rows)} planted bugs: {silent} change nothing in these programs; of the other "
        f"{len(shown)}, {found} found ({100 * found / max(len(shown), 1):.0f} %), {named} with the "
        f"right stage and op named ({100 * named / max(len(shown), 1):.0f} %)"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shadow.planted", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="part of a name or a file")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    with tempfile.TemporaryDirectory() as folder:
        rows = graded(options.only, Path(folder))
    print(score(rows))
    shown = [r for r in rows if r.stage != "silent"]
    return 0 if sum(r.is_named for r in rows) >= NEEDED * len(shown) else 1


if __name__ == "__main__":
    sys.exit(main())
