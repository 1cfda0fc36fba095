"""Options of an optimizer while its step is captured.

Those that may change from step to step (a scheduler's learning rate) are numbers which the captured
program reads at each call; all others are taken for granted, and told to whoever is watching.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.unspecialized import GivenFloat, note_same, note_structure

_NUMBERS = (int, float)
_NOT_OPTIONS = ("params", "param_names")


@contextmanager
def given_numbers(optimizer: Any) -> Iterator[None]:
    """Inside, options named in the optimizer's `_given` are `GivenFloat`s.

    A subclass from elsewhere may do with them what can't be followed (`math.log(lr)`), so its
    options are all taken for granted.
    """
    ours = own_home(type(optimizer).__module__).startswith("lucerne.")
    names = optimizer._given if ours else ()
    placed = []
    for i, group in enumerate(optimizer.param_groups):
        for key, value in list(group.items()):
            if key in _NOT_OPTIONS:
                continue
            source = (optimizer.__dict__, "param_groups", i, key)
            made = _given(value, source) if key in names else None
            if made is None:
                note_same(source)
            else:
                placed.append((group, key, value, made))
                group[key] = made
    try:
        yield
    finally:
        for group, key, value, made in placed:
            if group[key] is made:
                group[key] = value
        note_structure(optimizer)


def _given(value: Any, source: tuple[Any, ...]) -> Any:
    """The option as a number, or a tuple of numbers, read anew; None: it can't be."""
    if type(value) in _NUMBERS:
        return GivenFloat(value, source)
    if type(value) is tuple and all(type(v) in _NUMBERS for v in value):
        return tuple([GivenFloat(v, (*source, k)) for k, v in enumerate(value)])
    return None
