"""What a call of a public function did: noted while an engine learns how to repeat it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir.op import Op


class Observation:
    """What one call of a public function did below it."""

    current: Observation | None = None
    """The observation under way (calls are watched one at a time)."""

    def __init__(self) -> None:
        self.steps: list[tuple[Op, tuple[Any, ...], Any, Any]] = []
        """(op, arguments, plan, result) of each primitive that ran."""
        self.over: Any = None
        self.recordable = True
        self.spoiled = False

    def saw(self, op: Op, args: tuple[Any, ...], plan: Any, result: Any, over: Any = None) -> None:
        self.steps.append((op, args, plan, result))
        self.over = over


def spoil() -> None:
    """Something happened that a repeated kernel would not do (host data read, memory written)."""
    if Observation.current is not None:
        Observation.current.spoiled = True


class PlaceQuestions:
    """Who else is told that a call asks where a tensor lies."""

    told: Callable[[Any], None] | None = None


def asks_place(t: Any) -> None:
    """Where a tensor lies, and in how large a storage, is not in its meta: a call that asks is
    neither repeated blindly nor traced without a guard."""
    spoil()
    if PlaceQuestions.told is not None:
        PlaceQuestions.told(t)
