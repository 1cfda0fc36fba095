"""Implicit guards: what decides how a function computes without being a value that it reads.

The code and the default values of each function that was entered, what classes hold under the names
that were looked up (methods, properties, static methods), the classes of objects, names that hide a
builtin, and switches that were asked for. Guards compare them like any other place.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.bytecode.targets import find_in_class, python_function
from lucerne._src.capture.effects.arrays import (
    ARRAYS,
    SHARING,
    contents,
    owner_of,
    unguarded,
)
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.stores import MISSING, PLAIN
from lucerne._src.capture.guards.sources import (
    LATER,
    CallSource,
    ClassSource,
    Source,
    is_known_home,
)
from lucerne._src.capture.trace.fake import is_fake
from lucerne._src.tensor.base import TensorBase

_SWITCHES = frozenset(
    (
        "get_num_threads", "get_num_interop_threads", "initial_seed", "is_anomaly_enabled",
        "is_anomaly_check_nan_enabled", "are_deterministic_algorithms_enabled",
        "is_deterministic_algorithms_warn_only_enabled", "get_deterministic_debug_mode",
        "get_float32_matmul_precision", "get_default_device", "is_warn_always_enabled",
    )
)  # fmt: skip
"""Functions of ours that tell how a switch stands. (Grad mode and the like are always compared.)"""
_UNDER = ("__func__", "fget", "fset", "fdel", "func")
CLASS_NAMES = frozenset(("__name__", "__qualname__"))
"""What a class is called (`repr` of a dataclass says it)."""
_AROUND = (staticmethod, classmethod, property, functools.cached_property)


class ImplicitGuards:
    """What was found while a function was traced.

    `birth` tells what was made since; `passing`: whether an object comes with the call at hand, and
    another one may come with the next: of those only the class counts.

    >>> from lucerne._src.capture.guards.implicit import ImplicitGuards
    >>> from lucerne._src.capture.effects.new_objects import NewObjects
    >>> birth, scope = NewObjects(lambda x: True), {}
    >>> facts = ImplicitGuards(birth)
    >>> facts.builtin(scope, "len")
    >>> [str(place) for place in facts.held()]  # that the scope has none, and what Python's is
    ['len', 'len']
    >>> scope["len"] = max
    >>> len(facts.held())
    1
    >>> birth.end()
    """

    def __init__(self, birth: NewObjects, passing: Callable[[Any], bool] | None = None) -> None:
        self.birth, self.passing = birth, passing
        self.told: Callable[..., None] | None = None
        """Who is told of each place that is noted, whether it is a new one or not."""
        self.places: dict[Any, Source] = {}
        self._names: dict[tuple[type, types.CodeType], list[str]] = {}
        """Under which a class has a function."""
        self._ran: set[tuple[types.CodeType, int]] = set()
        """What native code has called, with which objects."""
        self._asked: dict[Any, type] = {}
        """By id: classes of which every special method counts."""
        self.tensors: Collection[Any] = ()
        """Real tensors from outside, whose memory an array may be."""
        self._shared: set[int] = set()
        """Ids of arrays that a tensor was made of since."""

    def held(self) -> list[Source]:
        """The places that are now as they were."""
        return [p for p in self.places.values() if p.holds()]

    def _stays(self, x: Any) -> bool:
        """Whether the next call finds the same object."""
        return not (self.birth.is_new(x) or (self.passing is not None and self.passing(x)))

    def note(self, store: Any, key: Any, value: Any, name: str = "") -> None:
        if self.told is not None:
            self.told("fact", store, key, value, name)
        place = Source(store, key, value, name)
        self.places.setdefault(place.at, place)

    # ---- functions -----------------------------------------------------------------------------

    def entered(self, fn: Any, args: Sequence[Any]) -> None:
        """A function of the user's is entered."""
        while type(fn) is functools.partial:
            self.partial(fn)
            fn, args = fn.func, (*fn.args, *args)
        target = python_function(fn)
        if target is None:
            return
        if self._stays(target) and not is_known_home(str(target.__module__)):
            self._function(target)
        if is_a(fn, type):
            self.made(fn)
        elif type(fn) is types.MethodType:
            self._found_under(fn.__self__, target)
        elif type(fn) is not types.FunctionType:
            self._found_under(fn, target)
            self.of_class(type(fn), "__call__")
        elif args:
            self._found_under(args[0], target)
            if target.__name__ == "__get__" and len(args) > 1:
                self._descriptor(args[0], args[1])

    def may_run(self, functions: Iterable[types.FunctionType]) -> None:
        """Native code was given something by which it comes to these, and may call them."""
        for fn in functions:
            if self._stays(fn) and not is_known_home(str(fn.__module__)):
                self._function(fn)

    def partial(self, x: functools.partial[Any]) -> None:
        """A `partial` is called; its keywords are a dict like any other."""
        if self._stays(x):
            self.note(x, "func", x.func)
            self.note(x, "args", x.args)

    def _function(self, fn: types.FunctionType) -> None:
        self.note(fn, "__code__", fn.__code__)
        if fn.__defaults__:  # (without, a call has given all that is needed)
            self.note(fn, "__defaults__", fn.__defaults__)
        if fn.__kwdefaults__:
            self.note(fn, "__kwdefaults__", fn.__kwdefaults__)
            for name, value in fn.__kwdefaults__.items():
                self.note(fn.__kwdefaults__, name, value)

    def _found_under(self, owner: Any, target: types.FunctionType) -> None:
        """Perhaps a class has the function: as a method, or in a property. Under which name it was
        found, a call does not say, and its own name need not be one of them."""
        if type(owner) in PLAIN:
            return
        if is_a(owner, TensorBase):
            for name in self._under(type(owner), target.__code__):
                self.of_class(type(owner), name)
            return
        kinds = (owner, type(owner)) if is_a(owner, type) else (type(owner),)
        for kind in kinds:
            self._of_both(owner, kind, self._under(kind, target.__code__))

    def _of_both(self, x: Any, kind: type, names: Iterable[str]) -> None:
        """Names were looked up in an object and in a class."""
        for name in names:
            self.of_object(x, name)
            self.of_class(kind, name)

    def _under(self, kind: type, code: types.CodeType) -> list[str]:
        if (kind, code) not in self._names:
            self._names[kind, code] = list(_names_of(kind, code))
        return self._names[kind, code]

    def run_by_native(
        self, frame: types.FrameType, given: Sequence[Any], names: set[str], attributes: set[str]
    ) -> None:
        """Native code has called a function of the user's that nobody follows: where its class has
        it, and what its names mean. `given`: its arguments; `attributes`: names it reads of them,
        or of its variables (`names`)."""
        found = [frame.f_globals[name] for name in names if name in frame.f_globals]
        for name in names:
            self.note(frame.f_globals, name, frame.f_globals.get(name, MISSING), name)
        for x in (*given, *found):
            kind = x if is_a(x, type) else type(x)
            at = frame.f_code, id(kind if self.birth.is_new(x) else x)
            if is_a(x, TensorBase) or type(x) in PLAIN or at in self._ran:
                continue  # (a sort asks the same object many times)
            self._ran.add(at)
            if is_a(x, types.ModuleType):
                for name in attributes & set(vars(x)):
                    self.of_python_module(x, name)
                continue
            self._of_both(x, kind, {*attributes, *self._under(kind, frame.f_code)})
            for name in CLASS_NAMES & attributes:
                self.note(kind, name, getattr(kind, name), f"{kind.__name__}.{name}")

    def _descriptor(self, descriptor: Any, owner: Any) -> None:
        """The user's own kind of property was asked: under which name, the call does not say."""
        for kind in type(owner).__mro__:
            for name, value in vars(kind).items():
                if value is descriptor:
                    self.of_object(owner, name)
                    own = own_dict(owner)
                    if is_a(own, dict) and self._stays(owner):
                        self.note(own, name, dict.get(own, name, MISSING))

    # ---- classes -------------------------------------------------------------------------------

    def of_class(self, kind: type, key: str, after: type | None = None) -> None:
        """A name was looked up in a class of the user's and its bases, or (`super`) in those
        `after` one of them."""
        if is_known_home(kind.__module__) or kind.__flags__ & _UNCHANGEABLE:
            return
        store = ClassSource(kind, after)
        found = store.find(key)
        self.note(store, key, found, f"{kind.__name__}.{key}")
        if found is MISSING and key[:2] != "__":
            self.of_class(kind, "__getattr__")
        elif key not in _BINDS and found is not MISSING and type(found) not in PLAIN:
            for name in _DESCRIBES:
                self.of_class(type(found), name)

    def of_object(self, x: Any, key: str) -> None:
        """An attribute of an object was read. Its class is asked first, whoever has it."""
        if is_a(x, type):
            self.of_class(x, key)
        if self._stays(x):
            kind = type(x)
            if not is_known_home(kind.__module__):
                self.note(x, "__class__", kind)
        self.of_class(type(x), key)
        self.looks(type(x))

    def looks(self, kind: type) -> None:
        """An attribute was found in the plain way: the class of the object may get another one."""
        self.of_class(kind, "__getattribute__")

    def written(self, x: Any, key: Any) -> None:
        """An attribute of an object was set or deleted in the plain way."""
        if not self.birth.is_new(x):
            self.of_object(x, key)
        for name in (key, "__setattr__", "__delattr__"):
            self.of_class(type(x), name)

    def methods_of(self, x: Any) -> None:
        """An instruction or native code was given an object: it may ask any of its methods, or
        find that it has none."""
        kind = type(x)
        if is_known_home(kind.__module__) or (id(kind), None) in self._asked:
            return
        self._asked[id(kind), None] = kind
        for name in dict.fromkeys((*_methods(kind), *_SPECIAL)):
            self.of_class(kind, name)

    def made(self, kind: type) -> None:
        """A class was called."""
        for name in ("__new__", "__init__"):
            self.of_class(kind, name)
        self.of_class(type(kind), "__call__")

    def layer(self, module: Any) -> None:
        """A module of ours is called: somebody may put another `forward` into its class."""
        kind = type(module)
        if is_known_home(kind.__module__):
            for name in ("forward", "__call__"):
                self.note(ClassSource(kind), name, find_in_class(kind, name))

    def of_tensor(self, t: Any, key: str) -> None:
        """An attribute or method of a tensor was read: somebody may patch its class."""
        kind = type(t)
        if is_known_home(kind.__module__):
            found = find_in_class(kind, key)
            if found is not None:
                self.note(ClassSource(kind), key, found, f"{kind.__name__}.{key}")
        else:
            self.of_class(kind, key)

    def _kind_of(self, t: Any) -> None:
        """A tensor was asked for its class, which somebody may set."""
        if not is_fake(t) and self._stays(t):
            self.note(t, "__class__", type(t))

    def array(self, x: Any) -> str:
        """The contents of an array were looked at; why they can't be compared (empty: they are)."""
        if self.birth.is_new(x):
            return ""
        why = unguarded(x, self.tensors, self._shared)
        if why:
            return why
        self.note(
            CallSource(contents, (x,)), "", contents(x), f"the contents of {type(x).__name__}"
        )
        return ""

    # ---- names and switches --------------------------------------------------------------------

    def builtin(self, scope: dict[str, Any], name: str) -> None:
        """A builtin was read in a scope where nothing has its name; somebody may patch it."""
        self.note(scope, name, MISSING, name)
        self.note(builtins.__dict__, name, builtins.__dict__.get(name, MISSING), name)

    def of_python_module(self, module: types.ModuleType, key: str) -> None:
        """An attribute of a module of Python's or ours was read: somebody may patch it."""
        own = module.__dict__
        self.note(own, key, dict.get(own, key, MISSING), f"{module.__name__}.{key}")

    def scope(self, scope: dict[str, Any], name: str, module: types.ModuleType) -> None:
        """A variable was read that is a module."""
        self.note(scope, name, module, name)

    def called(self, fn: Any, args: Sequence[Any]) -> None:
        """A native call: a switch may have been asked for, or whether an object belongs to an
        abstract class."""
        name = getattr(fn, "__name__", "")
        if is_a(fn, type):
            self.made(fn)
        if (fn is isinstance or fn is type) and args and is_a(args[0], TensorBase):
            self._kind_of(args[0])
        if name in SHARING:
            self._shared |= {id(owner_of(x)) for x in args if is_a(x, (*ARRAYS, bytearray))}
        if name in _SWITCHES and type(fn) is types.FunctionType and not args:
            if own_home(str(fn.__module__)).startswith("lucerne."):
                self.note(CallSource(fn, ()), "", fn(), name)
        elif type(fn) is _CACHED:
            kept = fn.cache_info()
            asked = CallSource(_Cached(fn, tuple(args), kept.hits + 1, kept.currsize), ())
            self.note(asked, "", LATER, name)
        elif fn is issubclass and len(args) == 2 and not is_known_home(str(args[0].__module__)):
            self.note(CallSource(fn, tuple(args)), "", fn(*args), name)
        elif fn in (isinstance, issubclass) and len(args) == 2 and _is_abstract(args[1]):
            self._belongs(fn, tuple(args), name)
        if fn in (isinstance, issubclass) and len(args) == 2:
            for kind in args[1] if is_a(args[1], tuple) else (args[1],):
                for method in ("__instancecheck__", "__subclasscheck__"):
                    self.of_class(type(kind), method)
            if not self.birth.is_new(args[0]):
                self.of_object(args[0], "__class__")

    def _belongs(self, fn: Any, args: tuple[Any, ...], name: str) -> None:
        if self._stays(args[0]) and not is_a(args[0], TensorBase):
            self.note(CallSource(fn, args), "", fn(*args), name)


_CACHED = type(functools.lru_cache(lambda: None))


class _Cached:
    """What a cached function gives. It is only asked if it still has what it gave: clearing sets
    its counts back. (If it had nothing, the user's function was called by native code, and
    everything is compared.)"""

    def __init__(self, fn: Any, args: tuple[Any, ...], hits: int, size: int) -> None:
        self.fn, self.args, self.hits, self.size = fn, args, hits, size
        self.is_over = False

    def __call__(self) -> Any:
        now = self.fn.cache_info()
        self.is_over = self.is_over or now.hits < self.hits or now.currsize < self.size
        return MISSING if self.is_over else self.fn(*self.args)


_UNCHANGEABLE = 1 << 8
"""Flag of a class that Python does not let change (Py_TPFLAGS_IMMUTABLETYPE)."""


def _names_of(kind: type, code: types.CodeType) -> Iterator[str]:
    """The names under which a class has a function, as it is or in a property."""
    for base in kind.__mro__:
        for name, value in vars(base).items():
            inner: Iterable[Any] = (value,)
            if is_a(value, _AROUND):
                inner = [getattr(value, key, None) for key in _UNDER]
            elif type(value) is not types.FunctionType:
                own = own_dict(value)
                inner = dict.values(own) if is_a(own, dict) else ()
            if any(type(x) is types.FunctionType and x.__code__ is code for x in inner):
                yield name


_DESCRIBES = ("__get__", "__set__", "__delete__")
_BINDS = frozenset((*_DESCRIBES, "__getattr__", "__getattribute__", "__setattr__", "__delattr__"))
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or",
              "xor", "lshift", "rshift", "divmod")  # fmt: skip
_SPECIAL = (
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__", "__len__",
    "__iter__", "__next__", "__contains__", "__getitem__", "__missing__", "__reversed__",
    "__str__", "__repr__", "__format__", "__bytes__", "__int__", "__float__", "__complex__",
    "__index__", "__round__", "__setitem__", "__delitem__", "__neg__", "__pos__", "__abs__",
    "__invert__", "__call__", "__torch_function__", "__class__",
    *(f"__{side}{name}__" for name in _OPERATORS for side in ("", "r", "i")),
)  # fmt: skip
"""What Python asks a class for by itself, and does something else where there is none."""


def _is_abstract(kinds: Any) -> bool:
    return any(
        type(k) is not type and is_known_home(type(k).__module__)
        for k in (kinds if is_a(kinds, tuple) else (kinds,))
        if is_a(k, type)
    )


def _methods(kind: type) -> Iterator[str]:
    """What native code may call of an object: the special methods that classes of users have."""
    for base in kind.__mro__:
        if not is_known_home(base.__module__):
            for name, value in vars(base).items():
                if name[:2] == "__" and type(value) is types.FunctionType and name != "__init__":
                    yield name
