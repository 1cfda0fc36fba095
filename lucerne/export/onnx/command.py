"""`lucerne export --check onnx file.py`: every refusal with its line, nothing is written or run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from lucerne.export.errors import ExportError
from lucerne.export.onnx.door import refusals
from lucerne.export.onnx.model import OPSETS


def check(file: str, opset: int) -> int:
    """0: the model has a form in ONNX; 1: it has none, and why is printed; 2: there is no model."""
    if opset not in OPSETS:
        return _wrong(f"--opset is one of {', '.join(map(str, OPSETS))}")
    if not Path(file).is_file():
        return _wrong(f"there is no file {file}")
    build = runpy.run_path(file).get("build")
    if not callable(build):
        return _wrong(
            f"{file} has no function build(); write one that returns the module and a tuple of "
            "example arguments (and a dict of those by name)"
        )
    made = build()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], tuple):
        return _wrong(f"build() of {file} returns (module, args) or (module, args, kwargs)")
    return _print(file, made, opset)


def _print(file: str, made: tuple[Any, ...], opset: int) -> int:
    try:
        found = refusals(made[0], made[1], made[2] if len(made) == 3 else None, opset=opset)
    except (ExportError, ImportError) as error:
        print(error)
        return 1
    for refusal in found:
        print(refusal)
    print(f"{file}: {len(found) or 'nothing'} to refuse for ONNX opset {opset}")
    return int(bool(found))


def _wrong(text: str) -> int:
    print(f"lucerne export: {text}", file=sys.stderr)
    return 2
