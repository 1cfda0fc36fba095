"""How long each kernel of a program takes: the program is run on copies of what it would change."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Any

from lucerne._src.base.process.profiler_hook import PROGRAM, Watch
from lucerne._src.base.process.source_location import Place, is_users, runs_users, user_place
from lucerne._src.capture.cache.entry import CacheEntry, tensor_of
from lucerne._src.capture.ledger import BOOKS
from lucerne._src.capture.trace.input_sources import HELD, KEY
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase, new_tensor
from lucerne._src.tensor.eager import run
from lucerne._src.tensor.eager.watchers import unwatch_calls, watch_calls
from lucerne._src.tensor.random.api import default_generator

ENOUGH_SECONDS = 0.5
MOST_CALLS = 20
LEAST_CALLS = 3


_BUSY = 1.5
"""Threads that want a processor, for each that there is, from which times are not to be trusted."""


def busy() -> str:
    """Whether the machine has more to do than to run this, in words; "": it has not, or does not
    say."""
    if not hasattr(os, "getloadavg"):
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= _BUSY * cores:
        return ""
    return f"the machine was busy (load {load:.1f} on {cores} cores): times are too long"


class Stopwatch:
    """Watches programs run: who they are, and when their steps begin and end."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        """Programs, in the order in which they ran."""
        self.best: dict[int, list[float]] = {}
        """By id of a program: the least seconds of each step."""
        self.outside: dict[Place, list[str]] = {}
        """Ops that ran by themselves, by the user's line."""
        self.inside = False

    def begin(self, name: str, kind: str, thing: Any = None) -> Any:
        """See `base.watch.Watcher`: only programs are of interest."""
        return thing if kind == PROGRAM else None

    def end(self, span: Any) -> None:
        """A program is done."""

    def steps(self, span: Any, program: Any, times: Sequence[int]) -> None:
        """Keep the best; a program that turned the arguments down has not run."""
        if program.steps and not any(times):
            return
        if not any(p is program for p in self.seen):
            self.seen.append(program)
        found = [1e-9 * (times[2 * k + 1] - times[2 * k]) for k in range(len(times) // 2)]
        known = self.best.setdefault(id(program), found)
        self.best[id(program)] = [min(a, b) for a, b in zip(known, found, strict=True)]

    def op(self, op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
        """An eager call of an op, on its way to `eager.run`. Those inside of others don't count,
        nor those of compiling (an optimizer's state is made then)."""
        if self.inside or dispatch.state.kernel_level or BOOKS.open or _of_a_program():
            return run.run(op, args, out)
        place = user_place()
        if place is not None:
            self.outside.setdefault(place, []).append(op.name)
        self.inside = True
        try:
            return run.run(op, args, out)
        finally:
            self.inside = False


_RUNS = frozenset((CacheEntry.run.__code__, CacheEntry.quick.__code__))


def _of_a_program() -> bool:
    """Whether what is called now belongs to the call of a program: its key, views of results."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_users(frame.f_code) and not runs_users(frame.f_code):
        if frame.f_code in _RUNS:
            return True
        frame = frame.f_back
    return False


@contextmanager
def hearing(watch: Stopwatch) -> Iterator[None]:
    """Be told of eager ops as well, unless a profile is running."""
    if Watch.current is not None:
        yield
        return
    watch_calls(watch.op, None)
    try:
        yield
    finally:
        unwatch_calls()


@contextmanager
def watching(watch: Stopwatch) -> Iterator[Stopwatch]:
    """Be told of programs, unless a profile is running (which is told then)."""
    before, Watch.current = Watch.current, Watch.current or watch
    try:
        yield watch
    finally:
        Watch.current = before


def measure(entry: Any, leaves: Sequence[Any]) -> tuple[dict[str, list[float]], float]:
    """Seconds of each step of an entry's programs ("call", or "forward" and "backward"), and of a
    whole call. Nothing the user has is changed."""
    generator: Any = default_generator
    state = generator.get_state()
    try:
        return _measured(entry, leaves)
    except (RuntimeError, IndexError, ValueError):  # a kernel that minds what stands in for data
        return {}, 0.0
    finally:
        generator.set_state(state)


def _measured(entry: Any, leaves: Sequence[Any]) -> tuple[dict[str, list[float]], float]:
    arguments = _arguments(entry, leaves)
    numbers = tuple([x.now() for x in entry.numbers])
    count = len(entry.held)
    first, second = tuple(arguments[:count]), tuple(arguments[count:])
    results: list[Any] = []

    def call() -> None:
        found = None if entry.launch is None else entry.launch(first, second, numbers)
        if found is None:
            found = [new_tensor(meta) for meta in entry.result_metas]
            entry.runner(arguments, numbers, found)
        results[:] = found

    name = "call" if entry.joint is None else "forward"
    times = {name: _steps(call)}
    whole = _best(call)
    if entry.joint is not None:
        joint = entry.joint
        saved = [(arguments if given else results)[k] for given, k in joint.saved]
        given = [*saved, *map(_stand_in, joint.tangents)]

        def back() -> None:
            joint.runner(given, (), [new_tensor(meta) for meta in joint.result_metas])

        times["backward"] = _steps(back)
        whole += _best(back)
    return times, whole


def _steps(call: Callable[[], None]) -> list[float]:
    """The least seconds of each step."""
    watch = Stopwatch()
    began, calls = perf_counter(), 0
    while calls < LEAST_CALLS or (perf_counter() - began < ENOUGH_SECONDS and calls < MOST_CALLS):
        with watching(watch):
            call()
        calls += 1
    return watch.best[id(watch.seen[0])] if watch.seen else []


def _best(call: Callable[[], None]) -> float:
    best, began = float("inf"), perf_counter()
    for calls in range(MOST_CALLS):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
        if calls + 1 >= LEAST_CALLS and perf_counter() - began > ENOUGH_SECONDS:
            break
    return best


def _arguments(entry: Any, leaves: Sequence[Any]) -> list[Any]:
    """What the program reads: the tensors of the call, copies of those it writes to, and others of
    the same kind where a tensor is not there any more."""
    metas = [*entry.metas, *[None] * (len(entry.sources) - len(entry.metas))]
    written = set(entry.written)
    found = []
    for k, (source, meta) in enumerate(zip(entry.sources, metas, strict=True)):
        t = _given(source, leaves)
        if t is None or (meta is not None and t._meta is not meta):
            t = _stand_in(meta)
        elif k in written:
            t = _copy(t)
        wanted = entry.flags[k] if k < len(entry.flags) else None
        if wanted is not None and t._needs_grad != wanted and source.kind != HELD:
            t = _copy(t)
            t.requires_grad_(wanted)
        found.append(t)
    return found


def _given(source: Any, leaves: Sequence[Any]) -> Any:
    if source.kind == KEY:
        return tensor_of(source, leaves)
    try:
        found = tensor_of(source, leaves)
    except (IndexError, AttributeError, KeyError, TypeError):
        return None
    return found if isinstance(found, TensorBase) else None


def _copy(t: Any) -> Any:
    made = new_tensor(t._meta)
    made.copy_(t.detach())
    if t._needs_grad:
        made.requires_grad_(True)
    return made


def _stand_in(meta: TensorMeta) -> Any:
    """A tensor of this kind: ordinary numbers; zeros where they may be indices."""
    made = new_tensor(meta)
    made.fill_(0)
    if meta.dtype.is_floating_point:
        made.uniform_(-1, 1)
    return made
