"""`lucerne.signal.windows`: window functions, from the op table."""

from __future__ import annotations

from lucerne.ir.export import fill as _fill
from lucerne.tensor import load as _load

_fill(globals(), "signal.windows")
