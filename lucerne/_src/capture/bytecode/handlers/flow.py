"""Jumps, loops, generators, returning."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.calls import enter_method, users_method
from lucerne._src.capture.bytecode.frame import (
    UNSET,
    Link,
    PythonFrame,
    drop_iterator,
    iterator_on,
)
from lucerne._src.capture.bytecode.generators import PythonGenerator, finish_send
from lucerne._src.capture.bytecode.handlers.operators import asks_truth, truth
from lucerne._src.capture.bytecode.helpers import items_
from lucerne._src.capture.bytecode.links import Delivery, link_rule, name_in_full, wrong_answer
from lucerne._src.capture.bytecode.machine import SWITCH, Machine
from lucerne._src.capture.bytecode.targets import find_in_class

# -- jumps ----------------------------------------------------------------------------------------


def jump(machine: Machine, frame: PythonFrame, target: int) -> None:
    frame.ip = target


def pop_jump_if_true(machine: Machine, frame: PythonFrame, target: int) -> bool:
    if asks_truth(machine, frame):
        return SWITCH
    if truth(machine, frame.stack[-1]):
        frame.ip = target
    frame.stack.pop()
    return False


def pop_jump_if_false(machine: Machine, frame: PythonFrame, target: int) -> bool:
    if asks_truth(machine, frame):
        return SWITCH
    if not truth(machine, frame.stack[-1]):
        frame.ip = target
    frame.stack.pop()
    return False


def pop_jump_if_none(machine: Machine, frame: PythonFrame, target: int) -> None:
    if frame.stack.pop() is None:
        frame.ip = target


def pop_jump_if_not_none(machine: Machine, frame: PythonFrame, target: int) -> None:
    if frame.stack.pop() is not None:
        frame.ip = target


def jump_if_true_or_pop(machine: Machine, frame: PythonFrame, target: int) -> bool:
    if asks_truth(machine, frame, (True, target)):
        return SWITCH
    if truth(machine, frame.stack[-1]):
        frame.ip = target
    else:
        frame.stack.pop()
    return False


def jump_if_false_or_pop(machine: Machine, frame: PythonFrame, target: int) -> bool:
    if asks_truth(machine, frame, (False, target)):
        return SWITCH
    if truth(machine, frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.ip = target
    return False


# -- loops ----------------------------------------------------------------------------------------


def get_iter(
    machine: Machine, frame: PythonFrame, arg: Any, above: tuple[Any, ...] = ()
) -> bool | None:
    """`above`: what lies above an iterator."""
    value = frame.stack[-1]
    link = Link("iterator", ("iter", "__iter__", name_in_full(type(value)), *above))
    if not machine.as_they_are:
        method = users_method(type(value), "__iter__")
        if method is not None and enter_method(machine, frame, method, (value,), 1, link):
            return SWITCH
        if method is None and _has_items_only(type(value)):
            callee = machine.try_frame(items_, (value,), {}, link)  # type: ignore[arg-type]
            if callee is not None:
                machine.enter(callee)
                frame.stack.pop()
                return SWITCH
    frame.stack[-1:] = [iter(value), *above]
    return None


def get_iter_15(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    """3.15: with an empty place above. (Python itself counts there, for lists and the like.)"""
    return get_iter(machine, frame, arg, (UNSET,))


def _has_items_only(kind: type) -> bool:
    """Whether objects of a class are gone through by the user's `__getitem__`."""
    known = find_in_class(kind, "__iter__") is not None
    return not known and users_method(kind, "__getitem__") is not None


@link_rule("iterator")
def _iterator(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """The user's `__iter__` has returned; `data`: who asked, the method, its class, and what lies
    above an iterator."""
    if delivery is Delivery.RAISE:
        return False
    if not hasattr(type(value), "__next__"):
        wrong_answer(data[:3], value)
    frame.stack += [value, *data[3:]]
    return True


def for_iter(machine: Machine, frame: PythonFrame, target: int) -> bool | None:
    iterator = iterator_on(frame.stack)
    after = target + frame.decoded.table.after_loop
    if not machine.as_they_are:
        if type(iterator) is PythonGenerator:
            if iterator.frame is not None and not iterator.running:
                return machine.enter(iterator.resume(None, Link("for", (after,))))
        else:
            method = users_method(type(iterator), "__next__")
            if method is not None and enter_method(
                machine, frame, method, (iterator,), 0, Link("for next", (after,))
            ):
                return SWITCH
    try:
        value = iterator.__next__()
    except StopIteration:
        drop_iterator(frame.stack)
        frame.ip = after
    else:
        frame.stack.append(value)
    return None


@link_rule("for next")
def _for_next(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """The user's `__next__` has returned or raised."""
    if delivery is not Delivery.RAISE:
        frame.stack.append(value)
        return True
    if not is_a(value, StopIteration):
        return False
    drop_iterator(frame.stack)
    frame.ip = data[0]
    return True


def end_for(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """Never reached: the end of a loop passes over it."""
    frame.stack.pop()


def pop_iter(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """A loop is left before its end."""
    drop_iterator(frame.stack)


# -- generators -----------------------------------------------------------------------------------


def return_generator(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    return machine.give(Delivery.RETURN, PythonGenerator(machine, frame))


def yield_value(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    return machine.give(Delivery.YIELD, frame.stack.pop())


def get_yield_from_iter(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    value = frame.stack[-1]
    if type(value) is not PythonGenerator:
        frame.stack[-1] = iter(value)


def get_yield_from_iter_15(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """3.15: with an empty place above."""
    get_yield_from_iter(machine, frame, arg)
    frame.stack.append(UNSET)


def send(machine: Machine, frame: PythonFrame, target: int) -> bool | None:
    stack = frame.stack
    receiver, value = iterator_on(stack, 1), stack[-1]
    ours = type(receiver) is PythonGenerator and not machine.as_they_are
    if ours and receiver.frame is not None and not receiver.running:
        receiver.check(value)
        machine.enter(receiver.resume(value, Link("send", (frame.last,))))
        stack.pop()
        return SWITCH
    try:
        answer = receiver.__next__() if value is None else receiver.send(value)
    except StopIteration as end:
        stack.pop()
        finish_send(frame, frame.last, end.value)
    else:
        stack[-1] = answer
    return None


def end_send(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    drop_iterator(frame.stack, 1)


def cleanup_throw(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """What was thrown into a `yield from`: the end of the inner iterator, or an error."""
    error = frame.stack[-1]
    if isinstance(error, StopIteration):
        frame.stack[-2:] = [error.value]  # (the iterator is what END_SEND removes)
        return
    machine.raise_again(error)


# -- returning ------------------------------------------------------------------------------------


def return_value(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    return machine.give(Delivery.RETURN, frame.stack.pop())


def return_const(machine: Machine, frame: PythonFrame, value: Any) -> bool:
    return machine.give(Delivery.RETURN, value)
