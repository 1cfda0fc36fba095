"""User code that native code calls, where the bytecode machine can't follow it.

`xs.sort()` asks `__lt__` of the user's objects, `"%s" % x` asks `__str__`, a metaclass and
`functools.lru_cache` stand between a call and its function. What such code does while it is traced
would be done once, not at every call. So while an instruction runs that may come to it, Python's
profiler is on: it tells of each function before its body begins, and the instruction is abandoned
there. It then is a break, and runs as Python at every call.

Code that can be seen to do nothing but compute may go on, so that comparing two dataclasses, or
looking one up in a dict, is no break.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import OneLine, is_users
from lucerne._src.base.raw import is_a, same_things
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.call_policy import is_ours, may_call_back
from lucerne._src.capture.breaks.purity import handler_that_does_more
from lucerne._src.capture.bytecode.frame import iterator_on
from lucerne._src.capture.bytecode.hooks import Stop, is_entered
from lucerne._src.capture.bytecode.tracebacks import is_stand_in, profiling
from lucerne._src.capture.effects.arrays import ARRAYS
from lucerne._src.capture.effects.library_writes import LibraryWrites
from lucerne._src.capture.effects.memory import MemoryWrites
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import is_plain
from lucerne._src.capture.guards.implicit import CLASS_NAMES, ImplicitGuards
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.capture.guards.read_log import calls_users, is_full
from lucerne._src.capture.symbolic.native_scalars import by_value, for_ops, plain_number
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import state
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.subclasses import torch_function

_EXAMPLES: tuple[Any, ...] = (
    {}.keys(), {}.values(), {}.items(), (), [], {}, "", b"", set(), range(1), range(2**70),
)  # fmt: skip
_CLOSED = (
    types.BuiltinFunctionType, types.ModuleType, types.CodeType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
    TensorBase, slice, memoryview, bytearray, BaseException,
    *(type(iter(x)) for x in _EXAMPLES), *map(type, _EXAMPLES[:3]), type(reversed([])),
)  # fmt: skip
"""Types of objects with which no native code comes to code of the user's."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_MOST = 64
"""So many things in a container are looked at."""
_WRITING = frozenset(
    (
        "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE",
        "DELETE_ATTR", "DELETE_DEREF", "IMPORT_NAME", "LOAD_BUILD_CLASS", "RETURN_GENERATOR",
        "STORE_NAME", "DELETE_NAME",
    )
)  # fmt: skip
_CHANGING = frozenset(
    (
        "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update",
        "setdefault", "popitem", "add", "discard", "appendleft", "extendleft", "popleft", "rotate",
        "move_to_end",
        "__setitem__", "__delitem__", "__setattr__", "__delattr__", "setattr", "delattr",
    )
)  # fmt: skip
_ON_THE_STACK = {"GET_ITER": 1}
_MUTABLE = (list, dict, set, deque, bytearray)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_IN_PLACE = frozenset(("setitem", "delitem", "__setitem__", "__delitem__"))


def is_changing(fn: Any) -> bool:
    """Whether it is a function of the standard library that changes its first argument.

    >>> import bisect, heapq, operator
    >>> [is_changing(f) for f in (heapq.heappush, bisect.insort, operator.setitem, operator.add)]
    [True, True, True, False]
    """
    if type(fn) not in (types.BuiltinFunctionType, types.FunctionType):
        return False
    home, name = str(fn.__module__).lstrip("_"), fn.__name__
    if home == "heapq":
        return name.startswith("heap")
    if home == "bisect":
        return name.startswith("insort")
    if home == "operator":
        return name in _IN_PLACE or name.strip("_") in _INS
    return False


def _never_writes(fn: Any) -> bool:
    """Whether it is a builtin that leaves the memory of its arguments alone, as most calls are.

    >>> from lucerne._src.capture.breaks.native_callbacks import _never_writes
    >>> _never_writes(len), _never_writes(list)
    (True, False)
    """  # (a list takes everything from an iterator)
    return type(fn) in (types.BuiltinFunctionType, type) and fn in _ONLY_ASK


_ONLY_ASK = frozenset(
    (
        len, isinstance, issubclass, id, abs, callable, repr, hash, ord, chr, round, divmod, type,
        int, float, bool, str, complex, range, slice, zip, map, enumerate, getattr, hasattr,
    )
)  # fmt: skip
"""Builtins that call no function they are given, and write to nothing (methods of the user's that
they ask are watched)."""


def may_change_owner(fn: Any) -> bool:
    """Whether it is a method of `collections`, written in Python, that may change its object.

    >>> from collections import Counter
    >>> may_change_owner(Counter("ab").subtract), may_change_owner(Counter("ab").most_common)
    (True, False)
    """
    if type(fn) is not types.MethodType or is_a(fn.__self__, type):
        return False
    return str(fn.__func__.__module__) == "collections" and fn.__func__.__name__ not in _ONLY_LOOK


_ONLY_LOOK = frozenset(
    (
        "most_common", "elements", "total", "copy", "get", "items", "keys", "values", "index",
        "count", "new_child", "__missing__", "__contains__", "__getitem__", "__len__", "__iter__",
        "__reversed__", "__repr__", "__copy__", "__reduce__", "__add__", "__radd__", "__sub__",
        "__mul__", "__rmul__", "__and__", "__or__", "__ror__", "__pos__", "__neg__", "__eq__",
        "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__hash__",
    )
)  # fmt: skip
_INS = frozenset(
    (
        "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imod", "imul", "imatmul", "ior", "ipow",
        "irshift", "isub", "itruediv", "ixor",
    )
)  # fmt: skip
PLAIN_STEPS = frozenset((
    "STORE_FAST", "RESUME", "POP_TOP", "COPY", "SWAP", "NOP", "RETURN_VALUE", "PUSH_NULL",
    "JUMP_FORWARD", "JUMP_BACKWARD", "MAKE_CELL", "COPY_FREE_VARS", "BUILD_TUPLE", "BUILD_LIST",
    "IS_OP", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "MAKE_FUNCTION", "KW_NAMES", "PRECALL",
))  # fmt: skip
"""Instructions that move values about: they call nothing, and look into nothing."""
_QUIET = PLAIN_STEPS | frozenset((
    "LOAD_FAST", "LOAD_CONST", "RETURN_CONST", "CACHE", "LOAD_GLOBAL", "LOAD_DEREF", "STORE_DEREF",
    "LOAD_CLOSURE", "LIST_APPEND", "STORE_GLOBAL", "YIELD_VALUE",
))  # fmt: skip
"""Instructions that call nothing."""


_TEXTS = frozenset(
    ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING")
)
"""Instructions that write a value down."""


class NativeCallbacks:
    """Watches what native code does while a function is traced.

    `birth` tells what was made since; `strict`: what user code reads must be seen as well; `facts`
    gets what it finds in classes and among variables.
    """

    def __init__(
        self, birth: NewObjects, *, strict: bool, facts: ImplicitGuards | None = None
    ) -> None:
        self.birth, self.strict, self.facts = birth, strict, facts
        self._inside = 0
        """How many functions of the user's native code is in."""
        self._collecting = 0
        """How many functions of `gc.callbacks` run: the collector comes when it likes, and what it
        calls is no matter of the instruction."""
        self._stop: Stop | None = None
        self.comes_back_not: tuple[Any, Sequence[Any]] = (None, ())
        """A call of ours (with its arguments) of which it was found right now that it comes to no
        function of the user's."""
        self.told: Any = None
        """Who is told what native calls give (`repeats.modules`); None: nobody."""
        self.called: str | None = None
        """A function of the user's that native code has called; None: it has not."""

    def concerns(self, name: str, argument: Any, stack: list[Any]) -> bool:
        """Whether an instruction may come to user code where nobody follows."""
        if name in _QUIET or not stack:
            return False
        if name in _TEXTS or (name == "BINARY_OP" and type(stack[-2]) is str):
            for x in stack[-2:]:
                plain_number(x)
        if name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR"):
            return _has_own_attributes(type(stack[-1]))
        if name.startswith(("CALL", "BUILD", "UNPACK")):
            count = 2 * argument + 3 if is_a(argument, int) else len(stack)
        elif name == "FOR_ITER":
            return is_open(iterator_on(stack))
        else:
            count = _ON_THE_STACK.get(name, 3)
        return any(is_open(x) for x in stack[-count:])

    def run(self, handler: Callable[..., Any], *given: Any) -> Any:
        """Execute an instruction; raises Stop before it does something that can't be repeated."""
        self._inside, self._collecting, self._stop = 0, 0, None
        with profiling(self._told):
            found = handler(*given)
        if self._stop is not None:  # native code went on, though it was told not to
            raise self._stop
        return found

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        """Call something native, and say what it gives where somebody wants to know."""
        result = self._call(fn, args, kwargs)
        if self.told is not None and self.told.running:
            self.told.tell("called", fn, (*args, *kwargs.values()), result)
        return result

    def _call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        """Call something native. What is ours is left alone: it tells in other ways what it does
        (`call_policy.native_call`), and has too many functions to be told of each."""
        if not is_ours(fn):
            self._refuse_writes(fn, args)
            if _never_writes(fn):
                return by_value(fn, args, kwargs)
            memory = MemoryWrites((fn, *args, *kwargs.values()), self.birth.is_new)
            if self.facts is not None:
                self.facts.may_run(memory.functions)
            try:
                return by_value(fn, args, kwargs)
            finally:
                if memory.before:
                    self._refuse_memory(memory)
        with profiling(None):  # (it would be told of each function that looks at what is given)
            args, kwargs = for_ops(fn, args, kwargs)
            writes = LibraryWrites((fn, getattr(fn, "__self__", None), *args, *kwargs.values()))
            try:
                if self._comes_back(fn, args, kwargs):
                    with profiling(self._told):
                        return fn(*args, **kwargs)
                if _is_one_module(fn, (*args, *kwargs.values())):
                    with OneLine():
                        return fn(*args, **kwargs)
                return fn(*args, **kwargs)
            finally:
                self._refuse_changes(fn, writes)

    def _refuse_changes(self, fn: Any, writes: LibraryWrites) -> None:
        """A function of ours that has changed a module or an optimizer which is not the call's own:
        it has not done so, and does it when the instruction runs as Python."""
        if not all(map(self.birth.is_new, writes.changed())):
            writes.undo()
            raise Stop("write", reasons.made("write", None, reasons.name_of(fn)))

    @staticmethod
    def _refuse_memory(memory: MemoryWrites) -> None:
        """A native call that has written to an array which was there before, likewise."""
        found = memory.changed()
        if found is not None:
            what = f"the memory of a {type(found).__name__}"
            raise Stop("write", reasons.made("write", None, what))

    def _comes_back(self, fn: Any, args: Any, kwargs: Any) -> bool:
        """Whether something of ours may come to user code. Where it calls that by `call_back`, it
        runs in the machine; if it calls some in another way, nobody sees it there."""
        (known, given), self.comes_back_not = self.comes_back_not, (None, ())
        if known is fn and same_things(given, (*args, *kwargs.values())):
            return False
        return may_call_back(fn) and any(map(calls_users, (fn, *args, *kwargs.values())))

    def _refuse_writes(self, fn: Any, args: Any) -> None:
        """Native functions that change what they are given, or call a method that does."""
        if args and is_changing(fn) and self._is_outside(args[0]):
            raise Stop("write", reasons.made("write", None, f"a {type(args[0]).__name__}"))
        if may_change_owner(fn) and not self.birth.is_new(fn.__self__):
            raise Stop("write", reasons.made("write", None, f"a {type(fn.__self__).__name__}"))
        for x in args:
            method = type(x) is types.BuiltinFunctionType and x.__name__ in _CHANGING
            if method and self._is_outside(x.__self__):
                what = f"a {type(x.__self__).__name__}"
                raise Stop("write", reasons.made("write", None, what))

    def _is_outside(self, x: Any) -> bool:
        return issubclass(type(x), _MUTABLE) and not self.birth.is_new(x)

    @staticmethod
    def unwatched(run: Callable[[], Any]) -> Any:
        """Run something that watches itself."""
        with profiling(None):
            return run()

    def _told(self, frame: types.FrameType, event: str, given: Any) -> None:
        code = frame.f_code
        outside = not (self._inside or self._collecting)
        if outside and (event not in _STEPS or not is_entered(code)):
            return  # the machine's own steps: a million for a model of four layers
        if not dispatch.capturing():
            return  # how an op computes shapes is no matter of the function
        if self._collecting or (event == "call" and _is_of_collector(code)):
            if event in _STEPS and _is_of_collector(code):
                self._collecting += _STEPS[event]
            return
        users = is_entered(code) and code.co_name != "__del__" and not is_stand_in(code)
        if users and (code.co_filename == "<string>" or _is_standard(code.co_filename)):
            # What `dataclass` makes, perhaps for one of our classes; or `functools`, which we use.
            home = own_home(str(frame.f_globals.get("__name__", ""))).partition(".")[0]
            users = home != "lucerne" and home not in sys.stdlib_module_names
            users = users and not home.startswith("namedtuple_")
        if event == "call":
            if users:
                self._inside += 1
                self.called = code.co_qualname
                if not self._is_harmless(frame):
                    self._refuse(code.co_qualname)
            elif self._inside and not is_users(code):
                self._refuse("an op")  # whose result may be kept somewhere (a cache)
            elif self._inside and reasons.is_foreign_home(_home_of(frame)):
                self._refuse(code.co_qualname)  # (`os.getenv`)
        elif event == "return":
            self._inside -= users
        elif event == "c_call" and self._inside and self._does_more(given):
            self._refuse(reasons.name_of(given))

    def _refuse(self, what: str) -> None:
        self._stop = Stop("callback", reasons.made("callback", None, what))
        raise self._stop

    def _does_more(self, fn: Any) -> bool:
        """Whether a native function that user code calls does something besides its result."""
        owner = getattr(fn, "__self__", None)
        if fn.__name__ in _CHANGING:
            return is_a(owner, types.ModuleType) or not self.birth.is_new(owner)
        if fn in _LOOKS_UP or (is_a(owner, ARRAYS) and not self.birth.is_new(owner)):
            return True  # (at an attribute, at memory: nobody sees which)
        return reasons.is_foreign(fn)

    def _is_harmless(self, frame: types.FrameType) -> bool:
        """Whether the body of a function does nothing that has to be repeated or compared, as far
        as its own instructions go; what it calls is told of in its turn."""
        facts = _facts(frame.f_code)
        if facts.writes:
            return False
        given = [frame.f_locals.get(n) for n in frame.f_code.co_varnames[: facts.arguments]]
        if facts.looks_further and not all(map(is_plain, given)):
            return False
        if facts.sets and not (given and self.birth.is_new(given[0])):
            return False
        known = [frame.f_globals.get(name) for name in facts.names]
        if self.strict:
            if facts.closes or not all(is_plain(x) or self.birth.is_new(x) for x in given):
                return False
            if not all(is_plain(x) or is_a(x, _KNOWN_BY_NAME) for x in known):
                return False
        else:
            if any(x is not None and not is_a(x, _KNOWN_BY_NAME) for x in known):
                return False
            free = (frame.f_locals.get(name) for name in frame.f_code.co_freevars)
            if not all(map(_is_compared, free)):
                return False
        if self.facts is not None:
            self.facts.run_by_native(frame, given, facts.names, facts.attributes)
        return True


def _home_of(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_compared(x: Any) -> bool:
    """Whether guards over all that a function can reach compare the content of a variable."""
    if is_plain(x) or is_a(x, _KNOWN_BY_NAME):
        return True
    if type(x) not in (list, tuple, dict) or len(x) > _MOST:
        return False
    return all(map(is_plain, x)) and (type(x) is not dict or all(map(is_plain, x.values())))


_LOOKS_UP = (getattr, hasattr, vars, dir)
_STEPS = {"call": 1, "return": -1}


def _is_of_collector(code: types.CodeType) -> bool:
    """Whether the collector calls it before and after it collects."""
    return any(getattr(f, "__code__", None) is code for f in gc.callbacks)


_LIBRARY = sysconfig.get_path("stdlib")


def _is_standard(name: str) -> bool:
    inside = name.startswith(_LIBRARY) and "site-packages" not in name
    return inside or name.startswith("<frozen")


_KNOWN_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def last_of(names: Any) -> Any:
    """What an instruction loads last: some load two variables."""
    return names[-1] if is_a(names, tuple) and names else names


class _Facts:
    """What the instructions of a function say."""

    def __init__(self, code: types.CodeType) -> None:
        ops = list(dis.get_instructions(code))
        free = code.co_freevars
        self.writes = any(
            op.opname in _WRITING or (op.opname == "STORE_DEREF" and op.argval in free)
            for op in ops
        )
        ops = [op for op in ops if op.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL")]
        owners = [last_of(a.argval) for a, b in pairwise(ops) if b.opname == "STORE_ATTR"]
        self.sets = bool(owners)
        """Whether it sets attributes, all of them of its first argument (`__init__`)."""
        self.writes |= any(name not in code.co_varnames[:1] for name in owners)
        self.names = {op.argval for op in ops if op.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        reads = [(last_of(a.argval), b) for a, b in pairwise(ops) if b.opname in _ATTRIBUTES]
        self.attributes = {b.argval for _, b in reads}
        self.looks_further = any(
            owner not in code.co_varnames[: code.co_argcount]
            and owner not in self.names
            and not (owner == "__class__" and b.argval in CLASS_NAMES)
            for owner, b in reads
        )
        """Whether it reads attributes of others than its arguments: of what those hold."""
        self.closes = bool(free)
        self.arguments = code.co_argcount + code.co_kwonlyargcount
        self.arguments += bool(code.co_flags & 4) + bool(code.co_flags & 8)


@functools.lru_cache(maxsize=4096)
def _facts(code: types.CodeType) -> _Facts:
    return _Facts(code)


# ---- objects ------------------------------------------------------------------------------------


def is_open(x: Any, depth: int = 0) -> bool:
    """Whether native code that is given an object may come to code of the user's.

    >>> from lucerne._src.capture.breaks.native_callbacks import is_open
    >>> is_open(3), is_open([1, (2, 3)]), is_open("x".join), is_open(map(abs, [1]))
    (False, False, False, True)
    """
    kind = type(x)
    if is_plain(x):
        return False
    if kind in _CONTAINERS or (issubclass(kind, _CONTAINERS) and not _has_code(kind)):
        return depth < 3 and _any_open(x, depth)
    if kind is types.BuiltinFunctionType:
        owner = x.__self__
        return type(owner) is not types.ModuleType and is_open(owner, depth)
    if kind is types.MethodType:
        return is_open(x.__self__, depth)
    if kind is types.FunctionType:
        return is_entered(x.__code__)
    if issubclass(kind, type):
        return kind is not type or _has_code(x)
    if kind is np.ufunc:  # (NumPy's own are machine code; `frompyfunc` names those it makes so)
        return str(x.__name__).endswith(" (vectorized)")
    return _has_code(kind) if kind not in _CLOSED else False


def _any_open(x: Any, depth: int) -> bool:
    for k, item in enumerate(x):
        if k >= _MOST:
            break
        if is_open(item, depth + 1):
            return True
        if is_a(x, dict) and is_open(x[item], depth + 1):
            return True
    return False


def _by_class(ask: Callable[[type], bool]) -> Callable[[type], bool]:
    """The same question, asked once for each class."""
    known: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()

    @functools.wraps(ask)
    def answer(kind: type) -> bool:
        found = known.get(kind)
        if found is None:
            found = known[kind] = ask(kind)
        return found

    return answer


def _is_one_module(fn: Any, given: tuple[Any, ...]) -> bool:
    """Whether a call of ours runs no more than one module, that without others inside, and no op
    of it is anybody else's."""
    if state.call_level or len(state.kernel_level) != 1 or torch_function.dispatching:
        return False
    public = own_home(type(fn).__module__) == "lucerne"  # (not what finds an op of the user's)
    if not (public or is_module(fn) or is_a(fn, (types.FunctionType, types.MethodType))):
        return False
    owner: Any = fn if is_module(fn) else getattr(fn, "__self__", None)
    tensors: list[Any] = []
    if is_module(owner):
        if any(m is not None for m in owner._modules.values()):
            return False
        tensors += [*owner._parameters.values(), *owner._buffers.values()]
    elif is_optimizer(owner):
        tensors += [p for group in owner.param_groups for p in group["params"]]
    elif owner is not None and not is_a(owner, types.ModuleType):
        tensors.append(owner)
    if is_a(fn, types.FunctionType):
        given = (*given, *(c.cell_contents for c in fn.__closure__ or () if is_full(c)))
    for x in given:
        tensors += x if type(x) in (tuple, list) else () if is_a(x, _CODE) else (x,)
    return all(type(t) in plain_types or is_plain(t) for t in tensors)


_CODE = (types.FunctionType, types.CodeType)


@_by_class
def _has_code(kind: type) -> bool:
    """Whether objects of a class may have native code call something of the user's."""
    home = own_home(str(kind.__module__)).partition(".")[0]
    if home in ("lucerne", "numpy"):
        return issubclass(kind, np.vectorize)
    if issubclass(kind, TensorBase):
        return handler_that_does_more(kind) is not None
    if home in sys.stdlib_module_names and not issubclass(kind, _CLOSED):
        return kind not in _NUMBERS  # an iterator, a partial, a cache
    return any(
        is_entered(f.__code__)
        for c in kind.__mro__
        for f in map(_function, vars(c).values())
        if f is not None
    )


@_by_class
def _has_own_attributes(kind: type) -> bool:
    """Whether a class decides itself what its objects' attributes are."""
    found = (vars(c).get("__getattribute__") for c in kind.__mro__)
    return any(type(f) is types.FunctionType and is_entered(f.__code__) for f in found)


_NUMBERS = (complex, object, type(None), type(...), type(NotImplemented))


def _function(member: Any) -> types.FunctionType | None:
    """The Python function in a member of a class."""
    if is_a(member, property):
        member = member.fget
    member = getattr(member, "__func__", member)
    return member if is_a(member, types.FunctionType) else None
