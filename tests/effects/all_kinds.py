"""All rows of the matrix: importing this fills `KINDS`."""

from __future__ import annotations

from tests.effects import (  # noqa: F401
    kinds_arrays,
    kinds_containers,
    kinds_functions,
    kinds_iterators,
    kinds_metadata,
    kinds_names,
    kinds_tensors,
)
from tests.effects.kinds import KINDS

__all__ = ["KINDS"]
