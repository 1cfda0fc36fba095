"""Where tangents are kept while a function is differentiated forward.

A dual tensor is an ordinary tensor, with values, history and memory of its own, whose storage a
`ForwardLevel` knows: the level has the tangent of each tensor over it, by its place. Calls arrive
from above autograd, so tangents are computed by recorded ops from recorded results. Hence they can
be differentiated again by an outer transform, and gradients taken inside have tangents as well.

To make a tensor that is no dual one out of one that is (`detach`, the inputs of an inner level),
give it another storage object over the same bytes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.process import tables
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace, Interpreter, Proceed, call_back
from lucerne._src.ir.op import Op
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.copy.cast import clone_as, copy
from lucerne._src.ops.view.reshape import alias
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.base import TensorBase, make_tensor, plain_types
from lucerne._src.tensor.eager.composite import body_of
from lucerne._src.tensor.eager.inplace import check_fits
from lucerne._src.tensor.eager.keys import is_plain_call
from lucerne._src.tensor.forward.rules import Tangents, is_smooth, tangents_of
from lucerne._src.tensor.layers.layer import lift, open_levels
from lucerne._src.tensor.subclasses import torch_function

_state = dispatch.state
_copy: Op = copy.op  # type: ignore[attr-defined]
_alias: Op = alias.op  # type: ignore[attr-defined]
_strided: Op = strided_view.op  # type: ignore[attr-defined]

Place = tuple[int, Any]
"""Offset and meta: which elements of a storage a tensor has."""


class _Switch(threading.local):
    """Whether tangents are carried along at all."""

    on = True


switch = _Switch()
tables.add_switches(switch, "on")


class _Memory:
    """The tangents of the tensors over one storage."""

    __slots__ = ("by_place", "own", "reference")

    def __init__(self, reference: Any) -> None:
        self.reference = reference
        self.by_place: dict[Place, Any] = {}
        self.own = False
        """Whether nobody else can see the memory of the tangents, so that it may be written to."""


class ForwardLevel(Interpreter):
    """Carries tangents along every op while it is entered.

    >>> import lucerne as torch
    >>> x = torch.tensor([1.0, 2.0])
    >>> with ForwardLevel() as level:
    ...     dual = level.dual(x, torch.tensor([1.0, 10.0]))
    ...     y = dual * dual
    ...     level.tangent(y)
    tensor([ 2., 40.])
    """

    level = "call"

    def __init__(self) -> None:
        self.depth = 0
        """How many levels of other transforms were open when this one was entered."""
        self._memories: dict[int, _Memory] = {}

    def __enter__(self) -> ForwardLevel:
        self.depth = len(open_levels())
        _state.forward.append(self)
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        _state.forward.remove(self)
        self._memories.clear()

    @contextmanager
    def active_again(self) -> Iterator[None]:
        """Inside `run`: see what a call is made of (the table of tangents stays)."""
        _state.call_level.append(self)
        _state.refresh()
        try:
            yield
        finally:
            _state.call_level.pop()
            _state.refresh()

    # ---- tangents of tensors -------------------------------------------------------------------

    def dual(self, x: Any, tangent: Any) -> Any:
        """Another tensor over the elements of `x` that has a tangent here."""
        if type(x) not in plain_types and (x.is_nested or x.layout is not lo.strided):
            kind = "nested" if x.is_nested else f"sparse (layout {x.layout})"
            raise NotImplementedError(
                f"forward mode by a tensor that is {kind} is not supported: its tangent would have "
                "to have the same structure. Hint: differentiate by the dense values it is made of "
                "(x.values()), or by x.to_dense()."
            )
        made = fresh_alias(x, self)
        self.set(made, tangent)
        return made

    def set(self, t: Any, tangent: Any) -> None:
        """Give a tensor a tangent."""
        storage = t._storage
        memory = self._memories.get(id(storage))
        if memory is None:
            reference = weakref.ref(storage, partial(_forget, self._memories, id(storage)))
            memory = self._memories[id(storage)] = _Memory(reference)
        memory.by_place[t._offset, t._meta] = tangent

    def tangent(self, t: Any) -> Any:
        """The tangent of a tensor, or None."""
        memory = self._memories.get(id(t._storage))
        if memory is None:
            return None
        place = t._offset, t._meta
        found = memory.by_place.get(place)
        if found is None and t._view is not None:
            base = t._view.base
            of_base = memory.by_place.get((base._offset, base._meta))
            if of_base is not None and base._storage is t._storage:
                found = memory.by_place[place] = _replayed(t._view, of_base)
        return found

    def write(self, target: Any, tangent: Any) -> None:
        """The elements of `target` were overwritten: so are their tangents."""
        if tangent is None and self.tangent(target) is None:
            return
        base = target if target._view is None else target._view.base
        memory = self._memories.get(id(base._storage))
        place = base._offset, base._meta
        if memory is None or not memory.own or place not in memory.by_place:
            before = self.tangent(base)
            room = _room_like(base)
            if before is not None:
                room.copy_(before)
            if memory is not None:
                memory.by_place.clear()
            self.set(base, room)
            self._memories[id(base._storage)].own = True
        mine = self.tangent(target)
        if tangent is None:
            mine.zero_()
        else:
            mine.copy_(tangent)

    # ---- what the dispatcher calls -------------------------------------------------------------

    def under(self, depth: int) -> bool:
        return self.depth < depth

    def aliased(self, made: Any, source: Any, detached: bool) -> Any:
        if detached and made._storage is source._storage and id(source._storage) in self._memories:
            made._storage = source._storage.alias()
        return made

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        if len(_state.kernel_level) > self.depth and len(open_levels()) > self.depth:
            # A transform was opened inside of this level: it has to look at the call first. The
            # calls that it makes below itself come back here (see `under`).
            return proceed(op, args, out)
        tangents = self._tangents(op, args)
        if tangents is None or not switch.on:
            return proceed(op, args, out)
        if not is_plain_call(op, args) and torch_function.any_override(op, args):
            with self.active_again():
                handled, result = torch_function.offer(op, args, out)
            if handled:
                return result
            args = torch_function.plain_arguments(op, args)
        if out is None and _state.cast is not None and op in _state.cast.ops:
            with self.active_again():
                result = _state.cast.run(op, args)
            if result is not NotImplemented:
                return result
        if type(out) is InPlace:
            return self._in_place(op, args, out, proceed, tangents)
        if out is not None:
            raise NotImplementedError(
                f"Trying to use forward AD with {op.name}_out that does not support it because it "
                "is an out= function"
            )
        if op.kind == op_.COMPOSITE and not op.explicit:
            with self.active_again():
                return body_of(op, args)
        # Where nobody else looks, the call may take the shortest way.
        result = proceed(op, args, None) if _state.active else dispatch.entry.run(op, args)
        outs = result if isinstance(result, tuple) else (result,)
        for o, t in zip(outs, tangents_of(op, args, outs, tangents), strict=True):
            if t is not None and not any(o is a for a in args):
                self._keep(op, o, t)
        return result

    def _keep(self, op: Op, result: Any, tangent: Any) -> None:
        """The tangent of a result; a view of what has one already keeps it."""
        memory = self._memories.get(id(result._storage)) if op.kind == op_.VIEW else None
        if memory is None or (result._offset, result._meta) not in memory.by_place:
            self.set(result, tangent)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, only the levels around this one see calls."""
        calls, levels = _state.call_level, _state.forward
        _state.call_level = [i for i in calls if i is not self]
        _state.forward = [i for i in levels if i is not self]
        _state.refresh()
        try:
            yield
        finally:
            _state.call_level, _state.forward = calls, levels
            _state.refresh()

    def apply_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a user's own Function: its `jvp` says what becomes of tangents."""
        if len(open_levels()) > self.depth:
            return NotImplemented
        tangents = [self.tangent(a) if isinstance(a, TensorBase) else None for a in args]
        if not switch.on or all(t is None for t in tangents):
            with self.paused():
                return function.apply(*args, **kwargs)
        with self.paused():
            ctx, result = function.call(args, kwargs)
            if ctx._materialize:
                tangents = [
                    zeros_of(a._meta) if t is None and is_smooth(a) else t
                    for a, t in zip(args, tangents, strict=True)
                ]
            ctx._inside_jvp = True
            try:
                found = call_back(function.jvp, ctx, *tangents)
            finally:
                ctx._inside_jvp = False
        several = isinstance(result, (tuple, list))
        outs = result if several else (result,)
        given = found if isinstance(found, (tuple, list)) else (found,)
        if len(outs) != len(given):
            raise RuntimeError(
                f"Function {function.__name__} returned an incorrect number of forward gradients "
                f"(expected {len(outs)} got {len(given)})"
            )
        for o, t in zip(outs, given, strict=True):
            if any(o is a for a in args):
                self.write(o, t)
            elif t is not None and is_smooth(o):
                self.set(o, t)
        return result

    def _tangents(self, op: Op, args: tuple[Any, ...]) -> Tangents | None:
        """The tangents of the arguments of a call; None if no argument has one."""
        if not self._memories:
            return None
        found: list[Any] = []
        some = False
        for kind, a in zip(op.kinds, args, strict=True):
            t: Any = None
            if kind == "l":
                parts = tuple(self.tangent(x) if isinstance(x, TensorBase) else None for x in a)
                t = parts if any(p is not None for p in parts) else None
            elif isinstance(a, TensorBase):
                t = self.tangent(a)
            some = some or t is not None
            found.append(t)
        return tuple(found) if some else None

    def _in_place(
        self, op: Op, args: tuple[Any, ...], out: InPlace, proceed: Proceed, tangents: Tangents
    ) -> Any:
        target = out.target
        if op is _copy:
            result = proceed(op, args, out)
            self.write(target, tangents[1])
            return result
        if op.kind == op_.RANDOM or (op.explicit and not op.derivatives):
            result = proceed(op, args, out)
            self.write(target, None)
            return result
        with self.active_again():  # compute aside, then copy over: what is saved keeps its tangent
            if _state.grad_enabled and (record.needs_grad(op, args) or target._needs_grad):
                args = tuple(a.clone() if a is target else a for a in args)
            made = dispatch.entry.run(op, args)
            check_fits(op, made._meta, target._meta)
            return dispatch.entry.run(_copy, (target, made), InPlace(target))


def _replayed(view: Any, tangent: Any) -> Any:
    """The tangent of a view, from that of its base."""
    if all(op is not _strided for op, _, _ in view.steps):
        return view.replay(tangent)
    x = view.base
    for op, args, index in view.steps:
        found = dispatch.entry.run(op, (x, *args))
        outs = found if isinstance(found, tuple) else (found,)
        tangents = tangents_of(op, (x, *args), outs, (tangent, *(None for _ in args)))
        x, tangent = outs[index or 0], tangents[index or 0]
    return tangent


def _forget(memories: dict[int, _Memory], key: int, _: Any) -> None:
    """A storage is gone: its tangents are not needed any more."""
    memories.pop(key, None)


def _room_like(base: Any) -> Any:
    """Zeros laid out as a tensor, so that its views read them alike."""
    bare = make_tensor(base._storage, base._offset, base._meta)
    return clone_as(bare, lo.preserve_format).zero_()


def fresh_alias(x: Any, without: ForwardLevel) -> Any:
    """Another tensor over the elements of `x`, with its history, and its tangents in all levels but
    one (`x` itself may be used inside of that, too)."""
    made = dispatch.entry.run(_alias, (x,))
    made._storage = x._storage.alias()
    made._view = None
    for level in _state.forward:
        t = None if level is without else level.tangent(x)
        if t is not None:
            level.set(made, t)
    return made


def lifted(x: Any) -> Any:
    """`x` as a tensor of the innermost transform that is open, with the tangents it has inside."""
    made = lift(x)
    if made is not x:
        depth = len(open_levels())
        for level in _state.forward:
            t = None if level.under(depth) else level.tangent(x)
            if t is not None:
                level.set(made, t)
    return made


def check_tangent(primal: Any, tangent: Any) -> Any:
    """A tangent that fits its primal, or torch's error."""
    have, want = tangent._meta, primal._meta
    if want.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise ValueError(f"Expected primal to be floating point or complex, but got: {want.dtype}")
    if have.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise ValueError(f"Expected tangent to be floating point or complex, but got: {have.dtype}")
    if tuple(have.shape) != tuple(want.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(want.shape)} while the given "
            f"forward gradient is of size {list(have.shape)}."
        )
    return tangent if have.dtype is want.dtype else tangent.to(want.dtype)
