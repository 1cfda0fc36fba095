"""The short way of a call inside vmap: what a rule came to is remembered, like a plan.

What a rule does depends on the op, its static arguments, and the metas of what its tensors show and
stand for. The first call of a kind goes the complete way (`BatchLevel.compute`) and is watched. If
all the rule did was to run the op once on the payloads, perhaps with other static arguments, that
is remembered as a `Route`, and from then on done without asking. For any other rule the things it
would have to find out about the call are remembered.

Whatever is unusual is left to the complete way: `quick` says NotImplemented.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import State
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd.record import record
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.layers.layer import Cell
from lucerne.func.batching.level import VIEWS, WHOLE, Batch, BatchLevel, Call, as_planned

_state = dispatch.state
_entry = dispatch.entry
_NUMBERS = frozenset((bool, int, float, complex, type(None)))
_MOST = 4096

_NEVER, _VIEW, _PRIMITIVE, _WHOLE, _WHOLE_EXPLICIT = range(5)
_kinds: dict[Op, int] = {}
"""Which way calls of an op go."""


class Route:
    """What is remembered of calls of a kind."""

    __slots__ = ("batched", "logical", "metas", "results", "rule", "straight", "swaps", "value")

    def __init__(self, call: Call, rule: Any, made: Any) -> None:
        self.batched, self.metas, self.results = call.batched, call.metas, call.results
        self.rule = rule
        """None: nothing depends on the batch."""
        swaps = _swaps(call, made) if rule is not None else ()
        self.straight = swaps is not None
        """Whether the op itself is run on the payloads, and its result is the result."""
        self.swaps: tuple[tuple[int, Any], ...] = swaps or ()
        """Static arguments that the op gets then: their places and what they are."""
        self.value: Any = None
        self.logical: Any = None
        """The meta of the last result, and what it is as the function sees it."""


_routes: dict[tuple[Any, ...], Route] = {}


def forget_routes() -> None:
    """Forget what is remembered (for tests, and where rules are changed)."""
    _routes.clear()
    _kinds.clear()


def _kind_of(op: Op) -> int:
    if op.kind == op_.VIEW:
        kind = _VIEW if op.qualified in VIEWS else _NEVER
    elif op.kind == op_.COMPOSITE:
        known = op.qualified in WHOLE
        kind = _NEVER if not known else _WHOLE_EXPLICIT if op.explicit else _WHOLE
    elif op.kind == op_.RANDOM or op.data_dependent or op.host is not None:
        kind = _NEVER
    else:
        kind = _PRIMITIVE
    _kinds[op] = kind
    return kind


class QuickLevel(BatchLevel):
    """A vmap level that remembers what calls came to."""

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__(size, randomness)
        self._pending: tuple[Any, Any] | None = None
        """The call that is on its complete way, and its key."""

    def quick(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The whole of a call, what autograd writes down included; or NotImplemented."""
        kind = _kinds.get(op)
        if kind is None:
            kind = _kind_of(op)
        if kind <= _VIEW:
            return NotImplemented if kind == _NEVER else self._quick_view(op, args)
        key: list[Any] = [op]
        values: list[Any] = []
        grad = False
        for which, a in zip(op.kinds, args):  # noqa: B905 - hot path, lengths agree
            if which == "t":
                cls = type(a)
                if cls in plain_types:
                    cell = a._storage.buffer
                    meta = a._meta
                    key.append(meta)
                    if type(cell) is Cell:
                        found = cell.get(a)
                        if found is None or cell.level is not self:
                            return NotImplemented
                        value, batched = found
                        if batched:
                            key.append(True)
                            key.append(value._meta)
                        values.append(value)
                    else:
                        values.append(a)
                    grad = grad or a._needs_grad
                elif cls in _NUMBERS:
                    key.append(cls)
                    values.append(a)
                else:
                    return NotImplemented
            elif which == "s":
                key.append(a)
                values.append(a)
            elif which == "n":
                key.append(type(a))
                values.append(a)
            else:
                return NotImplemented
        grad = grad and _state._grad_enabled
        if grad and kind == _WHOLE:
            return NotImplemented
        try:
            route = _routes.get(tuple(key))
        except TypeError:  # a static that can't be a key
            return NotImplemented
        if route is None:
            self._pending = args, tuple(key)
            return NotImplemented
        result = self._along(route, op, args, values)
        if grad:
            record(op, args, result)
        return result

    def _along(self, route: Route, op: Op, args: tuple[Any, ...], values: list[Any]) -> Any:
        """A call along a remembered route."""
        stack, calls, before = _state.kernel_level, _state.call_level, _state._grad_enabled
        below = stack[:-1]
        inner = [i for i in _state.forward if i.under(self.depth)] if _state.forward else []
        asked = _state.asked_grad
        watched = bool(below or inner)
        _state.kernel_level, _state.call_level, _state._grad_enabled = below, inner, asked
        _state.active = watched
        changed = State.changed
        if changed is not None:
            changed(asked, watched or _state.special > 0, 0)
        try:
            if route.straight:
                for i, new in route.swaps:
                    values[i] = new
                made = _entry.run(op, tuple(values))
            else:
                call = _known_call(self, op, args, values, route)
                made = route.rule(call)
                if isinstance(made, TensorBase):
                    if route.results:
                        made = as_planned(made, call, 0)
                else:
                    return self._wrapped(call, made)
        finally:
            _state.kernel_level, _state.call_level, _state._grad_enabled = stack, calls, before
            _state.active = True
            if changed is not None:
                changed(before, True, 0)
        meta = made._meta
        if meta is not route.value:
            route.value, route.logical = meta, logical_meta(meta) if route.rule else meta
        return self.wrap(Batch(made, route.rule is not None), route.logical)

    def _quick_view(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A view of what the function sees is made, and recorded, like that of any tensor; the view
        of the payload beside it."""
        source = args[0]
        if type(source) not in plain_types:
            return NotImplemented
        cell = source._storage.buffer
        if type(cell) is not Cell or cell.level is not self:
            return NotImplemented
        payload = cell.get(source)
        if payload is None:
            return NotImplemented
        stack, calls, before = _state.kernel_level, _state.call_level, _state._grad_enabled
        below = stack[:-1]
        _state.kernel_level, _state.call_level, _state.active = _NONE, _NONE, False
        changed = State.changed
        if changed is not None:
            changed(before, _state.special > 0, 0)
        try:
            result = _entry.run(op, args)
            several = type(result) is tuple
            results = result if several else (result,)
            if any(cell.get(r) is None for r in results):
                asked = _state.asked_grad
                inner = [i for i in _state.forward if i.under(self.depth)] if _state.forward else []
                watched = bool(below or inner)
                _state.kernel_level, _state.call_level, _state._grad_enabled = below, inner, asked
                _state.active = watched
                if changed is not None:
                    changed(asked, watched or _state.special > 0, 0)
                self._view_payloads(cell, payload, op, args, results)
        finally:
            _state.kernel_level, _state.call_level, _state._grad_enabled = stack, calls, before
            _state.active = True
            if changed is not None:
                changed(before, True, 0)
        for r in results:
            self.note(r)
        return result

    def _view_payloads(
        self, cell: Cell, payload: Batch, op: Op, args: tuple[Any, ...], results: tuple[Any, ...]
    ) -> None:
        value, batched = payload
        if batched:
            made = VIEWS[op.qualified](value, args, results)
        else:
            made = _entry.run(op, (value, *args[1:]))
        parts = made if type(made) is tuple else (made,)
        for r, part in zip(results, parts, strict=True):
            cell.keep(r, Batch(part, batched))

    def learn(self, call: Call, found: Any, made: Any) -> None:
        pending, self._pending = self._pending, None
        if pending is None or pending[0] is not call.args or not _is_known(call, found, made):
            return
        if len(_routes) > _MOST:
            _routes.clear()
        _routes[pending[1]] = Route(call, found, made)


_NONE: list[Any] = []
"""No interpreters; never changed."""


def _is_known(call: Call, found: Any, made: Any) -> bool:
    return found is not None or (isinstance(made, TensorBase) and len(call.ran) == 1)


def _swaps(call: Call, made: Any) -> tuple[tuple[int, Any], ...] | None:
    """If all a rule did was to run the op on the payloads: the static arguments it changed."""
    if (
        len(call.ran) != 1
        or not isinstance(made, TensorBase)
        or as_planned(made, call, 0) is not made
    ):
        return None
    given, result = call.ran[0]
    if result is not made or len(given) != len(call.values):
        return None
    found = []
    for i, (kind, new, old) in enumerate(zip(call.op.kinds, given, call.values, strict=True)):
        if new is not old:
            if kind != op_.STATIC:
                return None
            found.append((i, new))
    return tuple(found)


def _known_call(
    level: BatchLevel, op: Op, args: tuple[Any, ...], values: list[Any], route: Route
) -> Call:
    """A call like the one the route was made of: what it would find out is known."""
    call: Call = _new_call(Call)
    call.level, call.op, call.args, call.values = level, op, args, tuple(values)
    call.batched, call.metas, call.results = route.batched, route.metas, route.results
    call.any_batched = True
    call.ran = []
    return call


_new_call: Any = object.__new__


_logicals: dict[TensorMeta, TensorMeta] = {}


def logical_meta(meta: TensorMeta) -> TensorMeta:
    found = _logicals.get(meta)
    if found is None:
        if len(_logicals) > _MOST:
            _logicals.clear()
        found = _logicals[meta] = make_meta(
            meta.dtype, tuple(meta.shape[1:]), meta.strides[1:], meta.device
        )
    return found
