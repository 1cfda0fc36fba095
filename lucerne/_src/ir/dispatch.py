"""The way of a call: interpreters that asked to see it, then the eager bottom.

Every op call, from the user's or from another op's body, enters `run`. With no interpreter active
it goes straight to the bottom (installed by the tensor layer). An interpreter sees a call and
decides: answer it, change it, or let it proceed to the next one down.

Two levels exist, because both are needed: `call` interpreters stand above autograd and see what the
user wrote (softmax is one call); `kernel` interpreters stand below it and see only what is really
executed (softmax is its primitives, backward passes included).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from lucerne._src.ir.op import Op


class Cast(Protocol):
    """Converts inputs of ops by their name: what mixed precision installs (`State.set_cast`).

    Calls on the host that are remembered while it is on are apart from those remembered without
    (`number`, up to 7; 0: it converts nothing there), so nothing that needs no conversion leaves
    the fast path.
    """

    number: int
    setting: tuple[Any, ...]
    """All that it converts to: two with the same setting do the same."""
    ops: dict[Op, Any]
    """The ops it wants to see."""

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The result of a call of one of them; NotImplemented: go on with it as it is."""

    def front(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a public function that is no op, converted if it is a known one."""


class State(threading.local):
    """Per-thread switches. `active` is true when some interpreter wants to see calls."""

    changed: Callable[[bool, bool, int], None] | None = None
    """Told (gradients are recorded, calls must take the complete path, number of the cast) after
    every change: an engine's fast path keeps a copy."""

    def __init__(self) -> None:
        self.active = False
        self.call_level: list[Interpreter] = []
        self.kernel_level: list[Interpreter] = []
        self.forward: list[Any] = []
        """The levels of forward mode that are open, the outermost first."""
        self.backward_of: Any = None
        """While a node of the backward graph runs and is watched: the line of its forward call."""
        self.overrides_enabled = True
        self._grad_enabled = True
        self.asked_grad = True
        """What the user asked for (no_grad, enable_grad, ...): autograd itself switches recording
        off and on without changing this. Tensors below a transform are recorded by it."""
        self.inference = False
        self.cast: Cast | None = None
        self.call_back: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None
        """Who makes calls of user code that the library was given to call (see `call_back`)."""
        self.only_computes = False
        """Whether such code may do nothing but compute (see `call_inside`)."""
        self.special = 0
        """How many things are on that only the complete path knows (saved-tensor hooks, ...)."""
        self.seen = False
        """Whether some interpreter or one of these wants to see ops as they are called."""

    @property
    def grad_enabled(self) -> bool:
        return self._grad_enabled

    @grad_enabled.setter
    def grad_enabled(self, value: bool) -> None:
        self._grad_enabled = value
        self._tell()

    def refresh(self) -> None:
        levels = bool(self.call_level or self.kernel_level)
        self.active = levels or self.inference
        self.seen = levels or self.special > 0
        self._tell()

    def _tell(self) -> None:
        if State.changed is not None:
            number = 0 if self.cast is None else self.cast.number
            State.changed(self._grad_enabled, self.active or self.special > 0, number)

    def add_special(self, count: int) -> None:
        self.special += count
        self.refresh()

    def set_cast(self, cast: Cast | None) -> None:
        """Convert the inputs of some ops before they run (mixed precision), or no longer."""
        self.cast = cast
        self._tell()


state = State()

Proceed = Callable[[Op, tuple[Any, ...], Any], Any]


class Interpreter:
    """Sees op calls while entered. Override `run`; call `proceed` to let the call go on.

    While `run` works, this interpreter is off the stack, so ops it calls itself go to the ones
    below.
    """

    level = "call"
    wants_values = False
    """Call level: whether all it wants to know is which values are not finite. Programs that look
    at that themselves run as they are."""
    quick: Any = None
    """Kernel level: `quick(op, args)`, asked before anything else about calls without `out`. It
    does all of a call, recording included, or says NotImplemented."""
    logs: Any = None
    """Kernel level: `logs(op, args, out)` makes every call itself, to keep what was called."""
    captures = False
    """Kernel level: whether a function is captured by it."""
    is_transform = False
    """Kernel level: whether tensors inside stand for others, which are recorded as well."""

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        """`args` holds every parameter of `op` in signature order.

        With `out` an InPlace (kernel level): the op is `copy`, and its result lands in the target.
        """
        return proceed(op, args, out)

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        """Kernel level: whether a composite is to arrive whole and not as its primitives."""
        return False

    def body(self, op: Op, args: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """Kernel level: what `run(op, args)` gives, the body of a composite that arrives as its
        primitives and is not recorded by autograd."""
        return run(op, args)

    def made(self, tensor: Any) -> None:
        """Kernel level: a tensor was filled with numbers from Python, not by an op."""

    def reads(self, tensor: Any) -> Any:
        """Kernel level: somebody is about to look at the bytes of a tensor. What is returned,
        unless it is None, is looked at in its place."""
        return None

    def integer(self, tensor: Any) -> Any:
        """Kernel level: somebody is about to ask for the number that a tensor of one element is.
        What is returned, unless it is None, is the answer."""
        return None

    def every(self, tensor: Any) -> Any:
        """Kernel level: see `every_value`."""
        return tensor

    def varies(self, tensor: Any) -> bool:
        """Kernel level: whether a tensor stands for many, so that it has no one value."""
        return False

    def decides(self, tensor: Any) -> None:
        """Kernel level: somebody is about to ask whether a tensor is true."""

    def before_parameter(self) -> None:
        """Kernel level: somebody is about to make a parameter, which outlives the calls seen."""

    def before_node(self, node: Any) -> None:
        """Kernel level: a backward pass comes to a node, which has not computed anything yet."""

    def densified(self, tensor: Any) -> Any:
        """Kernel level: the tensor, or a dense one if it stands for a sparse one."""
        return tensor

    def shows(self, tensor: Any) -> str | None:
        """Kernel level: what printing a tensor shows; None: its values."""
        return None

    def aliased(self, made: Any, source: Any, detached: bool) -> Any:
        """`made` is another tensor over the elements of `source`, made without an op. What is
        returned takes its place."""
        return made

    def function(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool
    ) -> Any:
        """Kernel level: the result of the forward of a user's autograd.Function; NotImplemented: it
        is to run as it is. `recorded`: it must, since it keeps what backward needs."""
        return NotImplemented

    def front(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Kernel level: the result of a public function that chooses among ops."""
        return function(*args, **kwargs)

    def touches(self, storage: Any) -> None:
        """Kernel level: somebody is about to get at the bytes of a storage without an op."""

    def step_done(self) -> None:
        """Kernel level: a step of an optimizer is over."""

    def checks_later(self, flag: Any, error: Callable[[], Exception]) -> bool:
        """Kernel level: an error is to be raised if `flag` is true. Whether it is taken care of;
        False: look at the flag now."""
        return False

    def drawn(self) -> Any:
        """Kernel level: where random numbers stand, to draw the same again; None: ask the
        generator itself."""
        return None

    @contextmanager
    def drawing_again(self, position: Any) -> Iterator[None]:
        """Kernel level: inside, what was drawn since `position` (from `drawn`) is drawn again."""
        yield

    def reseeded(self, generator: Any) -> None:
        """Kernel level: a generator is about to be given another state."""

    def __enter__(self) -> Any:
        self._stack().append(self)
        state.refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack().pop()
        state.refresh()

    def _stack(self) -> list[Interpreter]:
        return state.call_level if self.level == "call" else state.kernel_level

    @contextmanager
    def active_again(self) -> Iterator[None]:
        """Inside `run`: see the ops of a body as well (to decompose a call and watch the parts)."""
        with self:
            yield


class Bottom(Protocol):
    """What the tensor layer supplies: run a call with no call-level interpreter left."""

    def __call__(self, op: Op, args: tuple[Any, ...], out: Any = None) -> Any: ...


def through(stack: list[Interpreter], op: Op, args: tuple[Any, ...], out: Any, end: Proceed) -> Any:
    """Hand a call to the innermost interpreter of `stack`; `end` is what lies below them all."""
    if not stack:
        return end(op, args, out)
    interpreter = stack.pop()
    state.refresh()

    def below(op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
        return through(stack, op, args, out, end)

    try:
        return interpreter.run(op, args, out, below)
    finally:
        stack.append(interpreter)
        state.refresh()


def _no_bottom(op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
    raise RuntimeError("no tensor layer is loaded: import lucerne before calling ops")


class InPlace:
    """Given as `out=`: write the result over `target`, which is also an input, and record that."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target


class _Entry:
    """Holder of the installed bottom, so that generated functions find it late.

    `front` takes a call of a front (an overloaded public function) that somebody may want to see.
    """

    __slots__ = ("front", "run")

    def __init__(self) -> None:
        self.run: Bottom = _no_bottom
        self.front: Callable[..., Any] = _call_front


def _call_front(public: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


familiar: set[type] = {bool, int, float, complex, str, type(None)}
"""First-argument types that no `__torch_function__` can hide in: fronts call on without asking."""


entry = _Entry()


def install(bottom: Bottom) -> None:
    entry.run = bottom


def recording() -> bool:
    """Whether what happens is seen by a kernel-level interpreter: nothing may go around it."""
    return bool(state.kernel_level)


def capturing() -> bool:
    """Whether a function is being captured now, in this thread."""
    return any(x.captures for x in state.kernel_level)


def call_back(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Call code of the user's that the library was given: a hook, the backward of a Function.

    Everything that keeps such code and calls it later does so here: while a function is captured,
    whoever captures it must see what such code does besides its result.
    """
    via = state.call_back
    return fn(*args, **kwargs) if via is None else via(fn, args, kwargs)


def call_inside(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """`call_back` for a function that runs inside of something (a transform, a branch, a
    checkpoint), where what it does besides its result can't be done once more."""
    before, state.only_computes = state.only_computes, True
    try:
        return call_back(fn, *args, **kwargs)
    finally:
        state.only_computes = before


def raise_if(flag: Any, error: Callable[[], Exception]) -> None:
    """Raise when a tensor of one bool is true; if a function is being captured, at each call of
    what is made of it."""
    stack = state.kernel_level
    if stack and stack[-1].checks_later(flag, error):
        return
    if bool(flag):
        raise error()


def varies(tensor: Any) -> bool:
    """Whether a tensor stands for many (inside vmap), so that it has no one value."""
    stack = state.kernel_level
    return bool(stack) and stack[-1].varies(tensor)


def every_value(tensor: Any) -> Any:
    """The tensor, or while a function runs for a whole batch at once, one with the values of all of
    the batch: for checks of values, and for loops that must go on until the last is done."""
    stack = state.kernel_level
    return stack[-1].every(tensor) if stack else tensor


@contextmanager
def unseen() -> Iterator[None]:
    """Inside, no interpreter sees anything: for tensors that must exist although a function is
    only being captured (the first state of an optimizer)."""
    before = state.call_level, state.kernel_level
    state.call_level, state.kernel_level = [], []
    state.refresh()
    try:
        yield
    finally:
        state.call_level, state.kernel_level = before
        state.refresh()
