"""Constants, variables, the stack: instructions that only move values.

All handlers look at their operands first, do their work, and take the operands off the stack at
the end: whatever raises or stops in between leaves the frame as it was before the instruction.
"""

from __future__ import annotations

from types import CellType
from typing import Any

from lucerne._src.base.process.lazy_imports import global_in
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.bytecode.hooks import NOTHING, Access
from lucerne._src.capture.bytecode.machine import Machine


def nothing(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """RESUME, NOP and others that are for the host only."""


# -- the stack ------------------------------------------------------------------------------------


def pop_top(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.pop()


def push_null(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(UNSET)


def copy(machine: Machine, frame: PythonFrame, arg: int) -> None:
    frame.stack.append(frame.stack[-arg])


def swap(machine: Machine, frame: PythonFrame, arg: int) -> None:
    stack = frame.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


def load_const(machine: Machine, frame: PythonFrame, value: Any) -> None:
    frame.stack.append(value)


def load_assertion_error(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(AssertionError)


def load_build_class(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(frame.builtins["__build_class__"])


# -- local variables ------------------------------------------------------------------------------


def load_fast(machine: Machine, frame: PythonFrame, slot: int) -> None:
    value = frame.slots[slot]
    if value is UNSET:
        raise _unbound(frame, slot)
    frame.stack.append(value)


def load_fast_raw(machine: Machine, frame: PythonFrame, slot: int) -> None:
    """LOAD_CLOSURE: the cell itself."""
    frame.stack.append(frame.slots[slot])


def load_fast_and_clear(machine: Machine, frame: PythonFrame, slot: int) -> None:
    frame.stack.append(frame.slots[slot])
    frame.slots[slot] = UNSET


def store_fast(machine: Machine, frame: PythonFrame, slot: int) -> None:
    frame.slots[slot] = frame.stack.pop()


def delete_fast(machine: Machine, frame: PythonFrame, slot: int) -> None:
    if frame.slots[slot] is UNSET:
        raise _unbound(frame, slot)
    frame.slots[slot] = UNSET


def load_fast_load_fast(machine: Machine, frame: PythonFrame, pair: int) -> None:
    load_fast(machine, frame, pair >> 4)
    load_fast(machine, frame, pair & 15)


def store_fast_load_fast(machine: Machine, frame: PythonFrame, pair: int) -> None:
    store_fast(machine, frame, pair >> 4)
    load_fast(machine, frame, pair & 15)


def store_fast_store_fast(machine: Machine, frame: PythonFrame, pair: int) -> None:
    store_fast(machine, frame, pair >> 4)
    store_fast(machine, frame, pair & 15)


def _unbound(frame: PythonFrame, slot: int) -> UnboundLocalError:
    name = frame.decoded.slot_names[slot]
    return UnboundLocalError(
        f"cannot access local variable '{name}' where it is not associated with a value"
    )


# -- cells ----------------------------------------------------------------------------------------


def make_cell(machine: Machine, frame: PythonFrame, slot: int) -> None:
    value = frame.slots[slot]
    frame.slots[slot] = CellType() if value is UNSET else CellType(value)


def copy_free_vars(machine: Machine, frame: PythonFrame, count: int) -> None:
    closure = frame.fn.__closure__ or ()
    frame.slots[len(frame.slots) - count :] = closure


def load_deref(machine: Machine, frame: PythonFrame, slot: int) -> None:
    cell = frame.slots[slot]
    try:
        value = cell.cell_contents
    except ValueError:
        raise _unbound_cell(frame, slot) from None
    name = frame.decoded.slot_names[slot]
    if not machine.as_they_are:
        value = machine.hooks.read(cell, name, value, Access.CELL)
    frame.stack.append(value)


def store_deref(machine: Machine, frame: PythonFrame, slot: int) -> None:
    cell = frame.slots[slot]
    _tell_cell(machine, frame, slot, frame.stack[-1])
    cell.cell_contents = frame.stack[-1]
    frame.stack.pop()


def delete_deref(machine: Machine, frame: PythonFrame, slot: int) -> None:
    cell = frame.slots[slot]
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        raise _unbound_cell(frame, slot) from None
    _tell_cell(machine, frame, slot, NOTHING)
    del cell.cell_contents


def _tell_cell(machine: Machine, frame: PythonFrame, slot: int, new: Any) -> None:
    if machine.as_they_are:
        return
    cell = frame.slots[slot]
    try:
        old = cell.cell_contents
    except ValueError:
        old = NOTHING
    machine.hooks.write(cell, frame.decoded.slot_names[slot], old, new, Access.CELL)


def _unbound_cell(frame: PythonFrame, slot: int) -> NameError:
    name = frame.decoded.slot_names[slot]
    if name in frame.code.co_freevars:
        return NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in "
            "enclosing scope"
        )
    return _unbound(frame, slot)


# -- globals --------------------------------------------------------------------------------------


def global_value(machine: Machine, frame: PythonFrame, name: str) -> Any:
    """A global variable, or a builtin of that name."""
    space = frame.globals
    value = global_in(space, name, NOTHING)
    if value is NOTHING:
        space = frame.builtins
        value = space.get(name, NOTHING)
        if value is NOTHING:
            raise NameError(f"name '{name}' is not defined", name=name)
    if machine.as_they_are:
        return value
    return machine.hooks.read(space, name, value, Access.GLOBAL)


def load_global(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> None:
    """3.11 and 3.12: an empty place below the value, if it is to be called."""
    flags, name = both
    value = global_value(machine, frame, name)
    if flags & 1:
        frame.stack.append(UNSET)
    frame.stack.append(value)


def load_global_first(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> None:
    """3.13: an empty place above the value, if it is to be called."""
    flags, name = both
    frame.stack.append(global_value(machine, frame, name))
    if flags & 1:
        frame.stack.append(UNSET)


def store_global(machine: Machine, frame: PythonFrame, name: str) -> None:
    value = frame.stack[-1]
    if not machine.as_they_are:
        old = frame.globals.get(name, NOTHING)
        machine.hooks.write(frame.globals, name, old, value, Access.GLOBAL)
    frame.globals[name] = value
    frame.stack.pop()


def delete_global(machine: Machine, frame: PythonFrame, name: str) -> None:
    if name not in frame.globals:
        raise NameError(f"name '{name}' is not defined", name=name)
    if not machine.as_they_are:
        old = frame.globals[name]
        machine.hooks.write(frame.globals, name, old, NOTHING, Access.GLOBAL)
    del frame.globals[name]
