"""Building, unpacking and indexing of containers; strings; attributes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.attributes import attribute
from lucerne._src.capture.bytecode.calls import collect, enter_method, users_method
from lucerne._src.capture.bytecode.frame import PUSH, UNSET, Link, PythonFrame
from lucerne._src.capture.bytecode.generators import PythonGenerator
from lucerne._src.capture.bytecode.hooks import NOTHING, Access
from lucerne._src.capture.bytecode.links import Delivery, link_rule, name_in_full, wrong_answer
from lucerne._src.capture.bytecode.machine import Machine

_DROP = Link("drop")
TO_CALL = Link("to call")


def _take(frame: PythonFrame, count: int) -> list[Any]:
    stack = frame.stack
    values = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return values


# -- building -------------------------------------------------------------------------------------


def build_tuple(machine: Machine, frame: PythonFrame, count: int) -> None:
    frame.stack.append(tuple(_take(frame, count)))


def build_list(machine: Machine, frame: PythonFrame, count: int) -> None:
    frame.stack.append(_take(frame, count))


def build_set(machine: Machine, frame: PythonFrame, count: int) -> None:
    stack = frame.stack
    made = set(stack[len(stack) - count :])
    _take(frame, count)
    stack.append(made)


def build_map(machine: Machine, frame: PythonFrame, count: int) -> None:
    stack = frame.stack
    values = stack[len(stack) - 2 * count :]
    made = dict(zip(values[::2], values[1::2], strict=True))
    machine.hooks.made(made)
    _take(frame, 2 * count)
    stack.append(made)


def build_const_key_map(machine: Machine, frame: PythonFrame, count: int) -> None:
    keys = frame.stack.pop()
    made = dict(zip(keys, _take(frame, count), strict=True))
    machine.hooks.made(made)
    frame.stack.append(made)


def build_string(machine: Machine, frame: PythonFrame, count: int) -> None:
    frame.stack.append("".join(_take(frame, count)))


def build_slice(machine: Machine, frame: PythonFrame, count: int) -> None:
    frame.stack.append(slice(*_take(frame, count)))


def list_append(machine: Machine, frame: PythonFrame, depth: int) -> None:
    frame.stack[-depth - 1].append(frame.stack[-1])
    frame.stack.pop()


def set_add(machine: Machine, frame: PythonFrame, depth: int) -> None:
    frame.stack[-depth - 1].add(frame.stack[-1])
    frame.stack.pop()


def map_add(machine: Machine, frame: PythonFrame, depth: int) -> None:
    stack = frame.stack
    stack[-depth - 2][stack[-2]] = stack[-1]
    del stack[-2:]


def list_extend(machine: Machine, frame: PythonFrame, depth: int) -> bool:
    """Of a list that is being built (`[*a, *b]`); nobody else has it yet."""
    value = frame.stack[-1]
    kind = type(value)
    if kind is PythonGenerator and collect(machine, frame, value, None):
        return True
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        raise TypeError(f"Value after * must be an iterable, not {kind.__name__}")
    frame.stack[-depth - 1].extend(list(value))
    frame.stack.pop()
    return False


def list_to_tuple(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack[-1] = tuple(frame.stack[-1])


def set_update(machine: Machine, frame: PythonFrame, depth: int) -> None:
    frame.stack[-depth - 1].update(set(frame.stack[-1]))
    frame.stack.pop()


def dict_update(machine: Machine, frame: PythonFrame, depth: int) -> None:
    value = frame.stack[-1]
    if not hasattr(type(value), "keys"):
        raise TypeError(f"'{type(value).__name__}' object is not a mapping")
    frame.stack[-depth - 1].update(value)
    frame.stack.pop()


# -- unpacking ------------------------------------------------------------------------------------


def unpack_sequence(
    machine: Machine, frame: PythonFrame, count: int, counted: tuple[type, ...] = ()
) -> bool:
    """`counted`: types of which the error says how many there are."""
    stack = frame.stack
    value = stack[-1]
    if type(value) is PythonGenerator and collect(machine, frame, value, count):
        return True
    if type(value) is tuple or type(value) is list:
        values = list(value)
    else:
        values = _first(value, count + 1)
    if len(values) > count:
        got = f", got {len(value)}" if type(value) in counted else ""
        raise ValueError(f"too many values to unpack (expected {count}{got})")
    if len(values) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(values)})")
    stack[-1:] = values[::-1]
    return False


def unpack_sequence_14(machine: Machine, frame: PythonFrame, count: int) -> bool:
    """3.14."""
    return unpack_sequence(machine, frame, count, (tuple, list, dict))


def _first(value: Any, count: int) -> list[Any]:
    """The first values of what is to be unpacked."""
    kind = type(value)
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {kind.__name__} object")
    found = []
    for one in iter(value):
        found.append(one)
        if len(found) == count:
            break
    return found


def unpack_ex(machine: Machine, frame: PythonFrame, counts: int) -> bool:
    before, after = counts & 255, counts >> 8
    value = frame.stack[-1]
    kind = type(value)
    if kind is PythonGenerator and collect(machine, frame, value, None):
        return True
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {kind.__name__} object")
    values = list(value)
    if len(values) < before + after:
        raise ValueError(
            f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
        )
    last = len(values) - after
    parts = [*values[:before], values[before:last], *values[last:]]
    frame.stack[-1:] = parts[::-1]
    return False


# -- items ----------------------------------------------------------------------------------------


def binary_subscr(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    stack = frame.stack
    owner, key = stack[-2], stack[-1]
    if not machine.as_they_are:
        method = users_method(type(owner), "__getitem__")
        if method is None and issubclass(type(owner), dict):
            method = users_method(type(owner), "__missing__")
            if method is not None and dict.__contains__(owner, key):
                method = None
        if method is not None and enter_method(machine, frame, method, (owner, key), 2, PUSH):
            return True
    stack[-2:] = [_item(machine, owner, key)]
    return None


def _item(machine: Machine, owner: Any, key: Any) -> Any:
    if is_a(owner, defaultdict) and not machine.as_they_are:
        makes = owner.default_factory is not None and not dict.__contains__(owner, key)
        if makes:  # asking for what is not there writes
            machine.hooks.write(owner, "__missing__", NOTHING, ((key,), {}), Access.METHOD)
    value = owner[key]
    return value if machine.as_they_are else machine.hooks.read(owner, key, value, Access.ITEM)


def binary_slice(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    stack = frame.stack
    stack[-3:] = [_item(machine, stack[-3], slice(stack[-2], stack[-1]))]


def store_subscr(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    value, owner, key = frame.stack[-3:]
    if not machine.as_they_are:
        method = users_method(type(owner), "__setitem__")
        if method is not None and enter_method(
            machine, frame, method, (owner, key, value), 3, _DROP
        ):
            return True
    _tell_item(machine, owner, key, value)
    owner[key] = value
    del frame.stack[-3:]
    return None


def store_slice(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    value, owner, start, end = frame.stack[-4:]
    key = slice(start, end)
    _tell_item(machine, owner, key, value)
    owner[key] = value
    del frame.stack[-4:]


def delete_subscr(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    owner, key = frame.stack[-2:]
    if not machine.as_they_are:
        method = users_method(type(owner), "__delitem__")
        if method is not None and enter_method(machine, frame, method, (owner, key), 2, _DROP):
            return True
    _tell_item(machine, owner, key, NOTHING)
    del owner[key]
    del frame.stack[-2:]
    return None


_HASHED_NATIVELY = frozenset((int, str, float, bool, bytes, type(None)))
"""Keys that can be looked up without asking anything of the user's."""


def _tell_item(machine: Machine, owner: Any, key: Any, new: Any) -> None:
    if machine.as_they_are:
        return
    old: Any = NOTHING
    if issubclass(type(owner), dict | list) and type(key) in _HASHED_NATIVELY:
        try:
            kind: Any = dict if issubclass(type(owner), dict) else list
            old = kind.__getitem__(owner, key)
        except (LookupError, TypeError):
            old = NOTHING
    machine.hooks.write(owner, key, old, new, Access.ITEM)


# -- attributes -----------------------------------------------------------------------------------


def load_attr(machine: Machine, frame: PythonFrame, name: str) -> bool:
    """3.11."""
    return attribute(machine, frame, name)


def load_method(machine: Machine, frame: PythonFrame, name: str) -> bool:
    """3.11: the place for a method that is not bound yet stays empty."""
    owner = frame.stack[-1]
    frame.stack[-1:] = [UNSET, owner]
    try:
        return attribute(machine, frame, name)
    except BaseException:
        frame.stack[-2:] = [owner]
        raise


def load_attr_12(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> bool:
    """3.12: as LOAD_METHOD, if the lowest bit is set."""
    flags, name = both
    return load_method(machine, frame, name) if flags & 1 else attribute(machine, frame, name)


def load_attr_13(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> bool:
    """3.13: the empty place is above the value."""
    flags, name = both
    if not flags & 1:
        return attribute(machine, frame, name)
    if attribute(machine, frame, name, TO_CALL):
        return True
    frame.stack.append(UNSET)
    return False


@link_rule("to call")
def _to_call(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """A getter has returned what will be called."""
    if delivery is Delivery.RAISE:
        return False
    frame.stack += [value, UNSET]
    return True


# -- strings --------------------------------------------------------------------------------------

_CONVERSIONS: tuple[Any, ...] = (None, str, repr, ascii)


def _text_method(kind: Any, asking: str) -> str:
    """The method that `str` or `repr` comes to."""
    alone = asking == "str" and kind.__str__ is object.__str__
    return "__repr__" if alone else f"__{asking}__"


def _enter_text(
    machine: Machine, frame: PythonFrame, value: Any, convert: Any, spec: Any, taken: int
) -> bool:
    """Whether the user's method that makes text of a value was entered."""
    if machine.as_they_are:
        return False
    kind: Any = type(value)
    args: tuple[Any, ...] = (value,)
    if convert is not None:
        if convert is ascii:
            return False
        asking = convert.__name__
    elif kind.__format__ is object.__format__ and not spec:
        asking = "str"
    else:
        asking, args, spec = "format", (value, "" if spec is None else spec), None
    name = _text_method(kind, asking)
    method = users_method(kind, name)
    link = Link("formatted", (spec, asking, name, name_in_full(kind)))
    return method is not None and enter_method(machine, frame, method, args, taken, link)


@link_rule("formatted")
def _formatted(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """A method of the user's has made text; `data`: how it is to be formatted."""
    if delivery is Delivery.RAISE:
        return False
    if not is_a(value, str):
        wrong_answer(data[1:], value)
    frame.stack.append(value if not data[0] else format(value, data[0]))
    return True


def format_value(machine: Machine, frame: PythonFrame, flags: int) -> bool:
    stack = frame.stack
    taken = 2 if flags & 4 else 1
    value, spec = stack[-taken], stack[-1] if flags & 4 else None
    convert = _CONVERSIONS[flags & 3]
    if _enter_text(machine, frame, value, convert, spec, taken):
        return True
    if convert is not None:
        value = convert(value)
    stack[-taken:] = [format(value, "" if spec is None else spec)]
    return False


def convert_value(machine: Machine, frame: PythonFrame, flags: int) -> bool:
    value, convert = frame.stack[-1], _CONVERSIONS[flags]
    if _enter_text(machine, frame, value, convert, None, 1):
        return True
    frame.stack[-1] = convert(value)
    return False


def format_simple(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    return format_value(machine, frame, 0)


def format_with_spec(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    return format_value(machine, frame, 4)
