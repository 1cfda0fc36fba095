"""Entry: one compiled version of a function, with the guards that say when it may be used."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from lucerne._src.base import defaults
from lucerne._src.base.changed import changed
from lucerne._src.base.homes import own_home
from lucerne._src.base.process.error_notes import step_failed
from lucerne._src.base.process.forks import once
from lucerne._src.base.process.source_location import Origin
from lucerne._src.base.process.structure_version import StructureVersion
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.aot.backward import RepeatedCall, attach, used_up, with_tangents
from lucerne._src.capture.cache.launch import are_apart
from lucerne._src.capture.effects.arrays import ARRAYS, MOST_BYTES, contents, size_of
from lucerne._src.capture.guards import codegen
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.trace import subclasses
from lucerne._src.capture.trace.captured import Captured, CapturedResult
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    COVER,
    GRADIENT,
    HELD,
    INNER,
    NUMBER,
    SLOT,
    InputSource,
    reads_gradient,
)
from lucerne._src.capture.trace.input_sources import tensor_of as tensor_of
from lucerne._src.capture.trace.pytree import LEAF, KeptContainer, rebuild
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta, with_flip
from lucerne._src.ops.pointwise.complexes import flip_view, view_as_complex, view_as_real
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor.autograd.modes import set_grad_enabled
from lucerne._src.tensor.autograd.state import ADDING, AutogradState, state_of
from lucerne._src.tensor.base import TensorBase, make_tensor, new_tensor, plain_types
from lucerne._src.tensor.eager.dry_run import DryExecution
from lucerne._src.tensor.eager.inplace import bump
from lucerne._src.tensor.random.api import mark, take_back
from lucerne._src.transforms.rewrite import producers

_state = dispatch.state


if TYPE_CHECKING:  # (a call that finds its version loads no tracer)
    from lucerne._src.capture.breaks.reasons import Break


def circumstances() -> tuple[Any, ...]:
    """Switches outside the arguments that change what ops do."""
    cast = _state.cast
    return (
        _state.grad_enabled,
        _state.inference,
        None if cast is None else cast.setting,
        defaults.get_default_dtype(),
        defaults.DefaultDevice.get(),
    )


class Guards:
    """When a captured call may stand for another: every condition has words for its failure."""

    def __init__(
        self, leaves: Sequence[Any], shape: Any, captured: Captured, reach: ReachableState
    ) -> None:
        self.reach, self.uses, self.shape = reach, captured.uses, shape
        self.circumstances = circumstances()
        self.names: list[str] | None = None
        """Of the leaves, where they are not the arguments of a function."""
        self.more: Sequence[str] = ()
        """What somebody else checks before these guards are asked, in words."""
        self.tensors: list[tuple[int, TensorMeta, bool, Any]] = []
        self.values: list[tuple[int, Any]] = []
        self.same: list[tuple[int, Any]] = []
        self.given: list[tuple[int, Any, str, type]] = []
        """(number of a leaf, where its value goes, by which name, its class): any will do."""
        for k, x in enumerate(leaves):
            if type(x) is GivenFloat:
                self.given.append((k, *x.source, float))
            elif type(x) is GivenInt:
                self.given.append((k, *x.source, int))
            elif not is_a(x, TensorBase):
                if reach.leaves is None or k in reach.leaves:
                    self.values.append((k, x))
            elif id(x) in reach.tensors:
                self.same.append((k, x))
            else:
                self.tensors.append((k, x._meta, x._needs_grad, type(x)))
        self.wrapped = subclasses.Alike(leaves, reach.tensors.values()) or None
        """What is asked of tensors that answer ops themselves; None: there are none."""
        self.facts = captured.facts
        self.free = [f for f in self.facts if not f.is_fixed]
        """Those that `unchanged` does not look at, as they are about arguments."""
        self.covered = captured.covered
        self.read_grads = [s.thing for s in captured.sources if s.kind == GRADIENT]
        self.grad_metas = {
            id(s.thing): v.meta
            for s, v in zip(captured.sources, captured.graph.inputs, strict=True)
            if s.kind == GRADIENT
        }
        self._look_at_sharing(leaves)

    def _look_at_sharing(self, leaves: Sequence[Any]) -> None:
        self.sharing = _sharing(leaves)
        self.shares = self.sharing is not None and any(
            k != first for k, (first, _) in enumerate(self.sharing)
        )
        """Whether some arguments lie in one memory."""

    def resized(self, leaves: Sequence[Any]) -> Guards | None:
        """The guards of a call that differs from that of these in sizes alone; None: in a number
        as well, or gradients that it reads have those sizes."""
        if self.given or self.grad_metas or self.wrapped is not None:
            return None
        if any(leaves[k] is not x for k, x in self.values):
            return None
        made = changed(self, tensors=[(k, leaves[k]._meta, g, t) for k, _, g, t in self.tensors])
        if self.sharing is not None:
            made._look_at_sharing(leaves)
        vars(made)["_code"] = self._code  # (of the surroundings it asks the same)
        return made

    @once
    def _code(self) -> tuple[str, Any]:
        return codegen.written(self.reach, self.uses, self.circumstances, self.facts)

    @property
    def source(self) -> str:
        """The text of `unchanged`."""
        return self._code[0]

    @once
    def unchanged(self) -> Any:
        """Whether the surroundings are as they were: a function made for these guards."""
        return self._code[1]

    def failure(self, leaves: Sequence[Any], shape: Any, sizes: bool = True) -> str | None:
        """Why the version can't be used for these arguments; None: it can.

        `sizes=False`: whether it is so but for the sizes of arguments and of their gradients.
        """
        if shape != self.shape:
            return "the arguments are put together in another way"
        now = circumstances()
        if now != self.circumstances:
            return f"grad mode, inference, autocast, default dtype or device changed: {now}"
        found = self._other_argument(leaves, sizes)
        return self._surroundings(leaves, sizes) if found is None else found

    def _other_argument(self, leaves: Sequence[Any], sizes: bool) -> str | None:
        """Which argument is not as it was; None: all are, and numbers are where they are read."""
        for k, meta, needs_grad, kind in self.tensors:
            x: Any = leaves[k]
            if type(x) is not kind:
                return f"argument {k} is a {type(x).__name__}, it was a {kind.__name__}"
            if sizes and x._meta is not meta:
                return f"argument {k} is {_told(x._meta)}, it was {_told(meta)}"
            if x._needs_grad != needs_grad:
                return f"argument {k} has another requires_grad"
        for k, value in self.values:
            x = leaves[k]
            if x is not value and not _equal(x, value):
                return f"argument {k} is {x!r}, it was {value!r}"
        for k, t in self.same:
            if leaves[k] is not t:
                return f"argument {k} is another tensor object"
        other = None if self.wrapped is None else self.wrapped.failure(leaves)
        if other is not None:
            return other
        for k, holder, name, kind in self.given:
            if type(leaves[k]) is not kind:
                return f"argument {k} is {leaves[k]!r}, it was a number ({kind.__name__})"
            holder[name] = leaves[k]
        return None

    def are_sizes(self, leaves: Sequence[Any]) -> bool:
        """Whether tensors have the metas they are expected to have."""
        return all(leaves[k]._meta is meta for k, meta, *_ in self.tensors)

    def hold(self, leaves: Sequence[Any], shape: Any, sizes: bool = True) -> bool:
        """Whether there is no failure. The surroundings are asked by `unchanged` as long as that
        says yes."""
        if shape != self.shape or self._other_argument(leaves, sizes) is not None:
            return False
        if self.covered or self.read_grads or not self.unchanged():
            return self.failure(leaves, shape, sizes) is None
        for fact in self.free:
            if not fact.holds(leaves):
                return False
        return self.sharing is None or _sharing(leaves) == self.sharing

    def _surroundings(self, leaves: Sequence[Any], sizes: bool) -> str | None:
        if self.sharing is not None and _sharing(leaves) != self.sharing:
            return "arguments share memory in another way"
        broken = self.reach.broken()
        if broken is not None:
            return broken
        for first, member, start, nbytes in self.covered:
            t, other = tensor_of(member, leaves), tensor_of(first, leaves)
            if t is None or other is None:
                return "a gradient is None that was there"
            same = t._storage.buffer is other._storage.buffer and t._storage.nbytes == nbytes
            if not same or t._offset != start:
                return "tensors share memory in another way"
        for use in self.uses:
            if not use.holds():
                return f"no longer true: {use.text}"
        for fact in self.facts:
            if not fact.holds(leaves):
                return f"no longer true: {fact}"
        for owner in self.read_grads:
            grad = tensor_of(owner, leaves).grad
            free = not sizes and owner.kind == ARGUMENT
            if grad is None or not (free or grad._meta is self.grad_metas[id(owner)]):
                return "a gradient that is added to is None or laid out otherwise"
        return None


def _equal(x: Any, value: Any) -> bool:
    """Whether another object is as good as the one that was captured: a plain value, or one whose
    class is not the user's (a device, an enum) and says so."""
    kind = type(x)
    if is_a(x, ARRAYS) and kind is type(value):
        return size_of(x) <= MOST_BYTES and contents(x) == contents(value)
    if kind is not type(value) or (type(kind.__eq__) is FunctionType and _is_users(kind)):
        return False
    if kind is float or kind is complex:
        return repr(x) == repr(value)  # 0.0 is not -0.0
    try:
        return bool(x == value)
    except Exception:
        return False


def _is_users(kind: type) -> bool:
    """Whether `==` of a class is the user's: it may leave out what the function looks at."""
    home = sys.modules.get(getattr(kind.__eq__, "__module__", "") or "")
    name = own_home(getattr(home, "__name__", "")).partition(".")[0]
    return name != "lucerne" and name not in sys.stdlib_module_names


def _told(meta: TensorMeta) -> str:
    strides = "" if meta.contiguous else f" with strides {list(meta.strides)}"
    return f"{meta.dtype.name}{list(meta.shape)}{strides} on {meta.device}"


def _sharing(leaves: Sequence[Any]) -> tuple[Any, ...] | None:
    """Which tensors lie in one memory, and how far from each other; None for at most one tensor."""
    tensors: list[Any] = [x for x in leaves if is_a(x, TensorBase)]
    if any(type(x) not in plain_types for x in tensors):
        tensors = list(subclasses.plain_tensors(tensors))
    if len(tensors) < 2:
        return None
    first: dict[int, tuple[int, int]] = {}
    found = []
    for k, t in enumerate(tensors):
        at = t._offset * t._meta.dtype.itemsize
        where, start = first.setdefault(id(t._storage.buffer), (k, at))
        found.append((where, at - start))
    return tuple(found)


def _tensors(sources: Sequence[InputSource], leaves: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([tensor_of(s, leaves) for s in sources])


_GIVEN = (ARGUMENT, HELD, GRADIENT, COVER, SLOT, INNER)


_WORTH_KEEPING, _NODES_WRITTEN = 8, 16
"""Calls after which a version that was made by evaluating numbers is written to disk, and for how
many nodes there is one more: writing takes longer than making it."""

MISSED = object()
"""What `CacheEntry.quick` answers when the complete way must be taken."""


class CacheEntry:
    """A compiled version: `run(leaves)` does what the function would do."""

    def __init__(
        self,
        captured: Captured,
        guards: Guards,
        runner: Any,
        metas: Any,
        written: Any,
        stages: Any,
        key: Sequence[InputSource] = (),
    ) -> None:
        """`key`: the source of the key of random numbers, if there are any."""
        self.captured, self.guards, self.runner = captured, guards, runner
        self.key = list(key)
        self.cache = ""
        """Of the programs on disk: "hit", it comes from there; "miss", it was made; or empty."""
        self.keep_at = 0
        """After how many calls it is to be written to disk, by one that is not `quick`; 0: it is
        there, or is not to be."""
        self.is_instance = False
        """Whether it comes from there and was made for other sizes of a capture, untraced."""
        self.shadow: Any = None
        """Shadow mode: what makes a call both ways and compares; None: it is not watched."""
        self.sources = [*[s for s in captured.sources if s.kind in _GIVEN], *key]
        self.numbers = [s.thing for s in captured.sources if s.kind == NUMBER]
        self.result_metas = metas
        self.cleared = [e.owner for e in captured.effects]
        self.old_gradients = _old_gradients(captured) if self.cleared else []
        """Gradients that are left elsewhere (`g = p.grad; p.grad = None`), to be read before."""
        self.adds = bool(self.cleared or guards.read_grads)
        """Whether it reads gradients or leaves some behind: then no other thread may add to one."""
        self.broke: Break | None = None
        """What its program ends at, if it is a part of the function; None: the function ends."""
        self.calls = 0
        self.watched: Any = None
        """Itself, with a look at what its programs give (`finite.calls`)."""
        self.untried = 0
        """Calls left before it is judged whether it pays."""
        self.joint: Any = None
        self.again: Any = None
        """Calls once more, uncompiled (`second_derivatives.Again`); None: it is part of one."""
        self.written = written
        self.stages = stages
        self.launch: Any = runner.launch
        self.held = tuple(s.thing for s in self.sources if s.kind == HELD)
        self.given = self.sources[len(self.held) :]
        self.in_order = not guards.same and [(s.kind, s.index) for s in self.given] == [
            (ARGUMENT, k) for k in range(len(guards.tensors))
        ]
        self.look_at_results()
        self.kept = any(type(x) is KeptContainer for x in captured.leaves)
        self.metas = self._metas()
        self.flat = self.flat_now()
        self.tell_runner()

    def look_at_results(self) -> None:
        """What is to be done with the results of a call."""
        captured, metas = self.captured, self.result_metas
        outcomes = [x for x in captured.leaves if type(x) is CapturedResult]
        self.with_history = self._histories()
        self.inferred = sorted({x.index for x in outcomes if x.inference and not x.of_input})
        only = captured.leaves[0] if captured.shape is LEAF and len(captured.leaves) == 1 else None
        self.returns_result = (
            type(only) is CapturedResult
            and not (_state.inference or self.inferred)
            and not (only.of_input or only.offset or only.requires_grad or captured.effects)
            and not captured.counted
            and only.itself is None
            and only.subclass is None
            and only.meta is metas[only.index]
            and only.index == 0
        )
        """Whether the first result as it is, and nothing else, is what a call leaves behind."""

    def _histories(self) -> list[tuple[int, CapturedResult]]:
        """The results that get a history of their own."""
        return [
            (k, x)
            for k, x in enumerate(self.captured.leaves)
            if type(x) is CapturedResult and (x.used_up or (x.is_leaf and x.itself is None))
        ]

    def keep_later(self, nodes: int) -> None:
        """Write it to disk, a program of so many nodes, when it has been used often."""
        self.keep_at = _WORTH_KEEPING + nodes // _NODES_WRITTEN

    def keep_now(self) -> None:
        self.keep_at, self.flat = 0, self.flat_now()

    def flat_now(self) -> int:
        """How many arguments a call has that consists of nothing but tensors; -1: it is not so."""
        guards = self.guards
        (kind, leaves), named = guards.shape[1]
        plain = kind is tuple and all(x is LEAF for x in leaves) and not named[1]
        unread = len(guards.tensors) != sum(s.kind == ARGUMENT for s in self.given)
        rest = guards.values or guards.read_grads or unread
        rest = rest or guards.given or guards.wrapped is not None
        shares = guards.shares or guards.covered
        rest = rest or any(m.flipped for m in self.metas)  # (machine code has those of a program)
        usable = plain and not rest and self.launch is not None and not shares
        return len(leaves) if usable else -1

    def _metas(self) -> list[TensorMeta]:
        """Of the tensors that are given to the program, which reads their memory as it is."""
        flipped = {k for k, meta, *_ in self.guards.tensors if meta.flipped}
        return [
            with_flip(v.meta, s.index in flipped)
            if s.kind == ARGUMENT
            else with_flip(v.meta, s.thing._meta.flipped)
            if s.kind == HELD
            else v.meta
            for v, s in zip(self.captured.graph.inputs, self.captured.sources, strict=True)
            if s.kind in _GIVEN
        ]

    def tell_runner(self) -> None:
        flags = {k: grad for k, _, grad, _ in self.guards.tensors}
        self.flags = [
            flags.get(s.index)
            if s.kind == ARGUMENT
            else s.thing._needs_grad
            if s.kind == HELD
            else None
            for s in self.sources
        ]
        classes = {k: kind for k, *_, kind in self.guards.tensors}
        kinds = [classes.get(s.index) if s.kind == ARGUMENT else None for s in self.sources]
        self.runner.expect(self.flags, kinds=kinds)

    def is_repeatable(self, error: Exception) -> bool:
        """Whether a call that has raised leaves nothing behind: then the function may run instead.
        What a program writes to is written; anything else is done when it has run."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not CacheEntry._finish.__code__:
            trace = trace.tb_next
        captured = self.captured
        done = trace is not None and bool(captured.effects or captured.stored or captured.counted)
        return not (self.written or done)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the tensors it would read and write, those of the surroundings as well, are laid
        out as they were; what `launch` looks at in machine code."""
        count = len(self.metas)  # without the key, which is drawn when it is asked for
        given = [tensor_of(s, leaves) for s in self.sources[:count]]
        for t, meta, grad in zip(given, self.metas, self.flags[:count], strict=True):
            if t._meta is not meta or (grad is not None and t._needs_grad != grad):
                return False
        return not self.written or are_apart(given, self.written)

    def quick(self, leaves: tuple[Any, ...]) -> Any:
        """A call whose arguments are as many tensors as expected: most checks in machine code."""
        guards = self.guards
        if not guards.unchanged():
            return MISSED
        if self.cleared and not guards.are_sizes(leaves):
            return MISSED  # before anything is cleared
        for fact in guards.free:
            if not fact.holds(leaves):
                return MISSED
        for k, t in guards.same:  # an argument that the function finds elsewhere too
            if leaves[k] is not t:
                return MISSED
        undo = None
        if self.cleared or self.key:
            undo = Undo(self, leaves)
            undo.clear()
        second = leaves if self.in_order else _tensors(self.given, leaves)
        try:
            results = self.launch(self.held, second, tuple([x.now() for x in self.numbers]))
        except BaseException:
            if undo is not None:
                undo()
            raise
        if results is None:  # nothing has happened yet
            if undo is not None:
                undo()
            return MISSED
        self.calls += 1
        if 0 < self.keep_at <= self.calls:
            self.flat = -1  # the next call goes the other way
        if self.returns_result:
            return results[0]
        return self._finish(leaves, (*self.held, *second), results, undo)

    def quick_adding(self, leaves: tuple[Any, ...]) -> Any:
        """`quick` of a version that `adds`: what its guards say of gradients stays true."""
        with ADDING:
            return self.quick(leaves)

    def run_guarded(self, leaves: Sequence[Any], run: Callable[..., Any], *given: Any) -> Any:
        """`run(*given)`, which runs this version; if it `adds`, while no other thread does. MISSED
        if one has since the guards were asked (the first gradient is kept, the next added)."""
        if not self.adds:
            return run(*given)
        with ADDING:
            alone = threading.active_count() == 1
            if not (alone or self.guards.hold(leaves, self.guards.shape)):
                return MISSED
            return run(*given)

    def run(self, leaves: Sequence[Any], given: Any = None) -> Any:
        """`given`: the arguments that have these leaves; only needed if some are returned."""
        self.calls += 1
        undo = Undo(self, leaves) if self.cleared or self.key else None
        arguments = [tensor_of(s, leaves) for s in self.sources]
        if undo is not None:
            undo.clear()
        try:
            results = self._run(arguments)
        except BaseException:
            if undo is not None:
                undo()
            raise
        if self.returns_result:
            return results[0]
        return self._finish(leaves, arguments, results, undo, given)

    def _run(self, arguments: Sequence[Any]) -> Any:
        numbers = tuple([x.now() for x in self.numbers])
        results: Any = None
        if DryExecution.current is not None:
            results = DryExecution.current.program(self.runner, self.result_metas)
        elif self.launch is not None:
            count = len(self.held)
            results = self.launch(self.held, tuple(arguments[count:]), numbers)
        if results is None:
            results = [new_tensor(meta) for meta in self.result_metas]
            self.runner(arguments, numbers, results)
            for k in self.written:
                bump(arguments[k])
        return results

    def _finish(
        self,
        leaves: Sequence[Any],
        arguments: Sequence[Any],
        results: Sequence[Any],
        undo: Undo | None = None,
        given: Any = None,
    ) -> Any:
        captured = self.captured
        if self.plain_results and undo is None and not _state.inference:
            out = [results[k] for k in self.plain_results]
            self._attach(leaves, arguments, results, out)
            return out[0] if captured.shape is LEAF else rebuild(captured.shape, iter(out))
        if _state.inference:
            for r in results:
                r._storage.inference = True
        for k in self.inferred:
            results[k]._storage.inference = True
        made = _Results(leaves, arguments, results)
        if undo is not None:
            made.kept = undo.kept
            for effect, (state, _) in zip(captured.effects, undo.cleared, strict=True):
                if effect.outcome is not None:
                    state.grad = made.left(effect.outcome)
        out = [made.tensor(x) if type(x) is CapturedResult else x for x in captured.leaves]
        for k, x in self.with_history:
            if x.is_leaf and x.itself is None:
                out[k]._auto = AutogradState(requires_grad=True)
            if x.gradient is not None:
                state_of(out[k]).grad = made.left(x.gradient)
            if x.used_up:
                used_up(out[k], x.used_up)
        if self.joint is not None:
            self._attach(leaves, arguments, results, out)
            self._make_views(out, results)
        if captured.checks:
            self._raise_if_wrong(out)
        for slot, shape, first in captured.stored:
            slot.set(rebuild(shape, iter(out[first:])))
        for slot, number in captured.counted:
            slot.set(number.now())
        if captured.stored or captured.counted:  # others must look; this entry has just looked
            StructureVersion.count += 1
            self.guards.reach.saw(StructureVersion.count)
        if self.kept:
            out = [x.now(given) if type(x) is KeptContainer else x for x in out]
        if captured.shape is LEAF:
            return out[0]
        return rebuild(captured.shape, iter(out))

    @once
    def _outputs(self) -> list[tuple[int, int, bool]]:
        return with_tangents(self.captured)

    @once
    def plain_results(self) -> list[int]:
        """Which results are left behind, where that and their history is all there is to do; else
        nothing."""
        captured, metas = self.captured, self.result_metas
        more = captured.effects or captured.checks or captured.stored or captured.counted
        found = [x for x in captured.leaves if type(x) is CapturedResult]
        plain = len({x.index for x in found}) == len(captured.leaves) and not any(
            x.of_input or x.offset or x.itself or x.subclass or x.view_of is not None
            or x.meta is not metas[x.index]
            for x in found
        )  # fmt: skip
        whole = self.joint is None or more or self.with_history or self.inferred or self.kept
        return [x.index for x in found] if plain and not whole else []

    def _attach(self, leaves: Any, arguments: Any, results: Any, out: list[Any]) -> None:
        """Give the outputs their history."""
        joint = self.joint
        inputs = [tensor_of(s, leaves) for s in joint.wanted]
        saved = [(arguments if given else results)[k] for given, k in joint.saved]
        numbers = tuple([x.now() for x in joint.numbers])
        call = None if self.again is None else RepeatedCall(self.again, leaves, arguments)
        attach(joint, inputs, saved, self._outputs, out, numbers, call)

    def _make_views(self, out: list[Any], results: Sequence[Any]) -> None:
        """Views that are left beside their base, which has its history now."""
        made: dict[int, Any] = {}
        for k, x in enumerate(self.captured.leaves):
            if type(x) is CapturedResult and x.view_of is not None:
                if id(x) not in made:
                    with set_grad_enabled(True):
                        made[id(x)] = _viewed(
                            out[x.view_of], x.meta, results[x.index]._offset, x.offset
                        )
                out[k] = made[id(x)]

    def _raise_if_wrong(self, out: Sequence[Any]) -> None:
        for leaf, error in self.captured.checks:
            if out[leaf]:
                found: Any = error()
                captured = self.captured
                done = self.written or captured.effects or captured.stored or captured.counted
                if done or self.draws:  # (eager would draw other numbers, and not raise)
                    found.is_for_caller = True
                    step_failed(found, "", (), self._lines_of(leaf))
                raise found

    def _lines_of(self, leaf: int) -> list[Origin]:
        """Where the user's code asked for a result. (What comes from disk has no graph.)"""
        captured, result = self.captured, self.captured.leaves[leaf]
        if type(result) is not CapturedResult or result.of_input or not captured.roots:
            return []
        node = producers(captured.graph).get(captured.roots[result.index].index)
        return [] if node is None or node.place is None else [node.place]

    @once
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return bool(self.key) or self.captured.draws


def _old_gradients(captured: Captured) -> list[InputSource]:
    outcomes = [x for x in captured.leaves if type(x) is CapturedResult]
    left = [e.outcome for e in captured.effects] + [x.gradient for x in outcomes]
    outcomes += [x for one in left for x in subclasses.plain_outcomes(one)]
    return [x.itself for x in outcomes if x.itself is not None and reads_gradient(x.itself)]


class Undo:
    """What is put back if a program does not run: gradients that it clears, and the generator."""

    __slots__ = ("before", "cleared", "kept")

    def __init__(self, entry: CacheEntry, leaves: Sequence[Any]) -> None:
        states = [state_of(tensor_of(owner, leaves)) for owner in entry.cleared]
        self.cleared = [(state, state.grad) for state in states]
        self.kept = {id(s): tensor_of(s, leaves) for s in entry.old_gradients}
        self.before = mark() if entry.key else None

    def clear(self) -> None:
        for state, _ in self.cleared:
            state.grad = None

    def __call__(self) -> None:
        for state, grad in self.cleared:
            state.grad = grad
        if self.before is not None:
            take_back(self.before)


class _Results:
    """Tensors made of results and inputs; one result read in two ways is one memory."""

    def __init__(
        self, leaves: Sequence[Any], arguments: Sequence[Any], results: Sequence[Any]
    ) -> None:
        self.leaves, self.arguments, self.results = leaves, arguments, results
        self.made: dict[int, Any] = {}
        """By id of an outcome."""
        self.kept: dict[int, Any] = {}
        """By id of its source: a gradient that was there before the call."""
        self.handed: set[int] = set()
        """Results that are somebody's tensor already: another outcome is another object."""

    def tensor(self, x: CapturedResult) -> Any:
        found = self.made.get(id(x))
        if found is not None:
            return found
        if x.itself is not None:
            found = self.kept.get(id(x.itself))
            found = tensor_of(x.itself, self.leaves) if found is None else found
        else:
            found = self._of_input(x) if x.of_input else self._of_result(x)
            if x.subclass is not None:
                found.__class__ = x.subclass[0]
                found.__dict__.update(x.subclass[1])
        self.made[id(x)] = found
        return found

    def left(self, x: Any) -> Any:
        """A tensor, or one that wraps others."""
        if type(x) is subclasses.Wrapped:
            return rebuild(x.shape, map(self.tensor, x.parts))
        return self.tensor(x)

    def _of_result(self, x: CapturedResult) -> Any:
        base, handed = self.results[x.index], self.handed
        if x.meta is base._meta and not x.offset and x.index not in handed:
            handed.add(x.index)
            return base
        return make_tensor(base._storage, x.offset, x.meta)

    def _of_input(self, x: CapturedResult) -> Any:
        base = self.arguments[x.index]
        apart = x.tangent is not None and not base._needs_grad  # (all of an argument's memory)
        if x.detached:
            base = base.detach()
            if x.meta is base._meta and not x.offset:
                return base
        apart = apart or (base._needs_grad and not x.requires_grad)
        # (with another dtype none needs a gradient, see `Capture`)
        if apart or x.meta.dtype is not base._meta.dtype:
            start = base._offset * base._meta.dtype.itemsize // x.meta.dtype.itemsize
            return make_tensor(base._storage, start + x.offset, x.meta)
        with set_grad_enabled(_state.grad_enabled and not x.is_leaf):
            return _viewed(base, x.meta, base._offset, x.offset)


def _viewed(base: Any, meta: TensorMeta, first: int, offset: int) -> Any:
    """A view with a history. `first` is where the memory begins that `offset` counts from, in
    elements of the base."""
    shape, strides = tuple(meta.shape), meta.strides
    if meta.dtype is base._meta.dtype:
        made = strided_view(base, shape, strides, first + offset - base._offset)
    elif meta.dtype is base._meta.dtype.to_real():  # .real, .imag
        memory = flip_view(base) if base._meta.flipped else base
        made = view_as_real(memory).as_strided(shape, strides, 2 * first + offset)
    else:
        pairs = (*[2 * n for n in strides], 1)
        made = view_as_complex(base.as_strided((*shape, 2), pairs, first + 2 * offset))
    return made if made._meta.flipped == meta.flipped else flip_view(made)
