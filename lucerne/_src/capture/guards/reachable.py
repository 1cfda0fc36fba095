"""Reachable state: modules, optimizers and tensors that a function gets at without arguments.

A captured function reads them from its closure, from globals, from the object it is a method of.
What is found here is what guards watch: that the function still sees the same objects, and that the
modules among them are still built the same way.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.lazy_imports import is_lazy
from lucerne._src.base.process.structure_version import CountsChanges, StructureVersion
from lucerne._src.base.raw import is_a, own_dict, same_things
from lucerne._src.capture.effects.stores import (
    PLAIN,
    ClosureVariable,
    Expected,
    Slot,
    StoreSnapshot,
    same,
)
from lucerne._src.capture.guards.sources import Source
from lucerne._src.ir import dispatch
from lucerne._src.tensor.base import TensorBase, plain_types

_DEPTH = 4
CLOSED = (
    "builtins", "numpy", "lucerne._src.base", "lucerne._src.ir", "lucerne._src.backends",
    "lucerne._src.tensor",
)  # fmt: skip
"""Objects of these modules (generators, dtypes) are what they are: nothing to look into."""


def is_module(x: Any) -> bool:
    own = own_dict(x) or ()
    return "_parameters" in own and "_modules" in own


def is_optimizer(x: Any) -> bool:
    own = own_dict(x) or ()
    return "param_groups" in own and "state" in own


class ReachableState:
    """What a function can see, and how to tell whether it still sees the same."""

    def __init__(self, fn: Any, arguments: Sequence[Any]) -> None:
        """`arguments`: the leaves of the arguments; tensors among them are not looked at."""
        self.links: list[tuple[StoreSnapshot, Callable[[], Any], Any]] = []
        """(variable, how to look again, what was found): things found by name."""
        self.tables: list[StoreSnapshot] = []
        """Where Python keeps things: dicts, lists, attributes of objects and modules, variables."""
        self.loose: dict[int, frozenset[Any]] = {}
        """By id of a table: keys whose tensors the function replaces at each call."""
        self.expected: list[Expected] = []
        self.modules: dict[int, Any] = {}
        self.module_names: dict[int, str] = {}
        """Paths from the outermost module, which has the name of its class: for people."""
        self.optimizers: dict[int, Any] = {}
        self.tensors: dict[int, Any] = {}
        self.seen_changes = StructureVersion.count
        self.places: list[Source] = []
        """What the function was seen to read (see `prune`): guards compare it."""
        self.numbers: list[Any] = []
        """Places that hold numbers which are given at each call (see `symbolic.counters`)."""
        self.more: list[StoreSnapshot] = []
        """Containers that it was seen to read, and that are not among `tables`."""
        self.read_modules: dict[int, frozenset[str] | None] | None = None
        """By id of a module: the attributes that were read (None: all); None: nobody knows."""
        self.engine: list[tuple[str, str]] = []
        """Dicts of our own that were looked at (hooks for all modules): module and name."""
        self.leaves: set[int] | None = None
        """The leaves of the arguments that were read; None: nobody knows."""
        self.noted: Any = None
        """Set by who traces: what was read."""
        self.was_seen = False
        """Whether that is known, and `places` and the rest follow from it."""
        self.unread: list[str] = []
        """What is not compared, as the function never looked at it."""
        self.whole_because = ""
        """Why all that can be reached is compared."""
        self.handlers: list[type] = []
        """Classes of tensors that answer ops themselves."""
        self.always: set[int] = set()
        """Ids of dicts that are read by every call of a function: its keyword defaults."""
        self._alive: list[Any] = []
        self._held: list[_HeldByModule] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []
        self._function(getattr(fn, "part_of", fn))
        for leaf in [*arguments, *getattr(fn, "surroundings", ())]:
            if not is_a(leaf, TensorBase):
                self._walk(leaf, 0, type(leaf).__name__)
        for t in [*arguments, *self.tensors.values()]:
            if is_a(t, TensorBase) and type(t) not in plain_types:
                self._handlers(type(t))
        self.refresh()

    @property
    def seen(self) -> set[int]:
        """Ids of everything that was found."""
        return self._seen

    def _see(self, x: Any) -> None:
        self._seen.add(id(x))
        self._kept.append(x)  # so that no id is used twice

    # ---- finding -------------------------------------------------------------------------------

    def _function(self, fn: Any) -> None:
        if is_a(fn, functools.partial):
            self._walk(fn.args, 0, "")
            self._walk(fn.keywords, 0, "")
            self.always.add(id(fn.keywords))
            fn = fn.func
        if is_a(fn, types.MethodType):
            self._walk(fn.__self__, 0, "self")
            fn = fn.__func__
        if not is_a(fn, types.FunctionType):
            self._walk(fn, 0, "self")
            call = vars(type(fn)).get("forward") or vars(type(fn)).get("__call__")
            fn = call if is_a(call, types.FunctionType) else None
        if fn is not None:
            self._code(fn, 0)

    def _code(self, fn: types.FunctionType, depth: int) -> None:
        """The closure and the globals of a Python function, and of those it names."""
        if id(fn) in self._seen or depth > _DEPTH:
            return
        self._see(fn)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            self._link(name, cell, depth)
        for name in names_in(fn.__code__):
            if name in fn.__globals__ and not is_lazy(fn.__globals__[name]):
                self._link(name, ClosureVariable(fn.__globals__, name), depth)
        self._walk(fn.__defaults__, depth, "")
        self._walk(fn.__kwdefaults__, depth, "")
        self.always.add(id(fn.__kwdefaults__))

    def _handlers(self, kind: type) -> None:
        """What the code sees that a class of tensors answers ops with."""
        for name in ("__torch_dispatch__", "__torch_function__"):
            member = getattr(kind, name, None)
            found: Any = getattr(member, "__func__", member)
            if is_a(found, types.FunctionType) and not own_home(found.__module__).startswith(
                "lucerne"
            ):
                self.handlers.append(kind)
                self._code(found, 0)

    def _link(self, name: str, cell: Any, depth: int) -> None:
        try:
            found = cell.cell_contents
        except ValueError:  # not filled yet
            return
        if is_a(found, types.ModuleType):
            return
        table = StoreSnapshot(name, cell, is_attributes=False, watched=False)
        self.tables.append(table)
        self.links.append((table, functools.partial(getattr, cell, "cell_contents", None), found))
        if is_a(found, type):
            self._class(found, depth)
        elif is_a(found, types.FunctionType):
            if not own_home(str(found.__module__)).startswith("lucerne."):
                self._code(found, depth + 1)
        else:
            if is_a(found, type) and issubclass(found, (TensorBase, dispatch.Interpreter)):
                self._handlers(found)
            self._walk(found, depth, name)

    def _class(self, kind: type, depth: int) -> None:
        """The methods of a class of the user's that is found by name."""
        if own_home(kind.__module__).partition(".")[0] in (
            "lucerne",
            "builtins",
            *sys.stdlib_module_names,
        ):
            return
        for member in list(vars(kind).values()):
            member = getattr(member, "__func__", getattr(member, "fget", member))
            if is_a(member, types.FunctionType):
                self._code(member, depth + 1)

    def _walk(self, x: Any, depth: int, name: str) -> None:
        if is_a(x, (*PLAIN, type, types.ModuleType)) or id(x) in self._seen:
            return
        if depth > _DEPTH:
            return
        self._see(x)
        if is_a(x, TensorBase):
            self.tensors[id(x)] = x
        elif is_module(x):
            self._module(x, name)
        elif is_optimizer(x):
            self._optimizer(x)
        elif is_a(x, dict):
            self._keep(name, x)
            for key, v in x.items():
                self._walk(v, depth + 1, f"{name}[{key!r}]")
        elif is_a(x, (list, tuple, set)):
            if is_a(x, list):
                self._keep(name, x)
            for k, v in enumerate(x):
                self._walk(v, depth + 1, f"{name}[{k}]")
        elif is_a(x, types.FunctionType):
            self._seen.discard(id(x))  # `_code` asks the same
            self._code(x, depth + 1)
        elif is_a(x, types.MethodType):
            self._walk(x.__self__, depth, name)
            self._walk(x.__func__, depth, name)
        elif is_a(x, types.BuiltinFunctionType):
            self._walk(x.__self__, depth, name)
        elif own_home(type(x).__module__).startswith(
            "lucerne._src.capture."
        ):  # a compiled function
            self._walk(getattr(x, "fn", None), depth, name)
        elif not own_home(type(x).__module__).startswith(CLOSED):
            self._object(x, depth, name)

    def _object(self, x: Any, depth: int, name: str) -> None:
        own = own_dict(x)
        if is_a(own, dict):
            self._keep(name, own, is_attributes=True)
            for key, v in list(own.items()):
                self._walk(v, depth + 1, f"{name}.{key}")

    def _keep(
        self, name: str, store: Any, *, is_attributes: bool = False, watched: bool = True
    ) -> None:
        self.tables.append(StoreSnapshot(name, store, is_attributes=is_attributes, watched=watched))

    def _module(self, module: Any, name: str) -> None:
        for path, m in parts_of_module(module):
            self._see(m)
            self.modules[id(m)] = m
            self.module_names.setdefault(id(m), path or type(m).__name__)
            full = f"{name}.{path}" if path else name
            for store in (m.__dict__, m._buffers, m._parameters):
                self._keep(full, store, is_attributes=True, watched=False)
            for table in (m._parameters, m._buffers):
                for t in table.values():
                    if t is not None:
                        self.tensors[id(t)] = t
            for key, hooks in list(m.__dict__.items()):
                if key.endswith("hooks") and is_a(hooks, dict):
                    for hook in hooks.values():
                        self._walk(hook, 1, f"{full}.{key}")
            for key, x in list(m.__dict__.items()):
                if not key.startswith("_") and is_a(x, (list, tuple, dict, TensorBase)):
                    self._walk(x, 1, f"{full}.{key}")

    def _optimizer(self, optimizer: Any) -> None:
        self.optimizers[id(optimizer)] = optimizer
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.tensors[id(p)] = p

    # ---- looking again -------------------------------------------------------------------------

    def broken(self) -> str | None:
        """What is not as it was, in words; None when all is."""
        for table, look, found in self.links:
            if not same(found, look()) and id(table) not in self.loose:
                return f"{table.name!r} is another object than when the function was captured"
        for place in (*self.numbers, *self.places):
            if not place.holds():
                return str(place.difference())
        if not self.tables_hold():
            return self._other_table()
        if StructureVersion.count != self.seen_changes and not self.is_structure_same():
            now = self._structure()
            if now != self.structure:
                return self._difference(now)
            other = next((m.module for m in self._held if not m.has_its_dict()), None)
            if other is not None:
                return f"a {type(other).__name__} has another __dict__"
            self._held = [_HeldByModule(m) for m in self.modules.values()]
            self.saw(StructureVersion.count)
        return None

    def saw(self, count: int) -> None:
        """The structure was looked at when so many changes were counted. It is looked at each time
        where a change may not be counted."""
        self.seen_changes = count if all(m.counts for m in self._held) else _NEVER

    def is_structure_same(self) -> bool:
        """Whether every module holds the very objects it held: the usual case when a change was
        noted somewhere. If not, they may still be as good (`broken`)."""
        count = StructureVersion.count
        if not all(m.is_same() for m in self._held) or self._beside([]) != self._found_beside:
            return False
        self.saw(count)
        return True

    def tables_hold(self) -> bool:
        """Whether containers and objects hold what they held."""
        for table, loose in self.watched_tables:
            if not table.is_same(loose):
                return False
        return not self.expected or all(x.holds() for x in self.expected)

    def _other_table(self) -> str:
        for table, loose in self.watched_tables:
            if not table.is_same(loose):
                changed = [str(slot) for slot, _, _ in table.changes() if not slot.is_in(loose)]
                return f"{', '.join(changed) or table.name} changed"
        names = [str(slot) for x in self.expected if not x.holds() for slot in x.slots]
        return f"{', '.join(names)}: other kinds of tensors than before"

    def loosen(
        self, slots: Sequence[tuple[Slot, Any]], given: Sequence[Any], same: Sequence[Any] = ()
    ) -> None:
        """The function replaces the tensors in these slots: other objects there are expected.

        `given`: the arguments. A tensor among them that is in a slot as well must be there again;
        so must those that were asked whether they are one with another, and are (`same`).
        """
        if not slots:
            return
        for slot, _ in slots:
            at = id(slot.table)
            self.loose[at] = self.loose.get(at, frozenset()) | {slot.key}
        self.expected.append(Expected(slots, given, same))

    def refresh(self) -> None:
        """Take everything as it is now: what capturing itself changed is no change."""
        self._alive = []
        self.structure = self._structure(self._alive)
        self._held = [_HeldByModule(m) for m in self.modules.values()]
        self._found_beside = self._beside(self._alive)
        self.saw(StructureVersion.count)
        self.watched = [
            (look, found)
            for table, look, found in self.links
            if not is_a(found, type) and id(table) not in self.loose
        ]
        self.watched_tables = [
            (table, self.loose.get(id(table), frozenset()))
            for table in [*self.tables, *self.more]
            if table.watched
        ]

    def _structure(self, alive: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """`alive`: gets what is told by its id, which nothing else may have later."""
        alive = [] if alive is None else alive
        stores = {id(t.store): self.loose[id(t)] for t in self.tables if id(t) in self.loose}
        read = self.read_modules
        found = [
            _fingerprint(m, stores, None if read is None else read.get(at, frozenset()), alive)
            for at, m in self.modules.items()
        ]
        return found + self._beside(alive)

    def _beside(self, alive: list[Any]) -> list[tuple[Any, ...]]:
        """The structure of what is no module."""
        found: list[tuple[Any, ...]] = []
        for o in self.optimizers.values():
            groups = tuple(tuple(map(id, g["params"])) for g in o.param_groups)
            tables = [x for key, x in own_dict(o).items() if key.endswith("_hooks")]
            tables += getattr(o, "_hooks_of_all", ())  # (what only looks like one has none)
            hooks = [h for table in tables if is_a(table, dict) for h in table.values()]
            alive += hooks
            found.append(("optimizer", id(o.state), groups, *map(id, hooks)))
        found.append(("hooks", *map(_hooks, self.tensors.values())))
        named = [(name, vars(sys.modules[home])[name]) for home, name in self.engine]
        for name, table in named + hooks_of_all(self.modules.values()):
            hooks = list(table.values())
            alive += hooks
            found.append((name, *map(id, hooks)))
        return found

    def _difference(self, now: list[tuple[Any, ...]]) -> str:
        for module, a, b in zip(self.modules.values(), self.structure, now, strict=False):
            for x, y in zip(a, b, strict=False):
                if x != y:
                    return f"{type(module).__name__} changed: {_short(x)} is now {_short(y)}"
        return "a module or an optimizer changed"


def hooks_of_all(modules: Iterable[Any]) -> list[tuple[str, dict[int, Any]]]:
    """The hooks for all modules, if there are modules: of those that run natively nobody sees that
    they look for hooks."""
    asks = next(
        (m._has_any_global_hook for m in modules if hasattr(m, "_has_any_global_hook")), None
    )
    if asks is None:
        return []
    scope = asks.__globals__
    return [(name, scope[name]) for name in asks.__code__.co_names if name in scope]


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) < 60 else text[:57] + "..."


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> tuple[str, ...]:
    """The globals that code reads. (`co_names` has the names of attributes too.)"""
    found = {
        i.argval: None
        for i in dis.get_instructions(code)
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if is_a(constant, types.CodeType):
            found.update(dict.fromkeys(names_in(constant)))
    return tuple(found)


def parts_of_module(module: Any) -> Iterator[tuple[str, Any]]:
    """A module and all below it with their names, each once."""
    seen: set[int] = set()
    stack = [("", module)]
    while stack:
        name, m = stack.pop()
        if m is not None and id(m) not in seen:
            seen.add(id(m))
            yield name, m
            stack.extend((f"{name}.{k}" if name else k, x) for k, x in m._modules.items())


def has_hooks(t: Any) -> bool:
    """Whether somebody wants to see the gradients of a tensor."""
    return _hooks(t) is not None


def _hooks(t: Any) -> tuple[int, ...] | None:
    state = t._auto
    if state is None or not (state.hooks or state.post_hooks):
        return None
    return tuple(map(id, [*(state.hooks or {}).values(), *(state.post_hooks or {}).values()]))


_UNSEEN = frozenset(("_parameters", "_buffers", "_modules", "_backward_compile"))


_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called",
             "_forward_pre_hooks_with_kwargs")  # fmt: skip
"""Tables of a module: the numbers of hooks that are called otherwise than most."""


_NEVER = -1
"""No count of changes."""


def module_tables(modules: Iterable[Any]) -> dict[int, Any]:
    """By id of a table that a module's fingerprint has the content of: the module."""
    return {id(x): m for m in modules for name, x in m.__dict__.items() if _is_table(name)}


class _HeldByModule:
    """The very objects in a module's tables, which are compared faster than what they say."""

    __slots__ = ("counts", "kind", "module", "tables")

    def __init__(self, module: Any) -> None:
        self.module, self.kind = module, type(module)
        own = module.__dict__
        tables = [own, *[x for name, x in own.items() if _is_table(name) and is_a(x, dict)]]
        self.tables = [(d, list(d), list(d.values())) for d in tables]
        self.counts = all(is_a(d, CountsChanges) for d in tables[1:])
        """Whether no table of it changes without a count."""

    def has_its_dict(self) -> bool:
        """Whether its attributes are still in the dict that guards read."""
        return self.module.__dict__ is self.tables[0][0]

    def is_same(self) -> bool:
        if not self.has_its_dict():
            return False
        for d, keys, values in self.tables:
            if not (same_things(d, keys) and same_things(d.values(), values)):
                return False
        return type(self.module) is self.kind


def _is_table(name: str) -> bool:
    return name in ("_parameters", "_buffers", "_modules", *_OF_HOOKS) or name.endswith("hooks")


def _fingerprint(
    module: Any, loose: dict[int, frozenset[Any]], read: frozenset[str] | None, alive: list[Any]
) -> tuple[Any, ...]:
    """Everything of one module that decides what its forward does.

    `loose`: by id of a table, the keys that may hold another tensor each time; `read`: the
    attributes that count, None: all do.
    """
    own = module.__dict__
    found: list[Any] = [type(module)]
    for table in ("_parameters", "_buffers", "_modules"):
        skipped = loose.get(id(own[table]), ())
        items = [(k, t) for k, t in own[table].items() if read is None or k in read]
        alive += [t for _, t in items]
        found.append(tuple([(k, 0 if k in skipped else id(t)) for k, t in items]))
    skipped = loose.get(id(own), ())
    for name, x in own.items():
        if name in _UNSEEN or not (read is None or name in read or name.endswith("hooks")):
            continue
        if name in _OF_HOOKS:
            found.append((name, *x))
            continue
        if name in skipped:
            found.append((name, "any tensor"))
        elif type(x) in PLAIN or (type(x) is tuple and all(type(v) in PLAIN for v in x)):
            found.append((name, *_told(x)))
        elif name.endswith("hooks"):
            found.append((name, tuple(map(id, x.values())) if x else ()))
            alive.append(list(x.values()) if x else x)
        else:
            found.append((name, id(x)))
            alive.append(x)
    return tuple(found)


def _told(x: Any) -> tuple[Any, ...]:
    """A plain value so that only the same one is equal: 1 is not 1.0, 0.0 is not -0.0."""
    kind = type(x)
    if kind is tuple:
        return kind, *map(_told, x)
    return kind, repr(x) if kind is float or kind is complex else x
