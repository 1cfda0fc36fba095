"""Full graphs: a function that is traced whole runs in the bytecode machine, so that nothing it
does besides ops goes unseen.

A graph for the whole function is only right if the function does nothing else. So everything else
ends the trace before it happens: printing, reading the clock, branching on a tensor, changing an
object that lives outside (tensors that are put where the next call finds them are allowed, see
`effects.stores`). The function then runs in parts (`breaks.resume`).
"""

from __future__ import annotations

import gc
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from inspect import CO_VARKEYWORDS
from typing import Any

from lucerne._src.base.process.executed_code import ExecutedCode
from lucerne._src.base.raw import is_a, own_store
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.call_policy import (
    USES_UP,
    array_in_place,
    at_hand,
    changes_owner,
    decision_for,
    foreign_item,
    handler_among,
    hashes_given,
    is_known,
    is_ours,
    may_call_back,
    native_call,
    native_owner,
    refuse_hidden,
    refuse_machinery,
    refuse_memory,
    stop_for,
    taken_from,
    tensor_key,
    user_place,
    variable_item,
    variable_read,
    writes_array,
)
from lucerne._src.capture.breaks.native_callbacks import NativeCallbacks
from lucerne._src.capture.breaks.purity import changes_in, foreign_in
from lucerne._src.capture.breaks.reasons import Break, BreakError
from lucerne._src.capture.bytecode.binding import more_keywords
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.hooks import INLINE, NATIVE, Access, Decision, Plain, Stop
from lucerne._src.capture.bytecode.machine import Finished, Machine, Stopped
from lucerne._src.capture.bytecode.targets import python_function, target_of
from lucerne._src.capture.bytecode.tracebacks import profiling
from lucerne._src.capture.effects.arrays import BUFFERS
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import (
    holds_old_iterator,
    is_fixed,
    is_iterator,
    is_plain,
    is_value,
)
from lucerne._src.capture.effects.stores import ClosureVariable, is_tensors
from lucerne._src.capture.effects.unchanged import MutationCheck
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.read_log import Arguments, ReadLog
from lucerne._src.capture.guards.tensor_reads import TensorReads
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.capture.repeats.modules import Repeats
from lucerne._src.capture.repeats.told import EACH_TIME
from lucerne._src.capture.symbolic.counters import GIVEN, CounterSource, at_of, written
from lucerne._src.capture.symbolic.native_scalars import before_operator
from lucerne._src.capture.trace.callbacks import (
    BackwardCode,
    followed,
    refuse_attribute_of_tensor,
    refuse_inside,
)
from lucerne._src.capture.trace.fake import CaptureError, is_fake
from lucerne._src.capture.trace.pytree import LEAF, KeptContainer, flatten, keeping
from lucerne._src.tensor.base import TensorBase


class FullGraphTracer:
    """Calls a function in the machine; native where the machine does not know its code."""

    backward_code = BackwardCode
    """What runs user code in its backward pass."""

    def __init__(self, fn: Any) -> None:
        self.part_of = fn
        self.numbers: dict[Any, CounterSource] = {}
        """By `Place.at`: numbers outside that are given at each call."""
        self.reach: ReachableState | None = None
        """Set by who captures: what the function can see."""
        self.looked: TensorReads | None = None
        """Set by who captures: gets what is asked about tensors."""
        function = python_function(fn)
        self.is_possible = function is not None and Machine.supported(function.__code__) is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fn = self.part_of
        if not self.is_possible:
            found = foreign_in(fn)
            if found is not None:
                raise BreakError(reasons.made("library", None, reasons.name_of(found)))
            changed = changes_in(fn)
            if changed is not None:
                raise BreakError(reasons.made("write", None, f"something outside of {changed}()"))
            known = () if self.reach is None else self.reach.tensors.values()
            more = handler_among((*args, *kwargs.values(), *known))
            if more is not None:
                raise BreakError(reasons.made("callback", None, more))
            ExecutedCode.is_complete = False
            return _called(fn, args, kwargs)
        target = target_of(fn, args, kwargs)
        assert target is not None
        frames = [Machine(Plain()).frame_of(target.fn, target.args, target.kwargs)]
        before = ProcessState()
        arguments = Arguments(args, kwargs)
        arguments.bind(frames[0])
        hooks = FullGraphHooks(self.reach, arguments, self.looked)
        hooks.noted.enter(fn, target.args)
        hooks.numbers = self.numbers
        if target.fn.__code__.co_flags & CO_VARKEYWORDS:
            hooks.made(frames[0].slots[more_keywords(target.fn.__code__)])
        machine = hooks.machine = Machine(hooks)
        errors = [(x, x.__traceback__) for x in args if is_a(x, BaseException)]
        try:
            with followed(machine):
                outcome = machine.run(frames)
            if isinstance(outcome, Finished):
                if not before.is_same():
                    raise BreakError(reasons.made("write", None, "a switch of the process"))
                result = keeping(outcome.value, hooks.is_old)
                hooks.check_result(result)
                if self.reach is not None:
                    self.reach.noted = hooks.all_noted(result)
                return result
        except Exception:
            for error, trace in errors:
                error.__traceback__ = trace
            raise
        finally:
            before.restore()
            machine.is_over = True
            hooks.birth.end()
        raise _error_of(outcome)


def _called(fn: Any, args: Any, kwargs: Any) -> Any:
    """Call a function that the machine can't run. It may not change what it is given."""
    kept = MutationCheck((args, kwargs))
    if kept.iterator is not None:
        raise BreakError(reasons.made("iterator", None, reasons.name_of(fn)))
    try:
        found = fn(*args, **kwargs)
    except Exception:
        kept.put_back()
        raise
    if kept.put_back():
        raise BreakError(reasons.made("write", None, "something that the function is given"))
    return found


def _error_of(outcome: Stopped) -> BaseException:
    detail = outcome.stop.detail
    if isinstance(detail, BaseException):
        return detail
    place = user_place([*outcome.frames, *outcome.stop.inside])
    if isinstance(detail, Break):
        return BreakError(detail.at(place))
    return BreakError(reasons.made("instruction", place, outcome.stop.reason))


_DICTS = (dict, OrderedDict)


def kinds_in(shape: Any) -> Iterator[type]:
    """The classes of the containers of a tree, from its shape."""
    if shape is not LEAF:
        yield shape[0]
        for inner in shape[-1]:
            yield from kinds_in(inner)


def keys_in(shape: Any) -> Iterator[Any]:
    """The keys of the dicts of a tree, from its shape."""
    if shape is not LEAF:
        if len(shape) == 3 and issubclass(shape[0], dict):
            yield from shape[1]
        for inner in shape[-1]:
            yield from keys_in(inner)


class FullGraphHooks(Plain):
    """Hooks that let pass what a whole graph can hold, and stop before anything else."""

    machine: Machine

    def __init__(
        self, reach: ReachableState | None, arguments: Arguments, looked: TensorReads | None
    ) -> None:
        self.stores = {_store_id(t.store): t for t in reach.tables} if reach is not None else {}
        known = set() if reach is None else reach.seen
        self.birth = NewObjects(lambda x: id(x) in known)
        self.looked = looked or TensorReads(lambda t: False)
        self.noted = ReadLog(self.birth, arguments, self.looked)
        self.noted.facts.tensors = [] if reach is None else reach.tensors.values()
        self.natives = NativeCallbacks(self.birth, strict=False, facts=self.noted.facts)
        self.arguments = arguments
        self.repeats = Repeats(self, reach)
        self.natives.told = self.repeats
        self.numbers: dict[Any, CounterSource] = {}

    def before(self, frame: PythonFrame) -> Stop | None:
        """Note what the next instruction reads of its operands."""
        before_operator(frame)
        self.noted.before(frame)
        op = frame.decoded.ops[frame.ip]
        if op.name in EACH_TIME and self.repeats.running:
            self.repeats.refuse()
        if op.name in USES_UP and self._is_old_iterator(taken_from(frame.stack, op)):
            return stop_for(reasons.made("iterator", None, "this line"))
        if op.name == "CONTAINS_OP":
            return tensor_key(frame.stack[-2], frame.stack[-1], self.birth)
        return array_in_place(frame, self.birth) or hashes_given(frame, self.looked)

    def same(self, left: Any, right: Any) -> bool:
        """Whether two values are one. What stands for an argument's container is a copy of it."""
        if is_a(left, TensorBase) and is_a(right, TensorBase):
            self.looked.same(left, right)
        else:
            for x, y in ((left, right), (right, left)):
                copied = id(x) in self.arguments.trees and left is not right
                if (copied or self.arguments.is_container(x)) and not self._is_one(y):
                    raise stop_for(reasons.made("identity", None, "`is`"))
        return left is right

    def _is_one(self, x: Any) -> bool:
        """Whether nothing that is given can be it: a constant, or something made inside."""
        new = self.birth.is_new(x) and not is_a(x, tuple)  # (of some nobody can tell)
        return is_plain(x) or is_fixed(x) or new

    def all_noted(self, result: Any) -> ReadLog:
        """What was read, when the function has returned."""
        self.noted.all_of(result)
        if self.natives.called is not None:
            self.noted.all(f"{self.natives.called} is called by native code")
        return self.noted

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        """Enter user code, stop before what is foreign."""
        self.natives.comes_back_not = None, ()
        if any(self._is_old_iterator(x) for x in (*args, native_owner(fn))):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        variable = variable_read(fn, args)
        if variable is not None:
            self.repeats.refuse()
            self.noted.key_of(*variable)
            return NATIVE
        if decision_for(fn) is INLINE and not reasons.is_foreign(fn):
            with profiling(None):  # (nor here)
                self.noted.enter(fn, args)
            return INLINE
        if self.repeats.running:
            self.repeats.native(fn, kwargs)
        if changes_owner(fn) and not self.birth.is_new(fn.__self__):
            return stop_for(reasons.made("write", None, reasons.name_of(fn)))
        ours = is_ours(fn)
        if not ours and reasons.is_foreign(fn):
            return stop_for(reasons.made(reasons.kind_of_call(fn), None, reasons.name_of(fn)))
        given = [*args, *kwargs.values()]
        if ours:  # it looks at what is given without asking: nobody has to watch that
            with profiling(None):
                return self._decide(fn, args, kwargs, given, ours)
        return self._decide(fn, args, kwargs, given, ours)

    def _decide(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: list[Any], ours: bool
    ) -> Decision | Stop:
        """How a call of something native is made, of this package or of others."""
        found = tensor_key(given[0], getattr(fn, "__self__", None), self.birth) if given else None
        found = found or writes_array(fn, args, kwargs, self.birth)
        if fn is id and given and self._is_copy(given[0]):
            found = stop_for(reasons.made("identity", None, "id()"))
        if found is not None:
            return found
        if holds_old_iterator(given, self.birth.is_new):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        if self.noted.call(fn, given, ours, op=not may_call_back(fn)):
            self.natives.comes_back_not = fn, given
        return native_call(fn, given)

    def check_result(self, result: Any) -> None:
        """What is returned must be tensors in containers, or be there before: a new object of
        another kind would be the same one at each call."""
        leaves: list[Any] = []
        shape = flatten(result, leaves)
        kinds = set(kinds_in(shape))
        if any(is_a(key, TensorBase) for key in keys_in(shape)):
            raise BreakError(reasons.made("identity", None, "a tensor as a key"))
        wrong = [kind for kind in kinds if issubclass(kind, dict) and kind not in _DICTS]
        wrong += [
            type(x)
            for x in leaves
            if not (is_a(x, TensorBase) or type(x) is KeptContainer or is_plain(x) or is_value(x))
            and self.birth.is_new(x)
        ]
        if wrong:
            raise BreakError(reasons.made("write", None, f"a new {wrong[0].__name__}"))

    def _is_copy(self, x: Any) -> bool:
        """Whether it stands for a container among the arguments, or another may stand for it."""
        return id(x) in self.arguments.trees or self.arguments.is_container(x)

    def is_old(self, container: Any) -> KeptContainer | None:
        """What stands for a container that is returned, if it was there before."""
        if is_a(container, tuple) and not gc.is_tracked(container):
            return None  # nobody can tell, and nothing in there can change
        if id(container) in self.arguments.trees:
            return KeptContainer(None, self.arguments.paths[id(container)])
        return None if self.birth.is_new(container) else KeptContainer(container)

    def _is_old_iterator(self, x: Any) -> bool:
        return is_iterator(x) and not self.birth.is_new(x)

    def before_branch(self, value: Any) -> Stop | None:
        if is_a(value, TensorBase) and not is_known(value):
            return stop_for(reasons.made("branch", None, "if, while, assert, and, or"))
        self.noted.all_of(value)
        return None

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        of_tensor = is_a(container, TensorBase) and how is Access.ATTRIBUTE
        if of_tensor and self.looked.refuses(container, key):
            raise stop_for(reasons.made("identity", None, f"Tensor.{key}"))
        if how is Access.ITEM and reasons.is_foreign_object(container):
            self.repeats.refuse()
            variable = variable_item(container, key)
            if variable is None:
                raise foreign_item(container, key)
            self.noted.key_of(*variable)
            return value
        refuse_hidden(container, key, how, self.birth)
        if self.repeats.running:
            self.repeats.read(container, key, value)
        if is_a(value, BUFFERS) and not self.birth.is_new(container):
            self.birth.found_outside(value)
        number = self.numbers.get(at_of(container, key, how)) if self.numbers else None
        if number is not None:
            if how is Access.ATTRIBUTE:
                self.noted.own_dict_of(container)  # the number is read from this very dict
            return number.given if type(value) is number.kind else value
        self.noted.read(container, key, value, how, self.machine.frames[-1])
        return value

    def unknown(self, fn: Any, why: str) -> Stop | None:
        return stop_for(reasons.made("instruction", None, why))

    def made(self, value: dict[Any, Any]) -> None:
        self.birth.made[id(value)] = value

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        if is_a(container, TensorBase):
            self.repeats.refuse()
            refuse_attribute_of_tensor(container, key, how)
            return
        refuse_memory(container, self.birth)
        if self.birth.is_new(container):
            return
        refuse_machinery(container, key, how)
        refuse_inside(container, key)
        if how is Access.ITEM and is_a(key, TensorBase) and is_fake(key):
            raise stop_for(reasons.made("identity", None, "a tensor as a key"))
        self.repeats.wrote()
        store = container
        if how is Access.ATTRIBUTE and not is_a(container, type):
            store = own_store(container)
        at = (id(store), key) if how is Access.GLOBAL else id(store)
        kept = how is not Access.METHOD and is_tensors(new) and at in self.stores
        if how is not Access.METHOD and at in self.stores:
            if at_of(container, key, how) in self.numbers and type(new) in GIVEN:
                self.noted.write(container, key, how)
                return
            found = written(store, key, new, str(key))
            if found is not None and found.place.at not in self.numbers:
                raise Stop("capture", found)
        if not kept:
            shown = f"{key}" if how is not Access.METHOD else f"a {type(container).__name__}"
            raise stop_for(reasons.made("write", None, shown))
        self.noted.write(container, key, how)

    def raised(self, error: BaseException) -> Stop | None:
        """An error of capturing is none of the user's: no handler of theirs may see it."""
        self.repeats.refuse()
        if isinstance(error, CaptureError):
            frame = self.machine.frames[-1]
            return stop_for(reasons.of_error(error, None, at_hand(frame)))
        self.noted.raised(self.machine.frames[-1])
        return None


def _store_id(store: Any) -> Any:
    if is_a(store, ClosureVariable):
        return id(store.scope), store.name
    return id(store) if not is_a(store, types.MappingProxyType) else None
