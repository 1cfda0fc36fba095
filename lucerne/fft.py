"""`lucerne.fft`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne.tensor.bootstrap import fill as _fill
from lucerne.tensor.tensor import Tensor as Tensor

_fill(globals(), "fft")
