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

import functools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lucerne._src.base.process.source_location import is_users
from lucerne._src.base.raw import is_a, looks_plainly, own_dict
from lucerne._src.base.unspecialized import IN_KEY, NumberUse, note
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.call_policy import (
    at_hand,
    calls_user_code,
    changes_owner,
    decision_for,
    is_known,
    is_ours,
    native_call,
    native_owner,
    refuse_hidden,
    refuse_opaque,
    stop_for,
)
from lucerne._src.capture.breaks.native_callbacks import NativeCallbacks
from lucerne._src.capture.breaks.purity import apart, callback_of
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.bytecode.calls import native
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.hooks import INLINE, NOTHING, Access, Decision, Plain, Stop
from lucerne._src.capture.bytecode.machine import Machine
from lucerne._src.capture.bytecode.targets import (
    FORWARDS,
    find_in_class,
    python_function,
    target_of,
)
from lucerne._src.capture.effects.arrays import BUFFERS
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import holds_old_iterator, is_iterator, is_plain
from lucerne._src.capture.effects.stores import MISSING, same
from lucerne._src.capture.guards.codegen import check_of
from lucerne._src.capture.guards.implicit import ImplicitGuards
from lucerne._src.capture.guards.reachable import is_module
from lucerne._src.capture.guards.read_log import LOOKS_INSIDE
from lucerne._src.capture.guards.sources import ClassSource, Source, is_known_home
from lucerne._src.capture.guards.tensor_reads import REFUSED
from lucerne._src.capture.trace.fake import CaptureError, is_fake
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


_MOVES = frozenset(
    ("set_", "resize_", "resize_as_", "as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_")
)
"""Methods that give a tensor another shape or other memory: it may be one that the trace of the
function has not come to, and that nobody would put back."""


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
        self._facts: ImplicitGuards | None = None
        self._tensors: dict[int, Any] = {}
        """By id: tensors from outside that were asked for what they are."""
        self._code: NumberUse | None = None
        """Says whether code and classes are as they were."""
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
        if self._machine is None or self._facts is None:
            self._birth = NewObjects(lambda x: False)
            self._facts = ImplicitGuards(self._birth)
            self.natives = NativeCallbacks(self._birth, strict=False, facts=self._facts)
            self._machine = Machine(self)
        target = target_of(fn, args, kwargs)
        try:
            if target is None:
                raise stop_for(reasons.made("library", None, reasons.name_of(fn)))
            self._facts.entered(fn, target.args)
            found = self._machine.call(target.fn, target.args, target.kwargs)
            self._use_places()
            return found
        except (Stop, Exception) as error:  # what it raises has to be raised there, too
            if isinstance(error, ApartError):
                raise
            apart.add(callback_of(fn))
            why = error.detail if isinstance(error, Stop) else None
            name = reasons.name_of(fn)
            cause = f"{name} ({why.reason})" if isinstance(why, reasons.Break) else name
            raise ApartError(reasons.made("hook", None, cause)) from None

    # ---- what the machine asks -----------------------------------------------------------------

    def before(self, frame: PythonFrame) -> Stop | None:
        """What the next instruction reads of its operands without saying so."""
        assert self._facts is not None
        op = frame.decoded.ops[frame.ip]
        if op.name.startswith("CALL"):
            for x in frame.stack:
                if type(x) is functools.partial and not self._is_new(x):
                    if x.keywords:
                        return stop_for(reasons.made("changing value", None, "a partial"))
                    self._facts.partial(x)
        for x in frame.stack[-LOOKS_INSIDE[op.name] :] if op.name in LOOKS_INSIDE else ():
            self._asked(x)
        return None

    def _asked(self, x: Any) -> None:
        """Any method of an object may be asked for."""
        refuse_opaque(x)
        if self._facts is not None and not is_plain(x) and not is_a(x, TensorBase):
            self._facts.methods_of(x)

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter user code; anything besides ops ends it."""
        given = [*args, *kwargs.values()]
        asked = (*given, native_owner(fn))
        for x in (fn, *asked):
            refuse_opaque(x)
        if any(is_iterator(x) and not self._is_new(x) for x in asked):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        if decision_for(fn) is INLINE and not reasons.is_foreign(fn):
            if self._facts is not None:
                self._facts.entered(fn, args)
            return INLINE
        changes = changes_owner(fn) and not self._is_new(fn.__self__)
        if changes and not is_a(fn.__self__, GradientNode):
            return stop_for(reasons.made("write", None, reasons.name_of(fn)))
        if not is_ours(fn) and reasons.is_foreign(fn):
            return stop_for(reasons.made(reasons.kind_of_call(fn), None, reasons.name_of(fn)))
        owner = getattr(fn, "__self__", None)
        if is_a(owner, TensorBase) and fn.__name__ in _MOVES and not self._is_new(owner):
            return stop_for(reasons.made("write", None, reasons.name_of(fn)))
        owner = native_owner(fn)
        if is_a(owner, _MUTABLE) and not self._is_new(owner):
            return stop_for(reasons.made("changing value", None, reasons.name_of(fn)))
        if holds_old_iterator(given, self._is_new):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        if self._facts is not None:
            self._facts.called(fn, given)
            for x in given:
                self._asked(x)
        return native_call(fn, given)

    def unknown(self, fn: Any, why: str) -> Stop | None:
        return stop_for(reasons.made("instruction", None, why))

    def before_branch(self, value: Any) -> Stop | None:
        self._asked(value)
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
        refuse_opaque(container)
        if not self._is_new(container):
            shown = str(key) if how is not Access.METHOD else f"a {type(container).__name__}"
            raise stop_for(reasons.made("write", None, shown))

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        """Something outside must be the same when the pass really runs."""
        if is_a(container, TensorBase) and how is Access.ATTRIBUTE:
            self._of_tensor(container, key)
            return value
        refuse_opaque(container)
        if is_a(container, (GradientNode, TensorBase)) or self._is_new(container):
            return value
        refuse_hidden(container, key, how, self._birth)
        if self._facts is not None and how is Access.ATTRIBUTE:
            if is_a(container, types.ModuleType):
                self._facts.of_python_module(container, key)
                return value
            self._facts.of_object(container, key)
        if _is_fixed(container, key, how):
            return value
        items = how is Access.ITEM and is_a(container, _MUTABLE)
        if items or is_a(value, (*_MUTABLE, *BUFFERS)):
            raise stop_for(reasons.made("changing value", None, str(key)))
        if how is Access.ATTRIBUTE and not is_a(container, type):
            places = [*_own_places(container, key, value)]
            if places:
                self._use(NumberUse(f"{key} is what it was", _SamePlaces(places)))
            return value
        look = _look(container, key, how)
        if look is not None:
            held = MISSING if value is NOTHING else value
            self._use(NumberUse(f"{key} is what it was", lambda: same(held, look())))
        return value

    def _of_tensor(self, t: Any, key: str) -> None:
        """What a tensor from outside says about itself, besides its values."""
        if is_fake(t) or self._facts is None or self._is_new(t):
            return
        if key in REFUSED or key == "grad":
            raise stop_for(reasons.made("identity", None, f"Tensor.{key}"))
        self._facts.of_tensor(t, key)
        own = t.__dict__
        if key in own or not hasattr(type(t), key):
            place = Source(own, key, own.get(key, MISSING))
            self._use(NumberUse(f"{key} of a tensor is what it was", _SamePlaces([place])))
        elif id(t) not in self._tensors:
            self._tensors[id(t)] = t
            told = _told_of(t)
            self._use(NumberUse("a tensor is of the kind it was", lambda: _told_of(t) == told))

    def _use(self, use: NumberUse) -> None:
        self.uses.append(use)
        note(use)

    def _use_places(self) -> None:
        """The classes of what was read, and the code that ran, must be as they are, too."""
        assert self._facts is not None
        places = list(self._facts.places.values())
        if not places:
            return
        if self._code is None:
            self._code = NumberUse("the code that it runs", _SamePlaces(places))
            self._use(self._code)
        self._code.check = _SamePlaces(places)
        in_key = all(type(p.store) in (ClassSource, types.FunctionType) for p in places)
        self._code.facts = IN_KEY if in_key else None

    def _is_new(self, x: Any) -> bool:
        return self._birth is not None and self._birth.is_new(x)


def _is_fixed(container: Any, key: Any, how: Access) -> bool:
    """Whether nobody changes what is there."""
    if how is Access.GLOBAL:
        return is_known_home(str(container.get("__name__", "")))
    return is_a(container, type) and is_known_home(container.__module__)


class _SamePlaces:
    """Says whether some places hold what they held; the check is written when somebody asks."""

    __slots__ = ("_check", "_places")

    def __init__(self, places: list[Source]) -> None:
        self._places = places
        self._check: Callable[[], bool] | None = None

    def __call__(self) -> bool:
        if self._check is None:
            self._check = check_of(self._places)
        return self._check()


def _told_of(t: Any) -> tuple[Any, ...]:
    return t._meta, t._needs_grad, id(t.grad_fn), t.retains_grad, t.output_nr


def _own_places(container: Any, key: str, value: Any) -> Iterator[Source]:
    """Where an object itself keeps an attribute. (What its class has is looked up there.)"""
    own = own_dict(container)
    if type(find_in_class(type(container), key)) is types.MemberDescriptorType:
        yield Source(container, key, MISSING if value is NOTHING else value)
    elif is_a(own, dict):
        if looks_plainly(container):
            yield Source(container, "__dict__", own)
        yield Source(own, key, dict.get(own, key, MISSING))


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
