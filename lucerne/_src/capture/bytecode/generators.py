"""Generators whose bodies are frames of the machine."""

from __future__ import annotations

from functools import partial
from types import CodeType, GeneratorType
from typing import Any

from lucerne._src.capture.bytecode.frame import (
    PUSH,
    UNSET,
    Link,
    PythonFrame,
    drop_iterator,
    iterator_on,
)
from lucerne._src.capture.bytecode.hooks import NOTHING, Access, Stop
from lucerne._src.capture.bytecode.links import Delivery, link_rule
from lucerne._src.capture.bytecode.machine import Finished, Machine, Stopped


class PythonGenerator:
    """What a generator function called inside the machine returns.

    Native code sees a true iterator (with `send`, `throw` and `close`); each step is a run of the
    machine. A `for` inside the machine runs the frame in the same chain instead.
    """

    def __init__(self, machine: Machine, frame: PythonFrame) -> None:
        self.machine = machine
        self.frame: PythonFrame | None = frame
        self.running = self.started = False
        self.gi_code: CodeType = frame.code
        self.__name__, self.__qualname__ = frame.fn.__name__, frame.fn.__qualname__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` asks."""
        return GeneratorType

    gi_running = property(lambda self: self.running)
    gi_suspended = property(lambda self: self.started and not self.running)
    gi_frame = property(lambda self: self.frame)

    @property
    def gi_yieldfrom(self) -> Any:
        """The iterator that it yields from at the moment, or None."""
        return receiver_of(self)

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__} at {id(self):#x}>"

    def __iter__(self) -> PythonGenerator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any, /) -> Any:
        """Go on with a value for the `yield`."""
        self.check(value)
        if self.frame is None:
            raise StopIteration
        return self._advance(value, None)

    def throw(self, kind: Any, value: Any = UNSET, trace: Any = UNSET, /) -> Any:
        """Go on with an exception raised at the `yield`."""
        error = thrown(kind, value, trace)
        self.check(None)
        try:
            if self.frame is None:
                raise error
            return self._advance(None, error)
        finally:  # an exception that escapes must not be held by the frames that it holds
            del error, kind, value

    def close(self) -> Any:
        """End it: GeneratorExit is raised at the `yield`."""
        if not self.started or self.frame is None:
            self.frame = None
            return None
        table = self.frame.decoded.table
        try:
            self.throw(GeneratorExit())
        except GeneratorExit as end:
            end.__traceback__ = None  # it would keep the frames of whoever dropped the generator
            return None
        except StopIteration as end:
            return end.value if table.close_returns else None
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        """Close it, as Python does. Who is asked on the way can't stop it: there is no frame that
        could go on later. From the stop on nobody is asked any more."""
        if not self.started or self.running or self.frame is None or self.machine.is_over:
            return
        try:
            self.close()
        except Stop as stop:
            machine = self.machine
            before, machine.as_they_are = machine.as_they_are, True
            try:
                machine.advance(stop.inside)
            except GeneratorExit as end:
                end.__traceback__ = None
            finally:
                machine.as_they_are = before

    def _advance(self, value: Any, error: BaseException | None) -> Any:
        machine = self.machine
        if not machine.as_they_are:
            machine.hooks.write(self, "frame", NOTHING, NOTHING, Access.GENERATOR)
        frame = self.resume(value, PUSH)
        begin = None if error is None else partial(throw_into, machine, self, error)
        del error
        try:
            outcome = machine.advance([frame], begin=begin)
        finally:
            del begin
        if isinstance(outcome, Stopped):
            outcome.stop.inside = [*outcome.stop.inside, *outcome.frames]
            raise outcome.stop
        if isinstance(outcome, Finished):
            raise StopIteration(outcome.value) if outcome.value is not None else StopIteration
        return outcome.value

    # -- for the machine ------------------------------------------------------------------------

    def check(self, value: Any) -> None:
        """Raise if it can't go on now with this value."""
        if self.running:
            raise ValueError("generator already executing")
        if value is not None and not self.started and self.frame is not None:
            raise TypeError("can't send non-None value to a just-started generator")

    def resume(self, value: Any, link: Link) -> PythonFrame:
        """Its frame, ready to go on with a value."""
        frame = self.frame
        assert frame is not None
        frame.stack.append(value)
        frame.link, frame.generator = link, self
        self.running = self.started = True
        return frame

    def left(self, delivery: Delivery) -> None:
        """Its frame has yielded or returned."""
        self.running = False
        if delivery is Delivery.RETURN:
            self.frame = None
        elif self.frame is not None:
            self.frame.generator = None  # or the two would keep each other alive

    def failed(self, error: BaseException) -> BaseException:
        """An exception has left its frame: what the caller sees."""
        self.running, self.frame = False, None
        if not isinstance(error, StopIteration):
            return error
        wrong = RuntimeError("generator raised StopIteration")
        wrong.__cause__ = wrong.__context__ = error
        return wrong


def thrown(kind: Any, value: Any, trace: Any) -> BaseException:
    """The exception meant by the one to three arguments of `throw`."""
    if isinstance(kind, BaseException):
        if value is not UNSET and value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    elif isinstance(kind, type) and issubclass(kind, BaseException):
        if isinstance(value, kind):
            error = value
        elif value is UNSET or value is None:
            error = kind()
        else:
            error = kind(*value) if isinstance(value, tuple) else kind(value)
    else:
        raise TypeError(
            "exceptions must be classes or instances deriving from BaseException, not "
            + type(kind).__name__
        )
    return error if trace is UNSET or trace is None else error.with_traceback(trace)


def receiver_of(generator: PythonGenerator) -> Any:
    """The iterator that a suspended generator yields from, or None."""
    frame = generator.frame
    if frame is None or not generator.started:
        return None
    op = frame.decoded.ops[frame.ip]
    if op.name == "RESUME" and op.argument & 3 == 2:
        return iterator_on(frame.stack, int(generator.running))
    return None


def finish_send(frame: PythonFrame, at: int, value: Any) -> None:
    """The iterator of the SEND with number `at` is exhausted: leave the loop with a value. The
    receiver is on top of the stack."""
    table = frame.decoded.table
    if not table.keeps_receiver:
        frame.stack.pop()
    frame.stack.append(value)
    frame.ip = frame.decoded.ops[at].argument


@link_rule("send")
def _send(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """A generator that SEND advances: `data` is the number of that instruction."""
    if delivery is Delivery.YIELD:
        frame.stack.append(value)
    elif delivery is Delivery.RETURN:
        finish_send(frame, data[0], value)
    return delivery is not Delivery.RAISE


@link_rule("sent again")
def _sent_again(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """A generator that was reached by `throw` through another one's `yield from`."""
    if delivery is Delivery.YIELD:
        return machine.give(Delivery.YIELD, value)
    if delivery is Delivery.RETURN:
        finish_send(frame, data[0], value)
        return True
    frame.stack.append(None)  # as after any `throw`: the place of what would have been sent
    return False


@link_rule("for")
def _for(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """A generator that a `for` goes through: `data` is where to go on after the loop."""
    if delivery is Delivery.YIELD:
        frame.stack.append(value)
    elif delivery is Delivery.RETURN:
        drop_iterator(frame.stack)
        frame.ip = data[0]
    return delivery is not Delivery.RAISE


@link_rule("next")
def _next(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """`next(generator)`, `generator.send(value)`: `data` has the default of `next`, if any."""
    if delivery is Delivery.YIELD:
        frame.stack.append(value)
    elif delivery is Delivery.RETURN:
        if not data:
            raise StopIteration(value) if value is not None else StopIteration
        frame.stack.append(data[0])
    return delivery is not Delivery.RAISE


@link_rule("close")
def _close(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """`generator.close()`."""
    if delivery is Delivery.YIELD:
        raise RuntimeError("generator ignored GeneratorExit")
    if delivery is Delivery.RAISE and not isinstance(value, GeneratorExit | StopIteration):
        return False
    frame.stack.append(
        value if delivery is Delivery.RETURN and frame.decoded.table.close_returns else None
    )
    return True


def throw_into(machine: Machine, generator: PythonGenerator, error: BaseException) -> None:
    """Raise in a generator whose frame is the last of the machine's: in the iterator that it
    yields from, if there is one."""
    frame = generator.frame
    assert frame is not None
    receiver = receiver_of(generator)
    if receiver is not None:
        frame.stack.pop()  # what `resume` has pushed
        loop = frame.decoded.ops[frame.ip + 1].argument
        if isinstance(error, GeneratorExit):
            error = _closed(receiver, error)
        elif (
            type(receiver) is PythonGenerator
            and receiver.frame is not None
            and not receiver.running
        ):
            machine.enter(receiver.resume(None, Link("sent again", (loop,))))
            throw_into(machine, receiver, error)
            return
        elif hasattr(receiver, "throw"):
            try:
                value = receiver.throw(error)
            except StopIteration as end:
                finish_send(frame, loop, end.value)
                return
            except BaseException as other:
                error = other
            else:
                machine.give(Delivery.YIELD, value)
                return
        frame.stack.append(None)
    if frame.handled is not None and error.__context__ is None and error is not frame.handled:
        error.__context__ = frame.handled
    try:
        machine.unwind(error)
    finally:
        del error


def _closed(receiver: Any, error: BaseException) -> BaseException:
    """Close what a generator yields from; what is raised in the generator then."""
    close = getattr(receiver, "close", None)
    if close is not None:
        try:
            close()
        except BaseException as other:
            return other
    return error
