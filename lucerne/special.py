"""`lucerne.special`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "special")
