"""`lucerne.masked`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne.tensor.load import fill as _fill

_fill(globals(), "masked")
