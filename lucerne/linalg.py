"""`lucerne.linalg`: the ops of that namespace, from the table."""

from __future__ import annotations

from lucerne.base.errors import LinAlgError as LinAlgError
from lucerne.tensor.load import fill as _fill
from lucerne.ops.matmul import matmul as matmul

_fill(globals(), "linalg")
