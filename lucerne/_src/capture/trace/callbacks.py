"""User code that the library calls back while a function is captured.

Hooks, the backward of an `autograd.Function`, hooks of optimizers: the library keeps them and calls
them through `dispatch.call_back`. While a function is traced such code runs in the bytecode machine
like all other code (`followed`): what it reads is guarded, what it writes is repeated at each call,
and what a graph can't hold is a break at the line that called the library.

A backward pass that is called from outside, later, is recorded after the function has returned
(the joint graph). Code that does nothing but compute becomes a part of that graph
(`BackwardCode`). All other code has to run when the backward pass comes to it, on real gradients.
So it is noted (`purity.apart`), the trace is given up, and in the next one the line that hands that
code to the library (`register_hook`, `Function.apply`) is a break: autograd then has a node of its
own there, with compiled parts before and behind it.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import NumberUse, note
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.call_policy import (
    at_hand,
    calls_user_code,
    changes_owner,
    decision_for,
    is_known,
    is_ours,
    native_call,
    stop_for,
)
from lucerne._src.capture.breaks.native_callbacks import NativeCallbacks
from lucerne._src.capture.breaks.purity import apart, callback_of
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.bytecode.calls import native
from lucerne._src.capture.bytecode.hooks import INLINE, Access, Decision, Plain, Stop
from lucerne._src.capture.bytecode.machine import Machine
from lucerne._src.capture.bytecode.targets import FORWARDS, python_function, target_of
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import holds_old_iterator, is_iterator
from lucerne._src.capture.effects.stores import MISSING, same
from lucerne._src.capture.guards.reachable import is_module
from lucerne._src.capture.guards.sources import is_known_home
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.recorder import Handlers
from lucerne._src.capture.trace.subclasses import is_wrapper
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.node import GradientNode
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.tensor import Tensor

_state = dispatch.state
_MUTABLE = (list, dict, set, deque, bytearray, np.ndarray)
FORWARDS.add(dispatch.call_back)


@contextmanager
def followed(machine: Machine) -> Iterator[None]:
    """Inside, user code that the library calls back runs in a machine."""

    def call_back(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _in_machine(machine, fn, args, kwargs)

    before, _state.call_back = _state.call_back, call_back
    outer, Handlers.around = Handlers.around, machine.handles_errors
    try:
        yield
    finally:
        _state.call_back, Handlers.around = before, outer


def _in_machine(machine: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _is_library(fn):
        return fn(*args, **kwargs)
    decision = machine.hooks.decide_call(fn, args, kwargs)
    if isinstance(decision, Stop):
        raise decision
    target = target_of(fn, args, kwargs) if decision is INLINE else None
    if target is None:
        return native(machine, machine.frames[-1], fn, args, kwargs)
    return machine.call(target.fn, target.args, target.kwargs)


def refuse_inside(container: Any, key: Any) -> None:
    """Stop a write that happens where code may do nothing but compute."""
    if _state.only_computes:
        shown = f"{type(container).__name__}.{key}"
        raise stop_for(reasons.made("callback", None, f"what writes to {shown}"))


_TENSOR_SETS = frozenset(("grad", "data", "requires_grad"))
"""Attributes of tensors whose changes a graph holds."""


def refuse_attribute_of_tensor(container: Any, key: Any, how: Access) -> None:
    """Stop a write to what somebody hangs on a tensor: a trace has stand-ins, which end with it."""
    if how is Access.ATTRIBUTE and key not in _TENSOR_SETS and not is_wrapper(container):
        raise stop_for(reasons.made("write", None, f"the attribute {key} of a tensor"))


def _is_library(fn: Any) -> bool:
    """Whether it is ours: it calls back what it was given in its turn."""
    if is_module(fn):
        return not calls_user_code(fn)
    function = python_function(fn)
    return is_ours(fn) if function is None else not is_users(function.__code__)


# ---- a backward pass that is called from outside ------------------------------------------------


class ApartError(BreakError):
    """A backward pass comes to user code that a graph can't hold. Another trace, which knows that,
    ends its graph where that code is handed to the library."""


class BackwardCode(Plain):
    """Runs code that a recorded backward pass calls. It may compute, and read what is still the
    same at each call and at its backward pass; anything else is refused.
    """

    def __init__(self) -> None:
        self.uses: list[NumberUse] = []
        """What it has read, which has to be so when the backward pass runs as well."""
        self._birth: NewObjects | None = None
        self._machine: Machine | None = None

    @contextmanager
    def following(self) -> Iterator[None]:
        """Inside, this calls the code."""
        before, _state.call_back = _state.call_back, self.call_back
        try:
            yield
        finally:
            _state.call_back = before
            if self._machine is not None:
                self._machine.is_over = True
            if self._birth is not None:
                self._birth.end()

    def call_back(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the library wants to call: run it here, or refuse the whole pass."""
        if getattr(fn, "keeps_grad", False):  # of a tensor that the graph does not know by then
            apart.add(Tensor.retain_grad.__code__)
            raise ApartError(reasons.made("hook", None, "retain_grad()"))
        if _is_library(fn):
            return fn(*args, **kwargs)
        if self._machine is None:
            self._birth = NewObjects(lambda x: False)
            self.natives = NativeCallbacks(self._birth, strict=False)
            self._machine = Machine(self)
        target = target_of(fn, args, kwargs)
        try:
            if target is None:
                raise stop_for(reasons.made("library", None, reasons.name_of(fn)))
            return self._machine.call(target.fn, target.args, target.kwargs)
        except (Stop, Exception) as error:  # what it raises has to be raised there, too
            if isinstance(error, ApartError):
                raise
            apart.add(callback_of(fn))
            why = error.detail if isinstance(error, Stop) else None
            name = reasons.name_of(fn)
            cause = f"{name} ({why.reason})" if isinstance(why, reasons.Break) else name
            raise ApartError(reasons.made("hook", None, cause)) from None

    # ---- what the machine asks -----------------------------------------------------------------

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter user code; anything besides ops ends it."""
        given = [*args, *kwargs.values()]
        if any(is_iterator(x) and not self._is_new(x) for x in given):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        if decision_for(fn) is INLINE and not reasons.is_foreign(fn):
            return INLINE
        changes = changes_owner(fn) and not self._is_new(fn.__self__)
        if changes and not is_a(fn.__self__, GradientNode):
            return stop_for(reasons.made("write", None, reasons.name_of(fn)))
        if not is_ours(fn) and reasons.is_foreign(fn):
            return stop_for(reasons.made(reasons.kind_of_call(fn), None, reasons.name_of(fn)))
        if holds_old_iterator(given, self._is_new):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        return native_call(fn, given)

    def unknown(self, fn: Any, why: str) -> Stop | None:
        return stop_for(reasons.made("instruction", None, why))

    def before_branch(self, value: Any) -> Stop | None:
        if is_a(value, TensorBase) and not is_known(value):
            return stop_for(reasons.made("branch", None, "if, while, assert, and, or"))
        return None

    def made(self, value: dict[Any, Any]) -> None:
        assert self._birth is not None
        self._birth.made[id(value)] = value

    def raised(self, error: BaseException) -> Stop | None:
        if isinstance(error, CaptureError):
            assert self._machine is not None
            return stop_for(reasons.of_error(error, None, at_hand(self._machine.frames[-1])))
        return None

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        if not self._is_new(container):
            shown = str(key) if how is not Access.METHOD else f"a {type(container).__name__}"
            raise stop_for(reasons.made("write", None, shown))

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        """Something outside must be the same when the pass really runs."""
        if is_a(container, (GradientNode, TensorBase)) or self._is_new(container):
            return value
        if _is_fixed(container, key, how):
            return value
        items = how is Access.ITEM and is_a(container, _MUTABLE)
        if items or is_a(value, _MUTABLE):
            raise stop_for(reasons.made("changing value", None, str(key)))
        look = _look(container, key, how)
        if look is not None:
            use = NumberUse(f"{key} is what it was", lambda: same(value, look()))
            self.uses.append(use)
            note(use)
        return value

    def _is_new(self, x: Any) -> bool:
        return self._birth is not None and self._birth.is_new(x)


def _is_fixed(container: Any, key: Any, how: Access) -> bool:
    """Whether nobody changes what is there."""
    if is_a(container, types.ModuleType):
        return is_known_home(container.__name__)
    if how is Access.GLOBAL:
        return is_known_home(str(container.get("__name__", "")))
    return is_a(container, type) and is_known_home(container.__module__)


def _look(container: Any, key: Any, how: Access) -> Callable[[], Any] | None:
    """How to read something again; None: what it is made of was read, too."""
    if how is Access.GLOBAL:
        return lambda: container.get(key, MISSING)
    if how is Access.CELL:
        return lambda: container.cell_contents
    if how is Access.ATTRIBUTE:
        if is_a(getattr(type(container), key, None), property):
            return None
        return lambda: getattr(container, key, MISSING)
    return lambda: container[key]
