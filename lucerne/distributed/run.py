"""`python -m lucerne.distributed.run`: the same as `lucerne run`, where torch has torchrun."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lucerne._src.distributed.run.agent import run as run
from lucerne._src.distributed.run.options import parsed as _parsed
from lucerne._src.distributed.run.options import parser as get_args_parser


def main(args: Sequence[str] | None = None) -> Any:
    """Entry point, with torchrun's arguments."""
    sys.exit(run(_parsed(args)))


__all__ = ["get_args_parser", "main", "run"]

if __name__ == "__main__":
    main()
