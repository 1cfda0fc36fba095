"""Read log: what a function has read while it was traced whole, so that guards compare no more.

The bytecode machine tells of every variable, attribute and item that is read, and of every
instruction that looks into its operands. What is handed to native code counts as read whole: it may
look at anything in there. Where native code may come to functions of the user's that nobody follows
(a hook, a checkpointed function), everything counts that the function could reach.
"""

from __future__ import annotations

import builtins
import enum
import functools
import gc
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.process.structure_version import CountsChanges
from lucerne._src.base.raw import is_a, looks_plainly, own_dict, own_store
from lucerne._src.capture.breaks.call_policy import calls_user_code, refuse_opaque, unguarded_array
from lucerne._src.capture.breaks.liveness import slots_of
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.bytecode.hooks import NOTHING, Access, is_entered
from lucerne._src.capture.bytecode.targets import find_in_class, found_natively
from lucerne._src.capture.effects.arrays import ARRAYS, base_of
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import WINDOWS, is_plain
from lucerne._src.capture.effects.stores import MISSING, MOST, PLAIN
from lucerne._src.capture.guards.implicit import ImplicitGuards
from lucerne._src.capture.guards.reachable import CLOSED, is_module, is_optimizer, parts_of_module
from lucerne._src.capture.guards.sources import KNOWN_HOMES, Source
from lucerne._src.capture.trace.pytree import KeptContainer, has_fields
from lucerne._src.ir import dispatch
from lucerne._src.tensor.base import TensorBase, plain_types

_state = dispatch.state
LOOKS_INSIDE = {
    "GET_ITER": 1, "UNPACK_SEQUENCE": 1, "UNPACK_EX": 1, "CONTAINS_OP": 2, "COMPARE_OP": 2,
    "LIST_EXTEND": 1, "SET_UPDATE": 1, "DICT_UPDATE": 1, "DICT_MERGE": 1, "FORMAT_VALUE": 2,
    "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "CONVERT_VALUE": 1, "BINARY_OP": 2,
    "BINARY_SLICE": 3, "GET_LEN": 1, "LIST_TO_TUPLE": 1, "MATCH_SEQUENCE": 1, "MATCH_MAPPING": 1,
    "MATCH_KEYS": 2, "MATCH_CLASS": 3, "CALL_INTRINSIC_1": 1, "CALL_INTRINSIC_2": 2,
    "GET_YIELD_FROM_ITER": 1, "UNARY_NEGATIVE": 1, "UNARY_INVERT": 1, "UNARY_POSITIVE": 1,
    "SET_ADD": 1, "MAP_ADD": 2, "STORE_SUBSCR": 1, "DELETE_SUBSCR": 1,
}  # fmt: skip
"""Instructions that look at everything in their operands, and how many of those there are."""
_OF_MODULES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, bytearray)
_NAMES_ALL = tuple(
    vars(builtins)[name] for name in ("globals", "locals", "vars", "dir", "eval", "exec")
)
"""Builtins that look at variables without naming them."""
_ONLY_KIND = (isinstance, issubclass, type, callable, id)
"""Builtins that ask an object for no more than its class, or which object it is."""
_ATTRIBUTES = (getattr, hasattr)
FINDS = frozenset(("index", "count", "remove", "__contains__"))
"""Methods of containers that look for something, by identity first."""
_DEEPEST = 5
_MANY = 256


def _loads(name: str) -> bool:
    """Whether an instruction reads variables."""
    return name.startswith("LOAD_") or "LOAD_FAST" in name or "DEREF" in name


_NAMESPACES = ("lucerne._ops", "lucerne._src.ir.overload")


class Arguments:
    """The arguments of a call as the function gets them, and which of their leaves it reads."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.leaves: list[Any] = []
        self.trees: dict[int, tuple[Any, dict[Any, Any], range]] = {}
        """By id of a container: itself, where each of its parts is (the number of a leaf, or a
        container), and the leaves below it."""
        self.slots: dict[int, set[int]] = {}
        """By number of a variable of the first frame: leaves that it may hold."""
        self.first: PythonFrame | None = None
        self.read: set[int] = set()
        self.paths: dict[int, tuple[Any, ...]] = {}
        """By id of a container: where it is in (args, kwargs)."""
        for k, tree in enumerate(args):
            self._walk(tree, (0, k))
        for name, tree in kwargs.items():
            self._walk(tree, (1, name))

    def _walk(self, tree: Any, path: tuple[Any, ...]) -> Any:
        """In the order of `pytree.flatten`."""
        kind = type(tree)
        begin = len(self.leaves)
        if kind is tuple or kind is list or (is_a(tree, tuple) and hasattr(kind, "_fields")):
            parts = {k: self._walk(x, (*path, k)) for k, x in enumerate(tree)}
        elif is_a(tree, dict):
            parts = {k: self._walk(x, (*path, k)) for k, x in tree.items()}
        elif has_fields(tree):
            own = own_dict(tree)
            names = list(kind.__dataclass_fields__) if own is None else list(own)
            parts = {n: self._walk(getattr(tree, n), (*path, n)) for n in names}
        else:
            self.leaves.append(tree)
            return begin
        self.trees[id(tree)] = tree, parts, range(begin, len(self.leaves))
        self.paths[id(tree)] = path
        return tree

    def bind(self, frame: PythonFrame) -> None:
        """`frame` is the function's, before its first instruction."""
        self.first = frame
        if frame.code.co_flags & 0x0C:  # *args, **kwargs: other containers than were given
            self.all()
            return
        for j, value in enumerate(frame.slots):
            found = {k for k, x in enumerate(self.leaves) if x is value}
            if found:
                self.slots[j] = found
        known = set().union(*self.slots.values()) if self.slots else set()
        known |= {k for _, _, below in self.trees.values() for k in below}
        self.read |= set(range(len(self.leaves))) - known

    def all(self) -> None:
        self.read |= set(range(len(self.leaves)))

    def load(self, slot: int) -> None:
        self.read |= self.slots.get(slot, frozenset())

    def child(self, container: Any, key: Any) -> None:
        """An item or attribute of a container was read."""
        _, parts, below = self.trees[id(container)]
        negative = type(key) is int and key < 0 and is_a(container, (list, tuple))
        part = parts.get(key + len(container) if negative else key) if is_key(key) else None
        if type(part) is int:
            self.read.add(part)
        elif part is None:
            self.read |= set(below)

    def is_container(self, x: Any) -> bool:
        """Whether it is a leaf for which another, equal one will do."""
        equal = (set, frozenset, deque, bytearray)
        return is_a(x, equal) and any(x is leaf for leaf in self.leaves)

    def below(self, container: Any) -> list[Any]:
        """All of a container was read; its leaves."""
        below = self.trees[id(container)][2]
        self.read |= set(below)
        return [self.leaves[k] for k in below]


def is_key(x: Any) -> bool:
    """Whether it can be looked up without asking anything of the user's."""
    return type(x) in PLAIN and type(x) is not float and type(x) is not complex


def looked_up(fn: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    """Of which dict a call asks one key: `options.get("key")`, which reads no more than `[]` (of a
    class of the user's, dict's own `get`). (None, None): of none."""
    if type(fn) is types.BuiltinFunctionType and fn.__name__ == "get" and given:
        store = fn.__self__
        if is_a(store, dict) and is_key(given[0]):
            return store, given[0]
    return None, None


def key_asked(key: Any, store: Any) -> tuple[Any, Any]:
    """The same for `key in store`. (What stands there counts as well: a tensor may change.)"""
    if not is_a(store, dict) or not is_key(key):
        return None, None
    plain = find_in_class(type(store), "__contains__") in _CONTAINS
    tensors = is_a(dict.get(store, key), TensorBase)
    return (store, key) if plain and not tensors else (None, None)


_CONTAINS = (dict.__contains__,)


def engine_table(scope: dict[str, Any], value: Any) -> str:
    """The module of ours whose dict this is (hooks for all modules); empty: it is no such thing."""
    home = own_home(str(scope.get("__name__", "")))
    table = type(value) in (dict, OrderedDict) or is_a(value, CountsChanges)
    return home if table and home.startswith("lucerne.") else ""


class ReadLog:
    """What was read while a function was traced. `birth` tells what was made since."""

    def __init__(self, birth: NewObjects, arguments: Arguments | None, looked: Any) -> None:
        """`looked`: gets what is asked about tensors (a `tensor_reads.Looked`)."""
        self.birth, self.arguments, self.looked = birth, arguments, looked
        self.told: Callable[..., None] | None = None
        """Who is told of what is noted, whether it is new or not."""
        self.everything = ""
        """Why everything counts that can be reached; empty: what was read does."""
        self.places: dict[tuple[int, Any], Source] = {}
        self.facts = ImplicitGuards(birth)
        self.whole: dict[int, Any] = {}
        """By id: objects of which all counts."""
        self.modules: dict[int, tuple[Any, set[str] | None]] = {}
        """By id: modules, and the names of attributes that were read; None: all."""
        self.optimizers: dict[int, Any] = {}
        self.hooks: dict[int, Any] = {}
        """By id: the dicts of modules that hold their hooks."""
        self.engine: dict[int, tuple[str, str]] = {}
        """By id: dicts of our own (hooks for all modules), as (module, name)."""
        self.written: set[tuple[int, Any]] = set()
        """Places that the function itself has written to: what it finds there is its own."""

    def all(self, why: str) -> None:
        """Everything counts, as somebody has looked who does not tell at what."""
        if self.told is not None:
            self.told("refused")
        self.everything = self.everything or why
        if self.arguments is not None:
            self.arguments.all()

    # ---- what the machine tells ----------------------------------------------------------------

    def before(self, frame: PythonFrame) -> None:
        """An instruction comes next."""
        if _state.call_level or len(_state.kernel_level) > 1:
            self.all("a mode sees the ops")
        op = frame.decoded.ops[frame.ip]
        name = op.name
        count = LOOKS_INSIDE.get(name, 0)
        if name == "CALL_FUNCTION_EX":
            count = 1 + (op.argument & 1)
        elif name in ("BUILD_SET", "BUILD_STRING"):
            count = op.argument
        if name.startswith("CALL"):
            self._partials(frame)
        elif name in ("CONTAINS_OP", "COMPARE_OP"):
            self.looked.compared(*frame.stack[-2:])
        if name == "CONTAINS_OP" and self.key_of(*key_asked(*frame.stack[-2:])):
            return
        if count:
            for x in frame.stack[-count:]:
                self.all_of(x)
        elif self.arguments is not None and frame is self.arguments.first and _loads(name):
            for slot in slots_of(name, op.argument):
                self.arguments.load(slot)

    def _partials(self, frame: PythonFrame) -> None:
        """The keywords of a `partial` can be changed."""
        for x in frame.stack:
            if type(x) is functools.partial and not self.birth.is_new(x):
                self.facts.partial(x)
                if x.keywords:
                    self.whole[id(x.keywords)] = x.keywords

    def enter(self, fn: Any, args: Sequence[Any]) -> None:
        """A function of the user's is entered."""
        name = getattr(fn, "__name__", "")
        if name == "__missing__" and args:
            self.all_of(args[0])  # a key that is not there was looked up
        elif name == "__getattr__" and len(args) == 2:
            self._attribute(args[0], args[1], None)
        self.facts.entered(fn, args)

    def call(self, fn: Any, given: Sequence[Any], ours: bool, op: bool) -> bool:
        """A native call: what it is given may be looked at. `ours`: of a function of this package;
        `op`: that calls nobody back. Whether it is known that it calls no function of the user's.
        """
        self.facts.called(fn, given)
        if is_a(fn, (types.BuiltinFunctionType, type)):
            if fn in _NAMES_ALL:
                self.all(f"{fn.__name__}() is called")
            if fn is super and not given:
                self.arguments_of_super()
            if fn in _ONLY_KIND and not any(_asks_class(x) for x in given):
                return False
            if fn in _ATTRIBUTES and given:  # the machine tells which
                return False
            if self.key_of(*looked_up(fn, given)):
                return False
        if getattr(fn, "__name__", "") in FINDS and given:
            self.looked.compared(given[0], getattr(fn, "__self__", None))
        for x in given:
            self.all_of(x)
        if not is_a(fn, type):
            self.all_of(fn)
        if not ours:
            return False
        if not op and any(map(calls_users, (fn, *given))):
            name = getattr(fn, "__qualname__", type(fn).__name__)
            self.all(f"{name} calls back functions that nobody follows")
            return False
        return True

    def key_of(self, store: Any, key: Any) -> bool:
        """A dict was asked for one key; whether it is enough to compare that. (None: no dict.)"""
        if store is None or self.birth.is_new(store):
            return False
        if self.arguments is not None and id(store) in self.arguments.trees:
            self.arguments.child(store, key)
        else:
            self.note(store, key, dict.get(store, key, MISSING))
        return True

    def arguments_of_super(self) -> None:
        """`super()` reads the first argument without an instruction that says so."""
        if self.arguments is not None:
            self.arguments.load(0)

    def raised(self, frame: PythonFrame) -> None:
        """An instruction has raised: that something was not there was read as well."""
        name = frame.decoded.ops[frame.last].name
        if name in ("LOAD_GLOBAL", "LOAD_NAME") or "DEREF" in name:
            self.all("a variable that is not there is read")
        for x in frame.stack[-4:]:
            self.all_of(x)

    def read(self, container: Any, key: Any, value: Any, how: Access, frame: PythonFrame) -> None:
        """A value was read by a frame."""
        if is_a(container, TensorBase):
            if how is Access.ATTRIBUTE:
                self.looked.attribute(container, key)
                self.facts.of_tensor(container, key)
            return
        if is_a(value, TensorBase) and not self.birth.is_new(container):
            self.looked.find(value)
        value = MISSING if value is NOTHING else value
        if not is_users(frame.code) and not is_module(container):
            self._read_by_us(container, key, value, how)
            return
        if self.arguments is not None and id(container) in self.arguments.trees:
            self.arguments.child(container, key)
            self._in_class(container, key, how)
        elif how is Access.GLOBAL:
            if container is builtins.__dict__:
                self.facts.builtin(frame.globals, key)
            elif is_a(value, types.ModuleType):
                self.facts.scope(container, key, value)
            else:
                self.note(container, key, value, key)
        elif type(container) is super:
            self._above(container, key)
        elif self.birth.is_new(container):
            return
        elif how is Access.CELL:
            self.note(container, key, value, key)
        elif is_a(container, ARRAYS):
            self.all_of(container)
        elif how is Access.ITEM:
            self._item(container, key, value)
        else:
            self._attribute(container, key, value)

    def _in_class(self, container: Any, key: Any, how: Access) -> None:
        """Something was read of an object of which another one may be given next time."""
        if how is Access.ATTRIBUTE:
            self.facts.of_class(type(container), key)
            self.facts.looks(type(container))
        else:
            self.facts.methods_of(container)

    def _read_by_us(self, container: Any, key: Any, value: Any, how: Access) -> None:
        """By our code between a call of a module and its `forward`: it looks for hooks."""
        home = engine_table(container, value) if how is Access.GLOBAL else ""
        if home:
            self.engine[id(value)] = home, key

    def write(self, container: Any, key: Any, how: Access) -> None:
        """The function writes to something that was there before."""
        if how is Access.ATTRIBUTE:
            self.facts.written(container, key)
        elif how is Access.ITEM:
            self.facts.methods_of(container)
        if how is Access.CELL:
            self.written.add((id(container), None))
        elif is_key(key):
            self.written.add((id(container), key))
            self.written.add((id(own_store(container)), key))

    # ---- one thing -----------------------------------------------------------------------------

    def note(self, store: Any, key: Any, value: Any, name: str = "") -> None:
        if self.told is not None:
            self.told("place", store, key, value, name)
        place = Source(store, key, value, name)
        if place.at not in self.written:
            self.places.setdefault(place.at, place)

    def _item(self, container: Any, key: Any, value: Any) -> None:
        if is_a(container, tuple):
            return  # it is what it is: who holds it was read
        self.facts.methods_of(container)
        plain = is_key(key) and (is_a(container, dict) or type(key) is int)
        if is_a(container, (dict, list)) and plain:
            found = Source(container, key, value).now()
            if found is value:
                self.note(container, key, value)
                return
        self.all_of(container)

    def _attribute(self, container: Any, key: str, value: Any) -> None:
        if is_a(container, types.ModuleType):
            self._of_python_module(container, key, value)
            return
        if is_a(container, type):
            keys = [key]
            if find_in_class(type(container), key) is not None:  # of a metaclass: it may read any
                keys += [k for kind in container.__mro__ for k in vars(kind) if k[:2] != "__"]
            self.facts.of_class(type(container), key)
            self.facts.looks(type(container))
            if find_in_class(container, key) is None:
                self.facts.of_class(type(container), "__getattr__")
            for name in keys:
                self.facts.of_class(container, name)
            return
        if own_home(type(container).__module__) in _NAMESPACES:
            return  # `torch.ops.mylib.name`: what it is, is the op
        if is_a(container, enum.Enum):
            if key in ("value", "name"):
                self.note(vars(container), f"_{key}_", vars(container)[f"_{key}_"])
            self.facts.of_class(type(container), key)
            return
        if found_natively(container, key):
            self.all_of(container)
        own = own_dict(container)
        if key == "__dict__" and type(own) is dict:
            self.note(container, key, own)  # (what is read of it is seen as of any dict)
        elif key == "__dict__":
            self.all_of(container)
        if is_optimizer(container):
            self.optimizers[id(container)] = container
        if is_module(container):
            self.note_module(container, key)
            if is_a(own, dict) and key in own and "_hooks" not in key:
                self.note(own, key, own[key])  # (somebody may write to its `__dict__`)
        elif is_a(own, dict):
            self.note(own, key, dict.get(own, key, MISSING))
            self.own_dict_of(container)
        if type(find_in_class(type(container), key)) is types.MemberDescriptorType:
            self.note(container, key, value)
        if is_module(container):  # (which class it is of is compared with its structure)
            self.facts.of_class(type(container), key)
            self.facts.looks(type(container))
        else:
            self.facts.of_object(container, key)

    def own_dict_of(self, container: Any) -> None:
        """An object's attributes were read from its dict: it may get another one."""
        own = own_dict(container)
        self.facts.looks(type(container))
        if looks_plainly(container) and is_a(own, dict) and not is_a(container, (dict, list)):
            self.note(container, "__dict__", own)

    def _of_python_module(self, module: types.ModuleType, key: str, value: Any) -> None:
        if own_home(module.__name__).partition(".")[0] in KNOWN_HOMES:
            self.facts.of_python_module(module, key)
        else:
            self.note(module.__dict__, key, value, f"{module.__name__}.{key}")

    def note_module(self, module: Any, key: str) -> None:
        if self.told is not None:
            self.told("module", module, key)
        if "_hooks" in key:  # compared whenever a module is
            self.hooks[id(module.__dict__.get(key))] = module
        found = self.modules.setdefault(id(module), (module, set()))[1]
        if found is not None:
            found.add(key)

    def _above(self, above: Any, key: str) -> None:
        self.facts.of_class(above.__self_class__, key, above.__thisclass__)

    # ---- all of something ----------------------------------------------------------------------

    def all_of(self, x: Any) -> None:
        """Somebody may have looked at everything in it."""
        if self.told is not None and not is_plain(x):
            self.told("all", x)
        todo, seen = [x], set()
        while todo:
            x = todo.pop()
            if is_plain(x) or x is UNSET or type(x) is KeptContainer:
                continue
            if is_a(x, TensorBase):
                self.looked.touch(x)
                if type(x) not in plain_types:
                    self.all(f"a {type(x).__name__} handles ops itself")
                continue
            if is_a(x, types.FunctionType) and x.__dict__ and is_users(x.__code__):
                self._all_of_dict(x.__dict__)
            known = id(x) in self.whole or id(x) in self.engine or id(x) in self.hooks
            if known or id(x) in seen:
                continue
            seen.add(id(x))
            if is_a(x, ARRAYS):
                refuse_opaque(x)
                why = self.facts.array(x)
                if why:
                    raise unguarded_array(why)
                todo.append(base_of(x))
                continue
            if self.arguments is not None and id(x) in self.arguments.trees:
                self.facts.methods_of(x)
                todo += self.arguments.below(x)
                continue
            if is_module(x):
                todo += self._all_of_module(x)
            elif is_optimizer(x):
                self.optimizers[id(x)] = x
            elif not _is_closed(x):
                refuse_opaque(x)
                if not self.birth.is_new(x):
                    self.whole[id(x)] = x
                self.facts.methods_of(x)
                todo += inside(x)

    def _all_of_dict(self, own: dict[str, Any]) -> None:
        """The attributes of something that is compared in another way: somebody may write to its
        `__dict__`."""
        for key, value in list(own.items()):
            if not key.startswith("_") and not self.birth.is_new(own):
                self.note(own, key, value)

    def _all_of_module(self, module: Any) -> Iterator[Any]:
        for _, m in parts_of_module(module):
            known = self.modules.get(id(m))
            if known is not None and known[1] is None:
                continue
            self.modules[id(m)] = m, None
            self.facts.layer(m)
            for t in (*m._parameters.values(), *m._buffers.values()):
                self.all_of(t)
            ours = own_home(type(m).__module__).startswith("lucerne.")
            if not ours:
                self._all_of_dict(m.__dict__)
            for key, value in list(m.__dict__.items()):
                own = key.startswith("_") if ours else key in _OF_MODULES or "_hooks" in key
                if not own:
                    yield value


def _is_closed(x: Any) -> bool:
    """Whether nothing can be read of an object but which one it is."""
    home = own_home(str(type(x).__module__))
    engine = home == "lucerne" or home.startswith(("lucerne._src.ops", "lucerne._src.capture"))
    return engine or is_a(x, (type, types.ModuleType, types.CodeType, types.FunctionType))


def inside(x: Any) -> list[Any]:
    """What an object holds, as far as native code could get at it without calling anything."""
    if is_a(x, dict):
        parts = [*x.keys(), *x.values()] if len(x) <= MOST else []
    elif is_a(x, _CONTAINERS):
        parts = list(x) if len(x) <= MOST and not is_a(x, bytearray) else []
    elif is_a(x, types.MethodType):
        return [x.__self__]
    elif is_a(x, types.BuiltinFunctionType):
        return [] if is_a(x.__self__, types.ModuleType) else [x.__self__]
    elif is_a(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    elif type(x) in WINDOWS:
        return gc.get_referents(x)
    elif is_a(x, types.FunctionType) or own_home(type(x).__module__).startswith(CLOSED):
        return []
    else:
        parts = [getattr(x, name, None) for name in slot_names(type(x))]
    own = own_dict(x)
    return [*parts, *own.values()] if is_a(own, dict) else parts


def slot_names(kind: type) -> list[str]:
    """The attributes that objects of a class keep in slots."""
    return [
        name
        for base in kind.__mro__
        for name, member in vars(base).items()
        if type(member) is types.MemberDescriptorType
        and own_home(base.__module__).partition(".")[0] not in KNOWN_HOMES
    ]


def _asks_class(x: Any) -> bool:
    """Whether `isinstance` would ask a method of the user's."""
    kinds = x if is_a(x, tuple) else (x,)
    return any(is_a(k, type) and type(k) is not type for k in kinds) or any(
        not is_a(k, type) and "__class__" in vars(type(k)) for k in kinds
    )


def calls_users(x: Any, depth: int = 0) -> bool:
    """Whether native code that is given an object may come to functions of the user's.

    >>> from lucerne._src.capture.guards.read_log import calls_users
    >>> calls_users([1, "two"]), calls_users((lambda x: x,))
    (False, True)
    """
    if is_plain(x) or is_a(x, (TensorBase, types.ModuleType, types.CodeType)):
        return False
    if depth > _DEEPEST:
        return True
    home = own_home(str(type(x).__module__)).partition(".")[0]
    if is_a(x, types.FunctionType):
        if is_entered(x.__code__):
            return True
        if own_home(str(x.__module__)).startswith(_NEVER):
            return False
        parts: list[Any] = [*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
        parts += [c.cell_contents for c in x.__closure__ or () if is_full(c)]
    elif is_a(x, type):
        return own_home(str(x.__module__)).partition(".")[0] not in KNOWN_HOMES
    elif is_module(x):
        if calls_user_code(x):
            return True
        parts = [
            v
            for _, m in parts_of_module(x)
            for k, v in m.__dict__.items()
            if k not in ("_parameters", "_buffers", "_modules") and not _is_bare(v)
        ]
    elif is_optimizer(x):
        hooks = [v for k, v in vars(x).items() if k.endswith("hooks")]
        return home != "lucerne" or any(hooks)
    elif own_home(str(type(x).__module__)).startswith(_NEVER):
        return False
    elif is_a(x, _CONTAINERS) or home in ("lucerne", "functools", "builtins"):
        if is_a(x, (list, tuple, dict, set, frozenset, deque)) and len(x) > _MANY:
            return any(type(v) not in PLAIN and not is_a(v, TensorBase) for v in x)
        parts = inside(x)
        if home == "lucerne" and not parts:
            parts = list((own_dict(x) or {}).values())
    else:
        return home not in KNOWN_HOMES
    return any(calls_users(p, depth + 1) for p in parts)


def _is_bare(x: Any) -> bool:
    """Whether it is plain, or holds nothing: most of what hangs on a module (hooks) is so."""
    kind = type(x)
    return kind in PLAIN or (
        not x if kind in (dict, list, tuple, set) else kind is OrderedDict and not (x or vars(x))
    )


_NEVER = (
    "lucerne._src.base", "lucerne._src.ir", "lucerne._src.backends", "lucerne._src.ops",
    "lucerne._src.loops", "lucerne._src.transforms", "lucerne._src.pipeline", "lucerne._src.tensor",
)  # fmt: skip
"""Modules whose functions and objects hold nothing of the user's, unless they are given it."""


def is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
