"""`lucerne.fft`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne._src.tensor.bootstrap import fill as _fill
from lucerne._src.tensor.tensor import Tensor as Tensor

_fill(globals(), "fft")
