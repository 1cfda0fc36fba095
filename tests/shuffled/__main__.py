"""`python -m tests.shuffled`: the tests in random order, and who disturbs whom.

    python -m tests.shuffled                                  all folders, one process
    python -m tests.shuffled --seed 7 --folders tests/nn tests/optim
    python -m tests.shuffled --share 0.5                      half of each file
    python -m tests.shuffled --pairs 20                       20 times two files in one process
    python -m tests.shuffled --python /path/to/python --marks "not torch and not nightly"

Says which tests fail, and for each after which other it does (it is run alone, then after halves
of what was before it). Says too which files leave the process changed for the next: a setting, a
variable of the environment, a thread. Ends with 1 if there is anything to say.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.shuffled.search import culprits

ROOT = Path(__file__).parents[2]


@dataclass
class Run:
    """What one process of tests told."""

    order: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[tuple[str, str, str]] = field(default_factory=list)
    """(the test, what it changed, how)"""
    crash: str = ""
    """How the process ended, if not by itself; the last test of the order was running."""


@dataclass
class Runner:
    """Starts processes of tests."""

    python: str = sys.executable
    root: Path = ROOT
    marks: str = "not nightly"
    seconds: float = 480.0

    def run(self, targets: list[str], *options: str, tests: list[str] | None = None) -> Run:
        """Run the targets (files and folders) with the plugin's options; or just these tests."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            command = [self.python, "-m", "pytest", "-q", "-p", "tests.shuffled.plugin"]
            command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
            # With `=`: pytest takes a path that stands alone for one of the places of tests.
            command += ["--tb=short", "-m", self.marks, f"--shuffle-log={log}", *options]
            if tests is not None:
                listed = Path(folder) / "tests"
                listed.write_text("\n".join(tests))
                command.append(f"--shuffle-list={listed}")
                targets = list(dict.fromkeys(t.partition("::")[0] for t in tests))
            crash = self._start([*command, *targets])
            return read(log.read_text() if log.exists() else "", crash)

    def _start(self, command: list[str]) -> str:
        """Run to the end; how it ended, if that was not pytest's own doing."""
        paths = [str(self.root), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=self.seconds,
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {self.seconds:.0f} s"
        if done.returncode in (0, 1, 5):
            return ""
        last = (done.stderr or done.stdout).strip().splitlines()[-6:]
        return f"exit code {done.returncode}: " + "\n".join(last)

    def fails(self, tests: list[str]) -> bool:
        """Whether the last of these fails when they run in this order."""
        found = self.run([], tests=tests)
        return tests[-1] in found.failed or (bool(found.crash) and found.order[-1:] == tests[-1:])


def read(log: str, crash: str) -> Run:
    """The plugin's log, as a run."""
    found = Run(crash=crash)
    for line in log.splitlines():
        told = json.loads(line)
        if told["event"] == "start":
            found.order.append(told["test"])
        elif told["event"] == "fail":
            found.failed.setdefault(told["test"], told["text"])
        elif told["event"] == "left":
            found.left.append((told["test"], told["name"], told["values"]))
    if crash and found.order and not crash.startswith("stopped"):
        found.failed.setdefault(found.order[-1], crash)
    return found


def explained(run: Run, runner: Runner, most: int) -> list[str]:
    """A line for each failing test: it fails alone, after which others, or by chance."""
    lines = []
    for number, (test, text) in enumerate(run.failed.items()):
        if number >= most:
            lines.append(f"... and {len(run.failed) - most} more (--most looks at more of them)")
            break
        before = run.order[: run.order.index(test)] if test in run.order else []
        found = culprits(test, before, runner.fails)
        if found is None:
            how = "not again in the same order: chance, or the machine's load"
        elif not found:
            how = "alone as well"
        else:
            how = "only after " + " and ".join(found)
        lines.append(f"FAILS {test}\n    {how}\n    " + text.replace("\n", "\n    "))
    return lines


def files_in(folders: list[str], root: Path) -> list[str]:
    """Every test file in these folders."""
    found = []
    for folder in folders:
        path = root / folder
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [str(f.relative_to(root)) for f in files]
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.shuffled", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--folders", nargs="+", default=["tests"], help="folders and files of tests")
    made.add_argument("--python", default=sys.executable, help="another interpreter")
    made.add_argument("--root", type=Path, default=ROOT, help="another copy of the repository")
    made.add_argument("--marks", default="not nightly", help="pytest's -m")
    made.add_argument("--share", type=float, default=1.0, help="the part of each file that runs")
    made.add_argument("--pairs", type=int, default=0, help="so many random pairs of files instead")
    made.add_argument("--seconds", type=float, default=480.0, help="for each process")
    made.add_argument("--most", type=int, default=5, help="failing tests that are looked into")
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    runner = Runner(options.python, options.root.resolve(), options.marks, options.seconds)
    files = files_in(options.folders, runner.root)
    groups = [(options.seed, files)]
    if options.pairs:
        rng = random.Random(options.seed)
        groups = [(options.seed + k, rng.sample(files, 2)) for k in range(options.pairs)]
    bad = False
    for seed, group in groups:
        began = time.perf_counter()
        found = runner.run(
            group, "--shuffle-seed", str(seed), "--shuffle-share", str(options.share)
        )
        lines = explained(found, runner, options.most)
        lines += [f"LEAVES {test}\n    {name}: {values}" for test, name, values in found.left]
        if found.crash and not found.failed:
            lines.append(f"ENDED EARLY after {found.order[-1:]}: {found.crash}")
        what = " + ".join(group) if options.pairs else " ".join(options.folders)
        seconds = time.perf_counter() - began
        print(f"{what}: seed {seed}, {len(found.order)} tests, {seconds:.0f} s", end=": ")
        print(f"{len(lines)} to look at" if lines else "nothing depends on the order", flush=True)
        for line in lines:
            print(line, flush=True)
        bad = bad or bool(lines)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
