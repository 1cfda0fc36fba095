"""Which objects were made since a moment, by Python's own collector."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, ClassVar

_FROZEN_AT_START = gc.get_freeze_count()
"""Python 3.12 begins with some objects set aside; more than these are the user's own doing."""


class NewObjects:
    """Tells objects that were made since from those that were there before.

    Python's collector is asked: what it knew before is set aside (`gc.freeze`), so that only new
    objects are left among those it lists.
    """

    holder: ClassVar[NewObjects | None] = None
    """Who has set objects aside. (To ask the collector takes as long as counting them.)"""

    def __init__(self, known: Callable[[Any], bool]) -> None:
        self.known = known
        """Whether an object is known to be old: for those the collector does not look after."""
        self.made: dict[int, Any] = {}
        """Dicts that the machine has seen being made."""
        self._young: set[int] = set()
        self._old: dict[int, Any] = {}
        self._frozen = NewObjects.holder is None and gc.get_freeze_count() <= _FROZEN_AT_START
        if self._frozen:
            NewObjects.holder = self
            gc.freeze()
        else:
            self._old = {id(x): x for x in gc.get_objects()}

    def end(self) -> None:
        """Let the collector look after all objects again."""
        if self._frozen:
            gc.unfreeze()
            self._frozen, NewObjects.holder = False, None

    def is_new(self, x: Any) -> bool:
        """Whether it was made since."""
        if self.known(x):
            return False
        if type(x) is dict and id(x) in self.made:
            return True
        if not gc.is_tracked(x):
            # Before Python 3.14 the collector leaves dicts of plain values alone: they are new if
            # the machine says so. It never looks after our public functions (`torch.where`), which
            # modules make once.
            return type(x) is not dict and type(x).__module__ != "lucerne"
        at = id(x)
        if at in self._old:
            return False
        if at not in self._young:
            self._young = set(map(id, gc.get_objects()))
            if at not in self._young:
                self._old[at] = x
                return False
        return True
