"""Run a script, module or text as `python` would, with Lucerne behind `import torch`."""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Sequence

from lucerne._src.as_torch.finder import install

USAGE = "usage: python -m lucerne.as_torch (script.py | -m module | -c text) [arguments]"


def main(arguments: Sequence[str]) -> int:
    """Entry point of `python -m lucerne.as_torch`."""
    way = arguments[0] if arguments and arguments[0] in ("-m", "-c") else ""
    rest = list(arguments[1:] if way else arguments)
    if not rest:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        install()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    sys.argv = rest
    if way == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif way == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
    return 0
