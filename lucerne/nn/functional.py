"""`lucerne.nn.functional`: stateless layers, activations and losses, from the op table."""

from __future__ import annotations

from lucerne.ir.export import fill as _fill
from lucerne.tensor import load as _load

_fill(globals(), "nn.functional")
