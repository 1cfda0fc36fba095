"""What user code might do besides calling ops, told from its text.

Code that runs in the machine is watched there. Some user code is called back by functions of ours
instead (a hook, a checkpointed function, the methods of an `autograd.Function`), where nobody
looks. If such code names something foreign (`print`, the clock, files), the call as a whole is not
captured.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.lazy_imports import global_in
from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.raw import is_a, raw_attribute
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.bytecode.targets import find_in_class, python_function
from lucerne._src.capture.guards.reachable import is_module, names_in

_DEPTH = 4
_WRITES = (
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "LOAD_BUILD_CLASS",
)  # fmt: skip
_CHANGING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "popitem",
        "add",
        "discard",
        "appendleft",
        "popleft",
    ]
)
"""Methods that change a container."""


def foreign_in(x: Any, depth: int = 0) -> Any:
    """Something foreign that code behind an object names; None: nothing is seen."""
    if depth > _DEPTH:
        return None
    for fn in _functions(x):
        if not is_users(fn.__code__):
            continue
        for found in _named(fn):
            if is_a(found, types.ModuleType):
                if reasons.is_foreign_home(found.__name__.partition(".")[0]):
                    return found
            elif callable(found) and not is_a(found, type) and reasons.is_foreign(found):
                return found
            elif is_a(found, types.FunctionType) and found is not fn:
                inner = foreign_in(found, depth + 1)
                if inner is not None:
                    return inner
    return None


def _functions(x: Any) -> Iterator[types.FunctionType]:
    """The Python functions that a call which is given this object may come to."""
    if is_a(x, types.MethodType):
        yield from _functions(x.__func__)
        if is_a(x.__self__, type):
            yield from _functions(x.__self__)
    elif is_a(x, functools.partial):
        yield from _functions(x.func)
    elif is_a(x, types.FunctionType):
        yield x
    elif is_a(x, type):
        if not own_home(x.__module__).startswith("lucerne."):
            for member in vars(x).values():
                found = getattr(member, "__func__", member)
                if is_a(found, types.FunctionType):
                    yield found
    elif is_module(x):
        yield from _functions(type(x))
        for name, hooks in list(vars(x).items()):
            if name.endswith("hooks") and is_a(hooks, dict):
                for hook in hooks.values():
                    yield from _functions(hook)
        for part in x._modules.values():
            if part is not None:
                yield from _functions(part)


def _named(fn: types.FunctionType) -> Iterator[Any]:
    """What the globals and closure variables that a function names are at the moment."""
    for name in names_in(fn.__code__):
        yield global_in(fn.__globals__, name, getattr(builtins, name, None))
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def callbacks_in(x: Any) -> Iterator[types.FunctionType]:
    """The user's functions that a function of ours calls if it is given this object."""
    if is_a(x, types.MethodType):
        if is_a(x.__self__, type):  # apply of an autograd.Function
            yield from callbacks_in(x.__self__)
        else:
            yield from callbacks_in(x.__func__)
    elif is_a(x, functools.partial):
        yield from callbacks_in(x.func)
    elif is_a(x, types.FunctionType):
        yield x
    elif is_module(x):
        kinds = [type(m) for m in x.modules()]
        yield from (vars(c)["forward"] for kind in kinds for c in kind.__mro__ if _forward(c))
    elif is_a(x, type) and hasattr(x, "apply") and hasattr(x, "backward"):
        members = (find_in_class(x, n) for n in ("forward", "backward", "setup_context"))
        found = (getattr(m, "__func__", m) for m in members)
        yield from (f for f in found if is_a(f, types.FunctionType))


def _forward(kind: type) -> bool:
    return is_a(vars(kind).get("forward"), types.FunctionType)


def written_in(x: Any, depth: int = 0) -> str | None:
    """In which of the user's functions that a function of ours calls back something outside is
    changed, as far as text tells; None: in none. What an `autograd.Function` puts into its first
    argument (`ctx.k = 3`) is its own."""
    kept = is_a(raw_attribute(x, "__self__", x), type)
    for fn in callbacks_in(x):
        if not is_users(fn.__code__):
            continue
        own = fn.__code__.co_varnames[:1] if kept and fn.__code__.co_argcount else ()
        if _changes(fn, own):
            return fn.__qualname__
        named = [f for f in _named(fn) if is_a(f, types.FunctionType) and f is not fn]
        for found in named if depth < _DEPTH else ():
            inner = written_in(found, depth + 1)
            if inner is not None:
                return inner
    return None


_OF_TENSORS = frozenset(("add", "sort"))
"""Names that tensors have as well, where they change nothing."""


def _changes(fn: types.FunctionType, own: tuple[str, ...]) -> bool:
    """Whether a function changes something besides what it makes, and attributes of `own`."""
    code = fn.__code__
    last: Any = None
    """What the instruction before has loaded: (name of the instruction, name of the variable)."""
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for op in dis.get_instructions(code):
        if op.opname in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            continue
        name, what = op.opname, op.argval
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL", "DELETE_ATTR", "LOAD_BUILD_CLASS"):
            return True
        if name == "STORE_DEREF" and what in code.co_freevars:
            return True
        if name == "STORE_ATTR" and not (last and last[1] in own):
            return True
        if name in ("LOAD_METHOD", "LOAD_ATTR") and what in _CHANGING and last is not None:
            where, receiver = last
            made_here = where.startswith("LOAD_FAST") and receiver not in arguments
            if not made_here and not (what in _OF_TENSORS and where != "LOAD_GLOBAL"):
                return True
        last = name, what[-1] if is_a(what, tuple) and what else what
    return False


apart: set[Any] = set()
"""Code of the user's that has to run in a backward pass called from outside: a trace has seen that
it does more than compute (`callbacks`)."""


def callback_of(fn: Any) -> Any:
    """What stands in `apart` for something that the library calls back: its code, or if that is
    not Python's, its name and the class of its object (`[].append`)."""
    fn = getattr(fn, "__wrapped__", fn)
    function = python_function(fn)
    if function is not None:
        return function.__code__
    return type(getattr(fn, "__self__", fn)), getattr(fn, "__name__", "")


def apart_in(x: Any, depth: int = 0) -> str | None:
    """The name of such code in something that a function of ours is given; None: there is none."""
    if is_a(x, (list, tuple)):
        found = (apart_in(v, depth + 1) for v in x if depth < _DEPTH)
        return next((name for name in found if name is not None), None)
    if is_a(x, types.MethodType) and is_a(x.__self__, type):  # Function.apply
        return apart_in(x.__self__)
    if is_a(x, type) and not hasattr(x, "backward"):
        return None
    called = [x, getattr(x, "backward", None)] if callable(x) else []
    for fn in called:
        if callable(fn) and callback_of(fn) in apart:
            return reasons.name_of(getattr(fn, "__wrapped__", fn))
    return None


HANDLERS = (
    "__torch_dispatch__", "__torch_function__", "__tensor_flatten__", "__tensor_unflatten__",
    "__new__", "__init__",
)  # fmt: skip
"""What ops call of a class of tensors."""


def handlers_of(kind: type) -> Iterator[tuple[str, types.FunctionType]]:
    """The user's functions that ops call if they are given a tensor of a class."""
    for name in HANDLERS:
        member = find_in_class(kind, name)
        found = getattr(member, "__func__", member)
        if is_a(found, types.FunctionType) and is_users(found.__code__):
            yield name, found


def handler_that_does_more(kind: type) -> str | None:
    """Which of them does something besides ops, as far as text tells; None: none does.

    Attributes that it gives to what it has made, or has found in its arguments, are compared
    afterwards (`subclasses.Inside`). Each class is looked at once.
    """
    if kind not in _looked_at:
        _looked_at[kind] = _handler_that_does_more(kind)
    return _looked_at[kind]


_looked_at: weakref.WeakKeyDictionary[type, str | None] = weakref.WeakKeyDictionary()


def _handler_that_does_more(kind: type) -> str | None:
    for name, fn in handlers_of(kind):
        code = fn.__code__
        count = 0 if name == "__init__" else code.co_argcount + code.co_kwonlyargcount
        inner = [f for f in _named(fn) if is_a(f, types.FunctionType) and f is not fn]
        more = foreign_in(fn) is not None or _changes(fn, code.co_varnames[count:])
        if more or any(written_in(f) is not None for f in inner):
            return f"{kind.__name__}.{name}"
    return None


def changes_in(fn: Any, depth: int = 0, seen: set[int] | None = None) -> str | None:
    """In which function an object outside might be changed, as far as text tells; None: nowhere.

    For functions that the machine can't run: what they change while they are captured can't be
    taken back.
    """
    seen = set() if seen is None else seen
    for function in _functions(fn):
        if id(function.__code__) in seen or not is_users(function.__code__):
            continue
        seen.add(id(function.__code__))
        if _writes(function):
            return function.__qualname__
        if depth >= _DEPTH:
            continue
        for found in _named(function):
            inner = _reached(found, function.__code__.co_names)
            for x in inner:
                name = changes_in(x, depth + 1, seen)
                if name is not None:
                    return name
    return None


def _reached(x: Any, names: tuple[str, ...]) -> list[Any]:
    """What may be called of an object that a function names."""
    if is_a(x, (types.FunctionType, types.MethodType, functools.partial)) or is_module(x):
        return [x]
    kind = x if is_a(x, type) else type(x)
    if own_home(kind.__module__).startswith(("lucerne.", "builtins", "numpy")):
        return []
    methods = [getattr(kind, n, None) for n in (*names, "__call__", "__init__")]
    return [m for m in methods if is_a(m, types.FunctionType)]


def _writes(fn: types.FunctionType) -> bool:
    code = fn.__code__
    before = ""
    outside = any(is_a(x, (dict, list, set)) for x in _named(fn))
    for op in dis.get_instructions(code):
        if op.opname in _WRITES:
            return True
        if op.opname == "STORE_DEREF" and op.argval in code.co_freevars:
            return True
        if op.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") and outside:
            return True
        changes = op.opname in ("LOAD_METHOD", "LOAD_ATTR") and op.argval in _CHANGING
        if changes and not before.startswith("LOAD_FAST"):
            return True
        if op.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            before = op.opname
    return any(is_a(c, types.CodeType) and _inner_writes(c, code) for c in code.co_consts)


def _inner_writes(inner: types.CodeType, outer: types.CodeType) -> bool:
    """Whether a function that is made inside writes to variables of those around the outer one."""
    return any(
        op.opname in _WRITES
        or (op.opname == "STORE_DEREF" and op.argval in outer.co_freevars)
        or (op.opname in ("LOAD_METHOD", "LOAD_ATTR") and op.argval in _CHANGING)
        for op in dis.get_instructions(inner)
    )
