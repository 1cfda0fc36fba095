"""Tracer: runs frames on tensors without values and notes what was read, written and recorded.

It answers the questions of a bytecode machine: user code is entered, ops run under the recorder,
and what a graph can't hold stops the machine before it happens, with a `Break` that says why.
"""

from __future__ import annotations

import builtins
import enum
import functools
import gc
import types
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src.base.raw import is_a, looks_plainly, own_dict, own_store
from lucerne._src.capture import faults
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.call_policy import (
    USES_UP,
    array_in_place,
    at_hand,
    changes_owner,
    decision_for,
    foreign_item,
    hashes_given,
    is_fuel,
    is_known,
    is_ours,
    may_call_back,
    native_call,
    native_owner,
    refuse_hidden,
    refuse_machinery,
    refuse_memory,
    stop_for,
    stop_with,
    taken_from,
    tensor_key,
    user_place,
    variable_item,
    variable_read,
    writes_array,
)
from lucerne._src.capture.breaks.liveness import slots_of
from lucerne._src.capture.breaks.native_callbacks import PLAIN_STEPS, NativeCallbacks
from lucerne._src.capture.breaks.reasons import Break
from lucerne._src.capture.bytecode.frame import Link, PythonFrame, iterator_on
from lucerne._src.capture.bytecode.hooks import (
    DEFERRED,
    INLINE,
    NATIVE,
    NOTHING,
    Access,
    Decision,
    Plain,
    Stop,
)
from lucerne._src.capture.bytecode.machine import Finished, Machine
from lucerne._src.capture.bytecode.targets import find_in_class, found_natively, python_function
from lucerne._src.capture.effects.arrays import ARRAYS, BUFFERS
from lucerne._src.capture.effects.deferred_calls import deferred
from lucerne._src.capture.effects.journal import Journal
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.effects.objects import (
    Roots,
    Swap,
    holds_old_iterator,
    is_fixed,
    is_iterator,
    is_plain,
    values_of,
)
from lucerne._src.capture.effects.rebuild import Carried
from lucerne._src.capture.effects.stores import MISSING
from lucerne._src.capture.guards.frame_reads import FrameReads
from lucerne._src.capture.guards.implicit import ImplicitGuards
from lucerne._src.capture.guards.reachable import ReachableState, is_module
from lucerne._src.capture.guards.read_log import (
    FINDS,
    calls_users,
    engine_table,
    key_asked,
    looked_up,
)
from lucerne._src.capture.guards.sources import is_known_home
from lucerne._src.capture.guards.tensor_reads import TensorReads
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.capture.trace.callbacks import (
    followed,
    refuse_attribute_of_tensor,
    refuse_inside,
)
from lucerne._src.capture.trace.fake import CaptureError, NotYetError, is_fake
from lucerne._src.tensor.base import TensorBase
from lucerne._src.transforms.functionalize import MutationError

_LOOKS_INSIDE = frozenset(
    (
        "GET_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "CONTAINS_OP", "COMPARE_OP", "LIST_EXTEND",
        "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "FORMAT_VALUE", "FORMAT_SIMPLE",
        "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BINARY_OP", "BINARY_SLICE", "GET_LEN",
        "LIST_TO_TUPLE", "MATCH_SEQUENCE", "MATCH_MAPPING", "MATCH_KEYS", "MATCH_CLASS",
        "CALL_INTRINSIC_1", "CALL_INTRINSIC_2", "CALL_FUNCTION_EX",
    )
)  # fmt: skip
"""Instructions after which everything in their operands counts as read."""
_LOOKS_AT_NOTHING = PLAIN_STEPS | {"CALL", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "STORE_ATTR"}
"""The frequent ones that need no look before: what calls and branches read is told by the machine.
"""
_OPERANDS = {"BINARY_OP": 2, "COMPARE_OP": 2, "CONTAINS_OP": 2}
"""How many operands those have that stand between others: `meter.sum += loss` must not read all of
the meter, which lies below on the stack."""
_FILLS = {
    "LIST_APPEND": ("append", 1), "SET_ADD": ("add", 1), "MAP_ADD": ("__setitem__", 2),
    "LIST_EXTEND": ("extend", 1), "SET_UPDATE": ("update", 1), "DICT_UPDATE": ("update", 1),
    "DICT_MERGE": ("update", 1),
}  # fmt: skip
"""Instructions that add to a container: the method that does the same, how many values they take.
"""
_ADVANCES = frozenset(("FOR_ITER", "SEND", "GET_YIELD_FROM_ITER"))
_ONLY_WRITES = frozenset(
    (
        "append", "extend", "insert", "add", "update", "clear", "discard", "appendleft",
        "extendleft", "__setitem__", "__iadd__", "__ior__",
    )
)  # fmt: skip
"""Methods of containers that do not look at what is in there."""
_CONTAINERS = (tuple, list, dict, set, frozenset, deque)
_NAMED = (list, dict, bytearray)
"""Containers whose items are compared one by one."""


class AgainError(Exception):
    """Something was learned that makes another trace necessary."""


class Knowledge:
    """What is known of a function's surroundings, for all traces of one part."""

    def __init__(
        self,
        frames: Sequence[PythonFrame],
        reach: ReachableState,
        volatile: set[Any],
        told: dict[Any, Any],
    ) -> None:
        self.frames, self.reach, self.volatile = frames, reach, volatile
        self.told = told
        """What deferred calls were told when they were first traced, by their place."""
        self.stable = {*reach.seen, *(id(t.store) for t in reach.tables)}
        self.roots = Roots(frames, self.stable)
        self.held = {
            id(t)
            for m in reach.modules.values()
            for table in (m._parameters, m._buffers)
            for t in table.values()
        } | {id(p) for o in reach.optimizers.values() for g in o.param_groups for p in g["params"]}
        self.kept: list[Any] = []
        self.more: list[Any] = []
        """Tensors found by name that are given anew at each call."""

    def is_held(self, t: Any) -> bool:
        """Whether a tensor is a parameter or a buffer: the same object at each call."""
        return id(t) in self.held

    def is_known(self, x: Any) -> bool:
        return id(x) in self.roots.seen or id(x) in self.stable


class PartialGraphTracer(Plain):
    """One run of frames under a recorder."""

    def __init__(self, known: Knowledge, nodes: Callable[[], int], looked: TensorReads) -> None:
        """`nodes`: how many nodes the graph has; `looked`: gets what is asked about tensors."""
        self.known, self.nodes, self.looked = known, nodes, looked
        self.reads = FrameReads(known.roots, self.looked)
        self.journal = Journal()
        self.birth = NewObjects(known.is_known)
        self.facts = self.reads.facts = ImplicitGuards(self.birth, self.reads.is_rooted)
        self.facts.tensors = [*known.roots.tensors, *known.reach.tensors.values()]
        self.natives = NativeCallbacks(self.birth, strict=True, facts=self.facts)
        self.machine = Machine(self)
        self.frames: list[PythonFrame] = []
        self.given: list[PythonFrame] = []
        self.first: list[list[Any]] = []
        """What the variables of the given frames hold at the beginning."""
        self.written: set[tuple[int, Any]] = set()
        self.finished: Finished | None = None
        self.broke: Break | None = None
        self.escaped: BaseException | None = None
        self.suspect: Exception | None = None
        """What an instruction raised: if the function does not raise it, it is our mistake."""
        self.steps = 0
        self.cut = 0
        """After how many instructions the last one is done that was worth it."""
        self.cuts: list[int] = []
        self.slot_steps: dict[tuple[int, int], int] = {}
        """By which instruction a variable was first read."""
        self.swap = Swap({})
        self.switches = ProcessState()
        self._begun = self._done = False
        self._useful = 0
        """How much has been done that is worth a part, when somebody last looked."""
        self._effects = 0
        self._told: Counter[tuple[int, int]] = Counter()
        self._errors = [
            (x, x.__traceback__, x.__context__)
            for x in known.roots.seen.values()
            if is_a(x, BaseException)
        ]

    # ---- running -------------------------------------------------------------------------------

    def start(self, stand_ins: dict[int, Any], unread: set[tuple[int, int]] | None) -> None:
        """Copies of the frames, with stand-ins for tensors (by their ids) and sentinels for values
        that are only carried along (None: not known yet which)."""
        self.swap = Swap(stand_ins)
        self.given = [f.copy() for f in self.known.frames]
        for i, frame in enumerate(self.given):
            first = len(frame.slots)
            for j in range(len(frame.slots)):
                if unread is not None and (i, j) in unread:
                    frame.slots[j] = Carried(i, j)
            for j, x in enumerate(frame.stack):
                if is_iterator(x):
                    frame.stack[j] = Carried(i, first + j)
                else:
                    self.reads.slots.add((i, first + j))
            self.swap.frame(frame)
            data = tuple(self.swap.value(x) for x in frame.link.data)
            self.reads.slots |= {
                (i, k) for k in range(first + len(frame.stack) + 1, len(values_of(frame)))
            }
            frame.link = Link(frame.link.kind, data)
        self.frames = list(self.given)
        self.first = [list(f.slots) for f in self.given]

    def go(self, most: int | None) -> None:
        """Run until the end, a stop, or so many instructions."""
        with followed(self.machine):
            self._go(most)

    def _go(self, most: int | None) -> None:
        self._begun = False
        try:
            outcome = self.machine.run(self.frames, most, self._between)
        except Exception as error:
            self.broke = None
            ours = faults.is_ours(error) and not isinstance(error, CaptureError)
            self.escaped = error if ours or isinstance(error, AgainError) else None
            self.suspect = error if self.machine.raised_here == id(error) else None
            return
        if isinstance(outcome, Finished):
            self.steps += 1
            if self.switches.is_same():
                self.finished, self.cut = outcome, self.steps
            return  # (else a switch is thrown, which no program does: the part ends before it)
        if is_fuel(outcome.stop):
            self._count()
        elif is_a(outcome.stop.detail, BaseException):
            self.escaped = outcome.stop.detail
        else:
            self.broke = self._break_of(outcome.stop)

    def _between(self, frame: PythonFrame) -> Stop | None:
        """After an instruction, before the next one."""
        try:
            if self._begun:
                self._count()
            self._begun, self._effects = True, len(self.journal.effects)
            return self._before(frame)
        except Stop:
            raise
        except Exception as error:  # of ours, and no matter of the function's handlers
            return Stop("error", error)

    def _count(self) -> None:
        """An instruction was executed: after what is worth it, the part may end."""
        self.steps += 1
        now = self.nodes() + len(self.journal.effects)
        if now != self._useful:
            self._useful, self._done = now, False
        if not self._useful or self._done:
            return
        whole = all(f.generator is None and f.handled is None for f in self.frames)
        if whole and self.switches.is_same():
            self.cut, self._done = self.steps, True
            self.cuts.append(self.steps)

    def _break_of(self, stop: Stop) -> Break:
        place = user_place([*self.frames, *stop.inside])
        if is_a(stop.detail, Break):
            return stop.detail.at(place)
        return reasons.made("instruction", place, stop.reason)

    def end_at(self, cut: int) -> None:
        """The part has so many instructions: variables that are read behind it (what is printed
        there, say) are carried along, whatever they hold."""
        late = {at for at, step in self.slot_steps.items() if step >= cut}
        self.reads.slots = (self.reads.slots | self.slot_steps.keys()) - late

    def end(self) -> None:
        """Everything outside as it was before."""
        self.machine.is_over = True
        self.switches.restore()
        for error, trace, context in self._errors:
            error.__traceback__, error.__context__ = trace, context
        self.journal.undo()
        self.swap.undo()
        self.birth.end()

    # ---- what the machine asks -----------------------------------------------------------------

    def _before(self, frame: PythonFrame) -> Stop | None:
        op = frame.decoded.ops[frame.ip]
        name, stack = op.name, frame.stack
        loads = _loads(name)
        if loads or name in _LOOKS_AT_NOTHING:
            if loads and frame in self.given:
                self._loaded(frame, name, op.argument)
            return None
        advanced = iterator_on(stack, int(name == "SEND")) if name in _ADVANCES else None
        if advanced is not None and self._is_old_iterator(advanced):
            return stop_for(reasons.made("iterator", None, "the loop"))
        if name in USES_UP and self._is_old_iterator(taken_from(stack, op)):
            return stop_for(reasons.made("iterator", None, "unpacking"))
        if name in _FILLS:
            self._fills(frame, name, op.argument)
        one = name == "CONTAINS_OP" and self._key_of(*key_asked(*stack[-2:]))
        if name in _LOOKS_INSIDE and not one:
            for x in stack[-_OPERANDS.get(name, 3) :]:
                self.reads.all_of(x)
        if name in ("CONTAINS_OP", "COMPARE_OP"):
            self.looked.compared(stack[-2], stack[-1])
            return tensor_key(stack[-2], stack[-1], self.birth)
        return array_in_place(frame, self.birth) or hashes_given(frame, self.looked)

    def _loaded(self, frame: PythonFrame, name: str, argument: Any) -> None:
        """A variable of a frame that was there at the beginning is read."""
        i = self.given.index(frame)
        for j in (*slots_of(name, argument), *_read_by_super(frame, argument)):
            if frame.slots[j] is self.first[i][j]:
                self.slot_steps.setdefault((i, j), self.steps)
                self.reads.slots.add((i, j))

    def _key_of(self, store: Any, key: Any) -> bool:
        """A dict was asked for one key; whether it is enough to compare that. (None: no dict.)"""
        found = None if store is None else dict.get(store, key, MISSING)
        if store is None or is_a(found, TensorBase) or self.birth.is_new(store):
            return False
        if self.reads.is_rooted(store) or (id(store), _hashable(key)) in self.written:
            return False
        self._found(store, key, found)
        return True

    def _fills(self, frame: PythonFrame, name: str, argument: int) -> None:
        """An instruction that adds to a container that is being built on the stack."""
        method, count = _FILLS[name]
        at = len(frame.stack) - argument - count
        container = frame.stack[at] if at >= 0 else None
        if is_a(container, (list, set, dict)) and not self.birth.is_new(container):
            given = tuple(frame.stack[-count:])
            self.journal.note(Access.METHOD, container, method, (given, {}))
            self.written.add((id(container), method))

    def _is_old_iterator(self, x: Any) -> bool:
        if type(x) is Carried:
            return True
        return is_iterator(x) and not self.birth.is_new(x)

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        given = [*args, *kwargs.values()]
        variable = variable_read(fn, args)
        if variable is not None and self._key_of(*variable):
            return NATIVE
        if type(fn) is Carried or any(type(x) is Carried for x in given):
            return stop_for(reasons.made("object", None, "a value of before"))
        foreign = not is_ours(fn) and reasons.is_foreign(fn)
        owner = getattr(fn, "__self__", None)
        if not foreign and any(self._is_old_iterator(x) for x in (*given, native_owner(fn))):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        if fn is getattr or fn is hasattr:
            return NATIVE  # the machine tells which attribute
        found = tensor_key(given[0], owner, self.birth) if given else None
        found = found or writes_array(fn, args, kwargs, self.birth)
        if found is not None:
            return found
        if decision_for(fn) is INLINE and not reasons.is_foreign(fn):
            self.facts.entered(fn, args)
            self._defaults_of(fn)
            self.reads.all_of(getattr(fn, "__self__", None), 8)
            if getattr(fn, "__name__", "") in ("__missing__", "__getattr__") and args:
                self.reads.all_of(args[0])  # something that is not there was looked up
                if is_a(args[0], type) and len(args) > 1:
                    self.facts.of_class(args[0], args[1])
            return INLINE
        if foreign:
            if self._is_deferred(fn, args, kwargs):
                return DEFERRED
            return stop_for(reasons.made(reasons.kind_of_call(fn), None, reasons.name_of(fn)))
        if changes_owner(fn) and not self.birth.is_new(owner):
            return stop_for(reasons.made("write", None, reasons.name_of(fn)))
        bound = (types.BuiltinFunctionType, types.MethodWrapperType)
        stores = is_a(fn, bound) and fn.__name__ in _ONLY_WRITES
        if stores and is_a(owner, (list, dict, set)):
            for x in given if fn.__name__ in ("extend", "update") else ():
                self.reads.all_of(x)
            return NATIVE
        if getattr(fn, "__name__", "") in FINDS and given:
            self.looked.compared(given[0], owner)
        if self._key_of(*looked_up(fn, given)):
            return NATIVE
        if holds_old_iterator(given, self.birth.is_new):
            return stop_for(reasons.made("iterator", None, reasons.name_of(fn)))
        self.reads.all_of(fn)
        self.facts.called(fn, given)
        for x in given:
            self.reads.all_of(x)
        if may_call_back(fn) and any(map(calls_users, (fn, *given))):
            self.reads.everything = f"{reasons.name_of(fn)} calls back functions"
        return native_call(fn, given)

    def _defaults_of(self, fn: Any) -> None:
        """A function is entered: its keyword defaults are a dict like any other."""
        kept = getattr(python_function(fn), "__kwdefaults__", None)
        if kept and not self.birth.is_new(kept):
            for key, value in kept.items():
                self._found(kept, key, value)

    def _is_deferred(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is made when the part has run. Told something else each time, a number
        that counts up say, it would need a version for each: then it is a break."""
        frame = self.machine.frames[-1]
        call = deferred(fn, args, kwargs, frame)
        if call is None:
            return False
        for x in (*args, *kwargs.values()):
            self.reads.all_of(x)
        place = id(frame.code), frame.ip
        self._told[place] += 1
        at = *place, self._told[place]
        told = [x for x in (*args, *kwargs.values()) if not is_a(x, TensorBase)]
        if self.known.told.setdefault(at, told) != told:
            self.known.told[at] = NOTHING
            return False
        self.journal.note_call(call)
        return True

    def same(self, left: Any, right: Any) -> bool:
        """Whether two values are one. Frames may hold another object next time; what the function
        finds by name is compared, but not with those."""
        if is_a(left, TensorBase) and is_a(right, TensorBase):
            self.looked.same(left, right)
        elif not any(self._is_one(x) for x in (left, right)):
            apart = left is not right and self.reads.is_rooted(left) != self.reads.is_rooted(right)
            if apart or is_a(left, tuple):  # (of tuples the content is compared)
                raise stop_for(reasons.made("identity", None, "`is`"))
        return left is right

    def _is_one(self, x: Any) -> bool:
        """Whether nothing that is given can be it: a constant, or something made inside."""
        new = self.birth.is_new(x) and not is_a(x, tuple)  # (of some nobody can tell)
        return is_plain(x) or is_fixed(x) or is_a(x, TensorBase) or new

    def before_branch(self, value: Any) -> Stop | None:
        if is_a(value, TensorBase) and not is_known(value):
            return stop_for(reasons.made("branch", None, "if, while, assert, and, or"))
        if type(value) is Carried:
            return stop_for(reasons.made("object", None, "a value of before"))
        self.reads.all_of(value)
        return None

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        if is_a(container, TensorBase):
            if how is Access.ATTRIBUTE:
                if self.looked.refuses(container, key):
                    raise stop_for(reasons.made("identity", None, f"Tensor.{key}"))
                self.looked.attribute(container, key)
                self.facts.of_tensor(container, key)
            return value
        if how is Access.ITEM and reasons.is_foreign_object(container):
            variable = variable_item(container, key)
            if variable is None or not self._key_of(*variable):
                raise foreign_item(container, key)
            return value
        refuse_hidden(container, key, how, self.birth)
        if is_a(value, BUFFERS) and not self.birth.is_new(container):
            self.birth.found_outside(value)
        if is_a(container, ARRAYS) and how is Access.ATTRIBUTE:
            self.reads.all_of(container)
        if is_a(value, TensorBase) and not self.birth.is_new(container):
            self.looked.find(value)
        slot = slot_of(container, key)
        if slot in self.known.volatile:
            raise stop_for(reasons.made("changing value", None, str(key)))
        if (id(container), _hashable(key)) in self.written:
            return value
        if how is not Access.GLOBAL and self.birth.is_new(container):
            return value
        if how is Access.CELL:
            if self.reads.is_rooted(container):
                self.reads.cells.add(id(container))
                return value
            return self._found(container, key, value)
        if how is Access.GLOBAL:
            if container is builtins.__dict__:
                self.facts.builtin(self.machine.frames[-1].globals, key)
                return value
            if is_a(value, types.ModuleType):
                self.facts.scope(container, key, value)
                return value
            home = engine_table(container, value)
            if home:
                self.reads.engine[id(value)] = home, key
            return self._found(container, key, value)
        if how is Access.ITEM:
            return self._item(container, key, value)
        return self._attribute(container, key, value)

    def _item(self, container: Any, key: Any, value: Any) -> Any:
        if self.reads.is_rooted(container) or self.birth.is_new(container):
            self.reads.all_of(container)
            return value
        if type(container) is types.MappingProxyType:
            container = gc.get_referents(container)[0]
        if not is_a(container, _NAMED) or not is_plain(key) or type(key) is range:
            self.reads.all_of(container)
            return value
        return self._found(container, key, value)

    def _attribute(self, container: Any, key: str, value: Any) -> Any:
        if is_a(container, types.ModuleType):
            if is_known_home(container.__name__) or is_a(value, types.ModuleType):
                self.facts.of_python_module(container, key)
                return value
            return self._found(container.__dict__, key, value)
        if is_module(container):
            self.reads.of_module(container, key)
        self.facts.of_object(container, key)
        if found_natively(container, key):
            self.reads.all_of(container)
        if is_a(container, enum.Enum) and key in ("value", "name"):
            key = f"_{key}_"  # (what Python's own property reads)
        if self.reads.is_rooted(container) and not is_fixed(container):
            self.reads.attribute(container, key)
            return value
        if is_a(container, type):
            return self._found(container, key, value) if _is_kept(container, key, value) else value
        own = own_dict(container)
        if is_a(own, dict) and key in own and not self.birth.is_new(container):
            if looks_plainly(container) and not is_module(container):
                self.reads.store(container, "__dict__", own)  # (it may get another one)
            return self._found(own, key, value)
        found = find_in_class(type(container), key)
        if type(found) is types.MemberDescriptorType and not self.birth.is_new(container):
            return self._found(container, key, value)
        if value is NOTHING:
            if is_a(own, dict) and not self.birth.is_new(container):
                self.reads.store(own, key, MISSING)
            return value
        named = _is_kept(type(container), key, value)
        if named and not self.birth.is_new(container):
            if is_a(own, dict):
                self.reads.store(own, key, MISSING)
            return self._found(type(container), key, value)
        return value

    def _found(self, store: Any, key: Any, value: Any) -> Any:
        """A value in a place that the function finds by name."""
        if is_a(value, TensorBase) and not self.known.is_held(value):
            found = self.swap.new.get(id(value))
            if found is None and not any(value is s for s in self.swap.new.values()):
                self.known.more.append(value)
                raise stop_with(AgainError("a tensor that is found by name"))
            real = value if found is not None else self.real_of(value)
            self.reads.store(store, key, real)
            return value if found is None else found
        for known in (value, own_dict(value)):
            if is_a(known, _CONTAINERS) and id(known) not in self.known.stable:
                self.known.stable.add(id(known))
                self.known.kept.append(known)  # so that no id is used twice
        self.reads.store(store, key, value)
        return value

    def real_of(self, stand_in: Any) -> Any:
        """The tensor that a stand-in stands for."""
        for t in [*self.known.roots.tensors, *self.known.more]:
            if self.swap.new.get(id(t)) is stand_in:
                return t
        return stand_in

    def unknown(self, fn: Any, why: str) -> Stop | None:
        return stop_for(reasons.made("instruction", None, why))

    def made(self, value: dict[Any, Any]) -> None:
        self.birth.made[id(value)] = value

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        if is_a(container, TensorBase):
            refuse_attribute_of_tensor(container, key, how)
            return
        if type(container) is Carried:
            raise stop_for(reasons.made("object", None, "a value of before"))
        refuse_memory(container, self.birth)
        if self.birth.is_new(container):
            return
        refuse_machinery(container, key, how)
        refuse_inside(container, key)
        if how is Access.ITEM and is_a(key, TensorBase) and is_fake(key):
            raise stop_for(reasons.made("identity", None, "a tensor as a key"))
        if how is Access.GENERATOR:
            raise stop_for(reasons.made("iterator", None, "a generator"))
        if how is Access.METHOD and key == "__missing__":  # what is made there is used here too
            raise stop_for(reasons.made("write", None, f"a {type(container).__name__}"))
        if how is Access.METHOD and key not in _ONLY_WRITES:
            self._changes_content(container)
        elif how is not Access.METHOD:
            self._changes_slot(container, key, old, new, how)
        self.journal.note(how, container, key, new)
        self.written.add((id(container), _hashable(key)))

    def _changes_content(self, container: Any) -> None:
        """A method that looks at what is there and changes it: at each call it is different."""
        if not self.reads.is_rooted(container):
            raise stop_for(reasons.made("changing value", None, f"a {type(container).__name__}"))
        self.reads.all_of(container)

    def _changes_slot(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        store = container
        if how is Access.ATTRIBUTE and not is_a(container, type):
            store = own_store(container)
        places = (
            store,
            type(container),
            *(type(container).__mro__ if how is Access.ATTRIBUTE else ()),
        )
        read = any((id(s), _hashable(key)) in self.reads.stores for s in places)
        read = read or key in self.reads.attributes.get(id(container), ())
        read = read or (how is Access.CELL and id(container) in self.reads.cells)
        read = read or (id(container) in self.reads.whole)
        if not read or is_a(new, TensorBase) or old is new:
            return
        if old is not NOTHING and is_plain(new) and type(old) is type(new) and old == new:
            return
        if (old is None or old is NOTHING) and is_plain(new):
            return  # what is not there yet is set once: the guard has that it was not
        self.known.volatile.add(slot_of(container, key))
        raise stop_with(AgainError(f"{key} changes at each call"))

    def raised(self, error: BaseException) -> Stop | None:
        if isinstance(error, (CaptureError, MutationError, NotYetError)):
            return stop_for(reasons.of_error(error, None, at_hand(self.frames[-1])))
        del self.journal.effects[self._effects :]
        for x in self.machine.frames[-1].stack[-4:]:  # that something was not there is read too
            self.reads.all_of(x)
        return None


def _is_kept(kind: type, key: str, value: Any) -> bool:
    """Whether a value is kept in a class, as it is. (Functions and the like are compared there.)"""
    plain = not is_fixed(value) and not is_a(value, types.FunctionType)
    return find_in_class(kind, key) is value and (plain or is_plain(value))


def slot_of(container: Any, key: Any) -> Any:
    """A place by name: of an object that is the same at each call, or of objects of a class."""
    return id(container), _hashable(key)


def _hashable(key: Any) -> Any:
    if type(key) is slice:  # made for the instruction: its id may be another one's next
        return slice, _hashable(key.start), _hashable(key.stop), _hashable(key.step)
    return key if is_plain(key) and type(key) is not range else id(key)


@functools.cache
def _loads(name: str) -> bool:
    """Whether an instruction does nothing but read variables, names or constants (and set some)."""
    return name.startswith("LOAD_") or name.endswith("DEREF") or "LOAD_FAST" in name


def _read_by_super(frame: PythonFrame, argument: Any) -> tuple[int, ...]:
    """The variables that `super()` reads without an instruction that says so, where an instruction
    loads it: the first argument, and the class in which the function was written."""
    at = frame.decoded.cell_slots.get("__class__")
    named = isinstance(argument, tuple) and argument[-1:] == ("super",)
    return (0, at) if named and at is not None and frame.slots else ()
