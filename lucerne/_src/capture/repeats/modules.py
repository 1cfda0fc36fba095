"""Blocks that repeat: a module that is like one that ran before is not run again by the machine.

What a module of the user's does in a trace follows from what it holds, from its arguments and from
what lies outside of it. When one has run, the ops that it called and the reads that guards compare
are kept, told by their part in the module. Another of the same class that holds the same (the same
constants and structure, tensors of the same kinds that are shared in the same way) and is given the
same, is that module under other names. So its ops are called with its own tensors, its reads are
noted under its own names, and no instruction of it is interpreted.

Whatever could tell the two apart in another way ends the recording of a module: a write, a native
call that is no op, a tensor or an object of its own found in something outside, an error, another
switch of the process. Then it runs as ever. (The ops do run each time, so what the recorder and
autograd do about them needs no proof.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import (
    OneLine,
    Place,
    any_line,
    owned,
    owner_of,
    user_place,
)
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import Guarding, uses_noted
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.capture.repeats.likeness import Likeness, given_alike
from lucerne._src.capture.repeats.told import (
    AGAIN,
    ATTRIBUTES,
    GIVEN,
    MADE,
    OWN,
    NotRepeatedError,
    Part,
    Telling,
    ToldEvent,
    does_no_more,
    is_layer,
)
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.subclasses import torch_function

_state = dispatch.state
_TRIES = 6
"""So many different modules of one class are recorded."""
_NONE, _OUTER = -1, -2
"""Owners of a line: none, or the one that ran when the module was called (where `self` is a cell
that an inner function has, too, nobody finds it)."""
_MOST = 20_000
"""So many ops and reads of one module are kept."""


class _Called(NamedTuple):
    op: Op
    args: tuple[Any, ...]
    target: Part | None
    """What is written to; None: a result is made."""
    place: Place | None
    owner: int
    """The part of the module whose path the place has, or one of those below."""


class Repetition(NamedTuple):
    """What a module did, by the parts of what takes part in it."""

    calls: list[_Called]
    events: list[ToldEvent]
    result: Any
    process: ProcessState


class Recording:
    """A module that runs and is recorded."""

    def __init__(self, key: Any, like: Likeness, given: list[Any], repeats: Repeats) -> None:
        self.key, self.like, self.given = key, like, given
        self.calls, self.events = len(repeats.calls), len(repeats.events)
        self.refused = repeats.refused
        self.process = ProcessState()
        self.mark, self.marks = repeats.recorder.mark(), repeats.recorder.marks()
        self.uses, self.outer = uses_noted(), _outer()
        natives = repeats.hooks.natives
        self.called, natives.called = natives.called, None


class Repeats:
    """The modules that a trace has met; `hooks` are those of the whole function."""

    def __init__(self, hooks: Any, reach: Any) -> None:
        """`reach`: what the function can reach (`guards.reachable`)."""
        self.hooks = hooks
        self.names: dict[int, str] = {} if reach is None else reach.module_names
        self.left: dict[type, int] = {}
        """Of which classes there are several modules, and how many more of them are recorded."""
        seen: set[type] = set()
        for module in () if reach is None else reach.modules.values():
            if type(module) in seen:
                self.left[type(module)] = _TRIES
            seen.add(type(module))
        self.known: dict[Any, Repetition] = {}
        """By class, content and arguments of a module."""
        self.running: list[Recording] = []
        self.calls: list[tuple[Any, ...]] = []
        """(op, arguments, what is written to, result, line, nodes) of each call."""
        self.events: list[tuple[Any, ...]] = []
        self.refused = 0
        """How often something happened that can't be told by parts."""
        self.is_over = False
        """The function has written to what was there before: it may find something else."""
        self.recorder: Any = None

    # ---- what the hooks tell -------------------------------------------------------------------

    def refuse(self) -> None:
        """Something happens that must happen each time."""
        self.refused += 1

    def wrote(self) -> None:
        """The function writes to something that was there before."""
        self.is_over = True

    def tell(self, *event: Any) -> None:
        """Something is noted, or may be."""
        self.events.append(event)
        if len(self.events) > _MOST:
            self.refused += 1
            self.events.clear()

    def native(self, fn: Any, kwargs: Any) -> None:
        """Something native is called."""
        if not does_no_more(fn, kwargs):
            self.refused += 1
        elif is_layer(fn):
            self.tell("layer", fn)

    def read(self, container: Any, key: Any, value: Any) -> None:
        """A value was found in something."""
        if is_a(container, TensorBase):
            if key not in ATTRIBUTES and not callable(value):
                self.refused += 1
        elif id(container) in self.hooks.arguments.trees:
            self.refused += 1
        else:
            self.tell("read", container, value)

    # ---- a module is called --------------------------------------------------------------------

    def begin(self, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """A module is called: (its result,) if that is known, what is to be told of its end if it
        is recorded, or None."""
        if (
            type(module) not in self.left
            or self.is_over
            or self.hooks.numbers
            or not self._may_be()
        ):
            return None
        given: list[Any] = []
        told = given_alike((args, tuple(kwargs.items())), given)
        like = None if told is None or self.hooks.birth.is_new(module) else Likeness.of(module)
        if like is None or like.meets(given):
            return None
        key = type(module), told, _state.grad_enabled, like.row
        if key in self.known:
            return self._again(self.known[key], like, given)
        left = self.left[type(module)]
        if not left or any(x.key[0] is key[0] for x in self.running):
            return None
        self.left[type(module)] = left - 1
        self.recorder = _state.kernel_level[0]
        self.running.append(Recording(key, like, given, self))
        self._watch(True)
        return self.running[-1]

    def _may_be(self) -> bool:
        """Whether ops are called as they mostly are: by the recorder of a trace, and nobody else
        sees them."""
        stack = _state.kernel_level
        plain = not (_state.call_level or _state.cast is not None or _state.inference)
        if len(stack) != 1 or not plain or Guarding.count or torch_function.dispatching:
            return False
        return getattr(stack[0], "bodies", None) is not None

    def _watch(self, on: bool) -> None:
        noted = self.hooks.noted
        noted.told = noted.facts.told = noted.looked.told = self.tell if on else None
        self.recorder.logs = self._run if on else None

    def _run(self, op: Op, args: tuple[Any, ...], out: Any) -> Any:
        """An op as the module calls it."""
        recorder = self.recorder
        place, at = user_place(), len(recorder.graph.nodes)
        recorder.logs = None
        try:
            result = dispatch.entry.run(op, args, out)
        finally:
            recorder.logs = self._run
        if len(self.calls) > _MOST or not (out is None or type(out) is InPlace):
            self.refused += 1
        else:
            nodes = len(recorder.graph.nodes) - at
            self.calls.append((op, args, out, result, place, nodes))
        return result

    def end(self, run: Recording, result: Any, good: bool) -> None:
        """The module has returned, or raised."""
        while self.running and self.running[-1] is not run:  # (an error went through several)
            self.running.pop()
        natives = self.hooks.natives
        if natives.called is None:
            natives.called = run.called
        else:
            self.refused += 1
        self.running.pop()
        try:
            found = self._kept(run, result) if good else None
            if found is None:
                self.left.pop(run.key[0], None)  # (the next one would do the same)
            else:
                self.known[run.key] = found
        finally:
            if not self.running:
                self._watch(False)
                self.calls, self.events = [], []

    def _kept(self, run: Recording, result: Any) -> Repetition | None:
        recorder = self.recorder
        quiet = self.refused == run.refused and not self.is_over and uses_noted() == run.uses
        if not quiet or recorder.marks() != run.marks or not run.process.is_same():
            return None
        calls = self.calls[run.calls :]
        if len(recorder.graph.nodes) - run.mark[1] != sum(c[-1] for c in calls):
            return None  # something was recorded that no op of the module has done
        at = {id(x): Part(OWN, k) for k, x in enumerate(run.like.parts)}
        at |= {id(x): Part(GIVEN, k) for k, x in reversed([*enumerate(run.given)])}
        try:
            kept = [self._called(c, k, at, run.like, run.outer) for k, c in enumerate(calls)]
            telling = Telling(at, self.hooks.birth.is_new)
            for event in self.events[run.events :]:
                telling.tell(*event)
            events = [*telling.found.values()]
            return Repetition(kept, events, _written(result, at), run.process)
        except NotRepeatedError:
            return None

    def _called(
        self, call: Any, k: int, at: dict[int, Part], like: Likeness, outer: str
    ) -> _Called:
        op, args, out, result, place, _ = call
        written = tuple(_written(a, at) for a in args)
        target = None if out is None else _written(getattr(out, "target", out), at)
        for i, x in enumerate(result if isinstance(result, tuple) else (result,)):
            if type(x) not in plain_types:
                raise NotRepeatedError
            at.setdefault(id(x), Part(MADE, k, i))
        path = "" if place is None else owner_of(place)
        owner = like.module_called(path, self.names) if path and path != outer else _NONE
        if path and path == outer:
            owner = _OUTER
        elif path and owner < 0:
            raise NotRepeatedError
        return _Called(op, written, target, place, owner)

    # ---- the same again ------------------------------------------------------------------------

    def _again(self, known: Repetition, like: Likeness, given: list[Any]) -> Any:
        owners = {c.owner for c in known.calls if c.owner >= 0}
        named = all(id(like.parts[k]) in self.names for k in owners)
        if not named or not known.process.is_same():
            return None
        made: list[tuple[Any, ...]] = []

        def value(x: Any) -> Any:
            kind = type(x)
            if kind is Part:
                which, at, result = x
                if which == MADE:
                    return made[at][result]
                return like.parts[at] if which == OWN else given[at]
            return tuple(map(value, x)) if kind is tuple else x

        log = self.hooks.noted
        for event in known.events:
            AGAIN[event.kind](log, value(event.part), event)
        lines: dict[Any, OneLine] = {}
        outer, before = _outer(), any_line()
        try:
            for call in known.calls:
                where = id(call.place), call.owner
                if where not in lines:
                    lines[where] = self._line(call, like, outer)
                any_line(lines[where])
                out = None if call.target is None else InPlace(value(call.target))
                result = dispatch.entry.run(call.op, tuple(map(value, call.args)), out)
                made.append(result if isinstance(result, tuple) else (result,))
        finally:
            any_line(before)
        return (value(known.result),)

    def _line(self, call: _Called, like: Likeness, outer: str) -> OneLine:
        line = OneLine()
        line.is_known = line.is_noted = True
        line.place = call.place
        if call.place is not None and call.owner != _NONE:
            inner = outer if call.owner == _OUTER else self.names[id(like.parts[call.owner])]
            line.place = owned(call.place, inner) if inner else (*call.place,)
        return line


def _outer() -> str:
    """The path of the module that runs."""
    place = user_place()
    return "" if place is None else owner_of(place)


def _written(x: Any, at: dict[int, Part]) -> Any:
    """An argument of an op, or a result of the module, by its parts."""
    if is_a(x, TensorBase):
        if id(x) not in at:
            raise NotRepeatedError
        return at[id(x)]
    if type(x) is tuple:
        return tuple(_written(v, at) for v in x)
    ours = own_home(str(type(x).__module__)).startswith("lucerne._src.")  # (a generator, a dtype)
    if type(x) in _STATICS or ours:
        return x
    raise NotRepeatedError


_STATICS = frozenset((int, float, bool, complex, str, bytes, type(None)))
