"""Levels: tensors that stand for something else while a function is transformed.

A transform (vmap, forward mode) runs a function on tensors of its own. Such a tensor is an ordinary
Tensor, with the shape, dtype and strides the function sees, and a storage that has no bytes but a
`Cell`, which says what the tensor stands for: its *payload*, one or more tensors of the level
below. Those are whatever the caller gave: plain tensors, fakes of a capture, tensors with a graph
of their own, tensors of an outer level.

A `Level` is a kernel-level interpreter. Autograd stands above it and works on the tensors of the
level like on any others. The level answers each call by calling ordinary ops on payloads, through
the whole of dispatch, so whoever watches below (autograd of the payloads, an outer level, a
capture) sees those. That is why transforms nest in any order.

Everything made inside belongs to the level: results of ops that saw no tensor of it are wrapped as
well (their payload is the result). When the level closes, `landed` says what becomes of tensors
that are still held: a tensor that turned out to be an ordinary one becomes it, any other refuses to
be used.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lucerne._src.base.device import device as Device
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace, Interpreter, Proceed, state
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import make_tensor, offset_of
from lucerne._src.tensor.eager.plans import plan_for
from lucerne._src.tensor.storage import Storage
from lucerne._src.tensor.tensor import Tensor


class Cell:
    """Stands where a storage has its memory.

    `payload` is that of the tensor the storage was made for, whose meta is `meta`; `others` has
    those of other tensors over the storage, by their place in it: the offset and the meta.
    """

    __slots__ = ("level", "meta", "others", "own", "payload")
    address = 0

    def __init__(self, level: Level, meta: TensorMeta, payload: Any, own: bool) -> None:
        self.level = level
        self.meta = meta
        self.payload = payload
        self.own = own
        """Whether nothing outside of the level can see the memory of the payload."""
        self.others: dict[tuple[int, TensorMeta], Any] | None = None

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"a tensor inside {self.level.name} has no bytes to look at")

    def get(self, t: Any) -> Any:
        """The payload of a tensor over the storage, if it is known."""
        meta = t._meta
        if meta is self.meta and t._offset == 0:
            return self.payload
        return None if self.others is None else self.others.get((t._offset, meta))

    def keep(self, t: Any, payload: Any) -> None:
        """Note the payload of a view."""
        if self.others is None:
            self.others = {}
        self.others[t._offset, t._meta] = payload

    def replace(self, payload: Any) -> None:
        """Give the storage another payload; views of it are read from the new one."""
        self.payload = payload
        self.others = None


def cell_of(t: Any) -> Cell | None:
    """What stands in the storage of a tensor of a level; None for any other tensor."""
    buffer = t._storage.buffer
    return buffer if type(buffer) is Cell else None


def level_of(t: Any) -> Level | None:
    """The level a tensor belongs to, or None."""
    buffer = t._storage.buffer
    return buffer.level if type(buffer) is Cell else None


def open_levels() -> list[Level]:
    """The levels that are open in this thread, from the outermost to the innermost."""
    return [i for i in state.kernel_level if isinstance(i, Level)]


def lift(t: Any) -> Any:
    """The tensor as one of the innermost open level, its payload being `t` (`t` itself if no level
    is open, or it belongs to that level already).

    For transforms that record or differentiate inside: what they hang on the lifted tensor stays
    apart from what is hung on `t`.
    """
    levels = open_levels()
    if not levels or level_of(t) is levels[-1]:
        return t
    return levels[-1].lift(t)


class LeakedLayerTensor(Tensor):
    """What becomes of a tensor of a level that somebody still holds after the level closed."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(_leak("a transform"))

    def __repr__(self) -> str:  # type: ignore[override]
        return (
            f"<a tensor of shape {list(self._meta.shape)}, left by a transform that has returned>"
        )


def _leak(name: str) -> str:
    return (
        f"a tensor made inside {name} is used after {name} has returned: it stood for something "
        "that is gone. Return it from the function, and use what the transformed function returns."
    )


class Level(Interpreter):
    """A transform while its function runs. Subclasses say what payloads are and what ops do.

    Override `compute`, `view`, `reread`, `write`, `lift`, `detach`, `landed`, and `read` if values
    may be looked at. Inside these, ops on payloads are ordinary calls: the level is off the stack,
    and autograd is in the mode the user asked for.
    """

    level = "kernel"
    is_transform = True
    name = "a transform"
    """How messages call it."""

    def __init__(self) -> None:
        self.depth = 0
        """1 for the outermost of the open levels."""
        self.is_open = False
        self._made: list[weakref.ref[Any]] = []

    # ---- what a transform supplies ---------------------------------------------------------------

    def compute(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The result of a call that is neither a view nor a write, made of wrapped tensors."""
        raise NotImplementedError

    def view(self, op: Op, args: tuple[Any, ...], results: tuple[Any, ...]) -> list[Any]:
        """The payloads of views of a tensor of this level (`args[0]`). `results` are the views."""
        raise NotImplementedError

    def reread(self, payload: Any, meta: TensorMeta, offset: int, want: TensorMeta) -> Any:
        """The payload of a tensor of meta `want` that begins `offset` elements after one of meta
        `meta`, which has `payload`: for readings that no op made."""
        raise NotImplementedError

    def write(self, target: Any, source: Any) -> None:
        """Write the values of `source` over `target`; either may be of another level or of none."""
        raise NotImplementedError

    def lift(self, t: Any) -> Any:
        """A tensor of this level that stands for a tensor from outside."""
        raise NotImplementedError

    def detach(self, payload: Any) -> Any:
        """The payload cut off from the graphs it is part of; itself if it is part of none."""
        raise NotImplementedError

    def landed(self, payload: Any) -> Any:
        """The ordinary tensor a payload comes to when the level closes; None: there is none."""
        return None

    def read(self, t: Any) -> Any:
        """The tensor whose bytes are those of `t`, a tensor of this level; or an error."""
        raise RuntimeError(
            f"a tensor inside {self.name} has no values that could be looked at (item(), tolist(), "
            "numpy(), an if on it)"
        )

    def all_of(self, t: Any) -> Any:
        """A tensor of the level below with every value `t` stands for."""
        return self.read(t)

    def decide(self, t: Any) -> None:
        """Somebody asks whether `t`, a tensor of this level, is true: an error if it can't be."""

    def show(self, t: Any) -> str:
        """What printing a tensor of this level shows."""
        return f"<tensor of shape {list(t._meta.shape)} inside {self.name}>"

    # ---- payloads --------------------------------------------------------------------------------

    def wrap(self, payload: Any, meta: TensorMeta, own: bool = True) -> Any:
        """A new tensor of this level.

        The strides of `meta` must be those of the payload's memory, so that a view of the tensor is
        a view of the payload. `own=False`: somebody outside may see the payload's memory.
        """
        storage = cell_storage(Cell(self, meta, payload, own), meta)
        t = make_tensor(storage, 0, meta)
        self.note(t)
        return t

    def payload_of(self, t: Any) -> Any:
        """What a tensor of this level stands for; None for any other tensor."""
        cell = t._storage.buffer
        if type(cell) is not Cell:
            return None
        if cell.level is not self:
            check_open(t)
            return None
        found = cell.get(t)
        if found is None:
            found = self.reread(cell.payload, cell.meta, offset_of(t), t._meta)
            cell.keep(t, found)
        return found

    def owns(self, t: Any) -> bool:
        """Whether a tensor belongs to this level."""
        cell = t._storage.buffer
        return type(cell) is Cell and cell.level is self

    def note(self, t: Any) -> None:
        """Remember a tensor of this level until it closes."""
        made = self._made
        count = len(made)
        if count >= 64 and count & (count - 1) == 0:  # at each power of two: amortised
            made[:] = [r for r in made if r() is not None]
        made.append(weakref.ref(t))

    # ---- what the dispatcher calls ---------------------------------------------------------------

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        if op.kind == op_.VIEW:
            if not self.owns(args[0]):
                check_open(args[0])
                return proceed(op, args, out)
            return self._viewed(op, args)
        with outside(self.depth):
            if type(out) is InPlace:
                return self.write(args[0], args[1])
            return self.compute(op, args)

    def _viewed(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A view of a tensor of this level is a view of its payload."""
        result = plan_for(op, args).run(args)
        results = result if isinstance(result, tuple) else (result,)
        cell = args[0]._storage.buffer
        missing = [r for r in results if cell.get(r) is None]
        if missing:
            with outside(self.depth):
                payloads = self.view(op, args, results)
            for r, payload in zip(results, payloads, strict=True):
                cell.keep(r, payload)
        for r in results:
            self.note(r)
        return result

    def _below(self) -> Interpreter | None:
        """The next interpreter out."""
        stack = state.kernel_level
        at = stack.index(self) if self in stack else len(stack)
        return stack[at - 1] if at else None

    def made(self, tensor: Any) -> None:
        below = self._below()
        if below is not None:
            below.made(tensor)

    def reads(self, tensor: Any) -> Any:
        if self.owns(tensor):
            with self.aside():
                tensor = self.read(tensor)
        below = self._below()
        other = None if below is None else below.reads(tensor)
        return tensor if other is None else other

    def every(self, tensor: Any) -> Any:
        if self.owns(tensor):
            with self.aside():
                tensor = self.all_of(tensor)
        below = self._below()
        return tensor if below is None else below.every(tensor)

    def varies(self, tensor: Any) -> bool:
        below = self._below()
        return below is not None and below.varies(tensor)

    def decides(self, tensor: Any) -> None:
        if self.owns(tensor):
            self.decide(tensor)
        else:
            below = self._below()
            if below is not None:
                below.decides(tensor)

    def shows(self, tensor: Any) -> str | None:
        if self.owns(tensor):
            with self.aside():
                return self.show(tensor)
        below = self._below()
        return None if below is None else below.shows(tensor)

    def touches(self, storage: Any) -> None:
        if type(storage.buffer) is Cell:
            raise RuntimeError(f"a tensor inside {self.name} has no bytes to get at")
        below = self._below()
        if below is not None:
            below.touches(storage)

    def aliased(self, made: Any, source: Any, detached: bool) -> Any:
        if not self.owns(source):
            below = self._below()
            return made if below is None else below.aliased(made, source, detached)
        if detached:
            payload = self.payload_of(source)
            with self.aside():
                cut = self.detach(payload)
            if cut is not payload:
                return self.wrap(cut, source._meta, own=False)
        self.note(made)
        return made

    def function(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool
    ) -> Any:
        below = self._below()
        return NotImplemented if below is None else below.function(function, args, kwargs, recorded)

    def front(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        below = self._below()
        if below is None:
            return function(*args, **kwargs)
        return below.front(function, args, kwargs)

    def step_done(self) -> None:
        below = self._below()
        if below is not None:
            below.step_done()

    def checks_later(self, flag: Any, error: Any) -> bool:
        if not self.owns(flag):
            below = self._below()
            return below is not None and below.checks_later(flag, error)
        with self.aside():
            flag = self.all_of(flag).any()
        below = self._below()
        if below is None or not below.checks_later(flag, error):
            with self.aside():
                if bool(flag):
                    raise error()
        return True

    def drawn(self) -> Any:
        below = self._below()
        return None if below is None else below.drawn()

    @contextmanager
    def drawing_again(self, position: Any) -> Iterator[None]:
        below = self._below()
        if below is None:
            yield
            return
        with below.drawing_again(position):
            yield

    def reseeded(self, generator: Any) -> None:
        below = self._below()
        if below is not None:
            below.reseeded(generator)

    # ---- opening and closing ---------------------------------------------------------------------

    def __enter__(self) -> Any:
        self.depth = len(open_levels()) + 1
        self.is_open = True
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.is_open = False
        self._close()

    @contextmanager
    def active_again(self) -> Iterator[None]:
        """Inside a rule: see the ops of a block as well, autograd off (its caller records)."""
        state.kernel_level.append(self)
        before = state.grad_enabled
        state.grad_enabled = False
        state.refresh()
        try:
            yield
        finally:
            state.kernel_level.pop()
            state.grad_enabled = before
            state.refresh()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For hooks: work on payloads as in a rule, with this level and those above it off."""
        before = state.kernel_level
        at = before.index(self) if self in before else len(before)
        state.kernel_level = before[:at]
        state.refresh()
        try:
            with outside(self.depth):
                yield
        finally:
            state.kernel_level = before
            state.refresh()

    def _close(self) -> None:
        """Tensors that are still held become what they stood for, or say that they are gone."""
        made, self._made = self._made, []
        for reference in made:
            t = reference()
            if t is None or not self.owns(t):
                continue
            plain = self.landed(self.payload_of(t))
            if plain is None:
                t.__class__ = LeakedLayerTensor
            else:
                t._storage, t._offset, t._meta = plain._storage, plain._offset, plain._meta
                t._auto, t._view, t._array = plain._auto, plain._view, None


def cell_storage(cell: Cell, meta: TensorMeta) -> Storage:
    """A storage with a cell where the memory would be: no backend is asked for an address."""
    made = Storage(None, meta.span * meta.dtype.itemsize, _device(meta))
    made.buffer = cell  # type: ignore[assignment,unused-ignore]
    return made


def _device(meta: TensorMeta) -> Device:
    return meta.device


class outside:
    """Inside, ops are calls of the level below: seen by no call-level interpreter again, converted
    by no autocast again, recorded if the user has not switched that off. (Forward mode opened
    outside of the level of this depth does see them: tangents are those of payloads.)"""

    __slots__ = ("calls", "cast", "depth", "grad")

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth

    def __enter__(self) -> None:
        self.calls, self.grad, self.cast = state.call_level, state._grad_enabled, state.cast
        state.call_level = (
            [i for i in state.forward if i.under(self.depth)] if state.forward else []
        )
        state.cast = None
        state._grad_enabled = state.asked_grad
        state.refresh()

    def __exit__(self, *exc: object) -> None:
        state.call_level, state._grad_enabled, state.cast = self.calls, self.grad, self.cast
        state.refresh()


def check_open(t: Any) -> None:
    """Refuse a tensor of a level that has closed."""
    cell = t._storage.buffer
    if type(cell) is Cell and not cell.level.is_open:
        raise RuntimeError(_leak(cell.level.name))
