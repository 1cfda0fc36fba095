"""`lucerne.nn.functional`: stateless layers, activations and losses, from the op table."""

from __future__ import annotations

from lucerne.tensor.load import fill as _fill

_fill(globals(), "nn.functional")
