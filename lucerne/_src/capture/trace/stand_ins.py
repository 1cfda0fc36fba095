"""The tensors of a call while it is captured: stand-ins, whose memory they are, what was asked of
them, and everything put back afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.tensor_reads import (
    GradientOwner,
    TensorReads,
    gradient_of,
    has_history,
    place_of,
)
from lucerne._src.capture.trace import subclasses
from lucerne._src.capture.trace.fake import (
    CaptureError,
    NoBytes,
    StandIn,
    fake_storage,
    fit_storage,
    is_fake,
)
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    GRADIENT,
    HELD,
    INNER,
    InputSource,
)
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.autograd.node import Edge, gradient_edge
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase, make_tensor, plain_types


class Tracing:
    """One attempt at a capture."""

    def __init__(self, reach: ReachableState, recorder: Recorder) -> None:
        self.reach, self.recorder = reach, recorder
        self.owners: list[GradientOwner] = []
        """Leaves from outside, with the gradients they have."""
        self.looked = TensorReads(self.is_outside, self._found)
        self.sources: dict[int, InputSource] = {}
        """By id of a tensor of the trace."""
        self.edges: dict[int, Edge] = {}
        self.stand_ins: list[Any] = []
        self.memories: dict[int, NoBytes] = {}
        """What stands for the memories of the arguments."""
        self.storages: dict[int, Any] = {}
        """What stands for their storages, which count how often they are written to."""
        self.homes: dict[int, tuple[Any, Any]] = {}
        """By id of a memory of an argument: what stands for a tensor in it, and its place."""
        self.geometry = [(t, *geometry_of(t)) for t in reach.tensors.values()]
        """Where tensors lay that are no matter of a call: it may write to them, but not make them
        others (`t_`, `set_`, `.data = `)."""
        self.flags = [(t, t._needs_grad) for t in reach.tensors.values()]
        """Those, and what stands for arguments, and whether they need gradients."""
        held = list(subclasses.plain_tensors(_with_gradients(reach.tensors.values())))
        recorder.is_outside = self.looked.is_outside
        for t in held:
            recorder.homes.setdefault(id(t._storage.buffer), []).append(t)
        self.reached = {id(t._storage.buffer) for t in held}
        """Memories that the function gets at without its arguments."""
        self.inside = subclasses.Inside()
        self.wrapping: list[Any] = []
        """Wrappers from outside that need gradients."""
        self._inner: dict[int, Any] = {}
        """By id of a tensor inside of an argument: what stands for it."""
        self.stood_for: dict[int, tuple[Any, Any, InputSource]] = {}
        """By id of an argument: itself, what stands for it, its source. One object is one, however
        often it is given."""

    def is_outside(self, t: Any) -> bool:
        """Whether a tensor of the trace was there before, or stands for one that was."""
        return id(t) in self.sources or id(t) in self.reach.tensors

    def _found(self, t: Any) -> None:
        """The function comes to a tensor in a place that `reach` does not know."""
        if not is_fake(t) and id(t) not in self.reach.tensors:
            self.geometry.append((t, *geometry_of(t)))
            self.flags.append((t, t._needs_grad))

    def asked_place(self, t: Any) -> None:
        """It was asked where a tensor lies. What was made since lies where it would in eager, and a
        view of something from outside where that does."""
        at = id(t._storage.buffer)
        found = self.homes.get(at)
        if found is None and at in self.recorder.homes:
            held = self.recorder.homes[at][0]
            found = held, place_of(held)
        if found is not None:
            if self.looked.told is not None:
                self.looked.told("refused")
            self.looked.placed.setdefault(id(found[0]), found)

    # ---- before --------------------------------------------------------------------------------

    def stand_in_for(self, leaf: Any, k: int, memories: list[int]) -> Any:
        """What the function is given in place of a leaf of its arguments.

        `memories`: those of all arguments. One that the function reaches in another way too stays
        what it is, so that both are seen to be one.
        """
        if not is_a(leaf, TensorBase):
            return leaf
        if id(leaf) in self.reach.tensors:
            self.sources[id(leaf)] = InputSource(HELD, thing=leaf)
            return leaf
        if id(leaf) not in self.stood_for:
            source = InputSource(ARGUMENT, index=k)
            self.stood_for[id(leaf)] = leaf, self._stand_in(leaf, source, memories), source
        return self.stood_for[id(leaf)][1]

    def _inner_stand_in(self, part: Any, source: InputSource, memories: list[int]) -> Any:
        """What stands for a tensor inside of an argument; one object is one stand-in."""
        if id(part) in self.reach.tensors:
            raise CaptureError("the inside of an argument is seen by the function as well")
        if id(part) not in self._inner:
            self._inner[id(part)] = self._stand_in(part, source, memories)
        return self._inner[id(part)]

    def _stand_in(self, leaf: Any, source: InputSource, memories: list[int]) -> Any:
        if type(leaf) not in plain_types:
            subclasses.check_argument(leaf)
            if subclasses.opens(type(leaf)):
                return self._wrapper(leaf, source, memories)
        at = id(leaf._storage.buffer)
        storage, shared = leaf._storage, True
        if at not in self.reached:
            shared = memories.count(at) > 1
            memory = self.memories.setdefault(at, NoBytes())
            made_for = self.storages.get(id(storage))
            if made_for is None:
                made_for = fake_storage(memory, storage.nbytes, leaf._meta.device)
                fit_storage(leaf, self.meta_for(leaf, source), memory)
                self.storages[id(storage)] = made_for
            storage = made_for
        made = make_tensor(storage, leaf._offset, self.meta_for(leaf, source))
        made.__class__ = type(leaf)
        if type(leaf) not in plain_types:
            made.__dict__.update(subclasses.own_attributes(leaf))
        elif leaf.__dict__:
            made.__dict__.update(leaf.__dict__)
        self.geometry.append((made, *geometry_of(made)))
        self.flags.append((made, leaf._needs_grad))
        if leaf._needs_grad:
            made._auto = AutogradState(requires_grad=True)
            if leaf.grad_fn is not None:
                made._auto.grad_fn = StandIn([], (made._meta,))
        self.sources[id(made)] = source
        self.homes.setdefault(id(made._storage.buffer), (made, place_of(leaf)))
        self.recorder.meet(made, shared)
        if made._needs_grad:
            self.edges[id(made)] = gradient_edge(made)
        if not has_history(leaf) or leaf.retains_grad:
            self.own(made, source, gradient_of(leaf))
        return made

    def _wrapper(self, leaf: Any, source: InputSource, memories: list[int]) -> Any:
        """What stands for a wrapper among the arguments: one around stand-ins."""
        made = subclasses.stand_in(
            leaf,
            lambda name, part: self._inner_stand_in(
                part, InputSource(INNER, thing=source, name=name), memories
            ),
        )
        self.sources[id(made)] = source
        self.inside.note(made)
        self.flags.append((made, leaf._needs_grad))
        if made._needs_grad:
            self.wrapping.append(made)
            if leaf.grad_fn is None:
                self.own(made, source, leaf.grad)
            else:
                made._auto.grad_fn = StandIn([], (leaf._meta,))
            self.edges[id(made)] = gradient_edge(made)
        return made

    def open_reached(self, t: Any, source: InputSource) -> None:
        """A wrapper that the function sees without its arguments: its inside is read anew for each
        call."""
        self.inside.note(t)
        if t._needs_grad:
            self.wrapping.append(t)
        for name, part in subclasses.parts_of(t):
            if id(part) in self.reach.tensors:
                continue
            inner = InputSource(INNER, thing=source, name=name)
            self.sources.setdefault(id(part), inner)
            if subclasses.is_wrapper(part):
                self.open_reached(part, inner)
            elif part._needs_grad and part._auto.grad_fn is None:
                self.own(part, inner, part.grad)

    def meta_for(self, t: Any, source: InputSource) -> TensorMeta:
        """The meta of what stands for a tensor."""
        meta: TensorMeta = t._meta
        return meta

    def gradient_for(self, t: Any, source: InputSource, grad: Any) -> Any:
        """What stands for a gradient."""
        return grad

    def own(self, t: Any, source: InputSource, grad: Any) -> None:
        """Watch what becomes of the gradient of a leaf."""
        now = grad
        if grad is not None:
            now = self.gradient_for(t, source, grad)
            found = self.sources[id(now)] = InputSource(GRADIENT, thing=source)
            self.geometry.append((grad, *geometry_of(grad)))
            if now is grad:  # `grad.detach()` is a reading of it, not something found elsewhere
                self.recorder.homes.setdefault(id(grad._storage.buffer), []).append(grad)
            if subclasses.is_wrapper(grad):
                self.open_reached(grad, found)
            elif now is not grad:
                self.recorder.meet(now, shared=False)
        self.owners.append(GradientOwner(t, source, grad, now))

    def own_reached(self) -> None:
        for t in self.reach.tensors.values():
            if type(t) not in plain_types:
                subclasses.check(t)
            if subclasses.is_wrapper(t):
                self.open_reached(t, InputSource(HELD, thing=t))
            if not has_history(t):
                self.own(t, InputSource(HELD, thing=t), gradient_of(t))

    # ---- after ---------------------------------------------------------------------------------

    def restore(self) -> None:
        for t, history in self.recorder.changed_histories():
            t._auto = history
        for t, needed in self._set_flags():
            t._auto.requires_grad = needed
        for owner in reversed(self.owners):
            owner.release()
        self.inside.restore()
        for t, storage, offset, meta in self.geometry:
            if geometry_of(t) != (storage, offset, meta):
                t._storage, t._offset, t._meta, t._array = storage, offset, meta, None

    def check_flags(self) -> None:
        """A program does not set `requires_grad` of what it is given, or finds."""
        if next(self._set_flags(), None) is not None:
            raise CaptureError(
                "requires_grad of a tensor that was made before is set (requires_grad_): do "
                "that outside of the compiled function"
            )

    def _set_flags(self) -> Iterator[tuple[Any, bool]]:
        """Leaves whose `requires_grad` is no longer what it was, and that."""
        for t, needed in self.flags:
            if t._needs_grad != needed and t._auto is not None and t._auto.grad_fn is None:
                yield t, needed

    def source_of(self, t: Any) -> InputSource:
        found = self.sources.get(id(t))
        if found is None:
            found = self.sources[id(t)] = InputSource(HELD, thing=t)
        return found


def geometry_of(t: Any) -> tuple[Any, int, TensorMeta]:
    return t._storage, t._offset, t._meta


def _with_gradients(tensors: Iterable[Any]) -> Iterator[Any]:
    for t in tensors:
        yield t
        if t._auto is not None and t._auto.grad is not None:
            yield t._auto.grad
