"""Captured calls as plain data, and back: sources, outcomes, effects, guards, programs.

Tensors, optimizers and tables are named by their numbers in the world (see `key`), a slot by the
number of its table in the `ReachableState` of the function, which walks in one order as well.
States that an optimizer made while its step was captured are named by their parameter: they are
made again, by the optimizer itself, when the program is found.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.unspecialized import (
    COMPUTATIONS,
    IN_KEY,
    GivenFloat,
    NumberUse,
    use_of,
    watching,
)
from lucerne._src.capture.cache.disk.key import CacheKey, UnstorableError
from lucerne._src.capture.cache.disk.program_codec import ProgramWriter, Reader, StaleError
from lucerne._src.capture.effects.stores import MISSING, PLAIN, Slot
from lucerne._src.capture.guards.reachable import ReachableState, is_optimizer
from lucerne._src.capture.guards.tensor_reads import (
    GRADIENT_IS,
    HAS,
    HISTORY,
    IS,
    LAYOUT,
    PLACE,
    Fact,
)
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    CONSTANT,
    COVER,
    GRADIENT,
    HELD,
    KEY,
    NUMBER,
    SLOT,
    TANGENT,
    InputSource,
)
from lucerne._src.capture.trace.pytree import LEAF
from lucerne._src.ir import results
from lucerne._src.ir.dispatch import unseen
from lucerne._src.ir.graph import Graph
from lucerne._src.tensor.base import TensorBase, make_tensor

_KNOWN_FIELDS = frozenset(
    ("graph", "sources", "roots", "fresh", "shape", "leaves", "effects", "facts", "uses",
     "forward_roots", "gradients", "wanted", "stored", "checks", "covered", "recorded",
     "backward_at", "differentiated", "draws")
)  # fmt: skip
_ERRORS = {
    e.__name__: e
    for e in (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError)
}
_TREES: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict}


class CodecStates:
    """The states of optimizers: which of them capturing made."""

    def __init__(self, world: CacheKey) -> None:
        self.world = world
        self.optimizers = [x for x in world.things if is_optimizer(x)]
        self._before = [{id(p): bool(s) for p, s in o.state.items()} for o in self.optimizers]
        self._attributes = [dict(o.__dict__) for o in self.optimizers]
        self.contents: dict[int, dict[Any, Any]] = {}
        """By id of a dict of an optimizer: what it held before."""
        for o, own in zip(self.optimizers, self._attributes, strict=True):
            self.contents[id(o.__dict__)] = own
            self.contents[id(o.state)] = dict(o.state)
            self.contents.update((id(s), dict(s)) for s in o.state.values())

    def changed(self) -> list[tuple[int, str, Any]]:
        """(optimizer, attribute, value) for each that capturing has set: a call of `step` is noted
        for whoever asks later (schedulers do)."""
        found = []
        for optimizer, before in zip(self.optimizers, self._attributes, strict=True):
            number = self.world.number_of(optimizer)
            assert number is not None
            for name, value in optimizer.__dict__.items():
                if name not in before or before[name] is not value:
                    if type(value) not in PLAIN:
                        raise UnstorableError(f"it sets {type(optimizer).__name__}.{name}")
                    found.append((number, name, value))
        return found

    def begun(self) -> tuple[list[Any], dict[int, Any]]:
        """([optimizer, parameter, group] for each new state, names of the tensors in them by id).

        Only what `_begin` of the optimizer makes can be made again.
        """
        made: list[Any] = []
        names: dict[int, Any] = {}
        for optimizer, before in zip(self.optimizers, self._before, strict=True):
            groups = _groups_of(optimizer)
            for p, state in optimizer.state.items():
                if before.get(id(p), None) == bool(state):
                    continue
                number, group = self.world.number_of(p), groups.get(id(p))
                known = number is not None and group is not None
                if not known or (state and not hasattr(optimizer, "_begin")):
                    raise UnstorableError(f"{type(optimizer).__name__} makes states in its own way")
                for key, t in state.items():
                    if isinstance(t, TensorBase):
                        names[id(t)] = ["begun", len(made), key]
                made.append([self.world.number_of(optimizer), number, group, sorted(state)])
        return made, names


def _groups_of(optimizer: Any) -> dict[int, int]:
    """By id of a parameter: the number of the first group that has it."""
    found: dict[int, int] = {}
    for k, group in enumerate(optimizer.param_groups):
        for p in group["params"]:
            found.setdefault(id(p), k)
    return found


def begin_states(begun: Sequence[Any], world: CacheKey) -> list[dict[str, Any]]:
    """Make the states that capturing would have made."""
    made = []
    for number, param, group, keys in begun:
        optimizer, p = world.things[number], world.things[param]
        state = optimizer.state[p]
        if keys:
            with unseen(), watching():
                state.update(optimizer._begin(p, optimizer.param_groups[group]))
        if sorted(state) != keys:
            raise StaleError(f"{type(optimizer).__name__} begins with another state")
        made.append(state)
    return made


class CaptureWriter(ProgramWriter):
    """Writes a captured call."""

    def __init__(self, world: CacheKey, reach: ReachableState, states: CodecStates) -> None:
        super().__init__(world)
        self._tables = {id(t): k for k, t in enumerate(reach.tables)}
        self.reach = reach
        self.begun, self._begun = states.begun()
        self.changed = states.changed()
        self._outcomes: dict[int, int] = {}
        self._places: dict[Any, Any] | None = None
        self.outcomes: list[Any] = []

    def capture(self, captured: Captured) -> Any:
        known = _KNOWN_FIELDS
        if all(use.facts == IN_KEY for use in captured.backward_uses):
            known = known | {"backward_uses"}  # (the program is found by its code)
        fields = {f.name for f in dataclasses.fields(captured)}
        unknown = [n for n in fields - known if getattr(captured, n)]
        if unknown:
            raise UnstorableError(f"a capture with {', '.join(sorted(unknown))}")
        made = {
            "inputs": [self.meta(v.meta) for v in captured.graph.inputs],
            "sources": [self.source(s) for s in captured.sources],
            "shape": self.shape(captured.shape),
            "leaves": [self._leaf(x) for x in captured.leaves],
            "effects": [[self.source(e.owner), self._outcome(e.outcome)] for e in captured.effects],
            "facts": [self._fact(f) for f in captured.facts],
            "uses": [self._use(u) for u in captured.uses if u.facts != IN_KEY],
            "gradients": [self._outcome(x) for x in captured.gradients],
            "wanted": [self.source(s) for s in captured.wanted],
            "stored": [[self._slot(s), self.shape(t), k] for s, t, k in captured.stored],
            "checks": [[k, self._error(error)] for k, error in captured.checks],
            "covered": [[self.source(a), self.source(b), m, n] for a, b, m, n in captured.covered],
            "draws": captured.draws,
            "begun": self.begun,
            "changed": [[n, name, self.pack(x)] for n, name, x in self.changed],
        }
        made["outcomes"] = self.outcomes
        return made

    def _fact(self, fact: Fact) -> Any:
        """As the reader makes it."""
        told = [fact.kind, self.source(fact.source)]
        if fact.kind == IS and fact.other is not None:
            return [*told, self.source(fact.other), bool(fact.value)]
        if fact.kind == LAYOUT:
            meta, offset, needs_grad = fact.value
            return [*told, self.meta(meta), offset, needs_grad]
        if fact.kind in (PLACE, HISTORY):
            return [*told, fact.value]
        if fact.kind == HAS and fact.value is MISSING:
            return [*told, fact.name]
        if fact.kind == GRADIENT_IS:
            return told if fact.value is None else [*told, self.meta(fact.value[0]), fact.value[1]]
        raise UnstorableError(f"it depends on this: {fact}")

    # ---- sources -------------------------------------------------------------------------------

    def source(self, s: InputSource) -> Any:
        return [s.kind, s.index, self._thing(s)]

    def _thing(self, s: InputSource) -> Any:
        if s.kind == HELD:
            return self._tensor(s.thing)
        if s.kind in (GRADIENT, COVER):
            return self.source(s.thing)
        if s.kind == SLOT:
            return self._slot(s.thing)
        if s.kind == NUMBER:
            return self._number(s.thing)
        if s.kind in (ARGUMENT, CONSTANT, TANGENT, KEY):
            return None
        raise UnstorableError(f"an input of the kind {s.kind}")

    def _tensor(self, t: Any) -> Any:
        found = self.world.number_of(t)
        if found is None:
            found = self._begun.get(id(t)) or self._alias(t)
        if found is None:
            shape = list(t._meta.shape)
            raise UnstorableError(f"it uses a tensor of shape {shape} that has no name")
        return found

    def _alias(self, t: Any) -> Any:
        """The number of another tensor over the same elements, for one that needs no gradient."""
        if t._needs_grad:
            return None
        if self._places is None:
            tensors = [x for x in self.world.things if isinstance(x, TensorBase)]
            self._places = {_place(x): self.world.number_of(x) for x in reversed(tensors)}
        number = self._places.get(_place(t))
        return None if number is None else ["alias", number]

    def _slot(self, slot: Slot) -> Any:
        table = self._tables.get(id(slot.table))
        if table is None:
            raise UnstorableError(f"it keeps a tensor in {slot}, which has no name")
        return [table, slot.table.name, self.pack(slot.key)]

    def _number(self, x: Any) -> Any:
        if type(x) is not GivenFloat:
            return self.pack(x)
        if x.formula:
            compute, *operands = x.formula
            name = compute.__name__
            if COMPUTATIONS.get(name) is not compute:
                raise UnstorableError(f"a number that is computed by {name}")
            return ["formula", name, float.hex(float.__pos__(x)), *map(self._number, operands)]
        return ["given", float.hex(float.__pos__(x)), *self._owned(x.source)]

    def _owned(self, source: Sequence[Any]) -> list[Any]:
        """Where a number is found: an object of the world, and keys."""
        owner, *keys = source
        number = self.world.attributes.get(id(owner))
        kind = "attributes" if number is not None else "thing"
        number = self.world.number_of(owner) if number is None else number
        if number is None:
            raise UnstorableError(f"it reads the option {keys[-1]!r} of something that has no name")
        return [kind, number, [self.pack(k) for k in keys]]

    # ---- the rest ------------------------------------------------------------------------------

    def shape(self, shape: Any) -> Any:
        if shape is LEAF:
            return LEAF
        keys = [self.pack(k) for k in shape[1]] if len(shape) == 3 else None
        return [self._class(shape[0]), keys, [self.shape(s) for s in shape[-1]]]

    def _class(self, kind: type) -> Any:
        if _TREES.get(kind.__name__) is kind:
            return kind.__name__
        number = self.world.number_of(kind)
        if number is not None:
            return number
        if results.types().get(kind.__name__) is kind:
            return ["results", kind.__name__]
        if class_named(kind.__module__, kind.__qualname__) is not kind:
            raise UnstorableError(f"it returns a {kind.__qualname__}, which is found nowhere")
        return [kind.__module__, kind.__qualname__]

    def _leaf(self, x: Any) -> Any:
        if type(x) is CapturedResult:
            return ["outcome", self._outcome(x)]
        number = self.world.number_of(x)
        return ["plain", self.pack(x)] if number is None else ["thing", number]

    def _outcome(self, x: CapturedResult | None) -> int | None:
        """Identity counts: one tensor may be returned twice."""
        if x is None:
            return None
        if x.gradient is not None:
            raise UnstorableError("a tensor that is made inside is returned with a gradient")
        found = self._outcomes.get(id(x))
        if found is None:
            found = self._outcomes[id(x)] = len(self.outcomes)
            itself = None if x.itself is None else self.source(x.itself)
            self.outcomes.append(
                [x.of_input, x.index, x.offset, self.meta(x.meta), itself, x.requires_grad,
                 x.is_leaf, x.used_up, x.tangent, x.view_of, x.detached, x.feeds, x.inference]
            )  # fmt: skip
        return found

    def _use(self, use: NumberUse) -> Any:
        if use.facts is None:
            raise UnstorableError(f"it takes for granted: {use.text}")
        kind, *rest = use.facts
        if kind == "same":
            source, value = rest
            number = None if type(value) in _VALUES else self.world.number_of(value)
            told = ["thing", number] if number is not None else ["plain", self.pack(value)]
            return [use.text, kind, self._owned(source), told]
        if kind == "structure":
            number = self.world.number_of(rest[0])
            if number is None:
                raise UnstorableError("an optimizer that has no name")
            return [use.text, kind, number]
        x, name, other, result = rest
        return [use.text, kind, self._number(x), name, self._number(other), bool(result)]

    def _error(self, error: Any) -> Any:
        made = error()
        if _ERRORS.get(type(made).__name__) is not type(made) or len(made.args) != 1:
            raise UnstorableError(f"a check that raises {type(made).__name__}")
        return [type(made).__name__, str(made.args[0])]


_VALUES = frozenset((bool, int, float, str, tuple, type(None)))


class CaptureReader(Reader):
    """Makes a captured call of what a `CaptureWriter` wrote, over the objects there are now."""

    def __init__(
        self,
        data: Any,
        raw: list[bytes],
        world: CacheKey,
        backend: Any,
        states: list[dict[str, Any]],
        reach: ReachableState,
    ) -> None:
        super().__init__(data, raw, world, backend)
        self._states, self.reach = states, reach

    def capture(self, data: Any) -> Captured:
        graph = Graph()
        for m in data["inputs"]:
            graph.input(self.meta(m))
        outcomes: list[Any] = [self._outcome(*x) for x in data["outcomes"]]

        def found(k: int | None) -> Any:
            return None if k is None else outcomes[k]

        return Captured(
            graph,
            [self.source(*s) for s in data["sources"]],
            roots=[],
            fresh=frozenset(),
            shape=self.shape(data["shape"]),
            leaves=[
                outcomes[x]
                if kind == "outcome"
                else self._thing(x)
                if kind == "thing"
                else self.unpack(x)
                for kind, x in data["leaves"]
            ],
            effects=[GradientStore(self.source(*s), found(k)) for s, k in data["effects"]],
            facts=[self._fact(*f) for f in data["facts"]],
            uses=[self._use(*u) for u in data["uses"]],
            gradients=[found(k) for k in data["gradients"]],
            wanted=[self.source(*s) for s in data["wanted"]],
            stored=[(self._slot(*s), self.shape(t), k) for s, t, k in data["stored"]],
            checks=[(k, _raises(name, text)) for k, (name, text) in data["checks"]],
            covered=[(self.source(*a), self.source(*b), m, n) for a, b, m, n in data["covered"]],
            draws=data["draws"],
        )

    def _fact(self, kind: str, source: Any, *more: Any) -> Fact:
        of = self.source(*source)
        if kind == IS:
            other, value = more
            return Fact(IS, of, bool(value), self.source(*other))
        if kind == LAYOUT:
            meta, offset, needs_grad = more
            return Fact(LAYOUT, of, (self.metas[meta], int(offset), bool(needs_grad)))
        if kind == PLACE:
            return Fact(PLACE, of, None if more[0] is None else (int(more[0][0]), int(more[0][1])))
        if kind == HISTORY:
            return Fact(HISTORY, of, bool(more[0]))
        if kind == HAS:
            return Fact(HAS, of, MISSING, name=more[0])
        return Fact(GRADIENT_IS, of, (self.metas[more[0]], bool(more[1])) if more else None)

    def set_attributes(self, data: Any) -> None:
        """What capturing would have set."""
        for number, name, value in data["changed"]:
            setattr(self._thing(number), name, self.unpack(value))

    def _thing(self, number: int) -> Any:
        return self.world.things[number]

    def source(self, kind: str, index: int, thing: Any) -> InputSource:
        made = InputSource(kind, index)
        if kind == HELD:
            made.thing = self._tensor(thing)
        elif kind in (GRADIENT, COVER):
            made.thing = self.source(*thing)
        elif kind == SLOT:
            made.thing = self._slot(*thing)
        elif kind == NUMBER:
            made.thing = self._number(thing)
        return made

    def _tensor(self, name: Any) -> Any:
        if type(name) is int:
            found = self.world.things[name]
        elif name[0] == "alias":
            t = self.world.things[name[1]]
            found = make_tensor(t._storage, t._offset, t._meta)
        else:
            _, number, key = name
            found = self._states[number][key]
        if not isinstance(found, TensorBase):
            raise StaleError("a tensor is something else")
        return found

    def _slot(self, table: int, name: str, key: Any) -> Slot:
        found = self.reach.tables[table]
        if found.name != name:
            raise StaleError(f"{name} is {found.name}")
        return Slot(found, self.unpack(key))

    def _number(self, x: Any) -> Any:
        if type(x) is not list or x[0] not in ("formula", "given"):
            return self.unpack(x)
        if x[0] == "given":
            _, value, *source = x
            return GivenFloat(float.fromhex(value), self._owned(*source))
        _, name, value, *operands = x
        formula = COMPUTATIONS[name], *map(self._number, operands)
        return GivenFloat(float.fromhex(value), formula=formula)

    def _owned(self, kind: str, number: int, keys: Any) -> tuple[Any, ...]:
        owner = self.world.things[number]
        found = owner.__dict__ if kind == "attributes" else owner
        return (found, *map(self.unpack, keys))

    def shape(self, x: Any) -> Any:
        if x == LEAF:
            return LEAF
        kind, keys, below = x
        found = self._class(kind)
        items = tuple([self.shape(s) for s in below])
        return (found, items) if keys is None else (found, tuple(map(self.unpack, keys)), items)

    def _class(self, name: Any) -> type:
        if type(name) is str:
            return _TREES[name]
        found = self._thing(name) if type(name) is int else class_named(*name)
        if not isinstance(found, type):
            raise StaleError(f"{name} is no class")
        return found

    def _outcome(
        self, of_input: bool, index: int, offset: int, meta: int, itself: Any, *more: Any
    ) -> CapturedResult:
        source = None if itself is None else self.source(*itself)
        *more_facts, detached, feeds, inference = more
        made = CapturedResult(of_input, index, offset, self.metas[meta], source, *more_facts)
        made.detached, made.feeds, made.inference = detached, feeds, inference
        return made

    def _use(self, text: str, kind: str, *rest: Any) -> NumberUse:
        if kind == "same":
            source, (how, value) = rest
            found = self._thing(value) if how == "thing" else self.unpack(value)
            return use_of(text, (kind, self._owned(*source), found))
        if kind == "structure":
            return use_of(text, (kind, self._thing(rest[0])))
        x, name, other, result = rest
        return use_of(text, (kind, self._number(x), name, self._number(other), result))


def _raises(name: str, text: str) -> Any:
    kind = _ERRORS[name]
    return lambda: kind(text)


def _place(t: Any) -> Any:
    return id(t._storage.buffer), t._offset, t._meta


def class_named(module: str, name: str) -> Any:
    """A class of a module that is loaded; None: it is not there."""
    if module == "results":
        return results.types().get(name)
    found: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
