"""`lucerne.signal.windows`: window functions, from the op table."""

from __future__ import annotations

from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "signal.windows")
