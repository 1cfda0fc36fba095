"""What a device's kernel language must say, so that formulas can be written in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.typed import Typed, TypedNum

Launch = Callable[[Sequence[Any], np.ndarray[Any, Any]], int]
"""`launch(buffers, parameters)`: run a kernel. The parameters are int64 (floating ones as bits of
float64). 0, or the number (from 1) of a requirement that did not hold."""


class Writer(Typed):
    """One kernel being written: instructions (`Typed`), memory, loops.

    The kernel runs once for each of `items` numbers, in any order. A value is whatever the language
    has for one: a name in a text, a register.
    """

    def __init__(self) -> None:
        self.requirements: list[tuple[type[Exception], str]] = []

    def require(self, condition: TypedNum, error: type[Exception], text: str) -> None:
        self.requirements.append((error, text))
        self.fail_unless(condition.re, len(self.requirements))

    def fail_unless(self, condition: Any, number: int) -> None:
        """Where the condition does not hold, the launch gives `number`."""
        raise NotImplementedError

    def item(self) -> Any:
        """The number of this run, from 0, as int64."""
        raise NotImplementedError

    def parameter(self, k: int, dtype: dt.dtype) -> Any:
        """Parameter number `k`: an int64, or a float64."""
        raise NotImplementedError

    def load(self, buffer: int, at: Any, dtype: dt.dtype) -> Any:
        """Element `at` of a buffer that holds a real dtype, as stored."""
        raise NotImplementedError

    def store(self, buffer: int, at: Any, value: Any, dtype: dt.dtype) -> None:
        raise NotImplementedError

    def loop(self, count: Any) -> AbstractContextManager[Any]:
        """What is written inside runs `count` times, in order; gives the number of the turn."""
        raise NotImplementedError

    def when(self, condition: Any) -> AbstractContextManager[None]:
        """What is written inside runs where the condition holds."""
        raise NotImplementedError

    def variable(self, value: Any, dtype: dt.dtype) -> Any:
        """A value that `assign` may change."""
        raise NotImplementedError

    def assign(self, variable: Any, value: Any) -> None:
        raise NotImplementedError

    def finish(self, buffers: int, parameters: int, items: int) -> Launch:
        """The kernel, ready to run: it takes so many buffers and parameters."""
        raise NotImplementedError
