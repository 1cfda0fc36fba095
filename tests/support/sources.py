"""Programs written for torch, run as they are or with Lucerne in torch's place."""

from __future__ import annotations

import contextlib
import io
import re
import types
import warnings
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def swapped(source: str, package: str) -> str:
    """A program of torch's as one of another package's: the import lines change, nothing else."""
    if package == "torch":
        return source
    source = re.sub(r"^(import|from) torch\.", rf"\1 {package}.", source, flags=re.M)
    source = re.sub(r"^import torch$", f"import {package} as torch", source, flags=re.M)
    return re.sub(r"^from torch import", f"from {package} import", source, flags=re.M)


def load(path: Path, package: str) -> types.ModuleType:
    """A file as a module of its own, with `package` in torch's place."""
    module = types.ModuleType(f"{path.stem}_on_{package}")
    module.__file__ = str(path)
    source = swapped(path.read_text(encoding="utf-8"), package)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def scripts() -> list[Path]:
    """The programs of `tests/scripts`, as people write them."""
    return sorted(p for p in SCRIPTS.rglob("*.py") if not p.name.startswith(("test_", "__")))


def printed(path: Path, package: str) -> list[str]:
    """The lines that a script prints."""
    return printed_by(swapped(path.read_text(encoding="utf-8"), package), str(path))


def printed_by(source: str, name: str) -> list[str]:
    """The lines that a program prints; `name` stands in its tracebacks."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
    return out.getvalue().splitlines()
