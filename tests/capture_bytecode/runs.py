"""Ways to run a program: in the machine, stopped and rebuilt on the way, with less of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src.capture.bytecode import (
    Access,
    Decision,
    Finished,
    Machine,
    Plain,
    PythonFrame,
    Stop,
    decision_for,
    rebuilt,
)
from tests.capture_bytecode.cases import Args, Case, observe_run

Fn = Callable[..., Any]
MANY = 100_000


def in_machine(fn: Fn, args: Args) -> Any:
    """The whole run in a machine that behaves as Python does."""
    machine = Machine(Plain())
    outcome = machine.run([machine.frame_of(fn, args)])
    assert isinstance(outcome, Finished), outcome
    return outcome.value


def written_and_rebuilt(frames: list[PythonFrame]) -> list[PythonFrame]:
    """The same frames, made from what was written down of them."""
    listings = [frame.listing() for frame in frames]
    return [rebuilt(listing, list(listing.values)) for listing in listings]


def stopping_every(count: int) -> Callable[[Fn, Args], Any]:
    """A run that stops after every `count` instructions and goes on with rebuilt frames."""

    def run(fn: Fn, args: Args) -> Any:
        machine = Machine(Plain())
        frames = [machine.frame_of(fn, args)]
        for _ in range(MANY):
            outcome = machine.run(frames, most=count)
            if isinstance(outcome, Finished):
                return outcome.value
            frames = written_and_rebuilt(outcome.frames)
            del outcome  # or the old frames would keep generators alive
        raise AssertionError("the program does not end")

    return run


def stopping_at(count: int) -> Callable[[Fn, Args], Any]:
    """A run that stops once, after `count` instructions, and goes on in another machine."""

    def run(fn: Fn, args: Args) -> Any:
        machine = Machine(Plain())
        outcome = machine.run([machine.frame_of(fn, args)], most=count)
        if isinstance(outcome, Finished):
            return outcome.value
        frames = written_and_rebuilt(outcome.frames)
        del outcome
        outcome = Machine(Plain()).run(frames)
        assert isinstance(outcome, Finished), outcome
        return outcome.value

    return run


class Nervous(Plain):
    """Hooks that stop before every call and branch, and note every read and write."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.stops = 0
        self.writes: list[tuple[str, Any]] = []

    def _stop(self, reason: str) -> Stop | None:
        assert self.machine is not None
        if self.machine.depth > 1:  # inside native code: it could not be resumed
            return None
        self.stops += 1
        return Stop(reason)

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter the user's functions, stop before all others."""
        decision = decision_for(fn)
        if decision is Decision.INLINE:
            return decision
        return self._stop("a call") or decision

    def before_branch(self, value: Any) -> Stop | None:
        """Stop."""
        return self._stop("a branch")

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        """Note it."""
        self.writes.append((how.value, key))


def stopping_before_calls(fn: Fn, args: Args) -> Any:
    """A run that stops before every native call and branch; then that one instruction is executed
    natively, and the machine goes on: what a capture with breaks does."""
    hooks = Nervous()
    machine = hooks.machine = Machine(hooks)
    frames = [machine.frame_of(fn, args)]
    for _ in range(MANY):
        outcome = machine.run(frames)
        if isinstance(outcome, Finished):
            return outcome.value
        frames = written_and_rebuilt(outcome.frames)
        del outcome  # or the old frames would keep generators alive
        outcome = machine.execute(frames)
        if isinstance(outcome, Finished):
            return outcome.value
    raise AssertionError("the program does not end")


def as_far_as_known(fn: Fn, args: Args) -> Any:
    """In the machine if its table knows all instructions of the function, natively otherwise."""
    if Machine.supported(fn.__code__) is not None:
        return fn(*args)
    return in_machine(fn, args)


def instructions_of(one: Case) -> int:
    """How many instructions a program executes."""
    seen: list[int] = []

    def run(fn: Fn, args: Args) -> None:
        machine = Machine(Plain())
        machine.run([machine.frame_of(fn, args)], before=lambda frame: seen.append(frame.ip))

    observe_run(one, run)
    return len(seen)
