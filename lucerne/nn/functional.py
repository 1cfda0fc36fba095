"""`lucerne.nn.functional`: stateless layers, activations and losses, from the op table."""

from __future__ import annotations

from lucerne.ops.grouped import ScalingType as ScalingType
from lucerne.ops.grouped import SwizzleType as SwizzleType
from lucerne.tensor.bootstrap import fill as _fill

_fill(globals(), "nn.functional")
