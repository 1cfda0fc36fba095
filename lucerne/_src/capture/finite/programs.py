"""Programs whose results are looked at: whether all their numbers are finite.

Compiled code stays as it is and runs as it is. What it gives back is looked at after each run, by
one small program more, which the first one runs from its own machine code where the backend can
(`begin_checks`): then Python reads one number after the call, and looks itself if it has grown. Of
a program that writes over its arguments, whose runs can be repeated (`journal`), results that
Python must look at wait for a few runs; what is written is looked at after 1, 2, 4, ... and every
`MOST_CALLS` runs, and both at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Runner
from lucerne._src.base.process.error_notes import step_failed
from lucerne._src.capture.finite.blame import Birth, birth_in
from lucerne._src.capture.finite.check import FiniteCheck
from lucerne._src.capture.finite.found import NotFiniteError
from lucerne._src.capture.finite.journal import MOST_CALLS, CallJournal, NotedCall
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARGUMENT, places
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.autograd.nonfinite import NonFiniteError
from lucerne._src.tensor.base import new_tensor

_SMALL, _MOST_WAITING = 4096, 8
"""Elements of results (a loss) that are looked at together, of so many runs: reading one number
takes long while the caches are full of other things."""


class WatchedProgram(Runner):
    """A runner, and a look at what it gave."""

    given: Any = None
    """The arguments of the function whose call runs it, (args, kwargs)."""

    def __init__(
        self,
        inner: Any,
        metas: Sequence[TensorMeta],
        name: str,
        shown: Sequence[int],
        keeps: bool = True,
    ) -> None:
        """`shown`: the results that others get to see, which is not what is kept for a backward
        pass. `keeps`: see `CallJournal`."""
        self.inner, self.name = inner, name
        self.program = inner.program
        self._inner_launch = inner.launch
        self.launch = None if inner.launch is None else self._launched
        written = sorted(self.program.written)
        self.journal = CallJournal(self._again, written, keeps=keeps) if written else None
        self._metas = metas
        self._check = check = FiniteCheck(metas, shown)
        self._runs = 0
        """Since the watch began: the first ones are looked at more often."""
        self._waiting: list[Any] = []
        """Results of the last few runs, where runs can be repeated."""
        small = sum(metas[k].numel for k in check.read) <= _SMALL
        self._most_waiting = _MOST_WAITING if small and keeps else 1
        self.is_checked = False
        """Whether the program looks at its results itself."""
        self._alarms = 0
        """That it had given when it was last asked."""

    def begin(self) -> None:
        """The watch begins."""
        self.is_checked = self._check.is_run_by(self.inner)
        self._alarms = self.inner.alarms

    def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
        call = (), tuple(arguments), tuple(numbers)
        if self.journal is not None:
            self.journal.before(*call, self.given)
        self.inner(arguments, numbers, results)
        self._look(*call, results)

    def _launched(self, first: Any, second: Any, numbers: Any = ()) -> Any:
        journal = self.journal
        if journal is not None:
            journal.before(first, second, numbers, self.given)
        results = self._inner_launch(first, second, numbers)
        if results is not None:
            fine = self.is_checked and self.inner.alarms == self._alarms
            if not (fine and journal is None):
                self._look(first, second, numbers, results, fine)
        elif journal is not None:
            journal.drop_last()
        return results

    def _again(self, first: Any, second: Any, numbers: Any) -> Any:
        launched = self._inner_launch
        results = None if launched is None else launched(first, second, numbers)
        if results is None:
            results = [new_tensor(meta) for meta in self._metas]
            self.inner((*first, *second), numbers, results)
        return results

    # ---- looking -------------------------------------------------------------------------------

    def _look(
        self, first: Any, second: Any, numbers: Any, results: Any, fine: bool = False
    ) -> None:
        """`fine`: the results are known to be finite."""
        if not anomaly.enabled:  # (a backward pass, when the watch is over)
            return
        self._alarms = self.inner.alarms
        journal, taken = self.journal, () if fine else self._check.taken(results)
        if journal is None:
            if self._check.are_finite(taken):
                return
        else:
            if taken:
                self._waiting.append(taken)
            if self._are_fine(journal):
                return
            self._find(journal, is_running=True)
        raise NotFiniteError(self, (*first, *second), numbers)

    def _are_fine(self, journal: CallJournal) -> bool:
        """Whether all is finite that is due to be looked at."""
        self._runs += 1
        due = journal.count >= MOST_CALLS or self._runs.bit_count() == 1  # 1, 2, 4, 8, ...
        waiting = self._waiting
        if waiting and (due or self.is_checked or len(waiting) >= self._most_waiting):
            self._waiting = []
            if not all(map(self._check.are_finite, waiting)):
                return False
        return not due or journal.is_finite()

    def finish(self) -> None:
        """Look at what was written since the last look."""
        journal = self.journal
        if journal is not None and journal.count:
            with dispatch.unseen():
                fine = all(map(self._check.are_finite, self._waiting)) and journal.is_finite()
            if not fine:
                self._find(journal, is_running=False)

    def forget(self) -> None:
        """The watch is over."""
        self.given, self._waiting, self._runs = None, [], 0
        if self.is_checked:
            self.is_checked = False
            self.inner.end_checks()
        if self.journal is not None:
            self.journal.forget()

    def _find(self, journal: CallJournal, *, is_running: bool) -> None:
        """Go back to the call where it began. If that is the one that runs, all is as it was before
        it; else what the error says has happened in an earlier one."""
        with dispatch.unseen():
            was_given = journal.was_given()
            found = journal.back_to_birth(lambda results: not self._check(results))
        last = len(journal.calls) - 1
        try:
            if found is None:
                if not was_given:
                    raise self._unknown(journal)
            elif not is_running or found[0] < last:
                self._was_born(journal.calls[found[0]], last - found[0])
        finally:
            if found is not None and (not is_running or found[0] < last):
                journal.put(found[1])
            journal.forget()

    def _was_born(self, call: NotedCall, ago: int) -> None:
        with dispatch.unseen():
            before = [t.detach().clone() for t in call.tensors]
        error = self.made_again(call)
        if error is None:
            found = self.birth(before, call.numbers)
            error = self._unknown(None) if found is None else found.error()
        if ago:
            error.add_note(f"That was {ago} call{'s' if ago > 1 else ''} of {self.name} ago.")
        raise error

    def made_again(self, call: NotedCall) -> NonFiniteError | None:
        """What the function itself raises in a call like this; None: nothing, or it can't be
        called."""
        return None

    def birth(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> Birth | None:
        """By the steps of the program, on tensors that it may write over."""
        with dispatch.unseen():
            copies = [t.detach().clone() for t in arguments] if self.journal else arguments
            found = birth_in(self.program, copies, numbers)
        return found if found is not None and found.is_asked_for else None

    def _unknown(self, journal: CallJournal | None) -> NonFiniteError:
        """What is known where a run can't be repeated: what wrote it."""
        wrong = frozenset() if journal is None else frozenset(journal.wrong())
        steps = [
            step
            for step in self.program.steps
            if any(p.kind == ARGUMENT and p.index in wrong for p in step.outputs)
        ]
        names = " or ".join(dict.fromkeys(f"{step.name}()" for step in steps)) or self.name
        made = NonFiniteError(
            f"{names} gave values that are not finite, in one of the last {MOST_CALLS} calls of "
            f"{self.name}. What it was given is not known any more"
        )
        if steps:
            metas = [p.meta for p in places(steps[0].inputs)]
            step_failed(made, steps[0].name, metas, [o for s in steps for o in s.origins])
        return made
