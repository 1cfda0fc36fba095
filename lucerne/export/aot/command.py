"""`lucerne build`: a file of a program as native code."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from lucerne._src.io.errors import LoadError
from lucerne.export.aot.door import build
from lucerne.export.errors import ExportError


def build_file(options: argparse.Namespace) -> int:
    """0: built; 1: it can't be, and why is printed; 2: the arguments are wrong."""
    name = options.name or re.sub(r"\W", "_", Path(options.file).stem, flags=re.ASCII)
    try:
        sizes = None if options.sizes is None else [_sizes(text) for text in options.sizes]
        made = build(
            options.file, options.output, target=options.target, name=name, sizes=sizes,
            weights=options.weights, link=not options.no_link, check=not options.no_check,
        )  # fmt: skip
    except (ExportError, LoadError) as error:
        print(error)
        return 1
    except (OSError, ValueError) as error:
        print(f"lucerne build: {error}", file=sys.stderr)
        return 2
    print(made.report)
    return 0


def _sizes(text: str) -> dict[str, int]:
    """`batch=1,t=64` as a dict."""
    found = {}
    for part in text.split(","):
        name, _, n = part.partition("=")
        if not n.strip().isdigit():
            raise ValueError(
                f"--sizes {text!r}: names with numbers are expected, like batch=1,t=64"
            )
        found[name.strip()] = int(n)
    return found
