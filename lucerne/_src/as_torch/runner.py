"""Run a script or module as `python` would, with Lucerne behind `import torch`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from lucerne._src.as_torch.finder import install

USAGE = "usage: python -m lucerne.as_torch (script.py | -m module) [arguments]"


def main(arguments: Sequence[str]) -> int:
    """Entry point of `python -m lucerne.as_torch`."""
    module = bool(arguments) and arguments[0] == "-m"
    rest = list(arguments[1:] if module else arguments)
    if not rest:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        install()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    sys.argv = rest
    if module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
    return 0
