"""Shadow mode of one compiled version: its first calls are made twice and compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src.base.process import notices
from lucerne._src.capture.cache.entry import CacheEntry, tensor_of
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.options import ACTIONS
from lucerne._src.capture.shadow.blame import Bisection
from lucerne._src.capture.shadow.eagerly import Counted
from lucerne._src.capture.shadow.evidence import ShadowCase
from lucerne._src.capture.shadow.nearness import Difference
from lucerne._src.capture.shadow.observe import (
    ShadowObservation,
    differences,
    facts,
    named_tensors,
    observed,
)
from lucerne._src.capture.shadow.report import Finding
from lucerne._src.capture.shadow.state import Surroundings
from lucerne._src.capture.trace.capture import Capture
from lucerne._src.capture.trace.captured import CapturedResult
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.tensor.autograd.api import grad as gradients_of
from lucerne._src.tensor.autograd.modes import enable_grad
from lucerne._src.tensor.base import TensorBase, new_tensor
from lucerne._src.tensor.interop.outside import assign, bits
from lucerne._src.tensor.random.api import new_key


class ShadowError(AssertionError):
    """A compiled function gave something else than eager mode. `finding` has all that is known."""

    is_for_caller = True

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


FINDINGS: list[Finding] = []
"""What shadow mode found in this process, in order."""


class Shadow:
    """What an entry has while it is watched: its calls go through here.

    `calls`: how many are compared. After a difference the version runs as eager does, for ever.
    """

    def __init__(self, entry: CacheEntry, options: Any, fn: Any, calls: int, action: str) -> None:
        self.entry, self.options, self.fn = entry, options, fn
        self.left, self.action = calls, action
        self.finding: Finding | None = None
        self._flat, entry.flat = entry.flat, -1  # no shortcut around this
        self.first = True
        self.tell: Callable[[Exception], None]
        """What hears of errors of shadow mode itself; set by who makes it."""

    def __call__(self, args: Any, kwargs: Any, leaves: Sequence[Any]) -> Any:
        if self.finding is not None:
            return self.fn(*args, **kwargs)
        if self.left <= 0:
            self.entry.flat, self.entry.shadow = self._flat, None
            return self.entry.run(leaves, (args, kwargs))
        self.left -= 1
        reach, graph = self.entry.guards.reach, self.entry.captured.graph
        try:
            surroundings = Surroundings(reach, leaves, self.entry.held, graph)
        except Exception as error:  # nothing has happened yet
            self._not_compared(error)
            return self.entry.run(leaves)
        try:
            result = self._compared(args, kwargs, leaves, surroundings)
        except ShadowError:
            raise
        except Exception as error:
            surroundings.put_back()
            self._not_compared(error)
            result = self.entry.run(leaves)
        return _returned(result)

    def _not_compared(self, error: Exception) -> None:
        """Comparing raised, which is no matter of the call: it is not watched any more."""
        self.left = 0
        self.tell(error)

    # ---- both ways -----------------------------------------------------------------------------

    def _compared(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], surroundings: Surroundings
    ) -> Any:
        """What the call returns, or what it raises."""
        entry = self.entry
        tangents = _tangents(entry)
        want, _ = self._eager(args, kwargs, leaves, surroundings, tangents)
        surroundings.put_back()
        got, result = self._compiled(args, kwargs, leaves, surroundings, tangents)
        seen = differences(got, want)
        first, self.first = self.first, False
        if not seen and not first:
            return result
        after = Surroundings(entry.guards.reach, leaves, entry.held, entry.captured.graph)
        case = ShadowCase(
            entry, self.options, self.fn, args, kwargs, leaves, surroundings, tangents, want, got,
            seen, lambda: self._captured_anew(args, kwargs, leaves),
        )  # fmt: skip
        search = Bisection(case)
        finding = search.found() if seen else search.steps()
        if finding is None:
            after.put_back()
            return result
        surroundings.put_back()
        return self._told(finding, args, kwargs)

    def _told(self, finding: Finding, args: Any, kwargs: Any) -> Any:
        finding.function = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        self.finding = finding
        FINDINGS.append(finding)
        if self.action == "raise":
            raise ShadowError(finding)
        finding.action = "this version of the function runs uncompiled from here on"
        notices.warn(str(finding), stacklevel=5)
        try:
            return self.fn(*args, **kwargs)
        except Exception as error:  # the function's own
            return error

    def _eager(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], surroundings: Surroundings,
        tangents: list[Any],
    ) -> tuple[ShadowObservation, Any]:  # fmt: skip
        with self._numbers(surroundings):
            return self._watched(lambda: self.fn(*args, **kwargs), leaves, surroundings, tangents)

    @contextlib.contextmanager
    def _numbers(self, surroundings: Surroundings) -> Iterator[None]:
        """Random numbers of the program, for the function as it is."""
        if not self.entry.key:
            yield
            return
        key = new_key(self.entry.key[0].thing)
        with Counted(key):
            yield

    def _compiled(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], surroundings: Surroundings,
        tangents: list[Any],
    ) -> tuple[ShadowObservation, Any]:  # fmt: skip
        def run() -> Any:
            return self.entry.run(leaves, (args, kwargs))

        return self._watched(run, leaves, surroundings, tangents)

    def _watched(
        self, call: Any, leaves: Sequence[Any], surroundings: Surroundings, tangents: list[Any]
    ) -> tuple[ShadowObservation, Any]:
        try:
            result = call()
        except Exception as error:
            return ShadowObservation(error=type(error).__name__), error
        seen = observed(surroundings, result)
        if self.entry.joint is not None and tangents:
            self._differentiate(result, leaves, tangents, seen)
        return seen, result

    def _differentiate(
        self, result: Any, leaves: Sequence[Any], tangents: list[Any], seen: ShadowObservation
    ) -> None:
        """The gradients that a backward pass from outside would give: with all of the results, with
        the first alone, and with gradients that come in laid out otherwise."""
        captured = self.entry.captured
        flat: list[Any] = []
        flatten(result, flat)
        roots = [
            (t, x.tangent)
            for t, x in zip(flat, captured.leaves, strict=False)
            if type(x) is CapturedResult and x.tangent is not None and isinstance(t, TensorBase)
        ]
        wanted = [tensor_of(s, leaves) for s in self.entry.joint.wanted]
        if not roots or not wanted:
            return
        ways = {"": (roots, False), " (gradients laid out otherwise)": (roots, True)}
        if len(roots) > 1:
            ways[" (of the last result alone)"] = roots[-1:], False
        for name, (chosen, otherwise) in ways.items():
            given = [_laid_out_otherwise(tangents[k]) if otherwise else tangents[k]
                     for _, k in chosen]  # fmt: skip
            try:
                with enable_grad():
                    found = gradients_of(
                        [t for t, _ in chosen], wanted, given, retain_graph=True, allow_unused=True
                    )
            except Exception as error:
                seen.others[f"the backward pass{name}"] = f"raises {type(error).__name__}"
                continue
            for k, g in enumerate(found):
                fact = None if g is None else facts(g.detach())
                if fact is not None and np.any(fact.array):
                    fact.meta = fact.meta.like(shape=tuple(fact.meta.shape))
                    seen.tensors[f"gradient {k} of the backward pass{name}"] = fact

    def _captured_anew(self, args: Any, kwargs: Any, leaves: Sequence[Any]) -> Any:
        reach = ReachableState(self.fn, leaves)
        try:
            return Capture(self.fn, args, kwargs, reach, self.options.whole).run()
        except Exception:  # it can't be captured now: nothing to compare with
            return None


class PartShadow(Shadow):
    """Of a version of a part of a function: it is compared with its captured graph, op by op.

    `give_up(why)`: after a difference the function runs as it is.
    """

    def __init__(
        self, entry: CacheEntry, options: Any, fn: Any, calls: int, action: str, give_up: Any
    ) -> None:
        super().__init__(entry, options, fn, calls, action)
        self.give_up = give_up

    def _compared(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], surroundings: Surroundings
    ) -> Any:
        entry = self.entry
        tangents = _tangents(entry)
        got, result = self._watched(lambda: entry.run(leaves), leaves, surroundings, [])
        if got.error:
            return result
        after = Surroundings(entry.guards.reach, leaves, entry.held, entry.captured.graph)
        case = ShadowCase(
            entry, self.options, None, args, kwargs, leaves, surroundings, tangents, None, got, {}
        )
        search = Bisection(case)
        finding = search.part()
        after.put_back()
        if finding is not None:
            self._told_part(finding)
            _repair(surroundings, result, search.right_values())
        return result

    def _told_part(self, finding: Finding) -> None:
        finding.function = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        FINDINGS.append(finding)
        if self.action == "raise":
            raise ShadowError(finding)
        finding.action = "the function runs uncompiled from the next call on"
        self.left = 1 << 30  # until then, every result is put right
        self.give_up(str(finding))


def _repair(surroundings: Surroundings, result: Any, right: dict[str, Any]) -> None:
    """Write what is right over what a call left behind."""
    for name, t in named_tensors(surroundings, result):
        if name in right and bits(t).shape == right[name].shape:
            assign(t, right[name])


def _returned(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def _tangents(entry: CacheEntry) -> list[Any]:
    """Gradients of the results, as somebody outside would give them."""
    if entry.joint is None:
        return []
    found = []
    for k, meta in enumerate(entry.joint.tangents):
        t = new_tensor(meta)
        numbers = np.random.default_rng(k).integers(-4, 5, tuple(meta.shape)) / 4.0
        _fill(t, numbers)
        found.append(t)
    return found


def _fill(t: Any, numbers: Any) -> None:
    meta: TensorMeta = t._meta
    if meta.dtype.native:
        assign(t, numbers.astype(meta.dtype.storage))
        return
    whole = np.asarray(numbers, np.float32).view(np.uint32) >> np.uint32(16)
    assign(t, whole.astype(meta.dtype.storage))


def _laid_out_otherwise(t: Any) -> Any:
    """The same numbers with the first dimension innermost."""
    meta: TensorMeta = t._meta
    if meta.ndim < 2:
        return t
    shape = tuple(meta.shape)
    strides = [1]
    for n in shape[:-1]:
        strides.append(strides[-1] * n)
    made = new_tensor(make_meta(meta.dtype, shape, tuple(strides), meta.device))
    assign(made, bits(t))
    return made


__all__ = ["ACTIONS", "FINDINGS", "Difference", "PartShadow", "Shadow", "ShadowError"]
