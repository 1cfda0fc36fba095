"""`lucerne.linalg`: the ops of that namespace, from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from lucerne._src.base.errors import LinAlgError as LinAlgError
from lucerne._src.ops.linalg.matmul import matmul as matmul
from lucerne._src.tensor.bootstrap import fill as _fill

_fill(globals(), "linalg")

if _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        """The op table fills in the rest: a checker cannot see it."""
