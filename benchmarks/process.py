"""Figures of whole processes: first use of an op, import time, memory and installed size."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.cases import Result, Section

FIRST_USE = """
import time
import lucerne
a = lucerne.ones(64, 64)
a.numpy()
start = time.perf_counter()
a.{call}
print(time.perf_counter() - start)
"""
CALLS = {"tanh": "tanh()", "softmax": "softmax(-1)", "matmul": "matmul(a)", "sum": "sum(0)"}
NEEDED = ("lucerne", "numpy", "llvmlite", "safetensors")

IMPORT = """
import time
start = time.perf_counter()
import {module}
took = time.perf_counter() - start
status = open("/proc/self/status").read()
print(took, int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


def _python(code: str, **environment: str) -> list[float]:
    """The numbers a fresh interpreter prints."""
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(x) for x in found.stdout.split()]


def first_use(quick: bool) -> list[Result]:
    """Seconds of the first call of an op: with an empty cache, and in the process after that."""
    results = []
    for name, call in list(CALLS.items())[: 2 if quick else None]:
        cold, warm = [], []
        for _ in range(1 if quick else 3):
            with tempfile.TemporaryDirectory() as folder:
                code = FIRST_USE.format(call=call)
                places = {"LUCERNE_CACHE_DIR": folder, "XDG_CACHE_HOME": folder}
                cold += _python(code, **places)
                warm += _python(code, **places)
                warm += _python(code, **places)
        results.append(Result("compile", f"{name}, empty cache", min(cold), limit_ours=0.040))
        results.append(Result("compile", f"{name}, second process", min(warm), limit_ours=0.002))
    return results


def imports(quick: bool) -> list[Result]:
    """Import time, memory after import, and the size of what must be installed."""
    found = {}
    for module in ("lucerne", "torch"):
        if importlib.util.find_spec(module) is None:
            continue
        _python(IMPORT.format(module=module))
        runs = [_python(IMPORT.format(module=module)) for _ in range(2 if quick else 5)]
        found[module] = [min(column) for column in zip(*runs, strict=True)]
    theirs = found.get("torch", [None, None])
    size, their_size = sum(map(installed_mb, NEEDED)), installed_mb("torch")
    return [
        Result("import", "import", found["lucerne"][0], theirs[0], limit_ours=0.3),
        Result("import", "memory", found["lucerne"][1], theirs[1], limit_ours=80, unit="MB"),
        Result("import", "installed", size, their_size or None, limit_ours=300, unit="MB"),
    ]


def installed_mb(module: str) -> float:
    """Bytes on disk of a package and of the libraries its wheel carries beside it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return 0.0
    folder = Path(spec.submodule_search_locations[0])
    places = [folder, folder.parent / f"{module}.libs"]
    files = (f for p in places if p.is_dir() for f in p.rglob("*"))
    return (
        sum(f.stat().st_size for f in files if f.is_file() and "__pycache__" not in f.parts) / 2**20
    )


SECTIONS = [
    Section("compile", "First use of an op in a process", list, direct=first_use),
    Section("import", "Import and size", list, direct=imports),
]
