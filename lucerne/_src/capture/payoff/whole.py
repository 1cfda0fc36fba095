"""Whether a whole graph pays. A call of a few small ops costs less than looking whether its program
fits and giving its results a history: small graphs are timed both ways, and the faster way stays.

Part of the time lies in a backward pass that the function does not see. So calls are made for the
trial alone, each with a backward pass: of functions that only compute (those may be called once
more), with the gradients of leaves set aside meanwhile, and what they write (running means) put
back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.capture import ledger
from lucerne._src.capture.cache.entry import CacheEntry
from lucerne._src.capture.guards import describe
from lucerne._src.capture.trace.input_sources import tensor_of
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.graph import sees_each_op
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.autograd.saved import hooks as saved_hooks
from lucerne._src.tensor.autograd.state import state_of
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.settings import are_deterministic_algorithms_enabled

_ROUNDS = 7
_SURE = 2
"""Rounds after which a clear difference is believed."""
_CLEAR = 1.25
MARGIN = 0.9
"""How much of eager's time a call may take that pays: among other ops, whose backward pass goes
through its node as well, it gains less than alone."""
_GROWTH = 4
"""Arguments so many times as large as those of a trial are worth another one."""


def judge(compiled: Any, entry: CacheEntry, leaves: Sequence[Any]) -> None:
    """Time a version against the function as it is, and leave it if that is faster."""
    if not _is_open(compiled, entry, leaves):
        return
    try:
        with _set_aside(entry, leaves) as given:
            computed = [k for k, x in enumerate(leaves) if _is_computed(x)]
            best = _best_of(_calls(compiled, entry, given, computed))
    except Exception:  # whatever it is: the user's call has been made, and will raise it again
        return
    if best is None or best[0] <= MARGIN * best[1]:
        compiled.pays.add(dispatch.state.grad_enabled)
        return
    times = " ms compiled, ".join(f"{1e3 * seconds:.3g}" for seconds in best)
    passes = " with its backward pass" if entry.joint is not None else ""
    found = f"it takes {times} ms as it is{passes}"
    sizes = [x._meta.numel for x in leaves if isinstance(x, TensorBase)]
    compiled.left[dispatch.state.grad_enabled] = _GROWTH * max(sizes, default=0)
    compiled.latest = None
    ledger.not_paid(compiled.fn, found, 0)
    if best[0] <= best[1]:
        return  # as fast either way: the ledger has it, and there is nothing to do about it
    name = describe.name_of(compiled.fn)
    notices.warn(
        f"{name} runs uncompiled: {found}. Compile more of the program at once, the whole step for "
        "example. (It is tried again with larger arguments.)",
        stacklevel=5,
    )


def _is_open(compiled: Any, entry: CacheEntry, leaves: Sequence[Any]) -> bool:
    """Whether calls may be made for a trial, and the user has not asked for one of the ways."""
    options, state = compiled.options, dispatch.state
    asked = options.shadow or options.maker or are_deterministic_algorithms_enabled()
    watched = any((state.call_level, state.kernel_level, state.seen, sees_each_op()))
    watched |= any((saved_hooks.stack, anomaly.enabled, Watch.current))
    guards, captured = entry.guards, entry.captured
    apart = any((guards.same, guards.shares, guards.read_grads, guards.wrapped))
    more = any((captured.stored, captured.counted, captured.effects, entry.draws))
    if asked or watched or apart or more or entry.again is None:
        return False
    # Another thread may be adding to the gradients that are set aside.
    return threading.active_count() == 1 and not any(
        state_of(t).hooks or state_of(t).post_hooks for t in _leaves_of(entry, leaves)
    )


def _leaves_of(entry: CacheEntry, leaves: Sequence[Any]) -> list[Any]:
    """The tensors that its backward pass reaches."""
    return [] if entry.joint is None else [tensor_of(s, leaves) for s in entry.joint.wanted]


@contextmanager
def _set_aside(entry: CacheEntry, leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """Arguments for the trial: as given, but without the history of how they were computed."""
    given = [x.detach().requires_grad_() if _is_computed(x) else x for x in leaves]
    states = {id(s): s for s in map(state_of, _leaves_of(entry, given))}
    before = [(state, state.grad) for state in states.values()]
    written = [tensor_of(entry.sources[k], given) for k in entry.written]
    contents = [(t, t.detach().clone(), t._storage.version) for t in written]
    try:
        yield given
    finally:
        for state, grad in before:
            state.grad = grad
        for t, content, version in contents:
            t.detach().copy_(content)
            t._storage.version = version


def _is_computed(x: Any) -> bool:
    """Whether it is a tensor with a history."""
    found: Any = x if isinstance(x, TensorBase) else None
    return found is not None and found._needs_grad and not found.is_leaf


def _calls(
    compiled: Any, entry: CacheEntry, leaves: list[Any], computed: list[int]
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A call and its backward pass, compiled and as it is. `computed`: the arguments that stand
    for results of other ops."""
    states = [state_of(t) for t in _leaves_of(entry, leaves)]
    outputs = [k for k, _ in entry.again.outputs] if entry.joint is not None else []

    def timed(fn: Any) -> None:
        for state in states:
            state.grad = None
        found: list[Any] = []
        given = list(leaves)
        for k in computed:  # what is computed eagerly before it is part of the backward pass
            given[k] = leaves[k] * 1
        args, kwargs = rebuild(entry.guards.shape, iter(given))
        flatten(fn(*args, **kwargs), found)
        total = None
        for k in outputs:
            total = found[k].sum() if total is None else total + found[k].sum()
        if total is not None:
            total.backward()

    return lambda: timed(compiled), lambda: timed(compiled.fn)


def _best_of(calls: Sequence[Callable[[], Any]]) -> list[float] | None:
    """The shortest times; None: the first is faster, clearly."""
    best = [float("inf")] * len(calls)
    for k in range(_ROUNDS):
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - began)
        if k + 1 >= _SURE and best[1] > _CLEAR * best[0]:
            return None
    return best
