"""`lucerne.nn.functional`: stateless layers, activations and losses, from the op table."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from lucerne._src.ops.linalg.grouped import ScalingType as ScalingType
from lucerne._src.ops.linalg.grouped import SwizzleType as SwizzleType
from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "nn.functional")

if _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        """The op table fills in the rest: a checker cannot see it."""
