"""Reading and writing attributes, the user's own ways to do it included.

A property, a descriptor, `__getattr__` or `__setattr__` that is written in Python is entered like
any function; `getattr`, `hasattr` and `setattr` do the same as the instructions.
"""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.calls import BY_NAME, enter_method, users_method
from lucerne._src.capture.bytecode.frame import PUSH, Link, PythonFrame
from lucerne._src.capture.bytecode.hooks import INLINE, NOTHING, Access, Stop
from lucerne._src.capture.bytecode.links import RULES, Delivery, link_rule
from lucerne._src.capture.bytecode.machine import Machine
from lucerne._src.capture.bytecode.special import old_attribute
from lucerne._src.capture.bytecode.targets import find_in_class
from lucerne._src.tensor.subclasses.own_names import OwnField

_DROP = Link("drop")
_COMMON = frozenset(
    (
        FunctionType, BuiltinFunctionType, staticmethod, classmethod, MethodDescriptorType,
        WrapperDescriptorType, MemberDescriptorType, GetSetDescriptorType, int, str, bool, float,
        type(None), tuple, list, dict, set,
    )
)  # fmt: skip
"""What mostly stands in classes, and is none of the user's descriptors."""


def _own(owner: Any) -> Any:
    """An object's `__dict__`, or an empty one."""
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}


def getter_of(owner: Any, name: str) -> tuple[Any, tuple[Any, ...]] | None:
    """The user's function, with its arguments, that says what an attribute is; None: Python
    itself knows."""
    kind: Any = type(owner)
    if kind is super:
        return _getter_above(owner, name)
    # Not `isinstance(owner, ...)`: that may ask the user's `__getattribute__` for `__class__`.
    if issubclass(kind, type):
        return None if kind is type else _getter_of_class(owner, kind, name)
    if issubclass(kind, ModuleType):
        return None
    if kind.__getattribute__ is not object.__getattribute__:
        method = users_method(kind, "__getattribute__")
        return None if method is None else (method, (owner, name))
    found = find_in_class(kind, name)
    if type(found) is property:
        return _getter_in(found, owner)
    if found is None:
        method = users_method(kind, "__getattr__")
        return None if method is None or name in _own(owner) else (method, (owner, name))
    if type(found) in _COMMON:
        return None
    method = users_method(type(found), "__get__")
    if method is None:
        return None
    first = hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")
    return (method, (found, owner, kind)) if first or name not in _own(owner) else None


def _getter_in(found: property, owner: Any) -> tuple[Any, tuple[Any, ...]] | None:
    return (found.fget, (owner,)) if type(found.fget) is FunctionType else None


def _getter_of_class(owner: type, kind: Any, name: str) -> tuple[Any, tuple[Any, ...]] | None:
    """The getter that a metaclass of the user's has for an attribute of a class."""
    if kind.__getattribute__ is not type.__getattribute__:
        return None
    found = find_in_class(kind, name)
    if type(found) is property:
        return _getter_in(found, owner)
    if found is None and find_in_class(owner, name) is None:
        method = users_method(kind, "__getattr__")
        return None if method is None else (method, (owner, name))
    return None


def _getter_above(above: Any, name: str) -> tuple[Any, tuple[Any, ...]] | None:
    """The getter of a property that is reached by `super()`."""
    owner, kinds = above.__self__, above.__self_class__.__mro__
    if owner is None or issubclass(type(owner), type):
        return None
    for kind in kinds[kinds.index(above.__thisclass__) + 1 :]:
        if name in kind.__dict__:
            found = kind.__dict__[name]
            return _getter_in(found, owner) if type(found) is property else None
    return None


def setter_of(owner: Any, name: str, value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The user's function, with its arguments, that sets an attribute."""
    kind: Any = type(owner)
    method = users_method(kind, "__setattr__")
    if method is not None:
        return method, (owner, name, value)
    if kind.__setattr__ is not object.__setattr__:
        return None
    found = find_in_class(kind, name)
    if type(found) is property:
        return (found.fset, (owner, value)) if type(found.fset) is FunctionType else None
    method = None if type(found) in _COMMON else users_method(type(found), "__set__")
    return None if method is None else (method, (found, owner, value))


def _own_field(frame: PythonFrame, owner: Any, name: str) -> OwnField | None:
    """The attribute that the running code means, where a field of tensors has the same name."""
    if name[:1] != "_" or not type(owner).__dictoffset__:
        return None
    found = find_in_class(type(owner), name)
    return found if type(found) is OwnField and frame.code in found.knowing else None


def _stop_at_own_field(frame: PythonFrame, owner: Any, name: str) -> None:
    if _own_field(frame, owner, name) is not None:
        raise Stop(f"'{name}' is an attribute of {type(owner).__name__}, and a field of tensors")


def enter_getter(
    machine: Machine, frame: PythonFrame, owner: Any, name: str, taken: int, link: Link
) -> bool:
    """Whether the user's function for an attribute was entered."""
    _stop_at_own_field(frame, owner, name)
    found = getter_of(owner, name)
    if found is None:
        return False
    fn, args = found
    if fn.__name__ != "__getattr__" and find_in_class(type(owner), "__getattr__") is not None:
        link = Link("getter", (owner, name, link.kind, *link.data))
    return enter_method(machine, frame, fn, args, taken, link)


@link_rule("getter")
def _getter(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> Any:
    """A property or descriptor of a class that has `__getattr__` too: that one is asked if the
    first raises AttributeError. `data`: owner, name, and the link that follows."""
    owner, name, kind, *rest = data
    follows = RULES[kind]
    if delivery is not Delivery.RAISE or not is_a(value, AttributeError):
        return follows(machine, frame, tuple(rest), delivery, value)
    method = find_in_class(type(owner), "__getattr__")
    if type(method) is FunctionType and machine.hooks.decide_call(method, (owner,), {}) is INLINE:
        link = Link(kind, tuple(rest))
        callee = machine.try_frame(method, (owner, name), {}, link, may_stop=False)
        if callee is not None:
            return machine.enter(callee)
    try:
        found = method(owner, name)
    except AttributeError as error:
        return follows(machine, frame, tuple(rest), Delivery.RAISE, error) or error
    except BaseException as error:
        return error
    return follows(machine, frame, tuple(rest), Delivery.RETURN, found)


def attribute(machine: Machine, frame: PythonFrame, name: str, link: Link = PUSH) -> bool:
    """Read an attribute of the value on top of the stack: it takes the value's place, now (then
    the answer is False) or when the user's getter that was entered returns."""
    owner = frame.stack[-1]
    if machine.as_they_are:
        own = _own_field(frame, owner, name)
        frame.stack[-1] = getattr(owner, name) if own is None else own.read(owner)
        return False
    if enter_getter(machine, frame, owner, name, 1, link):
        return True
    try:
        value = getattr(owner, name)
    except AttributeError:  # that there is none was looked up
        machine.hooks.read(owner, name, NOTHING, Access.ATTRIBUTE)
        raise
    frame.stack[-1] = machine.hooks.read(owner, name, value, Access.ATTRIBUTE)
    return False


def store_attr(machine: Machine, frame: PythonFrame, name: str) -> bool:
    value, owner = frame.stack[-2:]
    if not machine.as_they_are:
        _stop_at_own_field(frame, owner, name)
        found = setter_of(owner, name, value)
        if found is not None and enter_method(machine, frame, *found, 2, _DROP):
            return True
        old = old_attribute(owner, name)
        machine.hooks.write(owner, name, old, value, Access.ATTRIBUTE)
        setattr(owner, name, value)
    elif _own_field(frame, owner, name) is None:
        setattr(owner, name, value)
    else:
        owner.__dict__[name] = value
    del frame.stack[-2:]
    return False


def delete_attr(machine: Machine, frame: PythonFrame, name: str) -> bool:
    owner = frame.stack[-1]
    if not machine.as_they_are:
        kind = type(owner)
        method = users_method(kind, "__delattr__")
        if method is not None and enter_method(machine, frame, method, (owner, name), 1, _DROP):
            return True
        found = None if method is not None else find_in_class(kind, name)
        method = None if type(found) in _COMMON else users_method(type(found), "__delete__")
        if method is not None and enter_method(machine, frame, method, (found, owner), 1, _DROP):
            return True
        machine.hooks.write(owner, name, old_attribute(owner, name), NOTHING, Access.ATTRIBUTE)
    delattr(owner, name)
    frame.stack.pop()
    return False


# -- getattr, hasattr, setattr --------------------------------------------------------------------


@link_rule("default")
def _default(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """`getattr` with a default."""
    if delivery is Delivery.RAISE:
        if not is_a(value, AttributeError):
            return False
        value = data[0]
    frame.stack.append(value)
    return True


@link_rule("has")
def _has(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """`hasattr`."""
    if delivery is Delivery.RAISE and not is_a(value, AttributeError):
        return False
    frame.stack.append(delivery is not Delivery.RAISE)
    return True


def entered_by_builtin(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], taken: int
) -> bool:
    """Whether `getattr`, `hasattr` or `setattr` came to a function of the user's."""
    if len(args) < 2 or not is_a(args[1], str):
        return False
    if fn is setattr:
        found = setter_of(*args) if len(args) == 3 else None
        link = Link("constant", (None,))
        return found is not None and enter_method(machine, frame, *found, taken, link)
    if fn is hasattr and len(args) == 2:
        return enter_getter(machine, frame, args[0], args[1], taken, Link("has"))
    if fn is getattr and len(args) <= 3:
        link = Link("default", args[2:]) if len(args) == 3 else PUSH
        return enter_getter(machine, frame, args[0], args[1], taken, link)
    return False


@link_rule("constant")
def _constant(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """What the frame returns doesn't matter: the caller gets this."""
    if delivery is Delivery.RAISE:
        return False
    frame.stack.append(data[0])
    return True


def entered_by_isinstance(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], taken: int
) -> bool:
    """Whether `isinstance` came to a function of the user's: where the type says no, an object is
    asked for its `__class__`. (Of several classes each asks anew: that is left to Python.)"""
    if len(args) != 2 or type(args[1]) is not type or is_a(*args):
        return False
    return enter_getter(machine, frame, args[0], "__class__", taken, Link("instance", args[1:]))


@link_rule("instance")
def _instance(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """What an object says its class is; `data`: the class that was asked for."""
    if delivery is Delivery.RAISE and not is_a(value, AttributeError):
        return False
    claims = delivery is not Delivery.RAISE and is_a(value, type)
    frame.stack.append(claims and data[0] in type.mro(value))
    return True


BY_NAME.update(
    {getattr: entered_by_builtin, hasattr: entered_by_builtin, setattr: entered_by_builtin}
)
BY_NAME[isinstance] = entered_by_isinstance
