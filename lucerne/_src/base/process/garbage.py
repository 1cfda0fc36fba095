"""The collector of reference cycles, kept out of the way of loading and of compiling."""

from __future__ import annotations

import gc
from collections.abc import Callable


class Unhurried:
    """No collection inside; what was made there counts as old afterwards, which `ends` is called
    before.

    Importing makes many objects that all stay. Looking for garbage among them again and again
    takes a sixth of the time of `import lucerne`, and finds nothing.

    >>> with Unhurried():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """

    def __init__(self, ends: Callable[[], object] = bool) -> None:
        self.ends = ends

    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if not self.enabled:
            return
        self.ends()
        _all_are_old()
        gc.enable()


def _all_are_old() -> None:
    """All objects into the oldest generation, without a look at them."""
    if not gc.get_freeze_count():  # nobody froze objects, who would wonder at their thaw
        gc.freeze()
        gc.unfreeze()


_NEVER = 1 << 30
"""Collections of the middle generation before the oldest one's turn: more than there will be."""


class WithoutFullCollections:
    """Only young objects are looked at inside; the oldest generation waits.

    What a compilation makes nearly all stays until it is over, and is much: the collector would
    look at all objects of the process again and again, for a fifth of the time of a deep model.
    `ends` is called before what was made inside counts as old.

    >>> before = gc.get_threshold()
    >>> with WithoutFullCollections():
    ...     gc.get_threshold()[:2] == before[:2], gc.get_threshold()[2] > before[2]
    (True, True)
    >>> gc.get_threshold() == before
    True
    """

    def __init__(self, ends: Callable[[], object] = bool) -> None:
        self.ends = ends

    def __enter__(self) -> None:
        self.before = gc.get_threshold()
        self.inside = *self.before[:2], _NEVER
        gc.set_threshold(*self.inside)

    def __exit__(self, *error: object) -> None:
        if gc.get_threshold() == self.inside:  # (else somebody has set others meanwhile)
            gc.set_threshold(*self.before)
        self.ends()
        _all_are_old()  # a full collection is due as long after this as after another one
