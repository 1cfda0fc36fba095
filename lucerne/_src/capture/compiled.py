"""`compile`: a function that is captured at its first call and runs as one program afterwards.

This is the way of a call: arguments, a version that fits, or a stored program. What makes a version
of a call that nothing fits is in `cache.build`, which is loaded when it is needed.
"""

from __future__ import annotations

import copy
import functools
import sys
import time
import types
import weakref
from collections.abc import Iterable
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.step_runner import StepError
from lucerne._src.base.changed import changed
from lucerne._src.base.config import config
from lucerne._src.base.process import forks, notices
from lucerne._src.base.process.error_notes import hide_frames
from lucerne._src.base.process.garbage import Unhurried
from lucerne._src.base.raw import is_a
from lucerne._src.capture import faults, ledger
from lucerne._src.capture.aot.backward import ONE_AT_A_TIME
from lucerne._src.capture.aot.second_derivatives import Again
from lucerne._src.capture.cache.disk.lookup import HIT, Lookup
from lucerne._src.capture.cache.entry import MISSED, CacheEntry
from lucerne._src.capture.cache.lookup import Versions
from lucerne._src.capture.guards import describe
from lucerne._src.capture.options import ACTIONS, MODES, UNMEANT, Maker, Options, check_options
from lucerne._src.capture.trace.fake import CaptureError, OtherSizesError
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.graph import sees_each_op, wants_values_only
from lucerne._src.tensor.autograd.saved import hooks as saved_hooks
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.dry_run import suspended

_state = dispatch.state
_ATTEMPTS = 3
_UNTRIED = 2
"""Calls of a version before it is judged: the first one makes what is made once."""
_SMALL = 2e-3
"""Seconds of a call beyond which a whole graph pays: what is around it does not matter."""
ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _making() -> Any:
    """What captures and compiles: a process that finds its programs on disk never needs it."""
    return forks.import_module("lucerne._src.capture.cache.build")


@functools.cache
def _finite_calls() -> Any:
    """What calls a version while somebody looks for values that are not finite."""
    return forks.import_module("lucerne._src.capture.finite.calls")


def _sweep_if_loaded() -> None:
    """Look for garbage that earlier captures have left behind, if there were any."""
    late = sys.modules.get("lucerne._src.capture.effects.new_objects")
    if late is not None:
        late.sweep()


def _count_for_sweep() -> None:
    """Objects that a capture has left are about to count as old."""
    late = sys.modules.get("lucerne._src.capture.effects.new_objects")
    if late is not None:
        late.count()


def _compiled_half(*given: Any) -> Any:
    return _making().compiled_half(*given)


def device_of(things: Iterable[Any]) -> str:
    """The device (its type) of the first tensor that has bytes; "": there is none."""
    for t in things:
        if is_a(t, TensorBase) and t._meta.device.type != backends.META:
            return t._meta.device.type
    return ""


def is_without_bytes(things: Iterable[Any]) -> bool:
    """Whether there are tensors, and none of them has bytes: nothing can be compiled for them."""
    found = [t._meta.device.type for t in things if is_a(t, TensorBase)]
    return bool(found) and all(name == backends.META for name in found)


class Compiled:
    """A function with its compiled versions."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.options = fn, options
        options.compile_half, options.tell = _compiled_half, faults.Teller(self)
        self.entries: list[CacheEntry] = []
        self.versions = Versions()
        self.files: list[tuple[str, str]] | None = None
        """The files of code that ran while it was captured; None: not known."""
        self.given_up: str | None = None
        self.is_full = False
        """Whether it was given up because it has enough versions. Those go on being used, so that
        the numbers which a seed gives for some arguments stay what they were."""
        self.missed = 0
        """Calls whose data had sizes that no version is good for."""
        self.faults: list[Any] = []
        """Errors inside of the compiler, and what they cost (`faults.Fault`)."""
        self.breaks: list[Any] = []
        """Where it could not be one graph, each place (a `Break`) once."""
        self.segmented: Any = None
        """How it runs in parts, if it can't be one graph."""
        self.lock = ONE_AT_A_TIME
        self.latest: CacheEntry | None = None
        self.pays: set[bool] = set()
        """Grad modes in which a whole graph of it was found to be faster than eager."""
        self.left: dict[bool, int] = {}
        """Grad modes in which it was not, and up to how large arguments it is left to eager."""
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

    @staticmethod
    def late_part(name: str) -> Any:
        """A module of `lucerne._src.capture` that few calls need, loaded when it is asked for."""
        return forks.import_module(f"lucerne._src.capture.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        latest = self.latest
        if latest is None and self.given_up is not None and not (self.is_full or saved_hooks.stack):
            return self.fn(*args, **kwargs)  # (a checkpoint asks for what it saved)
        if self.left and self._is_left(args):
            return self.fn(*args, **kwargs)
        seen = _state.seen
        if latest is not None and latest.flat == len(args) and not kwargs and not seen:
            try:
                found = latest.quick_adding(args) if latest.adds else latest.quick(args)
            except Exception as error:
                return self._raised(latest, args, kwargs, error)
            if found is MISSED and self.given_up is None:
                found = self._other_quick(latest, args)
            if found is not MISSED:
                return found
        if seen and wants_values_only():
            return _finite_calls().call(self, args, kwargs)
        if (self.given_up is not None or seen) and not self._is_for_versions():
            return self.fn(*args, **kwargs)
        leaves: list[Any] = []
        try:
            entry = self._version(args, kwargs, leaves)
        except Exception as error:
            if faults.goes_through(error) or (
                self.options.fullgraph and isinstance(error, CaptureError)
            ):
                raise
            entry = error
        if entry is None:
            if self.segmented is None:
                return self.fn(*args, **kwargs)
            return _making().in_parts(self, args, kwargs)
        if is_a(entry, Exception):
            return _making().as_it_is(self, args, kwargs, entry)
        if is_a(entry, Compiled):
            return entry(*args, **kwargs)
        self.latest = entry
        if entry.keep_at and entry.calls >= entry.keep_at:
            self._keep(entry, leaves, (args, kwargs))
        try:
            found = entry.run_guarded(leaves, self._run, entry, args, kwargs, leaves)
        except Exception as error:
            return self._raised(entry, args, kwargs, error)
        return self(*args, **kwargs) if found is MISSED else found

    def _run(self, entry: CacheEntry, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
        if entry.shadow is not None:
            return entry.shadow(args, kwargs, leaves)
        if entry.untried:
            return self._untried(entry, leaves, (args, kwargs))
        return entry.run(leaves, (args, kwargs))

    def _keep(self, entry: CacheEntry, leaves: list[Any], given: Any) -> None:
        """Write a version to disk that is used often."""
        with faults.costs(self, faults.NO_STORE):
            self.late_part("cache.instances").keep(self, entry, leaves, flatten(given, []))

    def _is_left(self, args: tuple[Any, ...]) -> bool:
        """Whether it is faster as it is, for arguments of this size."""
        most = self.left.get(_state.grad_enabled, -1)
        for x in args:
            if is_a(x, TensorBase) and x._meta.numel > most:
                self.left.pop(_state.grad_enabled, None)  # it may pay now
                return False
        return most >= 0 and not saved_hooks.stack

    def _untried(self, entry: CacheEntry, leaves: list[Any], given: Any) -> Any:
        """One of the first calls of a version, after which it is known whether it pays."""
        began = time.perf_counter()
        result = entry.run(leaves, given)
        took = time.perf_counter() - began
        entry.untried -= 1
        if entry.untried:
            self.latest = None  # the next call comes by here
        elif took < _SMALL:
            self.late_part("payoff.whole").judge(self, entry, leaves)
        return result

    def _other_quick(self, latest: CacheEntry, args: tuple[Any, ...]) -> Any:
        """`CacheEntry.quick` of the versions for tensors like these, but for the one that was
        asked."""
        for entry in self.versions.alike(args):
            if entry.flat == len(args) and entry is not latest:
                try:
                    found = entry.quick_adding(args) if entry.adds else entry.quick(args)
                except Exception as error:
                    return self._raised(entry, args, {}, error)
                if found is not MISSED:
                    self.latest = entry
                    self.versions.use(entry)
                    return found
        return MISSED

    def _is_for_versions(self) -> bool:
        """Asked of a call in special circumstances. A checkpoint computes again what an earlier
        call has saved: by the version that call took, even if no more are made."""
        if _state.call_level or _state.kernel_level or sees_each_op():
            return False
        return self.given_up is None or self.is_full or bool(self.entries and saved_hooks.stack)

    def _version(self, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
        """What is to make a call, whose leaves are put into the list: a version, the same function
        for another device, None (it runs in parts, or as it is), or what making one raised."""
        shape = flatten((args, kwargs), leaves)
        entry: Any = self.versions.find(leaves, shape)
        ends = self.given_up is not None and not self.is_full
        if entry is not None or self.segmented is not None or ends:
            return entry
        with ONE_AT_A_TIME:
            entry = self.versions.find(leaves, shape) or self._resized(leaves, shape)
        if entry is not None:
            return entry
        if is_without_bytes([*leaves, *getattr(self.fn, "parameters", tuple)()]):
            return None
        with ONE_AT_A_TIME:
            found: Any = (
                self.versions.find(leaves, shape)
                or self._elsewhere(leaves)
                or self._instance(leaves, shape)
            )
            if found is None and not self.is_full:
                found = self.anew(args, kwargs, leaves, shape)
            return found

    def _raised(self, entry: CacheEntry, args: Any, kwargs: Any, error: Exception) -> Any:
        """A version has raised. If it leaves nothing behind, the function runs as it is: it raises
        the same, or the fault is ours (unless somebody else's function runs the graph)."""
        if isinstance(error, OtherSizesError):
            return self.late_part("staged.versions").other_sizes(self, args, kwargs, error)
        ours = self.options.maker is None and entry.is_repeatable(error)
        if not ours or faults.goes_through(error):
            hide_frames(error)
            raise error
        return _making().as_it_is(self, args, kwargs, error, entry)

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
        return Compiled(copy.deepcopy(self.fn, memo), changed(self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is compiled anew when it is first called."""
        return Compiled, (self.fn, self.options)

    def reset(self) -> None:
        """Forget all versions, and that it was given up."""
        self.entries.clear()
        self.latest, self.given_up, self.segmented, self._families = None, None, None, None
        self.is_full, self.missed = False, 0
        self.pays.clear()
        self.left.clear()
        self.breaks.clear()
        self.faults.clear()
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

    def _resized(self, leaves: list[Any], shape: Any) -> CacheEntry | None:
        """A version by a program for all sizes that is there. (It is for tensors of its device,
        with bytes: those are asked for by its guards.)"""
        return self._of_sizes("resized", leaves, shape)

    def _instance(self, leaves: list[Any], shape: Any) -> CacheEntry | None:
        """A version for sizes that were not traced, if there is a capture for all sizes."""
        return self._of_sizes("instance", leaves, shape)

    def _of_sizes(self, how: str, leaves: list[Any], shape: Any) -> CacheEntry | None:
        if self._families is None:  # nothing was captured yet
            return None
        making = self.late_part("cache.instances")
        with faults.costs(self, faults.NO_SIZES, puts_back=False):
            found: CacheEntry | None = getattr(making, how)(self, leaves, shape)
            return found
        self._families.give_up()
        return None

    def anew(
        self, args: Any, kwargs: Any, leaves: list[Any], shape: Any, why: str = ""
    ) -> CacheEntry | Exception | None:
        """Find or capture this call; None: it is to run as it is, and why has been said."""
        why = why or self.why(leaves, shape)
        if sum(e.cache != HIT for e in self.entries) >= config.most_captures:
            count = len(self.entries)
            self.give_up(f"it was compiled {count} times already; this time because: {why}")
            self.is_full = True
            return None
        _sweep_if_loaded()
        before = faults.Before()
        try:
            kind = ledger.RECOMPILE if self.entries else ledger.FIRST
            seldom = Unhurried(_count_for_sweep, young=True)
            with seldom, suspended(), ledger.compiling(self.fn, kind, why) as row:
                entry = self._make(args, kwargs, leaves, shape)
                with faults.costs(self, faults.NO_NOTE):
                    dumps = self.options.dump or config.dump
                    (_making() if dumps else ledger).note(row, self, entry)
        except Exception as error:
            if faults.goes_through(error):
                raise
            before.put_back()
            failed: Exception | None = _making().failed(self, error)
            return failed
        entry.again = Again(self, entry)
        if config.payoff_calls > 0 and _state.grad_enabled not in self.pays:
            entry.untried = _UNTRIED
        if entry.cache == HIT:
            return self._from_disk(leaves, entry)
        self.entries.append(entry)
        self.versions.add(leaves, entry)
        if not entry.guards.given and not entry.guards.reach.numbers:
            with faults.costs(self, faults.NO_SIZES):
                self.families.learn(entry.captured, entry.guards, leaves)
        with faults.costs(self, faults.NO_NOTE):
            self.watch(entry)
        return entry

    def _make(self, args: Any, kwargs: Any, leaves: list[Any], shape: Any) -> CacheEntry:
        """A new version; composites that the backend turns down for these metas are taken apart."""
        while True:
            try:
                asked = self.ask(leaves, shape)
                found: CacheEntry = asked.entry or _making().made(self, asked, args, kwargs)
                return found
            except StepError as error:
                if error.graph is None or not self.options.whole.refuse(error.graph):
                    raise

    def ask(self, leaves: list[Any], shape: Any) -> Lookup:
        """Look into the programs on disk."""
        with faults.costs(self, faults.NO_STORE):
            return Lookup(self.fn, self.options, leaves, shape)
        self.options.too_large = True  # it is not asked again
        return Lookup(self.fn, self.options, leaves, shape)

    def _from_disk(self, leaves: list[Any], entry: CacheEntry) -> CacheEntry:
        """It was not captured here: nothing can be learned from it about other sizes."""
        if entry.is_instance:
            self.versions.add_instance(leaves, entry)
        else:
            self.entries.append(entry)
            self.versions.add(leaves, entry)
        return entry

    def build(self, captured: Any, guards: Any, stages: Any, kind: str, why: str) -> CacheEntry:
        """`build.part`, see there."""
        made: CacheEntry = _making().part(self, captured, guards, stages, kind, why)
        return made

    def watch(self, entry: CacheEntry, *, part: bool = False) -> None:
        """`build.watch`, see there."""
        _making().watch(self, entry, part=part)

    def why(self, leaves: list[Any], shape: Any) -> str:
        """Why none of the versions there are will do, in the user's words."""
        if not self.entries:
            return ledger.FIRST
        guards = (self.versions.alike(leaves) or self.entries)[-1].guards
        if shape != guards.shape:
            return describe.other_shape(self.fn, guards.shape, shape)
        found = guards.failure(leaves, shape) or "its surroundings changed"
        return describe.in_words(found, describe.leaf_names(self.fn, shape))

    def give_up(self, why: str) -> None:
        """Run uncompiled from now on, and say so."""
        self.given_up, self.is_full, self.latest = why, False, None
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
    if disable or config.compile_disable:
        return model
    if mode not in MODES:
        known = ", ".join(repr(m) for m in MODES if m is not None)
        raise ValueError(f"compile: mode is one of {known}, not {mode!r}")
    if mode in UNMEANT:
        notices.once(f"compile: mode={mode!r} is the same as 'default' here: {UNMEANT[mode]}")
    chosen = options or {}
    if maker is None:
        check_options(chosen)
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
