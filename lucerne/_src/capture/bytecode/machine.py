"""The machine: runs frames, one instruction after another, until they end or somebody says stop."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any, NoReturn

from lucerne._src.base.process.executed_code import ExecutedCode, note_code
from lucerne._src.base.process.source_location import any_line, runs_frames
from lucerne._src.capture.bytecode.binding import bind, more_keywords
from lucerne._src.capture.bytecode.decode import Decoded, decode
from lucerne._src.capture.bytecode.frame import PUSH, Link, PythonFrame
from lucerne._src.capture.bytecode.handled_errors import goes_on
from lucerne._src.capture.bytecode.hooks import Hooks, Natives, Stop
from lucerne._src.capture.bytecode.links import RULES, Delivery
from lucerne._src.capture.bytecode.registry import current_table
from lucerne._src.capture.bytecode.tracebacks import (
    begins_here,
    is_own,
    own_part_removed,
    with_entry,
)

SWITCH = True
"""What a handler returns when the frame on top, or the exception being handled, has changed."""


@dataclass
class Finished:
    """The first frame has returned."""

    value: Any


@dataclass
class Yielded:
    """The first frame is a generator's, and has yielded."""

    value: Any


@dataclass
class Stopped:
    """Somebody said stop. The last frame's `ip` is the instruction that was not executed."""

    frames: list[PythonFrame]
    stop: Stop

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.stop.reason


Outcome = Finished | Stopped
_OUT_OF_FUEL = "as many instructions as were asked for"


class Machine:
    """Runs Python functions from their code objects, asking `hooks` on the way.

    Calls that the hooks want entered become frames of the same list; the host's stack does not
    grow with them. So a stop, however deep, leaves the whole chain of frames, and `run` goes on
    from any such chain.

    >>> from lucerne._src.capture.bytecode import Finished, Machine, Plain, Stopped, rebuilt
    >>> def total(n):
    ...     return sum(k * k for k in range(n))
    >>> machine = Machine(Plain())
    >>> stopped = machine.run([machine.frame_of(total, (4,))], most=5)
    >>> isinstance(stopped, Stopped)
    True
    >>> frames = [rebuilt(frame.listing()) for frame in stopped.frames]
    >>> machine.run(frames)
    Finished(value=14)
    """

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.natives: Natives | None = getattr(hooks, "natives", None)
        """Who is told when native code comes back to user code; None: nobody cares."""
        self.repeats: Any = getattr(hooks, "repeats", None)
        """Who may know what a call of a module gives, as one like it was called; None: nobody."""
        self.before: Callable[[PythonFrame], Stop | None] | None = getattr(hooks, "before", None)
        """Who is told before each instruction, also of runs inside native code; None: nobody."""
        self.frames: list[PythonFrame] = []
        """Of the innermost run."""
        self.reraised: tuple[BaseException, Any, Any, bool] | None = None
        """Set by an instruction that raises an exception again, which changes nothing in it: with
        its traceback and context."""
        self.raised_here = 0
        """The id of the last exception, if a handler of this package raised it: for its
        instruction, or by mistake."""
        self.yielded: Yielded | Finished | None = None
        self.depth = 0
        """How many runs lie in each other, with native code between them."""
        self.is_over = False
        """Set when what it ran is to be forgotten (a trace): generators that it made are dropped
        without being closed."""
        self.as_they_are = False
        """While one instruction is executed natively: nobody is asked."""

    # -- making frames --------------------------------------------------------------------------

    @staticmethod
    def supported(code: CodeType) -> str | None:
        """Why the machine can't run code, or None: it can."""
        found = decode(code, current_table())
        return found if isinstance(found, str) else None

    def frame_of(
        self,
        fn: FunctionType,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> PythonFrame:
        """A frame at the start of a function. Raises Stop if its code can't be run, and TypeError
        if the arguments don't fit."""
        decoded = decode(fn.__code__, current_table())
        if isinstance(decoded, str):
            raise Stop(decoded)
        made = self._frame(fn, decoded, tuple(args), kwargs or {}, PUSH)
        if made is None:
            fn(*args, **(kwargs or {}))
            raise TypeError(f"{fn.__qualname__}: the arguments don't fit")
        return made

    def try_frame(
        self,
        fn: FunctionType,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        link: Link,
        may_stop: bool = True,
    ) -> PythonFrame | None:
        """A frame at the start of a function, or None: Python itself must make this call. If its
        code is unknown the hooks are asked, unless that must not stop (in the rule of a link)."""
        decoded = decode(fn.__code__, current_table())
        if isinstance(decoded, str):
            asked = may_stop and not is_own(fn.__code__)
            stop = self.hooks.unknown(fn, decoded) if asked else None
            if stop is not None:
                raise stop
            return None
        return self._frame(fn, decoded, args, kwargs, link)

    def _frame(
        self, fn: FunctionType, decoded: Decoded, args: Any, kwargs: Mapping[str, Any], link: Link
    ) -> PythonFrame | None:
        slots = bind(fn, args, kwargs, len(decoded.slot_names))
        if slots is None:
            return None
        if fn.__code__.co_flags & CO_VARKEYWORDS:
            self.hooks.made(slots[more_keywords(fn.__code__)])
        note_code(fn.__code__, fn.__globals__.get("__name__"))
        return PythonFrame(fn, decoded, slots, link)

    def enter(self, frame: PythonFrame) -> bool:
        """Put a frame on top; it runs next."""
        if len(self.frames) >= sys.getrecursionlimit():
            raise RecursionError("maximum recursion depth exceeded")
        self.frames.append(frame)
        return SWITCH

    # -- running --------------------------------------------------------------------------------

    def run(
        self,
        frames: list[PythonFrame],
        most: int | None = None,
        before: Callable[[PythonFrame], Stop | None] | None = None,
    ) -> Outcome:
        """Run until the first frame returns, or until a stop. What escapes the first frame is
        raised. `most`: stop after so many instructions. `before` is asked before each instruction
        of this run (not of runs inside native code) whether to stop."""
        outcome = self.advance(frames, most, before=before)
        if isinstance(outcome, Yielded):
            raise RuntimeError("a generator's frame is advanced by `next`, not by `run`")
        return outcome

    def advance(
        self,
        frames: list[PythonFrame],
        most: int | None = None,
        begin: Callable[[], Any] | None = None,
        before: Callable[[PythonFrame], Stop | None] | None = None,
    ) -> Outcome | Yielded:
        """Like `run`; a generator's first frame may also yield. `begin` is called when the frames
        are in place (to raise something in them, say)."""
        outer, outer_yielded, line = self.frames, self.yielded, any_line()
        self.frames, self.yielded = frames, None
        self.depth += 1
        try:
            if begin is not None:
                begin()
            return self._loop(frames, most, before)
        except Stop as stop:
            # Its traceback would keep the frames, and what they hold, alive.
            return Stopped(frames, stop.with_traceback(None))
        finally:
            self.frames, self.yielded = outer, outer_yielded
            self.depth -= 1
            ExecutedCode.noted_run = 0
            any_line(line)
            begin = before = None

    def execute(self, frames: list[PythonFrame]) -> Outcome:
        """Execute one instruction with nobody being asked, its calls natively; then stop.

        This is how to get past an instruction that stopped.
        """
        self.as_they_are = True
        try:
            return self.run(frames, most=1)
        finally:
            self.as_they_are = False

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a user's function from native code: a run of its own. If it stops, the native code
        is abandoned with the same Stop."""
        frame = self.try_frame(fn, tuple(args), kwargs, PUSH)
        if frame is None:
            return fn(*args, **kwargs)
        outcome = self._unwatched([frame])
        if isinstance(outcome, Stopped):
            outcome.stop.inside = [*outcome.stop.inside, *outcome.frames]
            raise outcome.stop
        return outcome.value

    def _unwatched(self, frames: list[PythonFrame]) -> Outcome:
        """A run inside native code that is watched: the machine sees itself what happens here."""
        if self.natives is None:
            return self.run(frames)
        found: Outcome = self.natives.unwatched(lambda: self.run(frames))
        return found

    def _loop(
        self,
        frames: list[PythonFrame],
        most: int | None,
        before: Callable[[PythonFrame], Stop | None] | None,
    ) -> Outcome | Yielded:
        """The inner loop. `frames` is looked for by name by `base.where`."""
        left = -1 if most is None else most
        before = before or self.before
        while frames:
            frame = frames[-1]
            handled = self.handled()
            steps = frame.decoded.steps
            try:
                while left:
                    at = frame.ip
                    if before is not None:
                        frame.last = at
                        stop = before(frame)
                        if stop is not None:
                            raise stop
                    handler, argument = steps[at]
                    frame.last, frame.ip = at, at + 1
                    left -= 1
                    if self.natives is not None and not self.as_they_are:
                        op = frame.decoded.ops[at]
                        if self.natives.concerns(op.name, op.argument, frame.stack):
                            handler = functools.partial(self.natives.run, handler)
                    if handled is None:
                        if handler(self, frame, argument):
                            break
                    elif _while_handling(handled, handler, self, frame, argument):
                        break
                else:
                    return Stopped(frames, Stop(_OUT_OF_FUEL))
                continue
            except Stop:
                if frames:  # (none: of a generator that has ended, and was told so)
                    frames[-1].ip = frames[-1].last
                raise
            except BaseException as error:
                raised = error
            handled = None
            try:
                self._after(raised)
            finally:
                del raised
        assert self.yielded is not None
        return self.yielded

    def handled(self) -> BaseException | None:
        """The exception that is being handled: of the innermost frame that handles one."""
        for frame in reversed(self.frames):
            if frame.handled is not None:
                return frame.handled
        return None

    # -- results and exceptions -----------------------------------------------------------------

    def give(self, delivery: Delivery, value: Any) -> bool:
        """Take the last frame away and hand what it gives to the frame below."""
        frame = self.frames.pop()
        if frame.generator is not None:
            frame.generator.left(delivery)
        if not self.frames:
            self.yielded = Yielded(value) if delivery is Delivery.YIELD else Finished(value)
            return SWITCH
        return RULES[frame.link.kind](self, self.frames[-1], frame.link.data, delivery, value)

    def raise_again(self, error: BaseException) -> NoReturn:
        """Raise an exception that was raised before (not by a `raise` that names it)."""
        context, hidden = error.__context__, error.__suppress_context__
        self.reraised = error, error.__traceback__, context, hidden
        raise error

    def _after(self, error: BaseException) -> None:
        """An instruction has raised.

        Here and below variables are deleted at the end: an exception that escapes holds these
        frames of the host, and they must not hold the exception.
        """
        again, self.reraised = self.reraised, None
        try:
            if again is not None and again[0] is error:
                _, error.__traceback__, error.__context__, error.__suppress_context__ = again
                self.unwind(error, entry=False)
                return
            stop = None if self.as_they_are else self.hooks.raised(error)
            if stop is not None:
                self.frames[-1].ip = self.frames[-1].last
                raise stop
            self.raised_here = id(error) if begins_here(error.__traceback__) else 0
            error.__traceback__ = own_part_removed(error.__traceback__)
            self.unwind(error)
        finally:
            del error, again

    def handles_errors(self) -> bool:
        """Whether some frame would go on if an op raised at the instruction at hand."""
        return any(map(goes_on, self.frames))

    def unwind(self, error: BaseException, entry: bool = True) -> None:
        """Find the handler of an exception, taking frames away that have none."""
        frames = self.frames
        while frames:
            frame = frames[-1]
            if entry:
                error.__traceback__ = with_entry(error.__traceback__, frame)
            entry = True
            region = frame.decoded.region(frame.last)
            if region is not None:
                del frame.stack[region.depth :]
                if region.lasti:
                    frame.stack.append(frame.last)
                frame.stack.append(error)
                frame.ip, frame.kw_names = region.target, ()  # (those of the call that raised)
                return
            frames.pop()
            frame.handled = None
            frame.stack.clear()  # generators that loops went through end now
            if frame.generator is not None:
                error = frame.generator.failed(error)
            if not frames:
                context, hidden = error.__context__, error.__suppress_context__
                try:
                    raise error
                finally:  # the host may be handling another one, which is not its context
                    error.__context__, error.__suppress_context__ = context, hidden
                    del error, context
            caught = RULES[frame.link.kind](
                self, frames[-1], frame.link.data, Delivery.RAISE, error
            )
            if isinstance(caught, BaseException):
                error = caught
            elif caught:
                return


runs_frames(Machine._loop.__code__)


def _while_handling(
    handled: BaseException,
    handler: Callable[..., Any],
    machine: Machine,
    frame: PythonFrame,
    arg: Any,
) -> Any:
    """Execute one instruction inside an `except` block of the host.

    So a new exception gets the handled one as its context, and native code sees it in
    `sys.exc_info()`, with no bookkeeping of ours.
    """
    trace, context = handled.__traceback__, handled.__context__
    hidden = handled.__suppress_context__
    try:
        raise handled
    except BaseException:
        handled.__traceback__, handled.__context__ = trace, context
        handled.__suppress_context__ = hidden
        return handler(machine, frame, arg)
