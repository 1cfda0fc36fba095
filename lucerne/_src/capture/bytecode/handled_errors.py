"""Handled errors: would the user's code go on if an op raised here?

A `try` whose `except` catches it, a `finally` that returns, a `with` whose manager swallows it: the
function goes on, and sees what was done before. Answered from the bytecode of the handlers around
an instruction, from the innermost outwards, without running any of it. Where nobody can tell, the
answer is yes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import FunctionType, GeneratorType, MethodType
from typing import Any

from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.decode import Decoded, Opcode, decode
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.bytecode.registry import current_table
from lucerne._src.capture.bytecode.targets import find_in_class

RAISED = (RuntimeError, IndexError, ValueError, ZeroDivisionError)
"""What ops raise for the values of their operands."""


@dataclass
class _Place:
    """Where a function is, and what its handlers see."""

    decoded: Decoded
    at: int
    globals: Mapping[str, Any]
    builtins: Mapping[str, Any]
    stack: list[Any] | None
    """None: nobody knows it (a generator that Python runs)."""


def goes_on(frame: PythonFrame) -> bool:
    """Whether the user's code in a frame would go on after what an op raises in it.

    The package lets its errors through.
    """
    if not is_users(frame.code):
        return False
    return _goes_on(_Place(frame.decoded, frame.last, frame.globals, frame.builtins, frame.stack))


def _goes_on(place: _Place) -> bool:
    decoded, at = place.decoded, place.at
    for _ in range(len(decoded.ops)):
        region = decoded.region(at)
        if region is None:
            return False
        again = _raised_again(place, region.target, region.depth)
        if again is None:
            return True
        at = again
    return True


def _raised_again(place: _Place, target: int, depth: int) -> int | None:
    """The instruction at the end of a handler that raises the same error again; None: there may be
    none, since the handler ends the error."""
    ops = place.decoded.ops
    first = target + 1
    if ops[target].name != "PUSH_EXC_INFO":  # puts variables of a comprehension back, or the like
        return _reraise(ops, target)
    if ops[first].name == "WITH_EXCEPT_START":
        swallows = place.stack is None or _may_swallow(_exit_on(place.stack, depth))
        return None if swallows else _reraise(ops, first)
    if ops[first].name == "POP_TOP":  # a bare `except:`
        return None
    at = _after_loads(ops, first)
    if ops[at].name != "CHECK_EXC_MATCH":
        return _end_of_finally(place.decoded, first)
    clause = first
    while ops[at].name == "CHECK_EXC_MATCH":
        if at - clause != 1 or _may_catch(place, ops[clause]):
            return None
        clause = ops[at + 1].argument  # where the next clause begins
        at = _after_loads(ops, clause)
    return _reraise(ops, clause)


def _after_loads(ops: list[Opcode], at: int) -> int:
    """Where the instructions end that load the class of an `except` clause."""
    while ops[at].name.startswith(("LOAD_", "BUILD_TUPLE", "NOP", "NOT_TAKEN")):
        at += 1
    return at


def _reraise(ops: list[Opcode], at: int) -> int | None:
    for k in range(at, len(ops)):
        if ops[k].name == "RERAISE":
            return k
    return None


def _end_of_finally(decoded: Decoded, first: int) -> int | None:
    """Where a `finally` raises the error again; None: it returns or leaves a loop, which ends the
    error (POP_EXCEPT before the end), or it is an `except*`."""
    ops, region = decoded.ops, decoded.region(first)
    if region is None or region.target < first or ops[region.target].name != "COPY":
        return None
    body = ops[first : region.target]
    if any(op.name in ("POP_EXCEPT", "CHECK_EG_MATCH") for op in body):
        return None
    return _reraise(ops, region.target)


def _may_catch(place: _Place, op: Opcode) -> bool:
    """Whether `except NAME` catches what ops raise; true if nobody can tell."""
    name = op.argument[-1] if type(op.argument) is tuple else op.argument
    found = place.globals.get(name, place.builtins.get(name)) if type(name) is str else None
    if op.name != "LOAD_GLOBAL" or not isinstance(found, type):
        return True
    return any(issubclass(kind, found) or issubclass(found, kind) for kind in RAISED)


# ---- with ---------------------------------------------------------------------------------------


def _exit_on(stack: list[Any], depth: int) -> Any:
    """`__exit__` of the manager, bound. From Python 3.14 on the place above it is empty."""
    top = stack[depth - 1]
    return stack[depth - 2] if top is UNSET else top


def _may_swallow(leave: Any) -> bool:
    """Whether the exit of a manager may end an error."""
    if type(leave) is FunctionType:  # a callback of an `ExitStack`
        return _may_return_true(leave)
    if type(leave) is not MethodType:
        return not _is_native_of_python(leave)
    fn, manager = leave.__func__, leave.__self__
    if type(fn) is not FunctionType:
        return True
    if not is_users(fn.__code__):
        return False
    if fn is ExitStack.__exit__:
        return any(_may_swallow(callback) for _, callback in vars(manager)["_exit_callbacks"])
    if fn.__module__ == "contextlib" and "gen" in vars(manager):
        return _generator_goes_on(vars(manager)["gen"])
    return _may_return_true(fn)


def _is_native_of_python(leave: Any) -> bool:
    """Locks, files and the like: none of what comes with Python ends an error."""
    owner = getattr(leave, "__self__", None)
    if owner is None or find_in_class(type(owner), "__exit__") is None:
        return False
    return type(owner).__module__.partition(".")[0] in sys.stdlib_module_names


def _may_return_true(fn: FunctionType) -> bool:
    """Whether a function may return something else than None or False."""
    decoded = decode(fn.__code__, current_table())
    if isinstance(decoded, str):
        return True
    ops = decoded.ops
    for k, op in enumerate(ops):
        if op.name == "RETURN_CONST":
            returned = op
        elif op.name == "RETURN_VALUE":
            returned = ops[k - 1]
        else:
            continue
        if not returned.name.endswith("_CONST") or returned.argument not in (None, False):
            return True
    return False


def _generator_goes_on(generator: Any) -> bool:
    """Whether a generator would go on if an error came out of its `yield`."""
    if not is_users(generator.gi_code):
        return False
    frame = generator.gi_frame
    if frame is None:
        return True
    if is_a(frame, PythonFrame):
        return goes_on(frame)
    if type(generator) is not GeneratorType:
        return True
    decoded = decode(generator.gi_code, current_table())
    if isinstance(decoded, str):
        return True
    at = decoded.positions.get(frame.f_lasti)
    if at is None:
        return True
    return _goes_on(_Place(decoded, at, frame.f_globals, frame.f_builtins, None))
