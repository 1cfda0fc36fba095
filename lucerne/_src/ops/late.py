"""Functions found by name at the time of the call: for families that need each other both ways."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import op as op_
from lucerne._src.ir.define import fronts


def fn(name: str) -> Any:
    found = fronts().get(name)
    return found.function if found is not None else op_.get(name).public
