"""`compile`: a function that is captured at its first call and runs as one program afterwards.

This is the way of a call: arguments, a version that fits, or a stored program. What makes a version
of a call that nothing fits is in `making`, which is loaded when it is needed.
"""

from __future__ import annotations

import copy
import functools
import importlib
import types
import weakref
from collections.abc import Iterable
from typing import Any

from lucerne import backends
from lucerne.backends.steps import StepError
from lucerne.base import notices
from lucerne.base.config import config
from lucerne.capture import ledger, words
from lucerne.capture.backward import ONE_AT_A_TIME
from lucerne.capture.entry import MISSED, Entry
from lucerne.capture.options import ACTIONS, MODES, Maker, Options
from lucerne.capture.stored.store import HIT, Asked
from lucerne.capture.tree import flatten
from lucerne.capture.versions import Versions
from lucerne.ir import dispatch
from lucerne.tensor.base import TensorBase

_state = dispatch.state
_ATTEMPTS = 3
ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _making() -> Any:
    """What captures and compiles: a process that finds its programs on disk never needs it."""
    return importlib.import_module("lucerne.capture.making")


def _compiled_half(*given: Any) -> Any:
    return _making().compiled_half(*given)


def device_of(things: Iterable[Any]) -> str:
    """The device (its type) of the first tensor that has bytes; "": there is none."""
    for t in things:
        if isinstance(t, TensorBase) and t._meta.device.type != backends.META:
            return t._meta.device.type
    return ""


class Compiled:
    """A function with its compiled versions."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.options = fn, options
        options.compile_half = _compiled_half
        self.entries: list[Entry] = []
        self.versions = Versions()
        self.files: list[tuple[str, str]] | None = None
        """The files of code that ran while it was captured; None: not known."""
        self.given_up: str | None = None
        self.breaks: list[Any] = []
        """Where it could not be one graph, each place (a `Break`) once."""
        self.segmented: Any = None
        """How it runs in parts, if it can't be one graph."""
        self.lock = ONE_AT_A_TIME
        self.latest: Entry | None = None
        self.number_attempts = _ATTEMPTS
        """How often yet a number that changes may be tried to be given to a program at each call.
        """
        self.by_value: set[Any] = set()
        """Numbers of leaves, or places outside: integers that decide what is done (a size)."""
        self._families: Any = None
        self._others: dict[str, Compiled] = {}
        """By device: versions for tensors that are elsewhere."""
        functools.update_wrapper(self, fn, updated=())
        ALL.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        latest = self.latest
        seen = _state.call_level or _state.kernel_level
        if latest is not None and latest.flat == len(args) and not kwargs and not seen:
            found = latest.quick(args)
            if found is not MISSED:
                return found
        if self.given_up is not None or seen:
            return self.fn(*args, **kwargs)
        leaves: list[Any] = []
        shape = flatten((args, kwargs), leaves)
        entry: Any = self.versions.find(leaves, shape)
        if entry is None and self.segmented is None:
            with ONE_AT_A_TIME:
                entry = self.versions.find(leaves, shape)
                other = None if entry is not None else self._elsewhere(leaves)
                if other is not None:
                    return other(*args, **kwargs)
                entry = entry or self._instance(leaves, shape)
                if entry is None:
                    entry = self._anew(args, kwargs, leaves, shape)
        if entry is None:
            if self.segmented is None:
                return self.fn(*args, **kwargs)
            return _making().in_parts(self, args, kwargs)
        if isinstance(entry, Exception):
            return _making().as_it_is(self, args, kwargs, entry)
        self.latest = entry
        return entry.run(leaves) if entry.shadow is None else entry.shadow(args, kwargs, leaves)

    @property
    def stands_for(self) -> Any:
        """What a compiled function is inside of another one (`bytecode.targets`)."""
        return self.fn

    def _elsewhere(self, leaves: list[Any]) -> Compiled | None:
        """The same function for tensors of another device; None: this one is for them."""
        if not self.options.follows:
            return None
        found = device_of([*leaves, *getattr(self.fn, "parameters", tuple)()])
        if found in ("", self.options.backend):
            return None
        if not self.entries and self._families is None:
            self.options = self.options.on(found)
            return None
        if found not in self._others:
            self._others[found] = Compiled(self.fn, self.options.on(found))
        return self._others[found]

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A method: the object it is called on is its first argument."""
        return self if owner is None else types.MethodType(self, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(copy.deepcopy(self.fn, memo), self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is compiled anew when it is first called."""
        return Compiled, (self.fn, self.options)

    def reset(self) -> None:
        """Forget all versions, and that it was given up."""
        self.entries.clear()
        self.latest, self.given_up, self.segmented, self._families = None, None, None, None
        self.breaks.clear()
        self.versions, self.number_attempts, self.by_value = Versions(), _ATTEMPTS, set()

    @property
    def families(self) -> Any:
        """What is known about captures for all sizes."""
        if self._families is None:
            self._families = _making().families_of(self.fn, self.options)
        return self._families

    @property
    def traces(self) -> int:
        """How many times the function was traced, at sizes nobody called it with as well."""
        return 0 if self._families is None else self._families.traces

    @property
    def instances(self) -> int:
        """How many programs were made without tracing, for other sizes of a known capture."""
        return self.versions.instances

    def _instance(self, leaves: list[Any], shape: Any) -> Entry | None:
        """A version for sizes that were not traced, if there is a capture for all sizes."""
        if self._families is None:  # nothing was captured yet
            return None
        found: Entry | None = _making().instance(self, leaves, shape)
        return found

    def _anew(
        self, args: Any, kwargs: Any, leaves: list[Any], shape: Any
    ) -> Entry | Exception | None:
        """Find or capture this call; None: it is to run as it is, and why has been said."""
        if sum(e.cache != HIT for e in self.entries) >= config.most_captures:
            count, why = len(self.entries), self.why(leaves, shape)
            self.give_up(f"it was compiled {count} times already; this time because: {why}")
            return None
        try:
            kind = ledger.RECOMPILE if self.entries else ledger.FIRST
            with ledger.compiling(self.fn, kind, self.why(leaves, shape)) as row:
                entry = self._make(args, kwargs, leaves, shape)
                (_making() if self.options.dump or config.dump else ledger).note(row, self, entry)
        except ledger.CompileBudgetError:
            raise
        except Exception as error:
            failed: Exception | None = _making().failed(self, error)
            return failed
        if entry.cache == HIT:
            return self._from_disk(leaves, entry)
        self.entries.append(entry)
        self.versions.add(leaves, entry)
        if not entry.guards.given and not entry.guards.reach.numbers:
            self.families.learn(entry.captured, entry.guards, leaves)
        self.watch(entry)
        return entry

    def _make(self, args: Any, kwargs: Any, leaves: list[Any], shape: Any) -> Entry:
        """A new version; composites that the backend turns down for these metas are taken apart."""
        while True:
            try:
                asked = Asked(self.fn, self.options, leaves, shape)
                found: Entry = asked.entry or _making().made(self, asked, args, kwargs)
                return found
            except StepError as error:
                if error.graph is None or not self.options.whole.refuse(error.graph):
                    raise

    def _from_disk(self, leaves: list[Any], entry: Entry) -> Entry:
        """It was not captured here: nothing can be learned from it about other sizes."""
        if entry.is_instance:
            self.versions.add_instance(leaves, entry)
        else:
            self.entries.append(entry)
            self.versions.add(leaves, entry)
        return entry

    def build(self, captured: Any, guards: Any, stages: Any, kind: str, why: str) -> Entry:
        """`making.part`, see there."""
        made: Entry = _making().part(self, captured, guards, stages, kind, why)
        return made

    def watch(self, entry: Entry, *, part: bool = False) -> None:
        """`making.watch`, see there."""
        _making().watch(self, entry, part=part)

    def why(self, leaves: list[Any], shape: Any) -> str:
        """Why none of the versions there are will do, in the user's words."""
        if not self.entries:
            return ledger.FIRST
        guards = (self.versions.alike(leaves) or self.entries)[-1].guards
        if shape != guards.shape:
            return words.other_shape(self.fn, guards.shape, shape)
        found = guards.failure(leaves, shape) or "its surroundings changed"
        return words.in_words(found, words.leaf_names(self.fn, shape))

    def give_up(self, why: str) -> None:
        """Run uncompiled from now on, and say so."""
        self.given_up = why
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        notices.warn(f"{name} runs uncompiled: {why}", stacklevel=4)


def compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    maker: Maker | None = None,
) -> Any:
    """A function that is captured and compiled when it is first called.

    `backend`: the name of a registered backend (the host's by default). `mode="bitwise"`: every bit
    as eager has it. `fullgraph=True`: raise where the function can't be captured, instead of
    running it as it is. `options`: `disable` (names of passes to leave out), `memory_budget` (from
    0 to 1, how much memory may be spent to save time in a backward pass called from outside),
    `dump` (a folder for the text of each stage; `dump_kernels`: machine code too), `shadow` (how
    many calls of each version are made both ways and compared), `shadow_action` ("warn" and go on
    uncompiled, or "raise").
    `dynamic`: whether a capture is made for all sizes: None, when a second size is seen; True, at
    once; False, never. `maker`: runs the graphs instead of the backend. `lucerne.compile` is the
    public door to it.
    """
    if disable:
        return model
    if mode not in MODES:
        known = ", ".join(repr(m) for m in MODES if m is not None)
        raise ValueError(f"compile: mode is one of {known}, not {mode!r}")
    chosen = options or {}
    off = frozenset(chosen.get("disable", ()))
    if off:
        _making().check_disabled(off)
    budget = float(chosen.get("memory_budget", 1.0))
    made = Options(backend or backends.HOST, mode, fullgraph, off, budget, dynamic, maker)
    made.follows = backend is None and maker is None
    made.dump = str(chosen.get("dump", ""))
    made.dump_kernels = bool(chosen.get("dump_kernels", False))
    made.shadow = int(chosen.get("shadow", config.shadow))
    made.shadow_action = chosen.get("shadow_action", config.shadow_action)
    if made.shadow_action not in ACTIONS:
        known = " or ".join(map(repr, ACTIONS))
        raise ValueError(f"compile: shadow_action is {known}, not {made.shadow_action!r}")
    return Compiled(model, made)
