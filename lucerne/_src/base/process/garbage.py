"""The collector of reference cycles, kept out of the way of loading and of compiling."""

from __future__ import annotations

import gc
from collections.abc import Callable


class Unhurried:
    """Less collecting inside; what was made there counts as old afterwards, which `ends` is called
    before.

    Importing and compiling make many objects that nearly all stay. Looking for garbage among them
    again and again takes a sixth of the time of `import lucerne`, and a fifth of that of a deep
    model's first call, and finds nothing.

    `young`: the young generations are looked at nevertheless. That is for what takes long, and
    makes garbage too.

    >>> with Unhurried():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    >>> before = gc.get_threshold()
    >>> with Unhurried(young=True):
    ...     gc.isenabled(), gc.get_threshold()[2] > before[2]
    (True, True)
    >>> gc.get_threshold() == before
    True
    """

    def __init__(self, ends: Callable[[], object] = bool, *, young: bool = False) -> None:
        self.ends, self.young = ends, young

    def __enter__(self) -> None:
        self.enabled, self.before = gc.isenabled(), gc.get_threshold()
        self.inside = *self.before[:2], _NEVER
        if self.young:
            gc.set_threshold(*self.inside)
        else:
            gc.disable()

    def __exit__(self, *error: object) -> None:
        if self.young and gc.get_threshold() == self.inside:  # (else somebody has set others)
            gc.set_threshold(*self.before)
        if self.young or self.enabled:
            self.ends()
            _all_are_old()  # a full collection is due as long after this as after another one
        if self.enabled and not self.young:
            gc.enable()


_NEVER = 1 << 30
"""Collections of the middle generation before the oldest one's turn: more than there will be."""


def _all_are_old() -> None:
    """All objects into the oldest generation, without a look at them."""
    if not gc.get_freeze_count():  # nobody froze objects, who would wonder at their thaw
        gc.freeze()
        gc.unfreeze()
