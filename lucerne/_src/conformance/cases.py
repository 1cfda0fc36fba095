"""A case: a call and the answer it must have.

They come from frozen files and from entries' oracles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

TIERS = ("T0", "T1", "T2", "entry")
"""How much a case matters: torch's ops by need, then the table's own entries."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One call. `run(device)` gives what the device says, `expected` what is right."""

    op: str
    tier: str
    dtype: str
    run: Callable[[str], Any]
    expected: Any
    """Tensors of the same types, or NumPy arrays when only the numbers count."""
    part: str = "result"
    """What `run` gives: the "result" or the "gradient" of the arguments."""
    up_to_sign: bool = False
    """Factors of a matrix: a device may choose the other sign."""


def leaves(x: Any) -> Iterator[Any]:
    """Everything inside nested lists and tuples, in order."""
    if isinstance(x, (list, tuple)):
        for v in x:
            yield from leaves(v)
    else:
        yield x
