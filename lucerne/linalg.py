"""`lucerne.linalg`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne.base.errors import LinAlgError as LinAlgError
from lucerne.ops.matmul import matmul as matmul
from lucerne.tensor.bootstrap import fill as _fill

_fill(globals(), "linalg")
