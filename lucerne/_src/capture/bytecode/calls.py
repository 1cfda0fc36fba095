"""Calls: entered as frames, or made natively with what native code needs to know."""

from __future__ import annotations

import builtins
import copy
import functools
import itertools
import operator
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.frame import PUSH, UNSET, Link, PythonFrame
from lucerne._src.capture.bytecode.generators import PythonGenerator, throw_into, thrown
from lucerne._src.capture.bytecode.helpers import (
    CHOICES,
    COLLECTED,
    COLLECTED_METHODS,
    choose_deepcopy,
    choose_iterated,
    dicts_of_copy,
    extend_,
)
from lucerne._src.capture.bytecode.hooks import DEFERRED, INLINE, NOTHING, Access, Stop, is_entered
from lucerne._src.capture.bytecode.links import (
    RULES,
    Delivery,
    link_rule,
    name_in_full,
    wrong_answer,
)
from lucerne._src.capture.bytecode.machine import SWITCH, Machine
from lucerne._src.capture.bytecode.special import SPECIAL, old_attribute
from lucerne._src.capture.bytecode.targets import FORWARDS, find_in_class, target_of
from lucerne._src.capture.bytecode.tracebacks import profiling

Kwargs = Mapping[str, Any]
_NONE: dict[str, Any] = {}

_CALLED: dict[Any, int | str] = {
    map: 0, filter: 0, sorted: "key", min: "key", max: "key", functools.reduce: 0,
    itertools.starmap: 0, itertools.takewhile: 0, itertools.dropwhile: 0,
    itertools.filterfalse: 0, itertools.groupby: "key", itertools.accumulate: 1, iter: 0,
}  # fmt: skip
"""Native functions that call an argument of theirs, and which."""

_MAKES_DICT = frozenset(("dict", "copy", "fromkeys", "deepcopy", "asdict", "_asdict"))
_SETS = {"__setattr__": 2, "__delattr__": 1}
"""Methods of objects that set or delete an attribute, and how many arguments they have."""
_MUTABLE = (list, dict, set, deque, bytearray)
_MUTATING = frozenset(
    (
        "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update",
        "setdefault", "popitem", "add", "discard", "appendleft", "extendleft", "popleft", "rotate",
        "move_to_end",
        "difference_update", "intersection_update", "symmetric_difference_update", "__setitem__",
        "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__",
    )
)  # fmt: skip


def call(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], kwargs: Kwargs, taken: int
) -> bool | None:
    """Make a call whose operands are the last `taken` values of the stack; its result takes their
    place, now or when the frame that was entered returns."""
    if not machine.as_they_are:
        fn, args, kwargs = _meant(fn, args, kwargs)
        decision = machine.hooks.decide_call(fn, args, kwargs)
        if decision is INLINE:
            with profiling(None):  # (nothing of the user's runs before its frame does)
                known = None if machine.repeats is None else machine.repeats.begin(fn, args, kwargs)
                if type(known) is tuple:
                    _drop(frame, taken)
                    frame.stack.append(known[0])
                    return None
                link = PUSH if known is None else Link("recorded", (machine.repeats, known))
                if _entered(machine, frame, fn, args, kwargs, taken, link):
                    return SWITCH
                if known is not None:
                    machine.repeats.end(known, None, good=False)
        elif isinstance(decision, Stop):
            raise decision
        elif decision is DEFERRED:
            _drop(frame, taken)
            frame.stack.append(None)
            return None
        if type(fn) is MethodType and type(fn.__self__) is PythonGenerator:
            entered = _generator_method(machine, frame, fn, args, kwargs, taken)
            if entered is not None:
                return entered
        if args and _replaced(machine, frame, fn, args, kwargs, taken):
            return SWITCH
    if fn is copy.deepcopy and len(args) == 1 and not kwargs:
        args = (*args, {})
    result = native(machine, frame, fn, args, kwargs)
    if fn is copy.deepcopy and len(args) == 2 and type(args[1]) is dict:
        for made in dicts_of_copy(args[1]):
            machine.hooks.made(made)
    if type(result) is dict and getattr(fn, "__name__", "") in _MAKES_DICT:
        machine.hooks.made(result)
    _drop(frame, taken)
    frame.stack.append(result)
    return None


def _meant(fn: Any, args: tuple[Any, ...], kwargs: Kwargs) -> tuple[Any, tuple[Any, ...], Kwargs]:
    """The call that a call of a `partial`, or of something like it, is and nothing else."""
    while True:
        if type(fn) is functools.partial:
            fn, args, kwargs = fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}
        elif type(fn) is FunctionType and fn in FORWARDS and args:
            fn, args = args[0], args[1:]
        else:
            return fn, args, kwargs


def _drop(frame: PythonFrame, taken: int) -> None:
    if taken:
        del frame.stack[-taken:]


def _entered(
    machine: Machine,
    frame: PythonFrame,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Kwargs,
    taken: int,
    link: Link,
) -> bool:
    """Whether a frame was entered for the call."""
    target = target_of(fn, args, kwargs)
    if target is None:
        return False
    if target.made is not None:
        link = Link("init", (target.made,))
    elif target.kind is not None:
        link = Link("new", (target.kind, args, kwargs))
    callee = machine.try_frame(target.fn, target.args, target.kwargs, link)
    if callee is None:
        return False
    machine.enter(callee)
    _drop(frame, taken)
    return True


def enter_method(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], taken: int, link: Link
) -> bool:
    """Enter a special method of the user's (`__getitem__`, a property's getter) if the hooks want
    that; whether it was entered."""
    if type(fn) is not FunctionType or machine.as_they_are:
        return False
    decision = machine.hooks.decide_call(fn, args, _NONE)
    if isinstance(decision, Stop):
        raise decision
    callee = machine.try_frame(fn, args, _NONE, link) if decision is INLINE else None
    if callee is None:
        return False
    machine.enter(callee)
    _drop(frame, taken)
    return True


def users_method(kind: type, name: str) -> FunctionType | None:
    """A special method that the user has written in Python, or None."""
    found = find_in_class(kind, name)
    return found if type(found) is FunctionType and is_entered(found.__code__) else None


@link_rule("recorded")
def _recorded(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """A module that is recorded has ended; `data`: who records it, and what they gave."""
    data[0].end(data[1], value, good=delivery is Delivery.RETURN)
    return RULES["push"](machine, frame, (), delivery, value)


@link_rule("new")
def _new(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    """The user's `__new__` has returned: `__init__` follows if it has made such an object."""
    if delivery is Delivery.RAISE:
        return False
    kind, args, kwargs = data
    if is_a(value, kind):
        init = find_in_class(type(value), "__init__")
        if enter_init(machine, frame, init, value, args, kwargs):
            return True
        type(value).__init__(value, *args, **kwargs)
    frame.stack.append(value)
    return True


def enter_init(
    machine: Machine,
    frame: PythonFrame,
    init: Any,
    made: Any,
    args: tuple[Any, ...],
    kwargs: Kwargs,
) -> bool:
    """Enter the user's `__init__`, if it is one."""
    if type(init) is not FunctionType or not is_entered(init.__code__):
        return False
    link = Link("init", (made,))
    callee = machine.try_frame(init, (made, *args), kwargs, link, may_stop=False)
    return callee is not None and machine.enter(callee)


# -- builtins that come back to user code ---------------------------------------------------------


def _replaced(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], kwargs: Kwargs, taken: int
) -> bool:
    """Whether frames were entered that do what a builtin would do with user code."""
    kind = type(fn)
    if kind is operator.attrgetter and len(args) == 1 and not kwargs:
        names = fn.__reduce__()[1]
        if len(names) > 1 or "." in names[0]:
            return False
        return BY_NAME[getattr](machine, frame, getattr, (args[0], *names), taken)
    copied = choose_deepcopy(fn, args, kwargs)
    if copied is not None:
        return _entered_helper(machine, frame, copied, taken)
    if kind is not BuiltinFunctionType and kind is not type:
        return False
    owner = None if kind is type else fn.__self__
    enter = BY_NAME.get(fn)
    if enter is not None:
        return not kwargs and enter(machine, frame, fn, args, taken)
    if len(args) == 1 and not kwargs and fn in _ASKS:
        name, looks = _ASKS[fn]
        asked: Any = type(args[0])
        if fn is str and asked.__str__ is object.__str__:
            name = "__repr__"
        method = users_method(asked, name)
        link = Link(looks, (fn.__name__, name, name_in_full(asked))) if looks else PUSH
        if method is not None and enter_method(machine, frame, method, args, taken, link):
            return True
    if type(args[0]) is PythonGenerator:
        if fn is next:
            return _next(machine, frame, args, kwargs, taken)
        collects = fn in COLLECTED or (fn.__name__ in COLLECTED_METHODS and is_a(owner, list | str))
        if collects and len(args) == 1:
            return collect(machine, frame, args[0], None)
    ours = kind is type or any(owner is home for home in _BUILTIN_HOMES)  # (no `==`)
    choose = CHOICES.get(fn) if ours else None
    chosen = choose_iterated(fn, args, kwargs) if ours else None
    if chosen is None and choose is not None:
        chosen = choose(args, kwargs)
    extends = type(owner) is list and fn.__name__ == "extend" and len(args) == 1
    if chosen is None and extends and type(args[0]) is PythonGenerator:
        chosen = extend_, (owner, *args)  # type: ignore[assignment]
    return chosen is not None and _entered_helper(machine, frame, chosen, taken)


def _entered_helper(machine: Machine, frame: PythonFrame, chosen: Any, taken: int) -> bool:
    callee = machine.try_frame(chosen[0], chosen[1], _NONE, PUSH)
    if callee is None:
        return False
    machine.enter(callee)
    _drop(frame, taken)
    return True


BY_NAME: dict[Any, Callable[..., bool]] = {}
"""Builtins that reach attributes by their names, and what enters user code for them (entered here
by `attributes`)."""

_ASKS: dict[Any, tuple[str, str]] = {
    len: ("__len__", "length"),
    iter: ("__iter__", "iterator"),
    next: ("__next__", ""),
    abs: ("__abs__", ""),
    repr: ("__repr__", "text"),
    str: ("__str__", "text"),
}
"""Builtins that do no more than call a method of their argument, and the kind of link (data: the
builtin, the method, the class) that looks at the answer."""


@link_rule("length")
def _length(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    if delivery is Delivery.RAISE:
        return False
    if not hasattr(type(value), "__index__"):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if value < 0:
        raise ValueError("__len__() should return >= 0")
    frame.stack.append(operator.index(value))
    return True


@link_rule("text")
def _text(machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any) -> bool:
    if delivery is Delivery.RAISE:
        return False
    if not is_a(value, str):
        wrong_answer(data, value)
    frame.stack.append(value)
    return True


_BUILTIN_HOMES = (builtins, sys.modules["_functools"])


def collect(
    machine: Machine, frame: PythonFrame, generator: PythonGenerator, most: int | None
) -> bool:
    """Run a generator on the stack to its end, put a list in its place and execute the instruction
    at hand again. `most`: what is unpacked to names may have so many values. False: it can't be run
    now."""
    if generator.frame is None or generator.running or machine.as_they_are:
        return False
    at = next((k for k, x in enumerate(frame.stack) if x is generator), None)
    if at is None:
        return False
    return machine.enter(generator.resume(None, Link("collect", (at, most, []))))


@link_rule("collect")
def _collect(
    machine: Machine, frame: PythonFrame, data: Any, delivery: Delivery, value: Any
) -> bool:
    """A generator gives its next value to the list that takes its place."""
    if delivery is Delivery.RAISE:
        return False
    at, most, values = data
    if delivery is Delivery.YIELD:
        values.append(value)
        if most is None or len(values) <= most:
            return machine.enter(frame.stack[at].resume(None, Link("collect", data)))
        raise ValueError(f"too many values to unpack (expected {most})")
    frame.stack[at] = values
    frame.ip = frame.last
    return True


# -- generators -----------------------------------------------------------------------------------


def _next(
    machine: Machine, frame: PythonFrame, args: tuple[Any, ...], kwargs: Kwargs, taken: int
) -> bool:
    generator = args[0]
    if kwargs or len(args) > 2 or generator.frame is None or generator.running:
        return False
    machine.enter(generator.resume(None, Link("next", args[1:])))
    _drop(frame, taken)
    return True


def _generator_method(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], kwargs: Kwargs, taken: int
) -> bool | None:
    """`send`, `throw`, `close`, `__next__` of a suspended generator: its frame goes on."""
    generator, name = fn.__self__, fn.__func__.__name__
    if kwargs or generator.frame is None or generator.running:
        return None
    if name == "__next__" and not args:
        machine.enter(generator.resume(None, Link("next")))
    elif name == "send" and len(args) == 1:
        generator.check(args[0])
        machine.enter(generator.resume(args[0], Link("next")))
    elif name == "throw" and 1 <= len(args) <= 3:
        error = thrown(*args, *[UNSET] * (3 - len(args)))
        machine.enter(generator.resume(None, Link("next")))
        _drop(frame, taken)
        throw_into(machine, generator, error)
        return SWITCH
    elif name == "close" and not args and generator.started:
        machine.enter(generator.resume(None, Link("close")))
        _drop(frame, taken)
        throw_into(machine, generator, GeneratorExit())
        return SWITCH
    else:
        return None
    _drop(frame, taken)
    return SWITCH


# -- native calls ---------------------------------------------------------------------------------


def native(
    machine: Machine, frame: PythonFrame, fn: Any, args: tuple[Any, ...], kwargs: Kwargs
) -> Any:
    """Let Python make the call; what looks at the caller's frame gets ours."""
    kind = type(fn)
    if kind is BuiltinFunctionType or kind is type or kind is FunctionType:
        special = SPECIAL.get(fn)
        if special is not None:
            answer = special(machine, frame, args, kwargs)
            if answer is not NotImplemented:
                return answer
    if not machine.as_they_are:
        if kind in _OF_C:
            _tell_mutation(machine, fn, args, kwargs)
            read = _read_by(fn, args)
            if read is not None:
                return _read(machine, *read, lambda: _made(machine, fn, args, kwargs))
        elif kind is operator.attrgetter and len(args) == 1 and not kwargs:
            return _attributes(machine, fn, args[0])
        args, kwargs = _watched(machine, fn, args, kwargs)
    return _made(machine, fn, args, kwargs)


def _made(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    if machine.as_they_are or machine.natives is None:
        return fn(*args, **kwargs)
    return machine.natives.call(fn, args, kwargs)


_OF_C = (
    BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType,
)  # fmt: skip


def _attributes(machine: Machine, getter: Any, owner: Any) -> Any:
    """`attrgetter("a.b")(x)` reads attributes. Each is asked for once: a property may do more than
    answer."""
    found = []
    for path in getter.__reduce__()[1]:
        x = owner
        for name in path.split("."):
            x = _read(machine, x, name, functools.partial(getattr, x, name))
        found.append(x)
    return found[0] if len(found) == 1 else tuple(found)


def _read_by(fn: Any, args: tuple[Any, ...]) -> tuple[Any, str] | None:
    """`object.__getattribute__(x, "y")`, `super().__getattribute__("y")`: an attribute like any
    other, of which object."""
    if fn.__name__ != "__getattribute__":
        return None
    owner = getattr(fn, "__self__", None)
    given = args if owner is None else (owner, *args)
    return given if len(given) == 2 and is_a(given[1], str) else None


def _read(machine: Machine, owner: Any, name: str, get: Callable[[], Any]) -> Any:
    try:
        value = get()
    except AttributeError:  # that there is none was looked up
        machine.hooks.read(owner, name, NOTHING, Access.ATTRIBUTE)
        raise
    return machine.hooks.read(owner, name, value, Access.ATTRIBUTE)


def _tell_mutation(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: Kwargs) -> None:
    name = fn.__name__
    if name not in _MUTATING and name not in _SETS:
        return
    owner = getattr(fn, "__self__", None)
    if owner is None and args:
        owner, args = args[0], args[1:]
    if name in _SETS:  # object.__setattr__(x, "y", 3), super().__setattr__("y", 3)
        if len(args) == _SETS[name] and is_a(args[0], str):
            new = args[1] if len(args) > 1 else NOTHING
            old = old_attribute(owner, args[0])
            machine.hooks.write(owner, args[0], old, new, Access.ATTRIBUTE)
        return
    if is_a(owner, _MUTABLE):
        machine.hooks.write(owner, fn.__name__, NOTHING, (args, kwargs), Access.METHOD)


def _watched(
    machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: Kwargs
) -> tuple[tuple[Any, ...], Kwargs]:
    """The arguments, with the user's function among them that native code will call replaced by
    one that runs in the machine."""
    if type(fn) is BuiltinFunctionType and fn.__name__ == "sort":
        called: int | str | None = "key"
    elif type(fn) is type or type(fn) is BuiltinFunctionType:
        called = _CALLED.get(fn)
    else:
        called = None
    if called is None:
        return args, kwargs
    if isinstance(called, int):
        if called >= len(args) or (fn is iter and len(args) < 2):
            return args, kwargs
        inside = _in_machine(machine, args[called])
        return (*args[:called], inside, *args[called + 1 :]), kwargs
    if called not in kwargs:
        return args, kwargs
    return args, {**kwargs, called: _in_machine(machine, kwargs[called])}


def _in_machine(machine: Machine, fn: Any) -> Any:
    if type(fn) is not FunctionType or not is_entered(fn.__code__):
        return fn

    def through(*args: Any, **kwargs: Any) -> Any:
        return machine.call(fn, args, kwargs)

    return through
