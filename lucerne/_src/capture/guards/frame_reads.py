"""Frame reads: what a traced part of a function has looked at, and the check that it is still so.

Only what was read is compared at the next call: a variable that is just carried along may hold
anything. `FrameReads` collects while the part is traced. `FrameGuard` is what comes out: a Python
function, made from text (`source`), that compares and collects the tensors on its way.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucerne._src.base.raw import is_a, looks_plainly, own_dict, raw_attribute
from lucerne._src.capture.breaks.call_policy import refuse_opaque, unguarded_array
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.effects.arrays import ARRAYS, base_of
from lucerne._src.capture.effects.objects import (
    MOST,
    WINDOWS,
    Roots,
    is_fixed,
    is_iterator,
    is_plain,
    values_of,
)
from lucerne._src.capture.effects.rebuild import Same
from lucerne._src.capture.effects.stores import MISSING
from lucerne._src.capture.guards.implicit import ImplicitGuards
from lucerne._src.capture.guards.reachable import is_module, parts_of_module
from lucerne._src.tensor.base import TensorBase

_DEEPEST = 8
_STORES = (list, dict, set, deque)
Slot = tuple[int, int]
"""(number of a frame, number of one of its values)."""


class FrameReads:
    """What was read while a part was traced."""

    def __init__(self, roots: Roots, looked: Any) -> None:
        """`looked`: gets what is asked about tensors (a `tensor_reads.Looked`)."""
        self.roots, self.looked = roots, looked
        self.slots: set[Slot] = set()
        self.attributes: dict[int, set[str]] = {}
        """By id of an object that frames hold: the attributes that were read."""
        self.whole: set[int] = set()
        """Ids of objects of which everything counts."""
        self.cells: set[int] = set()
        self.stores: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        """By (id of a dict, list, cell or class, key): those, and what was found. They belong to
        objects that the function finds by name."""
        self.contents: dict[int, Any] = {}
        """Containers found by name of which all the content counts."""
        self.modules: dict[int, set[str] | None] = {}
        """By id of a module: the attributes that were read; None: all."""
        self.engine: dict[int, tuple[str, str]] = {}
        """By id of a dict of our own (hooks for all modules): in which module, by which name."""
        self.facts: ImplicitGuards | None = None
        """Code, classes and switches that it depends on; None: nobody traces."""
        self.everything = ""
        """Why everything counts that the function can reach; empty: what was read does."""

    def is_rooted(self, x: Any) -> bool:
        """Whether it is an object that the frames hold (and nobody finds by name)."""
        return id(x) in self.roots.seen

    def let_go(self) -> None:
        """Of what frames hold, when no more plans are made of this trace."""
        self.facts = self.looked = None
        self.roots = Roots((), set())

    def all_of(self, x: Any, depth: int = 0) -> None:
        """Somebody may have looked at everything in it."""
        if is_plain(x):
            return
        todo = deque([(x, depth, False)])
        seen: set[tuple[int, bool]] = set()
        while todo:  # the nearest first: each is looked at once, and no deeper than it must
            x, depth, held = todo.popleft()
            if (id(x), held) not in seen:
                seen.add((id(x), held))
                inside = self._one_of(x, depth, held)
                if inside is not None:
                    todo.extend((part, depth + 1, inside) for part in _inside(x))

    def _one_of(self, x: Any, depth: int, held: bool) -> bool | None:
        """Note one object that counts as a whole. `held`: it is found in something of which all
        the content counts; the answer is whether that is so for what is inside, None: nothing in
        there is looked at."""
        if is_plain(x):
            return None
        if is_module(x) and depth < _DEEPEST:
            self.modules.update((id(m), None) for _, m in parts_of_module(x))
            if self.facts is not None:
                for _, m in parts_of_module(x):
                    self.facts.layer(m)
        if is_a(x, TensorBase):
            self.looked.touch(x)
            return None
        refuse_opaque(x)
        if is_a(x, ARRAYS):
            for a in (x, base_of(x)):
                why = self.facts.array(a) if is_a(a, ARRAYS) and self.facts is not None else ""
                if why:
                    raise unguarded_array(why)
            return None
        if type(x) is bytearray and self.facts is not None and not self.is_rooted(x):
            self.facts.array(x)
        if is_fixed(x) or depth > _DEEPEST:
            return None
        if id(x) in self.whole or id(x) in self.contents:
            return None
        if self.facts is not None:
            self.facts.methods_of(x)
        if self.is_rooted(x):
            self.whole.add(id(x))
            return False
        stores = [s for s in (x, own_dict(x)) if is_a(s, _STORES)]
        known = [s for s in stores if held or id(s) in self.roots.stable]
        self.contents.update((id(s), s) for s in known)
        return bool(known) or (held and type(x) is tuple)

    def attribute(self, x: Any, name: str) -> None:
        self.attributes.setdefault(id(x), set()).add(name)

    def of_module(self, module: Any, name: str) -> None:
        """An attribute of a module was read."""
        found = self.modules.setdefault(id(module), set())
        if found is not None:
            found.add(name)

    def store(self, store: Any, key: Any, value: Any) -> None:
        """A value was found in something that the function finds by name."""
        self.stores.setdefault((id(store), key), (store, key, value))


def _inside(x: Any) -> Iterator[Any]:
    if is_a(x, (list, tuple, set, frozenset, deque)):
        yield from list(x)[:MOST]
    elif is_a(x, dict):
        yield from list(x.values())[:MOST]
    elif type(x) in WINDOWS:
        yield from gc.get_referents(x)
    elif type(x) is types.MethodType or type(x) is types.BuiltinFunctionType:
        yield x.__self__
    elif type(x) is types.FunctionType:
        yield from x.__closure__ or ()
    elif type(x) is types.CellType:
        try:
            yield x.cell_contents
        except ValueError:
            return
    elif is_a(own_dict(x), dict):
        yield from list(own_dict(x).values())


class FrameGuard:
    """What must be so for a traced part to be used, as a function made from text.

    `check(frames, leaves, objects)` returns None and has filled both lists, or it returns why the
    part can't be used.
    """

    def __init__(
        self, reads: FrameReads, frames: Sequence[PythonFrame], held: Callable[[Any], bool]
    ) -> None:
        """`held`: whether a tensor is one that stays the same object (a parameter)."""
        self.reads, self.held = reads, held
        self.lines: list[str] = []
        self.constants: list[Any] = []
        self.reasons: list[str] = []
        self.tensors: list[Any] = []
        self.names: list[str] = []
        """Of the tensors, as the user calls them."""
        self.objects: list[Any] = []
        self._count = 0
        self._places: dict[int, str] = {}
        for i, j in sorted(reads.slots):
            value = values_of(frames[i])[j]
            self._value(value, f"V[{i}][{j}]", _slot_name(frames[i], j))
        for store, key, value in reads.stores.values():
            self._store(store, key, value)
        self.lines += self._aliases()
        head = ["def check(V, leaves, objects):"]
        self.source = "\n".join([*head, *(f"    {line}" for line in self.lines), "    return None"])
        scope: dict[str, Any] = {
            "C": self.constants,
            "get": _content,
            "equal": equal,
            "same": _same_objects,
            "own_dict": own_dict,
            "raw_attribute": raw_attribute,
        }
        scope["aliases"] = alias_pattern
        exec(compile(self.source, "<guards>", "exec"), scope)
        self._check: Any = scope["check"]

    def check(
        self, frames: Sequence[PythonFrame], leaves: list[Any], objects: list[Any]
    ) -> str | None:
        """Why the part can't be used for these frames; None: it can."""
        try:
            return self.failure(frames, leaves, objects)
        except Exception as error:  # something is put together in another way
            return f"what was read is no longer there ({error})"

    def failure(
        self, frames: Sequence[PythonFrame], leaves: list[Any], objects: list[Any]
    ) -> str | None:
        """The same for the frames that were traced, which are put together in this way."""
        found = self._check([values_of(f) for f in frames], leaves, objects)
        return None if found is None else self.reasons[found]

    def let_go(self) -> None:
        """Of the values of the frames it was made from: only what is compared is kept."""
        self.tensors, self.objects, self.held = [], [], _nothing
        self.reads.facts = None

    @property
    def key(self) -> Any:
        """What two plans that ask for the same have in common."""
        return self.source, tuple(_comparable(c) for c in self.constants)

    # ---- one value -----------------------------------------------------------------------------

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _constant(self, x: Any) -> str:
        self.constants.append(x)
        return f"C[{len(self.constants) - 1}]"

    def _unless(self, condition: str, reason: str) -> None:
        self.reasons.append(reason)
        self.lines.append(f"if not ({condition}): return {len(self.reasons) - 1}")

    def _store(self, store: Any, key: Any, value: Any) -> None:
        at = self._constant(store)
        if key == "__dict__" and looks_plainly(store) and own_dict(store) is value:
            text, name = f"{at}.__dict__", f"the attributes of a {type(store).__name__}"
        elif is_a(store, type):
            text, name = f"getattr({at}, {key!r}, None)", f"{store.__name__}.{key}"
        elif is_a(store, types.CellType):
            text, name = f"get({at})", str(key)
        elif is_a(store, dict):
            named = repr(key) if is_plain(key) else self._constant(key)
            missing = self._constant(MISSING)
            get = f"{at}.get(" if type(store) is dict else f"dict.get({at}, "
            text, name = f"{get}{named}, {missing})", str(key)
        elif is_a(store, (list, bytearray)):
            text, name = f"{at}[{key!r}]", f"item {key!r}"
        else:  # a slot of an object
            missing = self._constant(MISSING)
            text = f"raw_attribute({at}, {key!r}, {missing})"
            name = f"{type(store).__name__}.{key}"
        self._value(value, text, name, found_by_name=True)

    def _value(self, x: Any, place: str, name: str, found_by_name: bool = False) -> None:
        v = self._name()
        self.lines.append(f"{v} = {place}")
        if is_a(x, TensorBase):
            self._tensor(x, v, name)
        elif is_plain(x):
            self._plain(x, v, name)
        elif found_by_name or is_fixed(x) or not self.reads.is_rooted(x) or x is UNSET:
            if not is_a(x, tuple):
                self._unless(f"{v} is {self._constant(x)}", f"{name} is another object")
            else:
                self._inside(x, v, name)
        else:
            self.objects.append(x)
            self.lines.append(f"objects.append({v})")
            self._inside(x, v, name)

    def _tensor(self, x: Any, v: str, name: str) -> None:
        if self.held(x):
            self._unless(f"{v} is {self._constant(x)}", f"{name} is another tensor")
            return
        if not any(x is t for t in self.tensors):
            self._places[id(x)] = v
            self.tensors.append(x)
            self.names.append(name)
            kind = self._constant(type(x))
            self._unless(f"type({v}) is {kind}", f"{name} is no {type(x).__name__}")
            self.lines.append(f"leaves.append({v})")
        else:
            self._unless(f"{v} is {self._places[id(x)]}", f"{name} is another tensor")

    def _plain(self, x: Any, v: str, name: str) -> None:
        if x is None or x is True or x is False or x is Ellipsis:
            self._unless(f"{v} is {x!r}", f"{name} is no longer {x!r}")
            return
        at = self._constant(x)
        shown = repr(x) if len(repr(x)) < 60 else repr(x)[:57] + "..."
        self._unless(f"{v} is {at} or equal({v}, {at})", f"{name} was {shown}")

    def _inside(self, x: Any, v: str, name: str) -> None:
        """The kind of an object, and what was read of it."""
        if any(x is y for y in self.objects[:-1]):
            return  # an alias: seen already
        kind = type(x)
        self._unless(f"type({v}) is {self._constant(kind)}", f"{name} is no {kind.__name__}")
        if is_iterator(x):
            return
        whole = id(x) in self.reads.whole
        if kind is types.FunctionType:
            self._function(x, v, name)
        elif kind is types.MethodType:
            self._value(x.__func__, f"{v}.__func__", f"{name}.__func__")
            self._value(x.__self__, f"{v}.__self__", f"{name}.__self__")
        elif is_a(x, functools.partial):
            self._value(x.func, f"{v}.func", f"{name}.func")
            self._value(x.args, f"{v}.args", f"{name}.args")
            self._dict(x.keywords, f"{v}.keywords", f"keywords of {name}")
        elif kind is types.BuiltinFunctionType:
            named = f"{v}.__name__ == {x.__name__!r}"
            self._unless(named, f"{name} is another method")
            self._value(x.__self__, f"{v}.__self__", f"{name}.__self__")
        elif kind is types.CellType:
            if whole or id(x) in self.reads.cells:
                self._value(_content(x), f"get({v})", name)
        elif is_a(x, tuple) or (is_a(x, (list, deque)) and whole):
            self._unless(f"len({v}) == {len(x)}", f"the length of {name} was {len(x)}")
            if len(x) <= MOST:
                for k, part in enumerate(x):
                    self._value(part, f"{v}[{k}]", f"{name}[{k}]")
        elif is_a(x, dict) and whole:
            self._dict(x, v, name)
        elif is_a(x, bytearray) and whole:
            same = f"{v} == {self._constant(bytes(x))}"
            self._unless(same, f"the content of {name}")
        elif is_a(x, (set, frozenset)) and whole:
            at = self._constant(x.copy())
            same = f"{v} == {at}" if all(map(is_plain, x)) else f"same({v}, {at})"
            self._unless(same, f"the content of {name}")
        self._attributes(x, v, name, whole)

    def _function(self, x: Any, v: str, name: str) -> None:
        code, scope = self._constant(x.__code__), self._constant(x.__globals__)
        same = f"{v}.__code__ is {code} and {v}.__globals__ is {scope}"
        self._unless(same, f"{name} is another function")
        self._value(x.__defaults__, f"{v}.__defaults__", f"defaults of {name}")
        named = self._name()
        self.lines.append(f"{named} = {v}.__kwdefaults__")
        if x.__kwdefaults__ is None:
            self._unless(f"{named} is None", f"{name} has keyword defaults")
        else:
            self._unless(f"type({named}) is dict", f"{name} has no keyword defaults")
            self._dict(x.__kwdefaults__, named, f"keyword defaults of {name}")
        for k, cell in enumerate(x.__closure__ or ()):
            self._value(cell, f"{v}.__closure__[{k}]", x.__code__.co_freevars[k])

    def _dict(self, x: dict[Any, Any], v: str, name: str) -> None:
        if len(x) <= MOST and not all(map(is_plain, x)):
            self._dict_of_objects(x, v, name)
            return
        keys = self._constant(list(x))
        self._unless(f"list({v}) == {keys}", f"the keys of {name} were {list(x)!r:.60}")
        if len(x) <= MOST:
            for k, (key, part) in enumerate(x.items()):
                self._value(part, f"{v}[{keys}[{k}]]", f"{name}[{key!r}]")

    def _dict_of_objects(self, x: dict[Any, Any], v: str, name: str) -> None:
        """Keys that are the user's objects are not looked up: that would run their methods."""
        self._unless(f"len({v}) == {len(x)}", f"the length of {name} was {len(x)}")
        keys, parts = self._name(), self._name()
        self.lines += [f"{keys} = list({v})", f"{parts} = list({v}.values())"]
        for k, (key, part) in enumerate(x.items()):
            self._value(key, f"{keys}[{k}]", f"key {k} of {name}")
            self._value(part, f"{parts}[{k}]", f"value {k} of {name}")

    def _attributes(self, x: Any, v: str, name: str, whole: bool) -> None:
        own = own_dict(x)
        slotted = any("__slots__" in base.__dict__ for base in type(x).__mro__)
        if type(own) is not dict and not slotted and not is_a(x, _KNOWN_KINDS):
            self._unless(f"{v} is {self._constant(x)}", f"{name} is another object")
        if type(own) is not dict or is_a(x, types.FunctionType):
            for key in sorted(self.reads.attributes.get(id(x), ())):
                if key in getattr(type(x), "__slots__", ()):
                    found = raw_attribute(x, key, MISSING)
                    self._value(found, f"raw_attribute({v}, {key!r}, None)", f"{name}.{key}")
            return
        read = self.reads.attributes.get(id(x), set())
        held = f"{v}.__dict__" if looks_plainly(x) else f"own_dict({v})"
        if whole:
            self._unless(f"len({held}) == {len(own)}", f"{name} has other attributes")
        for key in sorted(own.keys() if whole else read):  # (it may be none of its own)
            missing = self._constant(MISSING)
            text = f"{held}.get({key!r}, {missing})"
            self._value(own.get(key, MISSING), text, f"{name}.{key}")

    def _aliases(self) -> list[str]:
        if len(self.objects) < 2:
            return []
        pattern = alias_pattern(self.objects)
        self.reasons.append("the same objects stand in other places")
        at = len(self.reasons) - 1
        return [f"if aliases(objects) != {pattern!r}: return {at}"]


_KNOWN_KINDS = (
    list, tuple, dict, set, frozenset, deque, types.FunctionType, types.MethodType,
    types.BuiltinFunctionType, types.CellType,
)  # fmt: skip


def _comparable(x: Any) -> Any:
    if type(x) is list and all(map(is_plain, x)):
        return tuple(x)
    return (type(x), x) if is_plain(x) else Same(x)


def alias_pattern(objects: Sequence[Any]) -> list[int]:
    """For each object, where it stands for the first time."""
    first: dict[int, int] = {}
    return [first.setdefault(id(x), k) for k, x in enumerate(objects)]


def equal(a: Any, b: Any) -> bool:
    """Whether a plain value is the same: 0.0 is not -0.0, 1 is not True, nan is nan."""
    if type(a) is not type(b):
        return False
    if type(a) is float or type(a) is complex:
        return repr(a) == repr(b)
    return bool(a == b)


def _nothing(x: Any) -> bool:
    return False


def _same_objects(a: Any, b: Any) -> bool:
    """Whether two sets hold the very same objects; nothing is asked of them."""
    return set(map(id, a)) == set(map(id, b))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _slot_name(frame: PythonFrame, j: int) -> str:
    names = frame.decoded.slot_names
    return names[j] if j < len(names) else "a value in use"
