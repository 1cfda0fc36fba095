"""Calls of compiled functions while somebody wants to know where a number is born that is not
finite (`detect_nonfinite`, anomaly mode).

A version that fits runs as ever, with `WatchedProgram`s in place of its programs. If one of them
finds something, nothing else has happened yet: the function is called as it is written, seen op by
op, and raises. Where that can't be (a backward pass with random numbers), the program tells.
"""

from __future__ import annotations

import threading
from typing import Any

from lucerne._src.base.changed import changed
from lucerne._src.capture import faults
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.cache.entry import MISSED, CacheEntry
from lucerne._src.capture.finite.found import NotFiniteError
from lucerne._src.capture.finite.journal import NotedCall
from lucerne._src.capture.finite.programs import WatchedProgram
from lucerne._src.capture.shadow.state import Surroundings
from lucerne._src.capture.trace.captured import CapturedResult
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.input_sources import GRADIENT
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.capture.trace.subclasses import plain_outcomes
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.graph import unwatched
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.autograd.nonfinite import NonFiniteError
from lucerne._src.tensor.eager.dry_run import DryExecution
from lucerne._src.tensor.random.api import default_generator

_MOST_ALARMS = 3
"""Calls whose results are not finite though no op is to blame, after which the function runs as it
is while it is watched: it would be called twice each time."""


class _Watched(threading.local):
    """Of each thread: what has run since it watches."""

    def __init__(self) -> None:
        self.entries: dict[int, WatchedEntry] = {}


_watched = _Watched()


class WatchedEntry:
    """A version of a function with its programs watched."""

    def __init__(self, entry: CacheEntry, fn: Any) -> None:
        name = getattr(fn, "__qualname__", type(fn).__name__)
        self.program = _Program(entry, fn, name)
        self.programs: list[WatchedProgram] = [self.program]
        """It, and those of backward passes."""
        self.alarms = 0
        self.thread = threading.get_ident()
        self.draws = entry.draws
        if self.program.journal is not None:
            self.program.journal.draws = self.draws
        joint = entry.joint
        self.entry = changed(
            entry, runner=self.program, launch=self.program.launch, untried=0, keep_at=0,
            joint=None if joint is None else watched_joint(joint, name, self.programs),
        )  # fmt: skip


class _Program(WatchedProgram):
    def __init__(self, entry: CacheEntry, fn: Any, name: str) -> None:
        keeps = all(s.kind != GRADIENT for s in entry.sources)
        super().__init__(entry.runner, entry.result_metas, name, _shown(entry), keeps)
        self.entry, self.fn = entry, fn

    def made_again(self, call: NotedCall) -> NonFiniteError | None:
        if call.given is None:
            return None
        args, kwargs = call.given
        entry, engine = self.entry, default_generator._engine
        with dispatch.unseen():
            around = Surroundings(
                entry.guards.reach, [*args, *kwargs.values()], entry.held, entry.captured.graph
            )
        if call.drawn is not None:
            engine.rewind(call.drawn)
        try:
            self.fn(*args, **kwargs)
        except NonFiniteError as error:
            return error
        except Exception:  # (it is no longer the call that it was)
            return None
        finally:
            with dispatch.unseen():
                around.put_back()
        return None


def _shown(entry: CacheEntry) -> list[int]:
    """The results of a program that are left to somebody, but for gradients of what it writes to
    as well: they make that not finite."""
    captured, written = entry.captured, {id(entry.sources[k].thing) for k in entry.written}
    gradients = [
        e.outcome
        for e in captured.effects
        if e.owner.thing is None or id(e.owner.thing) not in written
    ]
    left = [*captured.leaves, *gradients]
    left += [x.gradient for x in captured.leaves if type(x) is CapturedResult]
    parts = [p for x in left for p in plain_outcomes(x)]
    found = {x.index for x in parts if type(x) is CapturedResult and not x.of_input}
    return sorted(found)


def watched_joint(joint: Joint, name: str, programs: list[WatchedProgram]) -> Joint:
    """A backward pass whose gradients are looked at; `programs`: where it is listed."""
    metas = joint.result_metas
    named = f"the backward pass of {name}"
    program = WatchedProgram(joint.runner, metas, named, range(len(metas)))
    programs.append(program)
    make = joint.make_lean

    def lean(arrives: tuple[bool, ...], asked: tuple[bool, ...]) -> Joint | None:
        key = arrives + asked
        if key not in joint.made_lean:
            assert make is not None
            with unwatched():
                joint.made_lean[key] = make(arrives, asked)
        found = joint.made_lean[key]
        if found is None:
            return None
        made = watched_joint(found, name, programs)
        if program.is_checked:
            programs[-1].begin()
        return made

    return changed(
        joint, runner=program, launch=program.launch, watches=joint, made_lean={},
        make_lean=None if make is None else lean,
    )  # fmt: skip


def of(entry: CacheEntry, fn: Any) -> WatchedEntry:
    """A version as it is watched by this thread."""
    found: WatchedEntry | None = entry.watched
    if found is not None and found is _watched.entries.get(id(found)):
        return found
    if found is None or found.thread != threading.get_ident():
        anomaly.ends = finish
        with unwatched():
            found = entry.watched = WatchedEntry(entry, fn)
    _watched.entries[id(found)] = found
    for program in found.programs:
        program.begin()
    return found


def finish(look: bool) -> None:
    """The watch ends: look at what was not looked at yet."""
    found = list(_watched.entries.values())
    _watched.entries.clear()
    try:
        for watched in found if look else ():
            watched.program.finish()
    finally:
        for watched in found:
            for program in watched.programs:
                program.forget()


def call(compiled: Any, args: Any, kwargs: Any) -> Any:
    """A call of a compiled function (a `compiled.Compiled`)."""
    entry: Any = compiled.latest
    try:
        if entry is not None and entry.flat == len(args) and not kwargs and _can_be(entry):
            watched = of(entry, compiled.fn)
            watched.program.given = args, kwargs
            found = watched.entry.quick_adding(args) if entry.adds else watched.entry.quick(args)
            if found is not MISSED:
                return found
        leaves: list[Any] = []
        entry = _version(compiled, args, kwargs, leaves)
        if entry is None and compiled.segmented is not None:
            return compiled.segmented.payoff.in_parts(args, kwargs)
        if type(entry) is type(compiled):
            return entry(*args, **kwargs)
        if not _can_be(entry):
            return compiled.fn(*args, **kwargs)
        compiled.latest = entry
        watched = of(entry, compiled.fn)
        watched.program.given = args, kwargs
        found = watched.entry.run_guarded(leaves, watched.entry.run, leaves, (args, kwargs))
    except NotFiniteError as error:
        return _made_again(compiled, watched, error, args, kwargs)
    return compiled.fn(*args, **kwargs) if found is MISSED else found


def part(entry: CacheEntry, fn: Any, leaves: list[Any]) -> Any:
    """Run a version of a part of a function; None: it is to run as it is written."""
    if not _can_be(entry):
        return None
    watched = of(entry, fn)
    watched.program.given = None
    try:
        return watched.entry.run_guarded(leaves, watched.entry.run, leaves)
    except NotFiniteError as error:
        if watched.draws:
            _raise_birth(error)
        watched.alarms += 1
        return None


def _can_be(entry: Any) -> bool:
    """Whether a version can be watched."""
    if type(entry) is not CacheEntry or entry.shadow is not None:
        return False
    found = entry.watched
    if found is not None:
        return found.alarms <= _MOST_ALARMS and DryExecution.current is None
    runners = [entry.runner, *([] if entry.joint is None else [entry.joint.runner])]
    return DryExecution.current is None and all(
        hasattr(getattr(x, "program", None), "written") for x in runners
    )


def _version(compiled: Any, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
    """See `Compiled._version`; capturing is not watched."""
    shape = flatten((args, kwargs), leaves)
    found = compiled.versions.find(leaves, shape)
    if found is not None:
        return found
    leaves.clear()
    try:
        with unwatched():
            return compiled._version(args, kwargs, leaves)
    except Exception as error:
        full = compiled.options.fullgraph and isinstance(error, CaptureError)
        if full or faults.goes_through(error):
            raise
        return None


def _made_again(
    compiled: Any, watched: WatchedEntry, error: NotFiniteError, args: Any, kwargs: Any
) -> Any:
    """The call as it is written, which raises if something in it is to blame."""
    if watched.draws:  # eager draws other numbers
        _raise_birth(error)
    result = compiled.fn(*args, **kwargs)
    watched.alarms += 1
    return result


def _raise_birth(error: NotFiniteError) -> None:
    """Raise what the steps of the program tell, if they do."""
    birth = error.birth()
    if birth is not None:
        raise birth.error() from None
