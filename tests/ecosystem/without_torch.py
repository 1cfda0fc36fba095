"""An environment without torch, made of links to the present one: what the door is tried in.

The development environment has the real torch, beside which the hook refuses. Python started with
`-S` sees no installed package; a folder of links gives it all of them but torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy

ROOT = Path(__file__).parents[2]
_REAL = ("torch", "torchgen", "functorch", "lucerne")


def folder(at: Path, *, torch: bool = False) -> Path:
    """A folder of links to all installed packages but torch and Lucerne (with torch, if told)."""
    at.mkdir(parents=True, exist_ok=True)
    for entry in Path(numpy.__file__).parents[1].iterdir():  # (where its packages are)
        name = entry.name.partition("-")[0].partition(".")[0]
        hidden = name.startswith("__editable__") or (name in _REAL and not torch)
        if not hidden and name != "lucerne" and entry.suffix != ".pth":
            (at / entry.name).symlink_to(entry)
    return at


def run(packages: Path, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Python in that environment, with the working tree's Lucerne."""
    environment = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join([str(ROOT), str(packages)]),
        LUCERNE_PROGRESS_SECONDS="0",  # (a busy machine says nothing more than a quiet one)
    )
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        capture_output=True, text=True, timeout=timeout, env=environment, cwd=packages,
        check=False,
    )  # fmt: skip
