"""Tensor reads: what a traced function has asked about tensors from outside, besides their values.

Whether two of them are one object, whether a gradient is there, what somebody has hung on a tensor
(`p.skip = True`), the layout or `requires_grad` of one that takes no part in the graph: each answer
is the truth at the time of tracing, and becomes a `Fact` that guards compare. What can't be
compared cheaply (`_version`) is refused, which makes it a graph break.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.effects.stores import MISSING, alike
from lucerne._src.capture.trace.fake import fills_storage, is_fake
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    CONSTANT,
    HELD,
    InputSource,
    tensor_of,
)
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.capture.trace.subclasses import is_wrapper
from lucerne._src.tensor.autograd.state import AutogradState, state_of
from lucerne._src.tensor.base import TensorBase

IS, HAS, LAYOUT, GRADIENT_IS, PLACE, HISTORY = (
    "is", "has", "layout", "gradient", "place", "history"
)  # fmt: skip
REFUSED = frozenset(
    (
        "__dict__", "_version", "storage_offset", "_base", "_is_view", "is_shared", "is_pinned",
        "data_ptr", "const_data_ptr", "is_set_to", "is_inference",
    )
)  # fmt: skip
"""Attributes of tensors that tell what no guard compares: whose memory it is, how often it was
written to, all that hangs on it."""
_OF_OTHERS = frozenset(("retains_grad", "output_nr"))
"""The same, of tensors that were there before: what stands for one has another answer."""
_OF_HISTORY = frozenset(("is_leaf", "grad_fn"))


@dataclass
class Fact:
    """Something that was so of a tensor from outside: `value`, as its `kind` has it."""

    kind: str
    source: InputSource
    value: Any
    """IS: whether it is the tensor of `other`. HAS: what it carries under `name`, MISSING: nothing.
    LAYOUT: (meta, offset, requires_grad). GRADIENT_IS: None, or the meta of its gradient and that
    one's requires_grad. PLACE: `place_of` it. HISTORY: `has_history`."""
    other: InputSource | None = None
    name: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether no argument is needed to say whether it holds."""
        other = self.other is None or self.other.kind == HELD
        return self.source.kind == HELD and other

    def holds(self, leaves: Sequence[Any], sizes: bool = True) -> bool:
        """Whether it is so at this call; `sizes=False`: but for sizes of arguments."""
        t = tensor_of(self.source, leaves)
        if self.kind == IS:
            assert self.other is not None
            return (t is tensor_of(self.other, leaves)) is self.value
        if self.kind == HAS:
            return alike(t.__dict__.get(self.name, MISSING), self.value)
        if self.kind == LAYOUT:
            return (t._meta, t._offset, t._needs_grad) == self.value
        if self.kind == PLACE:
            return place_of(t) == self.value
        if self.kind == HISTORY:
            return has_history(t) is self.value
        grad = t.grad
        if grad is None or self.value is None:
            return grad is self.value
        meta, needs_grad = self.value
        same = self.source.kind == ARGUMENT or grad._meta is meta
        return same and grad._needs_grad is needs_grad

    def __str__(self) -> str:
        what = "an argument" if self.source.kind == ARGUMENT else "a tensor"
        if self.kind == IS:
            return f"{what} {'is' if self.value else 'is not'} the same object as another"
        if self.kind == HAS:
            return f"{what} has {'no' if self.value is MISSING else 'the same'} {self.name}"
        if self.kind == LAYOUT:
            return f"{what} is laid out as it was, and its requires_grad is {self.value[2]}"
        if self.kind == PLACE:
            return f"{what} lies in its storage as it did"
        if self.kind == HISTORY:
            return f"{what} {'has' if self.value else 'has no'} grad_fn"
        return f"the gradient of {what} {'is None' if self.value is None else 'is there'}"


def place_of(t: Any) -> tuple[int, int] | None:
    """Where a tensor lies in its storage, and the bytes of that; None: it fills one, whatever its
    size."""
    return None if fills_storage(t) else (t._offset, t._storage.nbytes)


class TensorReads:
    """What was asked during one trace. `known` tells tensors that were there before, or that stand
    for such. (That a tensor has real memory does not: a view that was made since has, too.)"""

    def __init__(
        self, known: Callable[[Any], bool], first_seen: Callable[[Any], None] | None = None
    ) -> None:
        """`first_seen`: is told of each that is found, before anything is done with it."""
        self.known, self._first_seen = known, first_seen
        self.told: Callable[..., None] | None = None
        """Who is told of what is asked, whether it was asked before or not."""
        self.found: dict[int, Any] = {}
        """Tensors that were read from something which was there before."""
        self.pairs: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.one: dict[int, Any] = {}
        """Tensors of which it was asked whether two of them are one, and which were."""
        self.carried: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self.seen: dict[int, Any] = {}
        """Real tensors of which something was read, or that native code was given."""
        self.histories: dict[int, tuple[Any, bool]] = {}
        """Tensors that were asked whether they are leaves, and whether they have a history."""
        self.placed: dict[int, tuple[Any, Any]] = {}
        """Tensors that were asked where they lie, and where that is."""

    def find(self, t: Any) -> None:
        """A tensor was read from something which was there before."""
        if self.told is not None:
            self.told("find", t)
        if id(t) not in self.found:
            self.found[id(t)] = t
            if self._first_seen is not None:
                self._first_seen(t)

    def is_outside(self, t: Any) -> bool:
        """Whether a tensor was there before, or stands for one that was."""
        return self.known(t) or id(t) in self.found

    def same(self, a: Any, b: Any) -> None:
        """It was asked whether two tensors are one."""
        if self.told is not None and (self.is_outside(a) or self.is_outside(b)):
            self.told("refused")
        if a is b:
            self.one[id(a)] = a
        elif self.is_outside(a) and self.is_outside(b):
            self.pairs.setdefault((id(a), id(b)), (a, b))

    def compared(self, left: Any, right: Any) -> None:
        """`==` or `in`: what is in containers is compared by identity first."""
        if is_a(left, TensorBase) and is_a(right, TensorBase):
            return  # an op
        for x in _tensors_in(left):
            for y in _tensors_in(right):
                self.same(x, y)

    def touch(self, t: Any) -> None:
        if self.told is not None:
            self.told("touch", t)
        if id(t) not in self.seen and not is_fake(t) and self.is_outside(t):
            self.seen[id(t)] = t

    def refuses(self, t: Any, key: str) -> bool:
        """Whether an attribute tells what no guard compares."""
        if key in REFUSED:
            return True
        if key not in _OF_OTHERS and key not in _OF_HISTORY:
            return False
        return self.is_outside(t) and (key in _OF_OTHERS or (key == "grad_fn" and has_history(t)))

    def attribute(self, t: Any, key: str) -> None:
        """An attribute of a tensor was read, or was found not to be there."""
        if self.told is not None:
            self.told("attribute", t, key)
        self.touch(t)
        if key in _OF_HISTORY and self.is_outside(t):
            self.histories.setdefault(id(t), (t, has_history(t)))
        own = t.__dict__
        if is_wrapper(t) and key in t.__tensor_flatten__()[0]:
            return  # guards open the wrapper, and compare its parts as they do arguments
        if (key in own or not hasattr(type(t), key)) and self.is_outside(t):
            found = t, key, own.get(key, MISSING)
            self.carried.setdefault((id(t), key), found)

    def facts(
        self, source_of: Callable[[Any], InputSource], used: Iterable[InputSource]
    ) -> list[Fact]:
        """What guards are to compare. `used`: the inputs of the graph, whose layout is compared
        anyway."""
        found = [
            Fact(IS, source_of(a), False, source_of(b))
            for a, b in self.pairs.values()
            if not source_of(a).kind == source_of(b).kind == HELD
        ]
        found += [
            Fact(HAS, source_of(t), value, name=key) for t, key, value in self.carried.values()
        ]
        known = {id(s.thing) for s in used if s.kind in (HELD, CONSTANT)}
        found += [Fact(PLACE, source_of(t), value) for t, value in self.placed.values()]
        found += [Fact(HISTORY, source_of(t), value) for t, value in self.histories.values()]
        for t in self.seen.values():
            if id(t) not in known and source_of(t).kind == HELD:
                found.append(Fact(LAYOUT, source_of(t), (t._meta, t._offset, t._needs_grad)))
        return found


def _tensors_in(x: Any) -> list[Any]:
    if is_a(x, TensorBase):
        return [x]
    if not is_a(x, (list, tuple, dict, set, frozenset, deque)):
        return []
    leaves: list[Any] = []
    flatten(list(x) if is_a(x, (set, frozenset, deque)) else x, leaves)
    return [t for t in leaves if is_a(t, TensorBase)]


# ---- gradients ----------------------------------------------------------------------------------

_SLOT: Any = AutogradState.__dict__["grad"]
_owners: dict[int, GradientOwner] = {}
"""By id of a state: whose it is. While a function is traced, that is."""


class _Watched(AutogradState):
    """The state of a leaf while a function is traced: whether its gradient was there when the
    function began is noted as soon as somebody asks, the library itself included."""

    __slots__ = ()

    @property
    def grad(self) -> Any:
        owner = _owners.get(id(self))
        if owner is not None and not owner.written:
            owner.read = True
        return _SLOT.__get__(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        owner = _owners.get(id(self))
        if owner is not None:
            owner.written = True
        _SLOT.__set__(self, value)


class GradientOwner:
    """A leaf from outside whose gradient a trace may read and set."""

    def __init__(self, tensor: Any, source: InputSource, grad: Any, begun: Any) -> None:
        """`grad`: what it has; `begun`: what stands for that in the trace."""
        self.tensor, self.source, self.grad, self.begun = tensor, source, grad, begun
        self.read = self.written = False
        self.had_state = tensor._auto is not None
        self.state = state_of(tensor)
        self.kind = type(self.state)
        _SLOT.__set__(self.state, begun)
        if self.kind is AutogradState:
            self.state.__class__ = _Watched
        self.outer = _owners.get(id(self.state))
        """Who watches it already: a function that is traced inside of another one."""
        _owners[id(self.state)] = self

    def now(self) -> Any:
        """The gradient that it has, without asking."""
        state = self.tensor._auto
        return None if state is None else _SLOT.__get__(state)

    def release(self) -> None:
        """As it was before."""
        if self.outer is None:
            _owners.pop(id(self.state), None)
        else:
            _owners[id(self.state)] = self.outer
        self.state.__class__ = self.kind
        if not self.had_state and self.state is self.tensor._auto and not self.tensor._needs_grad:
            self.tensor._auto = None
        elif self.tensor._auto is not None:
            _SLOT.__set__(self.tensor._auto, self.grad)

    def fact(self) -> Fact:
        grad = self.grad
        told = None if grad is None else (grad._meta, grad._needs_grad)
        return Fact(GRADIENT_IS, self.source, told)


def has_history(t: Any) -> bool:
    return bool(t._needs_grad) and t.grad_fn is not None


def gradient_of(t: Any) -> Any:
    """Without asking the tensor's class."""
    return None if t._auto is None else t._auto.grad
