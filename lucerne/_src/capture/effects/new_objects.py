"""Which objects were made since a moment, by Python's own collector."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

from lucerne._src.base.homes import own_home
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.ir import dispatch
from lucerne._src.tensor.random.api import get_rng_state, set_rng_state

_state = dispatch.state
_FROZEN_AT_START = gc.get_freeze_count()
"""Python 3.12 begins with some objects set aside; more than these are the user's own doing."""


_SHARE = 4
"""New objects are as many as the whole divided by this when a sweep is due."""
_LEAST_SWEPT = 200_000
"""Objects below which no sweep is due: what one capture of a large model leaves behind."""


class _Sweep:
    """Full collections, which the collector forgets: an object that was set aside counts as old.

    Without them a program that compiles again and again keeps the garbage of every capture. As the
    collector itself does, they wait until as many objects are new as a quarter of all.
    """

    def __init__(self) -> None:
        self.unseen = 0
        """At most so many objects were made since the last sweep."""
        self.limit = _LEAST_SWEPT
        self.swept = 0
        """Objects that it has left."""

    def count(self) -> None:
        """Young objects are about to become old. (Most of them are gone soon, without the
        collector: how many are left is looked at when a sweep seems due.)"""
        young, middle, old = gc.get_count()
        first, second, _ = gc.get_threshold()
        self.unseen += young + first * (middle + second * old)

    def collect_if_due(self) -> None:
        """Look for garbage among all objects, if enough of them were made.

        Never inside of a trace: what ends with garbage (a generator's `finally`) is no part of it.
        """
        traced = NewObjects.holder is not None or _state.kernel_level or _state.call_level
        if self.unseen < self.limit or traced or not gc.isenabled():
            return
        objects = len(gc.get_objects())  # a hundredth of what a sweep takes
        self.swept = min(self.swept, objects)  # (some have gone without it)
        self.unseen = objects - self.swept
        if self.unseen < self.limit:
            return
        # A trace that was let go inside of a `with` block has left its generator behind, whose
        # `finally` runs now: what it puts back is of another time.
        process, random = ProcessState(), get_rng_state()
        gc.collect()
        process.restore()
        if get_rng_state().tolist() != random.tolist():
            set_rng_state(random)
        self.swept = len(gc.get_objects())
        self.unseen, self.limit = 0, max(_LEAST_SWEPT, self.swept // _SHARE)


_sweep = _Sweep()
sweep = _sweep.collect_if_due
"""Asked before a function is captured, when no other one is in the middle of its call."""
count = _sweep.count


def _is_of_module(x: Any) -> bool:
    """Whether it is a module, or its names: one that was loaded since will be there next time."""
    if type(x) is types.ModuleType:
        x = x.__dict__
    name = x.get("__name__") if type(x) is dict else None
    module = sys.modules.get(name) if type(name) is str else None
    return type(module) is types.ModuleType and module.__dict__ is x


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
        self._found: dict[int, Any] = {}
        self._young: set[int] = set()
        self._old: dict[int, Any] = {}
        self._collections: list[int] = []
        """When the older generations were last listed."""
        if NewObjects.holder is None and gc.get_freeze_count() <= _FROZEN_AT_START:
            NewObjects.holder = self
            _sweep.count()
            gc.freeze()
        else:
            self._old = {id(x): x for x in gc.get_objects()}

    def end(self) -> None:
        """Let the collector look after all objects again."""
        if NewObjects.holder is self:
            NewObjects.release()
            _sweep.count()

    @staticmethod
    def release() -> None:
        """What was set aside is so no longer, whoever did it. (After an internal error nobody else
        will: this has no other step that may fail.)"""
        NewObjects.holder = None
        gc.unfreeze()

    def found_outside(self, x: Any) -> None:
        """It was found in something that was there before. (Of arrays the collector knows
        nothing.)"""
        self._found[id(x)] = x

    def is_new(self, x: Any) -> bool:
        """Whether it was made since."""
        if id(x) in self._found or self.known(x) or _is_of_module(x):
            return False
        if type(x) is dict and id(x) in self.made:
            return True
        if not gc.is_tracked(x):
            # Before Python 3.14 the collector leaves dicts of plain values alone: they are new if
            # the machine says so. It never looks after our public functions (`torch.where`), which
            # modules make once.
            return type(x) is not dict and own_home(type(x).__module__) != "lucerne"
        at = id(x)
        if at in self._old:
            return False
        return at in self._young or self._is_listed(at, x)

    def _is_listed(self, at: int, x: Any) -> bool:
        """Whether the collector lists it. The youngest come first: they are few, and most likely it
        is one of them. (An address stays new: what takes the place of a new object is newer.)"""
        for generation in range(3):
            self._young.update(map(id, gc.get_objects(generation=generation)))
            if at in self._young:
                return True
            if not generation and self._collections == _collections():
                break  # nothing has grown older since all were listed
        else:
            self._collections = _collections()
        self._old[at] = x
        return False


def _collections() -> list[int]:
    """How often the collector has come, by generation."""
    return [found["collections"] for found in gc.get_stats()]
