"""What a part of a function leaves behind, written down so that another call can make it again.

A `ObjectWriter` turns values into nodes: tensors and plain values become leaves, objects that were
there before are named by number, new ones are described (a list of these, a function with this code
and these cells, an object of this class). A `ObjectBuilder` makes them, with the tensors, objects
and frames of one call.
"""

from __future__ import annotations

import functools
import gc
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.base.shape import Size
from lucerne._src.capture.breaks.liveness import live_names
from lucerne._src.capture.bytecode.frame import UNSET, Listing, PythonFrame, rebuilt
from lucerne._src.capture.bytecode.generators import PythonGenerator
from lucerne._src.capture.effects.objects import content_of, is_plain, values_of
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.tensor.base import TensorBase

_ITERATORS: tuple[Any, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(reversed([])), enumerate, zip,
    type(iter({}.values())), type(iter({})), type(iter({}.items())), type(iter("")),
)  # fmt: skip
"""Iterators that say how to be made again (`__reduce__`), the rest of what they go through
included."""
_OF_DICTS: dict[type, str] = {type(iter(getattr({}, n)())): n for n in ("keys", "values", "items")}


class Same:
    """A value that is compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"Same({type(self.value).__name__})"


class Carried:
    """Stands for a value of a frame that the part does not look at: it stays what it is."""

    __slots__ = ("frame", "number")

    def __init__(self, frame: int, number: int) -> None:
        self.frame, self.number = frame, number

    def __repr__(self) -> str:
        return f"<value {self.number} of frame {self.frame}>"


Node = tuple[Any, ...]
"""How a value is made: its kind, then what that kind needs."""


@dataclass
class FrameNode:
    """How a frame is made."""

    fn: Node
    decoded: Same
    ip: int
    last: int
    slots: int
    stack: int
    link: str
    kw_names: tuple[str, ...]
    values: list[Node]
    generator: Node | None = None


_HEAP_TYPE = 1 << 9
"""Of `type.__flags__`: a class made by a `class` statement."""


def _container_base(kind: type) -> Any:
    """What a class of the user's extends that holds items by itself: dict, OrderedDict or list."""
    if not kind.__flags__ & _HEAP_TYPE or not kind.__dictoffset__:
        return None
    base = next(b for b in kind.__mro__ if not b.__flags__ & _HEAP_TYPE)
    above = kind.__mro__[: kind.__mro__.index(base)]
    plain = base in (dict, OrderedDict, list) and kind.__new__ is base.__new__
    return base if plain and not any(map(_slots, above)) else None


@dataclass
class ObjectWriter:
    """Writes down values as nodes; tensors and plain values become leaves."""

    objects: dict[int, int]
    """By id of an object that was there before: its number."""
    is_new: Callable[[Any], bool]
    leaves: list[Any] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _leaves: dict[int, int] = field(default_factory=dict)

    def value(self, x: Any) -> Node:
        """How to make a value again."""
        if type(x) is Carried:
            return "carried", x.frame, x.number
        if x is UNSET:
            return "same", Same(UNSET)
        if is_plain(x):
            return self._leaf(x)
        if is_a(x, TensorBase):
            found = self._leaves.get(id(x))
            if found is None:
                found = self._leaves[id(x)] = len(self.leaves)
                return self._leaf(x)
            return "leaf", found
        if id(x) in self.objects:
            return "object", self.objects[id(x)]
        if id(x) in self._numbers:
            return "again", self._numbers[id(x)]
        if not is_a(x, (tuple, frozenset, types.MethodType, slice)) and not self.is_new(x):
            return "same", Same(x)
        return self._new(x)

    def _leaf(self, x: Any) -> Node:
        self.leaves.append(x)
        return "leaf", len(self.leaves) - 1

    def _new(self, x: Any) -> Node:
        number = self._numbers[id(x)] = len(self._numbers)
        self._kept.append(x)
        kind: Any = Size if is_a(x, Size) else type(x)
        if kind in (list, tuple, set, frozenset, deque):
            return _KINDS[kind], number, tuple([self.value(v) for v in x])
        if kind is dict:
            pairs = tuple([(self.value(k), self.value(v)) for k, v in x.items()])
            return "dict", number, pairs
        if is_a(x, tuple):
            made = kind._make if hasattr(kind, "_make") else kind
            return "named", number, Same(kind), made, tuple([self.value(v) for v in x])
        if kind is types.CellType:
            return "cell", number, tuple([self.value(v) for v in content_of(x)])
        if kind is types.FunctionType:
            return self._function(x, number)
        if kind is types.MethodType:
            return "method", number, self.value(x.__func__), self.value(x.__self__)
        if kind is slice:
            return "slice", number, tuple(self.value(v) for v in (x.start, x.stop, x.step))
        if kind is types.BuiltinFunctionType and x.__self__ is not None:
            return "bound", number, self.value(x.__self__), x.__name__
        if kind is functools.partial:
            given = tuple([self.value(v) for v in x.args])
            named = tuple([(k, self.value(v)) for k, v in x.keywords.items()])
            return "partial", number, self.value(x.func), given, named
        if kind is PythonGenerator:
            return self._generator(x, number)
        if kind in _ITERATORS:
            return self._iterator(x, number)
        return self._instance(x, number)

    def _function(self, x: Any, number: int) -> Node:
        if x.__dict__:
            raise CaptureError(f"{x.__qualname__}() is made inside and has attributes")
        closure = tuple([self.value(c) for c in x.__closure__ or ()])
        defaults = self.value(x.__defaults__)
        named = self.value(x.__kwdefaults__)
        return (
            "function", number, Same(x.__code__), Same(x.__globals__), x.__name__, x.__qualname__,
            defaults, named, closure, x.__doc__,
        )  # fmt: skip

    def _iterator(self, x: Any, number: int) -> Node:
        made, args, *state = x.__reduce__()  # (raises if the dict has another size since)
        way = _OF_DICTS.get(type(x))
        tables = [] if way is None else [t for t in gc.get_referents(x) if is_a(t, dict)]
        if len(tables) == 1:  # what it comes to may be another value by then
            gone = len(tables[0]) - operator.length_hint(x)
            return "table_iterator", number, way, self.value(tables[0]), gone
        if made is iter and args and is_a(args[0], list) and self.is_new(args[0]):
            # What is left of a dict's iterator is a new list at each question.
            self._kept.append(args)
        rest = tuple(self.value(v) for v in state if v is not None)
        return "iterator", number, Same(made), tuple([self.value(v) for v in args]), rest

    def _generator(self, x: PythonGenerator, number: int) -> Node:
        if x.running:
            raise CaptureError(f"the generator {x.__qualname__} is running")
        frame = None if x.frame is None else self.frame(x.frame, [])
        named = Same(x.gi_code), x.__name__, x.__qualname__
        return "generator", number, named, frame, x.started

    def _instance(self, x: Any, number: int) -> Node:
        """An object of a class with attributes and nothing else."""
        kind = type(x)
        base = _container_base(kind)
        if base is not None:
            items = base.items(x) if issubclass(base, dict) else enumerate(base.__iter__(x))
            content = tuple([(self.value(k), self.value(v)) for k, v in items])
            attributes = tuple([(n, self.value(v)) for n, v in x.__dict__.items()])
            return "container", number, Same(kind), Same(base), content, attributes
        home = own_home(kind.__module__)
        plain = home.partition(".")[0] != "lucerne" or home.startswith(
            "lucerne._src.tensor.autograd.mo"
        )
        own = own_dict(x)
        names = [n for base in kind.__mro__ for n in _slots(base)]
        simple = kind.__flags__ & _HEAP_TYPE and not is_a(x, (dict, list, set, int, str, float))
        if not simple or is_module(x) or is_optimizer(x) or not (plain or own is not None):
            raise CaptureError(f"a new {kind.__name__} is left behind, which a program can't make")
        if is_a(x, BaseException):
            args = tuple([self.value(v) for v in x.args])
        elif Same(kind.__new__) != Same(object.__new__) and not hasattr(
            kind, "__dataclass_fields__"
        ):
            raise CaptureError(f"a new {kind.__name__} is left behind, which a program can't make")
        else:
            args = ()
        attributes = tuple([(n, self.value(v)) for n, v in (own or {}).items()])
        held = tuple([(n, self.value(getattr(x, n))) for n in names if hasattr(x, n)])
        return "instance", number, Same(kind), args, attributes, held

    def frame(self, frame: PythonFrame, given: Sequence[PythonFrame]) -> FrameNode:
        """How to make a frame; variables that nobody reads any more are left out."""
        listing = frame.listing()
        live = live_names(frame.decoded, frame.ip)
        names, cells = frame.decoded.slot_names, frame.decoded.cell_names
        values = []
        for k, x in enumerate(listing.values):
            dead = live is not None and k < listing.slots and names[k] not in live
            if dead and names[k] not in cells and listing.generator is None:
                values.append(self.value(UNSET))
            else:
                values.append(self.value(x))
        origin = [k for k, f in enumerate(given) if f is frame]
        fn: Node = ("frame", origin[0]) if origin else self.value(frame.fn)
        if listing.generator is not None and not given:
            raise CaptureError("a generator is in the middle of its body")
        return FrameNode(
            fn, Same(frame.decoded), listing.ip, listing.last, listing.slots, listing.stack,
            listing.link, listing.kw_names, values,
        )  # fmt: skip


def _slots(kind: type) -> list[str]:
    found = kind.__dict__.get("__slots__", ())
    names = [found] if is_a(found, str) else list(found)
    return [n for n in names if n not in ("__dict__", "__weakref__")]


_KINDS: dict[Any, str] = {
    list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque",
}  # fmt: skip


# ---- making it again ----------------------------------------------------------------------------


class ObjectBuilder:
    """Makes values from nodes, with the tensors, objects and frames of one call."""

    def __init__(
        self,
        leaves: Sequence[Any],
        objects: Sequence[Any],
        frames: Sequence[PythonFrame],
        machine: Any,
    ) -> None:
        self.leaves, self.objects, self.frames, self.machine = leaves, objects, frames, machine
        self.made: dict[int, Any] = {}

    def value(self, node: Node) -> Any:
        """The value of a node."""
        kind = node[0]
        if kind == "leaf":
            return self.leaves[node[1]]
        if kind == "carried":
            return values_of(self.frames[node[1]])[node[2]]
        if kind == "object":
            return self.objects[node[1]]
        if kind == "same":
            return node[1].value
        if kind == "again":
            return self.made[node[1]]
        if kind == "frame":
            return self.frames[node[1]].fn
        made = getattr(self, f"_{kind}")(*node[1:])
        self.made[node[1]] = made
        return made

    def all(self, nodes: Iterable[Node]) -> Iterator[Any]:
        return (self.value(n) for n in nodes)

    def _list(self, number: int, items: Any) -> list[Any]:
        made: list[Any] = []
        self.made[number] = made
        made.extend(self.all(items))
        return made

    def _tuple(self, number: int, items: Any) -> tuple[Any, ...]:
        return tuple(self.all(items))

    def _set(self, number: int, items: Any) -> set[Any]:
        return set(self.all(items))

    def _frozenset(self, number: int, items: Any) -> frozenset[Any]:
        return frozenset(self.all(items))

    def _deque(self, number: int, items: Any) -> deque[Any]:
        return deque(self.all(items))

    def _dict(self, number: int, pairs: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        self.made[number] = made
        for key, x in pairs:
            made[self.value(key)] = self.value(x)
        return made

    def _named(self, number: int, kind: Same, make: Any, items: Any) -> Any:
        return make(list(self.all(items)))

    def _cell(self, number: int, content: Any) -> types.CellType:
        made = types.CellType()
        self.made[number] = made
        for x in content:
            made.cell_contents = self.value(x)
        return made

    def _function(
        self, number: int, code: Same, scope: Same, name: str, full: str, defaults: Node,
        named: Node, closure: Any, doc: str | None,
    ) -> Any:  # fmt: skip
        cells = tuple(self.all(closure))
        made = types.FunctionType(code.value, scope.value, name, self.value(defaults), cells)
        made.__qualname__, made.__kwdefaults__ = full, self.value(named)
        made.__doc__ = doc
        return made

    def _method(self, number: int, function: Node, owner: Node) -> Any:
        return types.MethodType(self.value(function), self.value(owner))

    def _slice(self, number: int, parts: Any) -> slice:
        return slice(*self.all(parts))

    def _bound(self, number: int, owner: Node, name: str) -> Any:
        return getattr(self.value(owner), name)

    def _partial(self, number: int, function: Node, given: Any, named: Any) -> Any:
        kwargs = {k: self.value(v) for k, v in named}
        return functools.partial(self.value(function), *self.all(given), **kwargs)

    def _iterator(self, number: int, make: Same, args: Any, state: Any) -> Any:
        made = make.value(*self.all(args))
        for x in self.all(state):
            made.__setstate__(x)
        return made

    def _table_iterator(self, number: int, way: str, table: Node, gone: int) -> Any:
        made = iter(getattr(dict, way)(self.value(table)))
        for _ in range(gone):
            next(made)
        return made

    def _generator(self, number: int, like: Any, frame: Any, started: bool) -> Any:
        made = PythonGenerator.__new__(PythonGenerator)
        made.machine = self.machine
        made.running, made.started = False, started
        made.gi_code, made.__name__, made.__qualname__ = like[0].value, like[1], like[2]
        made.frame = None
        self.made[number] = made
        if frame is not None:
            made.frame = self.frame(frame)
            made.frame.generator = made
        return made

    def _container(self, number: int, kind: Same, base: Same, content: Any, attributes: Any) -> Any:
        made = self.made[number] = base.value.__new__(kind.value)
        for key, x in content:  # (methods of the class's own have run already)
            if issubclass(base.value, dict):
                base.value.__setitem__(made, self.value(key), self.value(x))
            else:
                base.value.append(made, self.value(x))
        for name, x in attributes:
            made.__dict__[name] = self.value(x)
        return made

    def _instance(self, number: int, kind: Same, args: Any, attributes: Any, held: Any) -> Any:
        cls = kind.value
        made = (
            cls.__new__(cls, *self.all(args))
            if args
            else object.__new__(cls)
            if not issubclass(cls, BaseException)
            else cls.__new__(cls)
        )
        self.made[number] = made
        for name, x in attributes:
            made.__dict__[name] = self.value(x)
        for name, x in held:
            object.__setattr__(made, name, self.value(x))
        return made

    def frame(self, node: FrameNode) -> PythonFrame:
        """The frame of a node."""
        values = list(self.all(node.values))
        generator = None if node.generator is None else self.value(node.generator)
        return rebuilt(
            Listing(
                self.value(node.fn),
                node.decoded.value,
                node.ip,
                node.last,
                node.slots,
                node.stack,
                node.link,
                node.kw_names,
                generator,
                values,
            )
        )
