"""Whether a function in parts pays: its first calls are timed both ways, and the faster one stays.

Between parts the bytecode machine runs Python more slowly than Python does. Large parts make up for
it and small ones don't, which nobody can tell from the code alone: so calls take turns, in parts
and as it is, until enough of both are known. Each call is made once, one way or the other.

Programs ask for the same numbers from a seed whichever way was faster on that day, so parts that
may be left again draw as eager does; and nothing is timed where a user asked for the same bits in
every run (`use_deterministic_algorithms`) or for what only parts give (shadow mode, a maker of
their own).
"""

from __future__ import annotations

import time
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.capture import ledger
from lucerne._src.capture.bytecode.hooks import Stop
from lucerne._src.capture.payoff.whole import MARGIN
from lucerne._src.tensor.autograd.saved import hooks as saved_hooks
from lucerne._src.tensor.settings import are_deterministic_algorithms_enabled

IN_PARTS, EAGER = "in parts", "eager"
_MOST_TRIALS = 3
"""How often a function is timed anew because more of it was compiled."""
_CLEAR = 0.5
"""Below it, and above one over it, the first calls decide; else twice as many are timed."""
_MOST_COMPILING = 8
"""Calls that compile something, beyond which they must be few among all calls."""


class Payoff:
    """The trial of one function that runs in parts."""

    def __init__(self, compiled: Any, resumable: Any) -> None:
        self.compiled, self.resumable = compiled, resumable
        self.seconds: dict[str, list[float]] = {IN_PARTS: [], EAGER: []}
        self.calls = 0
        self.compiling = 0
        """Calls that compiled something."""
        self.trials = 0
        self._compiles = -1
        """Of the process, when this function was last found to pay."""
        options = compiled.options
        wanted = config.payoff_calls > 0 and not options.fullgraph
        self.is_asked = wanted and not options.shadow and options.maker is None
        if self.is_asked:
            options.disable |= {"count_draws"}

    def __call__(self, args: Any, kwargs: Any) -> Any:
        """One call, whichever way it is due."""
        if not self._is_open():
            return self.in_parts(args, kwargs)
        known = self.seconds
        way = EAGER if len(known[EAGER]) < len(known[IN_PARTS]) else IN_PARTS
        before, began = self._made(), time.perf_counter()
        run = self.in_parts if way is IN_PARTS else self._as_it_is
        result = run(args, kwargs)
        took = time.perf_counter() - began
        self.calls += 1
        if self._made() == before:
            known[way].append(took)
        else:
            self.compiling += 1
            self._forget()
        self._judge()
        return result

    def in_parts(self, args: Any, kwargs: Any) -> Any:
        """One call in parts."""
        try:
            frames = self.resumable.frames_of(args, kwargs)
        except Stop:
            return self._as_it_is(args, kwargs)
        return self.resumable.run(frames)

    def _as_it_is(self, args: Any, kwargs: Any) -> Any:
        return self.compiled.fn(*args, **kwargs)

    def _made(self) -> int:
        """Grows with whatever is traced or compiled."""
        return ledger.BOOKS.begun + self.resumable.attempts

    def _is_open(self) -> bool:
        """Whether this call is part of a trial."""
        if saved_hooks.stack:  # a checkpoint computes it again: the way it was computed before
            return False
        if not self.is_asked or are_deterministic_algorithms_enabled():
            return False
        if self._compiles >= 0:
            if self._compiles == self._made() or self.trials >= _MOST_TRIALS:
                return False
            self._forget()
        return True

    def _forget(self) -> None:
        self._compiles = -1
        for samples in self.seconds.values():
            samples.clear()

    def _judge(self) -> None:
        """Decide if enough is known."""
        if self.compiling > _MOST_COMPILING and 2 * self.compiling > self.calls:
            self._leave(f"it was compiled anew in {self.compiling} of {self.calls} calls")
            return
        parts, eager = (sorted(self.seconds[way]) for way in (IN_PARTS, EAGER))
        known = min(len(parts), len(eager))
        if known < config.payoff_calls:
            return
        # Neither the best, which may be a call that had less to do, nor those that were disturbed.
        usual = known // 4
        ratio = parts[usual] / eager[usual]
        if _CLEAR < ratio < 1 / _CLEAR and known < 2 * config.payoff_calls:
            return  # too near to tell from so few
        self.trials += 1
        self._compiles = self._made()
        if ratio > MARGIN:
            times = f"{1e3 * parts[usual]:.3g} ms a call in parts, {1e3 * eager[usual]:.3g} ms"
            self._leave(f"it takes {times} as it is")

    def _leave(self, found: str) -> None:
        """Run as it is from now on, and say so: once, with the line and what to do about it."""
        breaks = self.compiled.breaks
        self.compiled.give_up(f"{found}. {breaks[0] if breaks else 'It writes to what it reads'}")
        ledger.not_paid(self.compiled.fn, found, len(breaks))
