"""Programs written for torch, run as they are or with Lucerne in torch's place."""

from __future__ import annotations

import re
import types
from pathlib import Path


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
