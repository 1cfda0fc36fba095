"""What a program that writes over its arguments needs to be run once more: its calls, noted.

A step of training writes to parameters. To find out where a number was born that is not finite,
it must run again from what was there before. A copy at each call would cost a good part of the
call: one is made every few hundred calls, and the calls since are repeated from it. Programs give
the same bits each time, which is looked at before anything is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from lucerne._src.capture.finite.check import FiniteCheck
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.autograd.ranges import counts
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.tensor.random.api import mark

MOST_CALLS = 256
"""Calls from one copy to the next: the batches of so many calls are kept."""
_MOST_BYTES = 64 << 20
"""Of such batches; with less than this, or less than what is copied anyway, all is well."""


@dataclass
class NotedCall:
    """One call of a program."""

    first: tuple[Any, ...]
    second: tuple[Any, ...]
    numbers: tuple[Any, ...]
    versions: list[int]
    """Of the second ones, before."""
    given: Any
    """The arguments of the function, (args, kwargs); None: not known."""
    drawn: Any
    """Where random numbers stood before; None: it draws none."""

    @property
    def tensors(self) -> tuple[Any, ...]:
        return (*self.first, *self.second)


class CallJournal:
    """The calls of one program since what it writes was copied. `run(first, second, numbers)` is
    the program; None from it: it was not run."""

    def __init__(self, run: Callable[..., Any], written: Sequence[int], *, keeps: bool) -> None:
        """`keeps`: whether calls are kept. One that reads the gradients of all parameters is not:
        memory that goes round from call to call would stay behind."""
        self.run, self.written, self.keeps = run, list(written), keeps
        self.draws = False
        """Whether the function draws random numbers."""
        self.count = 0
        """Calls since what is written was looked at."""
        self.calls: list[NotedCall] = []
        self._first: Any = None
        self._second: list[int] = []
        """What was given in the last call: tensors that stay, and the ids of the others."""
        self._unwritten: list[Any] = []
        """Of those that stay."""
        self._targets: list[Any] = []
        self._copies: list[Any] = []
        self._storages: list[Any] = []
        """Of what is written."""
        self._writes = 0
        """How often they have been written to."""
        self._bytes = self._copied = 0
        self._check: FiniteCheck | None = None
        self._was_finite = True

    # ---- while all is well ---------------------------------------------------------------------

    def before(self, first: Any, second: Any, numbers: Any, given: Any) -> None:
        """Note a call that is about to be made."""
        self.count += 1
        ids = list(map(id, second))
        same = first is self._first and (ids == self._second or self.written[-1] < len(first))
        full = self.count > MOST_CALLS or self._bytes > max(_MOST_BYTES, self._copied)
        if not self.keeps:
            if full or not same:
                self._begin(first, second)
            return
        writes = sum(map(_VERSION, self._storages))
        if full or not same or writes != self._writes:
            self._begin(first, second)
            writes = sum(map(_VERSION, self._storages))
        self._writes = writes + len(self._storages)  # (with those of the call)
        if ids != self._second or self.count == 1:
            self._bytes += _bytes(second)
        self._second = ids
        seen = _versions(second)
        drawn = mark() if self.draws else None
        self.calls.append(NotedCall(first, second, numbers, seen, given, drawn))

    def _begin(self, first: Any, second: Any) -> None:
        given = (*first, *second)
        written = frozenset(self.written)
        self._first, self._second, self.count, self.calls = first, list(map(id, second)), 1, []
        self._unwritten = [t for k, t in enumerate(first) if k not in written]
        self._stayed = _versions(self._unwritten)
        self._targets = targets = [given[k] for k in self.written]
        self._storages = [t._storage for t in targets]
        check = self._check_of(targets)
        if not self.keeps:
            with dispatch.unseen():
                self._was_finite = check(targets)
            return
        with dispatch.unseen(), no_grad():
            if [t._meta for t in targets] == [t._meta for t in self._copies]:
                for kept, t in zip(self._copies, targets, strict=True):
                    kept.copy_(t)
            else:
                self._copies = _copies(targets)
        self._bytes, self._copied = 0, _bytes(targets)

    def _others(self, call: NotedCall) -> list[Any]:
        written = {k - len(call.first) for k in self.written}
        return [t for k, t in enumerate(call.second) if k not in written]

    def _check_of(self, targets: list[Any]) -> FiniteCheck:
        metas = [t._meta for t in targets]
        if self._check is None or metas != self._check.metas:
            self._check = FiniteCheck(metas)
        return self._check

    def drop_last(self) -> None:
        """The call that was noted was not made."""
        self.count -= 1
        if self.keeps:
            self.calls.pop()
            self._writes = -1

    def is_finite(self) -> bool:
        """Whether all that is written is finite, or was not when it was copied either."""
        if self._check is None or self._check(self._targets):
            return True
        return not (self._check(self._copies) if self.keeps else self._was_finite)

    def wrong(self) -> list[int]:
        """The numbers of the arguments that were written, and are not finite."""
        found = zip(self.written, self._targets, strict=True)
        return [k for k, t in found if counts(t) != (0, 0)]

    def was_given(self) -> bool:
        """Whether the last call was given something that is not finite."""
        if not self.keeps:
            return not self._was_finite
        others = self._others(self.calls[-1])
        return not all(counts(t) == (0, 0) for t in (*others, *self._unwritten, *self._copies))

    def forget(self) -> None:
        self._targets, self._first, self.calls, self.count = [], None, [], 0
        self._storages = []

    # ---- when something is wrong ---------------------------------------------------------------

    def back_to_birth(self, is_wrong: Callable[[Any], bool]) -> tuple[int, list[Any]] | None:
        """Repeat the calls. The number of the first that gave something wrong (of its results, as
        `is_wrong` says, or of what it wrote), with everything as it was before that call, and
        what was written as it is now. None: it can't be told; nothing has changed."""
        if not self.keeps:
            return None
        if _versions(self._unwritten) != self._stayed:
            return None
        if any(t._storage is not s for t, s in zip(self._targets, self._storages, strict=True)):
            return None
        written = {k - len(self._first) for k in self.written}
        for call in self.calls:
            for k, (t, version) in enumerate(zip(call.second, call.versions, strict=True)):
                if k not in written and t._storage.version != version:
                    return None
        with no_grad():
            now = _copies(self._targets)
            found, before = self._repeated(is_wrong)
            exact = all(map(_same_bits, now, self._targets))
            if before is None or not exact:
                self.put(now)
                return None
            self.put(before)
        return found, now

    def _repeated(self, is_wrong: Callable[[Any], bool]) -> tuple[int, Any]:
        found, kept = 0, None
        self.put(self._copies)
        for k, call in enumerate(self.calls):
            before = _copies(self._targets) if kept is None else None
            results = self.run(call.first, call.second, call.numbers)
            if results is None:
                return 0, None
            if kept is None and (is_wrong(results) or not self.is_finite()):
                found, kept = k, before
        return found, kept

    def put(self, values: Sequence[Any]) -> None:
        """Give what is written these numbers."""
        with dispatch.unseen(), no_grad():
            for t, value in zip(self._targets, values, strict=True):
                t.copy_(value)


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(t._meta.span * t._meta.dtype.itemsize for t in tensors)


_VERSION = attrgetter("version")
"""Without a step of Python for each storage: it is asked of all of them in each call."""


def _versions(tensors: Sequence[Any]) -> list[int]:
    return [t._storage.version for t in tensors]


def _copies(tensors: Sequence[Any]) -> list[Any]:
    return [t.detach().clone() for t in tensors]


def _same_bits(a: Any, b: Any) -> bool:
    one, two = (np.ascontiguousarray(bits(t)) for t in (a, b))
    return one.tobytes() == two.tobytes()
