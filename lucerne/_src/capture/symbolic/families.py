"""Families: captures of one function that differ in nothing but sizes. From the second on they are
made for all sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lucerne._src.base.process.source_location import place_of_error
from lucerne._src.base.raw import is_a
from lucerne._src.base.shape import wrap_dim
from lucerne._src.capture import faults
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.cache.entry import Guards
from lucerne._src.capture.guards.prune import also
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.symbolic.shapes import Dims, Sized, SizedCapture, Symbols
from lucerne._src.capture.symbolic.unbacked import UnbackedCapture, WrongGuessError
from lucerne._src.capture.trace.capture import Capture, Whole
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.expressions import SMALLEST
from lucerne._src.tensor.base import TensorBase

Sizes = dict[tuple[int, int], int]

_MOST_SIZED = 8
"""How many captures for all sizes a family keeps: one for each way its decisions may come out."""

_MOST_GUESSES = 4
"""How often a call is captured again because what was taken for its sizes makes it raise."""

_MARK = "_dynamic_dims"


def mark_dynamic(t: Any, dim: int | Sequence[int]) -> None:
    """Say of a tensor that its size in this dimension (or these) is not always the same.

    A compiled function that gets it as an argument is then made for all sizes at once.
    """
    dims = (dim,) if isinstance(dim, int) else dim
    found = {wrap_dim(d, t._meta.ndim) for d in dims}
    setattr(t, _MARK, getattr(t, _MARK, frozenset()) | found)


def marked_dims(t: Any) -> set[int]:
    """The dimensions of an argument that `mark_dynamic` was told about."""
    if not isinstance(t, TensorBase):
        return set()
    return {d for d in getattr(t, _MARK, ()) if t._meta.shape[d] >= SMALLEST}


class Family:
    """A first capture, the sizes that were seen to change since, and captures for all of them."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        self.sized: list[Sized] = []
        self.seen: list[Sizes] = []
        """The sizes of the calls that were captured, where they were not the first one's."""
        self.fixed: Dims = set()
        """Dimensions whose sizes the function needs as plain numbers."""
        self.refused = ""
        """Why there is no capture for all sizes."""

    def size(self, at: tuple[int, int]) -> int:
        """Of the first capture."""
        metas = {k: meta for k, meta, *_ in self.guards.tensors}
        return int(metas[at[0]].shape[at[1]])

    def other_sizes(self, leaves: Sequence[Any], shape: Any) -> Sizes | None:
        """The sizes that are not those of the first capture; None: something else differs too."""
        found = self.sizes_beside(leaves)
        if not found or self.guards.failure(leaves, shape, sizes=False) is not None:
            return None
        return found

    def sizes_beside(self, leaves: Sequence[Any]) -> Sizes | None:
        """The same for the tensors among the arguments alone."""
        found: Sizes = {}
        for k, meta, _, kind in self.guards.tensors:
            if k >= len(leaves) or type(leaves[k]) is not kind:
                return None
            have: TensorMeta = leaves[k]._meta
            if have is meta:
                continue
            if have.dtype is not meta.dtype or have.ndim != meta.ndim:
                return None
            if have.flipped is not meta.flipped:
                return None
            for d, (n, m) in enumerate(zip(have.shape, meta.shape, strict=True)):
                if n != m:
                    if min(n, m) < SMALLEST or have.device != meta.device:
                        return None
                    found[k, d] = int(n)
        return found

    def symbols(self, sizes: Sizes) -> Symbols:
        """A symbol for every dimension that was seen to change. Those that changed alike each time
        share one: so it is checked at the call, and not for every op."""
        rows = [*self.seen, sizes]
        changing = {at for row in rows for at in row} - self.fixed
        return Symbols(
            {at: (self.size(at), *(row.get(at, self.size(at)) for row in rows)) for at in changing}
        )

    def refusals(self, leaves: Sequence[Any]) -> None:
        """No capture for all sizes holds for these leaves: if two need the same size as another
        plain number (a loop over it, text of it), a third one would be no better."""
        found = [at for made in self.sized for at in made.too_special(leaves)]
        self.fixed |= {at for at in found if found.count(at) > 1}

    def note(self, made: Sized) -> None:
        self.sized.insert(0, made)
        del self.sized[_MOST_SIZED:]


def at_once(leaves: Sequence[Any], marked_only: bool) -> Symbols | None:
    """Symbols for a first capture: for all sizes, or those that `mark_dynamic` was told about;
    equal ones share one."""
    found: Sizes = {}
    for k, t in enumerate(leaves):
        if is_a(t, TensorBase):
            marked = marked_dims(t)
            for d, n in enumerate(t._meta.shape):
                if n >= SMALLEST and (d in marked or not marked_only):
                    found[k, d] = int(n)
    return Symbols(found) if found else None


class Families:
    """All first captures of a function."""

    def __init__(self, fn: Any, whole: Whole, dynamic: bool | None, tell: Any) -> None:
        """`tell`: hears of errors that are ours (`faults.Teller`)."""
        self.fn, self.whole, self.dynamic, self.tell = fn, whole, dynamic, tell
        self.members: list[Family] = []
        self.traces = 0
        self.unbacked: tuple[int, ...] | None = None
        """What to take for sizes that depend on the data; None: there were none yet."""
        self._pending: tuple[Family | None, Sized | None, Sizes] = None, None, {}

    def fitting(
        self, leaves: Sequence[Any], shape: Any
    ) -> Iterator[tuple[Family, Sized, dict[str, int]]]:
        """Captures for all sizes that hold for leaves whose sizes were never traced, and these
        sizes by name."""
        for family in self.members:
            if not family.sized or family.other_sizes(leaves, shape) is None:
                continue
            for learned in family.sized:
                sizes = learned.bind(leaves)
                if sizes is not None:
                    yield family, learned, sizes

    def fitting_version(
        self, leaves: Sequence[Any], shape: Any
    ) -> tuple[Family, Sized, dict[str, int], Any] | None:
        """The same with a version that was made for others of these sizes. (What it asks of its
        surroundings is code by then.)"""
        for family in self.members:
            for learned in family.sized:
                sizes = None
                for version in learned.versions:
                    first = version.first
                    if first is None:
                        break
                    if not first.guards.hold(leaves, shape, sizes=False):
                        break
                    sizes = learned.bind(leaves) if sizes is None else sizes
                    if sizes is None:
                        break
                    if version.holds(sizes):
                        return family, learned, sizes, version
        return None

    def capture(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], shape: Any, reach: ReachableState
    ) -> Captured:
        """Capture a call: for all sizes if it is not the first of its family."""
        family, sizes = self._family(leaves, shape)
        symbols = self._symbols(family, sizes, leaves)
        self._pending = family, None, sizes
        if symbols is not None and symbols.names:
            self.traces += 1
            try:
                sized = SizedCapture(self.fn, args, kwargs, reach, self.whole, symbols).sized()
                captured = sized.at(leaves)
                if captured is not None:
                    self._pending = family, sized, sizes
                    return captured
                why = "the capture for all sizes does not hold for these"
            except Exception as error:  # that costs the generality, never the call
                why = str(error) or type(error).__name__
                self.tell.perhaps(error, faults.NO_SIZES)
            if family is not None:
                family.refused = why
        return self._static(args, kwargs, reach)

    def _static(self, args: Any, kwargs: Any, reach: ReachableState) -> Captured:
        if self.unbacked is None:
            self.traces += 1
            capture = Capture(self.fn, args, kwargs, reach, self.whole)
            try:
                return capture.run()
            except CaptureError:
                if not capture.asked_sizes:
                    raise
        return self._with_unbacked(args, kwargs, reach)

    def _with_unbacked(self, args: Any, kwargs: Any, reach: ReachableState) -> Captured:
        """Capture a call with sizes that depend on the data."""
        hints = self.unbacked or ()
        for tries in range(_MOST_GUESSES, -1, -1):
            self.traces += 1
            given = self.fn, args, kwargs, reach, self.whole, Symbols({}), hints
            try:
                captured = UnbackedCapture(*given).run()
                break
            except WrongGuessError as error:
                if not tries:  # what a guess has raised is not the function's own error
                    place = place_of_error(error.__cause__ or error)
                    raise BreakError(reasons.made("size", place)) from error
                hints = error.found
        self.unbacked = self.unbacked or ()
        return captured

    def _symbols(
        self, family: Family | None, sizes: Sizes, leaves: Sequence[Any]
    ) -> Symbols | None:
        if self.dynamic is False:
            return None
        if family is None:
            return at_once(leaves, marked_only=not self.dynamic)
        family.refusals(leaves)
        return None if family.refused else family.symbols(sizes)

    def learn(self, captured: Captured, guards: Guards, leaves: Sequence[Any]) -> None:
        """Make what can be made of a capture that was compiled."""
        (family, sized, sizes), self._pending = self._pending, (None, None, {})
        if self.dynamic is False:
            return
        if family is None:
            if guards.shares or captured.covered or captured.stored or guards.wrapped is not None:
                return
            if captured.unbacked is not None:
                return
            family = Family(guards)
            self.members.append(family)
        else:
            family.seen.append(sizes)
            if guards.reach.was_seen:
                also(family.guards.reach, guards.reach)
        if sized is not None:
            family.note(sized)

    def give_up(self) -> None:
        """No more captures for all sizes: something is wrong with them."""
        self.dynamic = False
        self.members.clear()

    def _family(self, leaves: Sequence[Any], shape: Any) -> tuple[Family | None, Sizes]:
        for family in self.members:
            sizes = family.other_sizes(leaves, shape)
            if sizes is not None:
                return family, sizes
        return None, {}
