"""Lucerne beside PyTorch: every figure the project promises, measured in one interleaved run.

    python benchmarks/suite.py                      all sections
    python benchmarks/suite.py --section gemm       those whose name starts so (may be repeated)
    python benchmarks/suite.py --smoke              under a minute, loose limits, for CI
    python benchmarks/suite.py --one-thread         processor time of one thread (busy machines)
    python benchmarks/suite.py --json F --plot F.png --html F.html

This file only starts the real run in a process of its own: torch is measured with the malloc
settings under which it is fastest (with glibc's defaults it page-faults its large temporaries anew
on every call), and those are read when a process starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGE = str(1 << 34)
BEST_MALLOC = {"MALLOC_TRIM_THRESHOLD_": LARGE, "MALLOC_MMAP_THRESHOLD_": LARGE}


def main() -> int:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"LUCERNE_HOST_BACKEND": "cpu", **os.environ, **BEST_MALLOC, "PYTHONPATH": path}
    command = [sys.executable, "-m", "benchmarks.compare", *sys.argv[1:]]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
