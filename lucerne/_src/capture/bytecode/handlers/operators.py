"""Operators, comparisons and truth."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from types import FunctionType
from typing import Any

from lucerne._src.capture.bytecode.calls import enter_method, users_method
from lucerne._src.capture.bytecode.frame import PUSH, Link, PythonFrame
from lucerne._src.capture.bytecode.hooks import NOTHING, Access
from lucerne._src.capture.bytecode.links import Delivery, link_rule, name_in_full, wrong_answer
from lucerne._src.capture.bytecode.machine import Machine
from lucerne._src.capture.bytecode.targets import find_in_class

_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod",
    "**": "pow", "@": "matmul", "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor",
}  # fmt: skip
_COMPARED = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def _functions() -> dict[str, Callable[[Any, Any], Any]]:
    found = {}
    for symbol, name in _NAMES.items():
        found[symbol] = getattr(operator, f"__{name}__")
        found[symbol + "="] = getattr(operator, f"__i{name}__")
    return found


BINARY = _functions()
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    symbol: getattr(operator, name) for symbol, name in _COMPARED.items()
}


def binary_op(machine: Machine, frame: PythonFrame, symbol: str) -> bool | None:
    stack = frame.stack
    left, right = stack[-2], stack[-1]
    if not machine.as_they_are:
        if symbol in _NAMES:
            method = _special(left, right, f"__{_NAMES[symbol]}__")
            if method is not None and enter_method(
                machine, frame, method, (left, right), 2, Link("operator", (left, right, symbol))
            ):
                return True
        elif _in_place(machine, frame, left, right, symbol):
            return True
        if _enter_right(machine, frame, left, right, symbol):
            return True
    result = BINARY[symbol](left, right)
    if type(result) is dict and result is not left:
        machine.hooks.made(result)
    stack[-2:] = [result]
    return None


def _in_place(machine: Machine, frame: PythonFrame, left: Any, right: Any, symbol: str) -> bool:
    """`+=` and the like: enter the user's method, or tell that a container changes."""
    name = f"__i{_NAMES[symbol[:-1]]}__"
    method = users_method(type(left), name)
    if method is not None:
        link = Link("operator", (left, right, symbol))
        return enter_method(machine, frame, method, (left, right), 2, link)
    if issubclass(type(left), list | dict | set | deque | bytearray) and hasattr(left, name):
        machine.hooks.write(left, name, NOTHING, ((right,), {}), Access.METHOD)
    return False


_PLAIN = frozenset((int, float, bool, complex, str, bytes, list, tuple, dict, set, type(None)))


def _enter_right(machine: Machine, frame: PythonFrame, left: Any, right: Any, symbol: str) -> bool:
    """Whether the right operand's method was entered. Only if the left one is of a builtin type
    that knows nothing of the right one's class."""
    kind = type(right)
    if type(left) not in _PLAIN or kind in _PLAIN or issubclass(kind, type(left)):
        return False
    if symbol in _COMPARED:
        name = f"__{_COMPARED[_MIRRORED[symbol]]}__"
    else:
        name = f"__r{_NAMES[symbol.removesuffix('=')]}__"
    method = users_method(kind, name)
    link = Link("last operator", (left, right, symbol))
    return method is not None and enter_method(machine, frame, method, (right, left), 2, link)


@link_rule("last operator")
def _last(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """The right operand's method has answered: there is nobody else to ask."""
    if delivery is Delivery.RAISE:
        return False
    left, right, symbol = data
    frame.stack.append(_unanswered(left, right, symbol) if value is NotImplemented else value)
    return True


def _special(left: Any, right: Any, name: str) -> FunctionType | None:
    """The left operand's method, if Python would ask it first and it is written in Python."""
    kind, other = type(left), type(right)
    found = find_in_class(kind, name)
    if type(found) is not FunctionType:
        return None
    if other is not kind and issubclass(other, kind):
        return None  # the right operand may come first
    return found


@link_rule("operator")
def _operator(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """The left operand's method has answered; the right one's is asked if it can't say."""
    if delivery is Delivery.RAISE:
        return False
    left, right, symbol = data
    if value is NotImplemented and symbol in BINARY and symbol not in _NAMES:
        value = BINARY[symbol[:-1]](left, right)
    elif value is NotImplemented:
        value = _reflected(left, right, symbol)
    frame.stack.append(value)
    return True


def _reflected(left: Any, right: Any, symbol: str) -> Any:
    compared = symbol in _COMPARED
    if compared:
        name = f"__{_COMPARED[_MIRRORED[symbol]]}__"
    else:
        name = f"__r{_NAMES[symbol]}__"
    method = find_in_class(type(right), name)
    value: Any = NotImplemented
    if method is not None and (compared or type(left) is not type(right)):
        value = method.__get__(right, type(right))(left)
    return _unanswered(left, right, symbol) if value is NotImplemented else value


def _unanswered(left: Any, right: Any, symbol: str) -> Any:
    """What Python does if neither operand knows the operator."""
    if symbol in ("==", "!="):
        return (left is right) == (symbol == "==")
    kinds = f"'{type(left).__name__}' and '{type(right).__name__}'"
    if symbol in _COMPARED:
        raise TypeError(f"'{symbol}' not supported between instances of {kinds}")
    shown = "** or pow()" if symbol == "**" else symbol
    raise TypeError(f"unsupported operand type(s) for {shown}: {kinds}")


def compare_op(machine: Machine, frame: PythonFrame, symbol: str) -> bool | None:
    stack = frame.stack
    left, right = stack[-2], stack[-1]
    if not machine.as_they_are:
        method = _special(left, right, f"__{_COMPARED[symbol]}__")
        if method is not None and enter_method(
            machine, frame, method, (left, right), 2, Link("operator", (left, right, symbol))
        ):
            return True
        if _enter_right(machine, frame, left, right, symbol):
            return True
    result = COMPARE[symbol](left, right)
    stack[-2:] = [result]
    return None


def compare_op_13(machine: Machine, frame: PythonFrame, text: str) -> bool | None:
    """3.13: "bool(<)" gives the truth of the comparison."""
    if not text.startswith("bool("):
        return compare_op(machine, frame, text)
    stack = frame.stack
    result = COMPARE[text[5:-1]](stack[-2], stack[-1])
    stack[-2:] = [truth(machine, result)]
    return None


def is_op(machine: Machine, frame: PythonFrame, negated: int) -> None:
    stack = frame.stack
    left, right = stack[-2], stack[-1]
    same = left is right if machine.as_they_are else machine.hooks.same(left, right)
    stack[-2:] = [same != bool(negated)]


def contains_op(machine: Machine, frame: PythonFrame, negated: int) -> bool:
    stack = frame.stack
    value, container = stack[-2], stack[-1]
    if not machine.as_they_are:
        method = users_method(type(container), "__contains__")
        link = Link("contains", (bool(negated),))
        if method is not None and enter_method(machine, frame, method, (container, value), 2, link):
            return True
    stack[-2:] = [(value in container) != bool(negated)]
    return False


@link_rule("contains")
def _contains(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """The user's `__contains__` has answered; `data`: whether its contrary is wanted."""
    if delivery is Delivery.RAISE:
        return False
    frame.stack.append(bool(value) != data[0])  # nobody is asked: the operands are gone
    return True


def asks_truth(machine: Machine, frame: PythonFrame, keep: tuple[bool, int] | None = None) -> bool:
    """Whether the user's `__bool__` or `__len__` was entered for the value on top of the stack; its
    answer takes the value's place, and the instruction is executed again. `keep`: (truth, target)
    of a jump that keeps the value (`and`, `or` of Python 3.11); it is dropped otherwise."""
    value = frame.stack[-1]
    if value is True or value is False or value is None or machine.as_they_are:
        return False
    kind = type(value)
    if find_in_class(kind, "__bool__") is not None:
        method, name = users_method(kind, "__bool__"), "__bool__"
    else:
        method, name = users_method(kind, "__len__"), "__len__"
    link = Link("truth", (name,)) if keep is None else Link("kept truth", (name, *keep))
    return method is not None and enter_method(machine, frame, method, (value,), 0, link)


@link_rule("truth")
def _truth(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    if delivery is Delivery.RAISE:
        return False
    if data[0] == "__len__":
        if operator.index(value) < 0:
            raise ValueError("__len__() should return >= 0")
    elif type(value) is not bool:
        wrong_answer(("bool", "__bool__", name_in_full(type(frame.stack[-1]))), value)
    frame.stack[-1] = bool(value)
    frame.ip = frame.last
    return True


@link_rule("kept truth")
def _kept(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    kept = frame.stack[-1]
    if not _truth(machine, frame, data[:1], delivery, value):
        return False
    _, wanted, target = data
    if frame.stack.pop() is wanted:
        frame.stack.append(kept)
        frame.ip = target
    else:
        frame.ip = frame.last + 1
    return True


def truth(machine: Machine, value: Any) -> bool:
    """Whether a value is true, for a branch."""
    if value is True or value is False:
        return value
    if value is not None and not machine.as_they_are:
        stop = machine.hooks.before_branch(value)
        if stop is not None:
            raise stop
    return bool(value)


def unary_not(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    if asks_truth(machine, frame):
        return True
    frame.stack[-1] = not truth(machine, frame.stack[-1])
    return False


def to_bool(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    if asks_truth(machine, frame):
        return True
    frame.stack[-1] = truth(machine, frame.stack[-1])
    return False


def _unary(
    name: str, function: Callable[[Any], Any]
) -> Callable[[Machine, PythonFrame, Any], bool]:
    def handler(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
        value = frame.stack[-1]
        if not machine.as_they_are:
            method = users_method(type(value), name)
            if method is not None and enter_method(machine, frame, method, (value,), 1, PUSH):
                return True
        frame.stack[-1] = function(value)
        return False

    return handler


unary_negative = _unary("__neg__", operator.neg)
unary_positive = _unary("__pos__", operator.pos)
unary_invert = _unary("__invert__", operator.invert)
