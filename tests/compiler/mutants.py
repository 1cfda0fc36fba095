"""`python -m tests.compiler.mutants`: bugs planted in the compiler, and how many the tests find.

Each row of `planted.MUTANTS` changes one line of one file as it is imported (the files stay as
they are), in a process of its own, and the random programs, the rewrites and the compiler's own
unit tests are run until something fails. The score is the share of bugs that were found. A row
whose text is no longer in its file is a mistake and says so: rows are kept up to date.
"""

from __future__ import annotations

import argparse
import html
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.compiler.planted import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
UNIT_TESTS = ("tests/transforms", "tests/loops", "tests/capture", "tests/compiler/laws")
SECONDS = 300
"""Of processor time: so much, and more than the suite needs without a bug, means it hangs. Of the
clock's time it gets ten times that: the machine may be busy."""


# ---- the change, as modules are imported


class Planting(importlib.abc.MetaPathFinder):
    """Finds the mutated module and loads it from changed text."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = "lucerne." + mutant.file.removesuffix(".py").replace("/", ".")
        self.name = self.name.removesuffix(".__init__")
        self.mutant = mutant
        self.planted = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(name, spec.origin, self)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, planting: Planting) -> None:
        super().__init__(name, path)
        self.planting = planting

    def get_code(self, fullname: str) -> Any:
        text = changed(self.planting.mutant, Path(self.path).read_text())
        self.planting.planted = True
        return compile(text, self.path, "exec")


def changed(mutant: Mutant, text: str) -> str:
    """The text with the bug in it; the place has to be there, once."""
    found = text.count(mutant.old)
    if found != 1:
        raise LookupError(
            f"mutant {mutant.name!r}: the text to replace stands {found} times in "
            f"lucerne/{mutant.file}; it must stand there once"
        )
    return text.replace(mutant.old, mutant.new)


def stale() -> list[str]:
    """Rows that no longer fit the files."""
    found = []
    for m in MUTANTS:
        path = ROOT / "lucerne" / m.file
        try:
            text = changed(m, path.read_text()) if path.exists() else ""
            compile(text, m.file, "exec")
            if not text:
                raise LookupError(f"mutant {m.name!r}: there is no file lucerne/{m.file}")
        except (LookupError, SyntaxError) as e:
            found.append(f"{m.name}: {e}")
    return found


# ---- the child: the suite, until something fails


@dataclass
class Budget:
    programs: int = 100
    bitwise: int = 50
    rewrites: int = 140


def suite(budget: Budget, known: list[str] | None) -> tuple[str, str]:
    """What failed first, and how; two empty strings if nothing did."""
    import torch

    import lucerne
    from tests.compiler import rewrites
    from tests.compiler.check import Options, checked, is_elementary
    from tests.compiler.generate import generated

    torch.set_num_threads(1)
    lucerne.set_num_threads(1)
    # In turns, since a bug may show in one of them only.
    for k in range(max(budget.programs, budget.bitwise, budget.rewrites)):
        if k < budget.programs:
            report = checked(generated(k), Options())
            if report.problems:
                return f"random program {k}", str(report.problems[0])
        if k < budget.bitwise and is_elementary(program := generated(50_000 + k)):
            report = checked(program, Options(mode="bitwise", rival=False, float64=False))
            if report.problems:
                return f"bitwise program {50_000 + k}", str(report.problems[0])
        if k < budget.rewrites:
            found = rewrites.checked(rewrites.drawn(k))
            if found:
                return f"rewrite {k}", str(found[0])
    failing = [] if known is None else unit_tests(known)
    return ("unit tests", failing[0]) if failing else ("", "")


def unit_tests(known: list[str] | None) -> list[str]:
    """The names of tests that fail, of those that are not `known` to; None: all of them."""
    import pytest

    class Failing:
        names: ClassVar[list[str]] = []

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                self.names.append(report.nodeid)

        pytest_collectreport = pytest_runtest_logreport

    folders = [f for f in UNIT_TESTS if (ROOT / f).exists()]
    flags = ["-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "not nightly"]
    flags += ["--no-header", "--tb=no", "-o", "addopts="] + ["-x"] * (known is not None)
    code = pytest.main([*flags, *(f"--deselect={n}" for n in known or ()), *folders], [Failing()])
    return Failing.names or ([] if code in (0, 1, 5) else [f"pytest ended with {code}"])


def child(options: argparse.Namespace) -> int:
    budget = Budget(options.programs, options.bitwise, options.rewrites)
    planting = None
    if options.child != "none":
        planting = Planting(next(m for m in MUTANTS if m.name == options.child))
        sys.meta_path.insert(0, planting)
    try:
        listed = json.loads(Path(options.known).read_text()) if options.known else None
        by, text = suite(budget, listed)
        if options.child == "none" and not by:
            text = json.dumps(unit_tests(None) if not options.no_unit else None)
    except Exception as e:  # a bug that ends the suite is found as well
        by, text = "an exception", f"{type(e).__name__}: {e}"
    planted = planting is None or planting.planted
    print("\n@" + json.dumps({"by": by, "text": text, "planted": planted}), flush=True)
    return 0


# ---- the parent


@dataclass
class Row:
    mutant: Mutant
    by: str
    text: str
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.by)


def run_child(
    name: str, options: argparse.Namespace, cache: Path, known: str = ""
) -> tuple[str, str, bool]:
    command = [sys.executable, "-m", "tests.compiler.mutants", "--child", name, "--known", known]
    command += ["--programs", str(options.programs), "--bitwise", str(options.bitwise)]
    command += ["--rewrites", str(options.rewrites)] + ["--no-unit"] * options.no_unit
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("LUCERNE_CACHE_DIR", None)
    limit = (SECONDS, SECONDS + 5)
    try:
        done = subprocess.run(
            command,
            cwd=cache.parent / "tree",
            env=environment,
            capture_output=True,
            text=True,
            timeout=10 * SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
        )
    except subprocess.TimeoutExpired:
        return "the clock", f"not done after {10 * SECONDS} s", True
    if done.returncode == -signal.SIGXCPU:
        return "the clock", f"not done after {SECONDS} s of the processor", True
    lines = [x for x in done.stdout.splitlines() if x.startswith("@")]
    if not lines:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return "a crash", f"exit {done.returncode}: {last[:200]}", True
    told = json.loads(lines[-1][1:])
    return told["by"], told["text"], told["planted"]


def graded(options: argparse.Namespace) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        warm.mkdir()
        _copy_tree(Path(folder) / "tree")
        if not options.no_baseline:
            by, text, _ = run_child("none", options, warm)
            if by:
                raise SystemExit(f"the suite fails without any bug planted: {by}: {text}")
            (Path(folder) / "known.json").write_text(text)
            known = json.loads(text) or []
            print(f"without a planted bug: nothing but {len(known)} unit tests fails", flush=True)
        for m in MUTANTS:
            if options.only and not any(o in m.name or o in m.file for o in options.only):
                continue
            if any(o in m.name or o in m.file for o in options.skip):
                continue
            rows.append(_graded_one(m, options, warm, Path(folder) / "own"))
            row = rows[-1]
            print(_line(row), flush=True)
    return rows


def _copy_tree(to: Path) -> None:
    """The code as it is now: somebody may change it before the last bug is graded."""
    to.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "data")
    for name in ("lucerne", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, to / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", to)


def _line(row: Row) -> str:
    how = f"{row.by}: {row.text[:90]}".replace("\n", " ") if row.caught else ""
    word = "caught" if row.caught else "MISSED"
    return f"{word} {row.seconds:5.0f} s  {row.mutant.file:36} {row.mutant.name:50} {how}"


def _graded_one(m: Mutant, options: argparse.Namespace, warm: Path, own: Path) -> Row:
    """Kernels of the right compiler may be used again unless the bug is in how they are written."""
    began = time.perf_counter()
    shutil.rmtree(own, ignore_errors=True)
    if m.file.startswith("backends") or options.no_baseline:
        own.mkdir()
    else:
        shutil.copytree(warm, own)
    known = own.parent / "known.json"
    by, text, planted = run_child(m.name, options, own, str(known) if known.exists() else "")
    if not planted:
        raise SystemExit(f"mutant {m.name!r}: lucerne/{m.file} was never imported: {by}: {text}")
    return Row(m, by, text, time.perf_counter() - began)


def page(rows: list[Row]) -> str:
    """The table as HTML."""
    lines = [
        f"<tr class={'caught' if r.caught else 'missed'}>{_cells(r)}<td>{r.seconds:.0f} s</td></tr>"
        for r in rows
    ]
    style = (
        "body{font:14px sans-serif}td{border-top:1px solid #ccc;padding:3px 8px;vertical-align:top}"
        "code{white-space:pre-wrap}.missed{background:#fdd}"
    )
    names = ("", "file", "bug", "line", "becomes", "found by", "how", "")
    head = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    return (
        f"<!doctype html><meta charset=utf-8><title>Planted bugs</title><style>{style}</style>"
        f"<h1>{score(rows)}</h1><table>{head}{''.join(lines)}</table>"
    )


def _cells(r: Row) -> str:
    m = r.mutant
    plain = ["caught" if r.caught else "missed", m.file, m.name, m.old, m.new, r.by, r.text[:300]]
    tags = ["td", "td", "td", "td><code", "td><code", "td", "td"]
    return "".join(f"<{t}>{html.escape(x)}</td>" for t, x in zip(tags, plain, strict=True))


def score(rows: list[Row]) -> str:
    caught = sum(r.caught for r in rows)
    return f"{caught} of {len(rows)} planted bugs found ({100 * caught / max(len(rows), 1):.0f} %)"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.compiler.mutants", description=__doc__)
    made.add_argument("--only", action="append", default=[], help="part of a name or a file")
    made.add_argument("--skip", action="append", default=[], help="those not")
    made.add_argument("--no-unit", action="store_true", help="without the unit tests")
    made.add_argument("--programs", type=int, default=Budget.programs)
    made.add_argument("--bitwise", type=int, default=Budget.bitwise)
    made.add_argument("--rewrites", type=int, default=Budget.rewrites)
    made.add_argument("--html", default="mutants.html", help="where the page goes; empty: nowhere")
    made.add_argument("--check", action="store_true", help="only whether the rows fit the files")
    made.add_argument("--no-baseline", action="store_true", help="skip the run without a bug")
    made.add_argument("--child", default="", help=argparse.SUPPRESS)
    made.add_argument("--known", default="", help=argparse.SUPPRESS)
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.child:
        return child(options)
    old = stale()
    if old or options.check:
        print("\n".join(old) or f"all {len(MUTANTS)} rows fit")
        return 1 if old else 0
    rows = graded(options)
    print(score(rows))
    if options.html:
        Path(options.html).write_text(page(rows))
        print(f"written: {options.html}")
    return 0 if sum(r.caught for r in rows) >= 0.85 * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
