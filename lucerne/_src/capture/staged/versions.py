"""A call whose data has other sizes than its version was captured for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.capture.cache.entry import MISSED
from lucerne._src.capture.staged.entry import StagedEntry
from lucerne._src.capture.trace.fake import OtherSizesError
from lucerne._src.capture.trace.pytree import flatten

_MOST_TRIES = 4
"""How often one call is captured anew for what it finds."""
_MOST_MISSES = 16
"""After so many calls that no version was good for, and no more are made, none is tried."""


def other_sizes(compiled: Any, args: Any, kwargs: Any, error: OtherSizesError) -> Any:
    """Make a call by another version: one that is there, or one captured with these sizes."""
    leaves: list[Any] = []
    shape = flatten((args, kwargs), leaves)
    tried: list[Any] = []
    for _ in range(_MOST_TRIES):
        entry = _known(compiled, leaves, shape, error.found, tried)
        if entry is None:
            entry = _new(compiled, args, kwargs, leaves, shape, error)
        if not isinstance(entry, StagedEntry):
            break
        tried.append(entry)
        try:
            result = _ran(entry, leaves, (args, kwargs))
        except OtherSizesError as another:
            error = another
            continue
        if result is MISSED:
            return compiled(*args, **kwargs)
        compiled.versions.prefer(leaves, entry)
        compiled.latest = entry
        return result
    return _uncaptured(compiled, args, kwargs)


def _ran(entry: StagedEntry, leaves: list[Any], given: Any) -> Any:
    return entry.run_guarded(leaves, entry.run, leaves, given)


def _known(
    compiled: Any, leaves: list[Any], shape: Any, found: Sequence[int], tried: list[Any]
) -> StagedEntry | None:
    for entry in compiled.versions.alike(leaves):
        if type(entry) is not StagedEntry or entry in tried:
            continue
        if entry.captured.unbacked.admits(found) and entry.guards.hold(leaves, shape):
            return entry
    return None


def _new(
    compiled: Any, args: Any, kwargs: Any, leaves: list[Any], shape: Any, error: OtherSizesError
) -> Any:
    if compiled.given_up is not None:
        return None
    with compiled.lock:
        compiled.families.unbacked = tuple(error.hints)
        told = ", ".join(map(str, error.found))
        why = f"a decision by sizes that depend on the data: these are {told}"
        return compiled.anew(args, kwargs, leaves, shape, why)


def _uncaptured(compiled: Any, args: Any, kwargs: Any) -> Any:
    """No version can be had for these sizes: the call runs as Python, or in parts."""
    compiled.missed += 1
    if compiled.given_up is not None and compiled.missed > _MOST_MISSES:
        compiled.is_full, compiled.latest = False, None  # not even the versions there are
    if compiled.segmented is not None and compiled.given_up is None:
        return compiled.segmented.payoff(args, kwargs)
    return compiled.fn(*args, **kwargs)
