"""`lucerne.linalg`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne._src.base.errors import LinAlgError as LinAlgError
from lucerne._src.ops.linalg.matmul import matmul as matmul
from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "linalg")
