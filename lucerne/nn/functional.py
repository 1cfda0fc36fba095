"""`lucerne.nn.functional`: stateless layers, activations and losses, from the op table."""

from __future__ import annotations

from lucerne._src.ops.linalg.grouped import ScalingType as ScalingType
from lucerne._src.ops.linalg.grouped import SwizzleType as SwizzleType
from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "nn.functional")
