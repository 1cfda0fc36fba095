"""Recorder: writes what a function does with tensors into a graph, without doing it.

It stands below autograd, so it sees what would really be executed: forward, backward and optimizer
steps alike. Results are fake tensors. Tensors it meets for the first time come from outside the
function and become inputs of the graph. A write is a `copy` node without results: mutation stays
visible here and is taken out by `transforms.functionalize`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.homes import own_home
from lucerne._src.base.process.executed_code import ExecutedCode, note_stack
from lucerne._src.base.process.source_location import Origin, Place, owner_of, user_place
from lucerne._src.base.unspecialized import IN_KEY, GivenFloat, NumberUse, note
from lucerne._src.capture.trace.bodies import BodyRecords
from lucerne._src.capture.trace.constants import known_values
from lucerne._src.capture.trace.fake import CaptureError, DataNeededError, fake_tensor, is_fake
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.dispatch import InPlace, Interpreter, entry, state, unseen
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, with_flip
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.expressions import Guard
from lucerne._src.ir.symbolic.numbers import checked_again
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.ops.scalars import check_scalars, has_scalars_to_check
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor.base import TensorBase, make_tensor, offset_of
from lucerne._src.tensor.eager.keys import metas_of, results_of
from lucerne._src.tensor.sparse.kinds import SparseTensor
from lucerne._src.tensor.storage import bytes_of
from lucerne._src.tensor.subclasses import torch_dispatch, torch_function

AS_STRIDED: Op = strided_view.op  # type: ignore[attr-defined]
_CLONE: Op = clone_as.op  # type: ignore[attr-defined]


class Handlers:
    """Who knows whether the code that is traced would handle an error that is raised now."""

    around: Callable[[], bool] | None = None


class Recorder(Interpreter):
    """`whole(op, args)` says whether a composite is one node (`composites.Composites`).

    If it has an attribute `instead`, that is asked what to run in the place of an op.
    """

    level = "kernel"
    captures = True
    knows_values = True
    """Whether constants that the function computes are looked at (`known_tensor`)."""

    def __init__(self, whole: Any) -> None:
        self.graph = Graph()
        self.whole = whole
        self.bodies = BodyRecords(self) if type(self) is Recorder else None
        """Of composites that are taken apart; None: they run each time."""
        self.instead: Callable[[Op, tuple[Any, ...]], Any] | None = getattr(whole, "instead", None)
        self.outside: list[Any] = []
        """The tensor of each input of the graph."""
        self.origins: dict[tuple[Any, ...], Origin] = {}
        """What nodes of one line share."""
        self.homes: dict[int, list[Any]] = {}
        """By id of a memory: the tensors from outside that lie in it."""
        self.is_outside: Callable[[Any], bool] = lambda t: False
        """Set by who traces: whether a tensor was there before."""
        self.known_inputs: set[Value] = set()
        self.met: list[Any] = []
        """Every tensor from outside, those that are read through a cover included."""
        self.draws: list[tuple[Any, tuple[Value, ...]]] = []
        """(op and arguments, values) of what was drawn, once somebody wants to draw again."""
        self.keeps_draws = False
        self.draw_at: int | None = None
        """Where in `draws` what is drawn now comes from; None: from the generator."""
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []
        """(a flag that must be false, what to raise if it is true)."""
        self.joined: list[tuple[Any, Any]] = []
        """(input, tensor from outside that is read as a part of it)."""
        self.covers: dict[int, Any] = {}
        """By id of an input that covers a whole memory: the tensor it was made for."""
        self._values: dict[int, tuple[Value, Any]] = {}
        """By id of a tensor: its value, and where it lay then; `t_`, `set_` and `.data = ` change
        that without an op."""
        self._by_place: dict[Any, Value] = {}
        self._roots: dict[int, tuple[Value, Any]] = {}
        """For each memory: the value that stands for it, and a tensor with that geometry."""
        self.constants: set[Value] = set()
        """Inputs whose values Python gave inside the function: the same at every call."""
        self._numbers: dict[int, Value] = {}
        self._kept: list[Any] = []
        self.histories: dict[int, tuple[Any, Any]] = {}
        """Real tensors that were met, by id, and what autograd knew of them then."""
        self.dropped: dict[Value, list[Guard]] = {}
        """By first result of a node: decisions by unbacked sizes that its op takes again when it
        runs."""
        self._dropped: list[Guard] = []
        self.asked_sizes = False
        """Whether there was a number that may be a size, and that only a run tells."""
        self.handled = False
        """Whether an op that may raise for its values stands where the function handles errors."""
        self.looks = 0
        """How often values of a tensor were asked for that may be known."""
        self.refusal: CaptureError | None = None
        """What was raised last because a graph can't hold it: a function may catch it."""

    # ---- tensors and values --------------------------------------------------------------------

    def input(self, t: Any) -> Value:
        """Make a tensor an input of the graph."""
        value = self.graph.input(with_flip(t._meta, False))
        self.known_inputs.add(value)
        self.outside.append(t)
        self.met.append(t)
        self._remember(t)
        self._roots[id(t._storage.buffer)] = value, t
        self._know(t, value)
        return value

    def before_parameter(self) -> NoReturn:
        """A parameter is made: it outlives the call, so it has to be a real one."""
        self.refusal = CaptureError(
            "a parameter is made inside the function (nn.Parameter, nn.Linear(...), a copy of a "
            "module); make modules outside, and call them inside"
        )
        raise self.refusal

    def before_node(self, node: Any) -> None:
        """A backward pass comes to a node: refuse it if calls before the function have left it,
        while it still has what it saved."""
        held = getattr(node, "saved", None) or ()
        for saved in held.values() if isinstance(held, dict) else held:
            for one in saved if isinstance(saved, (tuple, list)) else (saved,):
                t = one if isinstance(one, TensorBase) else getattr(one, "tensor", None)
                memory = None if t is None else t._storage.buffer
                # (without an address it only stands for numbers: of the capture, of a transform)
                if not getattr(memory, "address", 0) or id(memory) in self._roots:
                    continue
                self.refusal = CaptureError(
                    f"backward() goes through {node.name()}, which was recorded before the "
                    "function was called; give it that tensor as an argument, or call backward() "
                    "outside"
                )
                raise self.refusal

    def function(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool
    ) -> Any:
        """A user's Function runs: its methods have to stay the same."""
        names = ("forward", "setup_context", "backward")
        before = [getattr(function, name) for name in names]

        def same() -> bool:
            return [getattr(function, name) for name in names] == before

        if not own_home(function.__module__).startswith("lucerne."):
            note(NumberUse(f"the methods of {function.__name__}", same, IN_KEY))
        return NotImplemented

    def tangent(self, t: Any) -> Value:
        """Make the gradient of a result an input of the graph."""
        return self.input(t)

    def meet(self, t: Any, shared: bool) -> Value:
        """A tensor from outside for the first time.

        `shared`: others may lie in its memory. Unless it fills that memory, an input that does is
        made (its cover), and the tensor is a reading of it: what is written to one is then seen by
        the others, and none reads past the end of another.
        """
        if not self.has_seen(t):
            if not shared or fills_memory(t):
                return self.input(t)
            cover = cover_of(t)
            self.covers[id(cover)] = t
            self.input(cover)
        value: Value = self.value(t)
        if is_fake(t):
            self._join(t)
        if not any(t is x for x in self.met):
            self.met.append(t)
        return value

    def number(self, x: GivenFloat) -> Value:
        """A number that is read anew for each call."""
        found = self._numbers.get(id(x))
        if found is None:
            found = self._numbers[id(x)] = self.graph.input(NUMBER_METAS[float])
            self.outside.append(x)
        return found

    def root(self, t: Any) -> tuple[Value, Any]:
        """The value that stands for the memory of a tensor, and the tensor it was made as."""
        self.value(t)
        return self._roots[id(t._storage.buffer)]

    def known(self, t: Any) -> Value | None:
        """The value of a tensor, if it has one; nothing is recorded."""
        return self._of_object(t) or self._by_place.get(_place(t))

    def _of_object(self, t: Any) -> Value | None:
        value, place = self._values.get(id(t), (None, None))
        return value if place == _place(t) else None

    def has_seen(self, t: Any) -> bool:
        return id(t._storage.buffer) in self._roots

    def value(self, x: Any) -> Any:
        """The value of a tensor; anything else is itself."""
        if not isinstance(x, TensorBase):
            return self.number(x) if type(x) is GivenFloat else x
        found = self._of_object(x)
        if found is None:
            owner = None if is_fake(x) else self._home(x)
            if owner is not None:  # a view or `detach()` of it: it may lie elsewhere next time
                self.value(owner)
            found = self._by_place.get(_place(x))
            if found is None:
                found = self._other_reading(x, owner is not None)
            elif not is_fake(x) and owner is None:
                self._join(x)  # a second tensor over the same elements
            self._values[id(x)] = found, _place(x)
            self._kept.append(x)  # so that no id is used twice
            self._remember(x)
        return found

    def _remember(self, t: Any) -> None:
        """A tensor that is there afterwards too: its history is not that of a trace."""
        while t is not None and not is_fake(t):
            self.histories.setdefault(id(t), (t, t._auto))
            t = None if t._view is None else t._view.base

    def changed_histories(self) -> list[tuple[Any, Any]]:
        """Real tensors that the trace gave another history, and the one they had."""
        found = []
        for t, before in self.histories.values():
            now = t._auto
            was = None if before is None else before.grad_fn
            if now is not before and now is not None and now.grad_fn is not was:
                found.append((t, before))
        return found

    def _home(self, t: Any) -> Any:
        """The tensor from outside whose memory reads one that was made since; None: it is from
        outside itself."""
        found = self.homes.get(id(t._storage.buffer), ())
        if not found or self.is_outside(t) or any(x is t for x in found):
            return None
        exact = [x for x in found if x._offset == t._offset and x._meta.shape == t._meta.shape]
        return (exact or found)[0]

    def _other_reading(self, t: Any, is_view: bool) -> Value:
        """A tensor nobody made by an op we saw: from outside, or the same memory read otherwise."""
        known = self._roots.get(id(t._storage.buffer))
        if isinstance(t, SparseTensor):
            raise CaptureError("a sparse tensor is computed: its shape depends on the data")
        if known is None:
            if is_fake(t):
                raise CaptureError("a tensor of another capture is used: return it from there")
            return self.meet(t, shared=True)
        if not is_fake(t) and not is_view:
            self._join(t)
        base, first = known
        meta = with_flip(t._meta, False)
        at = offset_of(t) - offset_of(first)
        if meta.dtype is not first._meta.dtype:
            raise CaptureError("one memory is read as tensors of different types")
        args = (base, tuple(meta.shape), meta.strides, at)
        return self.node(AS_STRIDED, args, [meta])[0]

    def _join(self, t: Any) -> None:
        """A tensor from outside lies in the memory of another one."""
        self.joined.append((self._roots[id(t._storage.buffer)][1], t))
        if t._needs_grad:
            self.met.append(t)

    def _know(self, t: Any, value: Value) -> None:
        self._values[id(t)] = value, _place(t)
        self._by_place.setdefault(_place(t), value)
        self._kept.append(t)

    def know_made(self, t: Any, value: Value) -> None:
        """A tensor stands for what a node has made, in memory of its own."""
        self._know(t, value)
        self._roots[id(t._storage.buffer)] = value, t

    def marks(self) -> tuple[Any, ...]:
        """What stays as it is while nothing but nodes is recorded."""
        return (
            len(self.constants), len(self.draws), len(self.checks), len(self.joined),
            len(self.covers), len(self.dropped), len(self._numbers), self.keeps_draws,
            self.draw_at, self.asked_sizes, self.handled, self.refusal, self.looks,
        )  # fmt: skip

    @property
    def seen_tensors(self) -> list[Any]:
        return self._kept

    def mark(self) -> tuple[int, int]:
        return len(self.graph.inputs), len(self.graph.nodes)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Forget what was recorded since."""
        inputs, nodes = mark
        del self.graph.inputs[inputs:], self.outside[inputs:]
        del self.graph.nodes[nodes:]
        left = {*self.graph.inputs, *(v for n in self.graph.nodes for v in n.outputs)}
        self._values = {k: x for k, x in self._values.items() if x[0] in left}
        self._by_place = {k: v for k, v in self._by_place.items() if v in left}
        self._roots = {k: x for k, x in self._roots.items() if x[0] in left}
        self._numbers = {k: v for k, v in self._numbers.items() if v in left}
        self.known_inputs &= left
        self.constants &= left

    # ---- what the dispatcher calls -------------------------------------------------------------

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        if torch_function.dispatching and torch_dispatch.wanted(args):
            return False
        with checked_again() as self._dropped:  # (in one piece or not: it is the same)
            return self.whole(op, args)

    def aliased(self, made: Any, source: Any, detached: bool) -> Any:
        if source._meta.flipped:
            self.value(source)  # what was there is met, not only its memory as it is
        return made

    def made(self, tensor: Any) -> None:
        self.constants.add(self.input(tensor))

    def checks_later(self, flag: Any, error: Callable[[], Exception]) -> bool:
        self.checks.append((flag, error))
        return True

    def drawn(self) -> Any:
        self.keeps_draws = True
        return len(self.draws)

    @contextmanager
    def drawing_again(self, position: Any) -> Iterator[None]:
        before, self.draw_at = self.draw_at, position
        try:
            yield
        finally:
            self.draw_at = before

    def _refuse(self, text: str) -> NoReturn:
        self.refusal = CaptureError(text)
        raise self.refusal

    def reseeded(self, generator: Any) -> None:
        self._refuse(
            "the function sets the state of a random generator (manual_seed, set_rng_state, "
            "fork_rng), which a graph can't hold. Do it before the call."
        )

    def known_tensor(self, t: Any) -> Any | None:
        """A tensor with the values that this one has at every call; None: they are not known."""
        self.looks += 1
        if not self.knows_values or not self.has_seen(t):
            return None
        constants = frozenset(self.constants)
        return known_values(self.graph, constants, self.outside, self.value(t))

    def reads(self, tensor: Any) -> Any:
        found = self.known_tensor(tensor)
        if found is not None:
            return found
        self.refusal = DataNeededError(
            "the function looks at the values of a tensor (item(), tolist(), numpy(), printing, an "
            "if on a tensor, an index given as a tensor of numbers), which a graph can't hold. "
            "Compute with tensors (where, masks), or move that line out of the function."
        )
        raise self.refusal

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if torch_function.dispatching and torch_dispatch.wanted(args):
            with self.active_again():  # the ops on what it wraps are what the graph holds
                return torch_dispatch.ask(op, args, out)
        if self.instead is not None and out is None:
            with self.active_again(), torch_dispatch.below_modes():
                result = self.instead(op, args)
            if result is not NotImplemented:
                return tuple(result) if isinstance(result, list) else result
        placed = tuple(
            tuple(map(self.value, a)) if isinstance(a, tuple) else self.value(a) for a in args
        )
        if type(out) is InPlace:
            self.node(op, placed, [])
            return None
        if op.data_dependent:
            found = self._known_result(op, args)
            return self.sized_by_data(op, args, placed) if found is None else found
        if op.kind == op_.VIEW:
            result = proceed(op, args, out)
            if op is AS_STRIDED:
                self._check_within(result)
        else:
            with checked_again() as dropped:
                metas, kind = self._results(op, args)
            self._dropped += dropped
            made = [fake_tensor(m) for m in metas]
            result = made[0] if len(made) == 1 else kind(*made) if kind else tuple(made)
        outs = result if isinstance(result, tuple) else (result,)
        found = [o._meta for o in outs]
        kept = self.keeps_draws and op.kind == op_.RANDOM
        values = self._drawn(op, placed, found) if kept else self.node(op, placed, found)
        if self._dropped and op.kind != op_.VIEW:
            self.dropped[values[0]], self._dropped = self._dropped, []
        know = self._know if op.kind == op_.VIEW else self.know_made
        for o, v in zip(outs, values, strict=True):
            know(o, v)
        return result

    def sized_by_data(self, op: Op, args: tuple[Any, ...], placed: tuple[Any, ...]) -> Any:
        """An op the shape of whose result depends on values that are not known."""
        self.asked_sizes = True
        self._refuse(
            f"{op.name}: the shape of its result depends on the data, which a graph can't hold"
        )

    def body(self, op: Op, args: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        return run(op, args) if self.bodies is None else self.bodies.run(op, args, run)

    def integer(self, t: Any) -> Any:
        self.looks += 1
        self.asked_sizes = self.asked_sizes or t._meta.dtype.category == dt.INTEGER
        return None

    def _check_within(self, view: Any) -> None:
        """Memory that lies around an argument is not an argument."""
        found = self._roots.get(id(view._storage.buffer))
        if found is None or not view._meta.numel:
            return
        root = found[1]
        start = view._offset - root._offset
        if start < 0 or start + view._meta.span > root._meta.span:
            self._refuse("as_strided: a view of memory that lies outside of its tensor")

    def _known_result(self, op: Op, args: tuple[Any, ...]) -> Any:
        """What an op gives whose shape depends on values, if those are known."""
        given = []
        for a in args:
            known = self.known_tensor(a) if isinstance(a, TensorBase) else a
            if isinstance(a, tuple) or (known is None and a is not None):
                return None
            given.append(known)
        with unseen():
            found = entry.run(op, tuple(given))
        for made in found if isinstance(found, tuple) else (found,):
            self.made(made)
        return found

    def _drawn(self, op: Op, args: tuple[Any, ...], metas: list[TensorMeta]) -> tuple[Value, ...]:
        """Random numbers that may be wanted again: copies of a value that nobody writes to."""
        key = op, tuple(metas), tuple(a for a in args if type(a) is not Value)
        if self.draw_at is None:
            self.draws.append((key, self.node(op, args, metas)))
            values = self.draws[-1][1]
        else:
            if self.draw_at >= len(self.draws) or self.draws[self.draw_at][0] != key:
                raise CaptureError("a checkpoint draws other random numbers when it runs again")
            values = self.draws[self.draw_at][1]
            self.draw_at += 1
        return tuple(self.node(_CLONE, (v, lo.preserve_format), [v.meta])[0] for v in values)

    def node(self, op: Op, args: tuple[Any, ...], metas: list[TensorMeta]) -> tuple[Value, ...]:
        if ExecutedCode.codes is not None:
            note_stack(sys._getframe(1))
        outputs = tuple(self.graph.value(m) for m in metas)
        node = Node(op, args, outputs, self._origin())
        self.graph.nodes.append(node)
        if Handlers.around is not None and not self.handled and may_raise(node):
            self.handled = Handlers.around()
        return outputs

    def _origin(self) -> Origin | None:
        """The user's line; in a backward pass, that of the forward call."""
        of_forward: Place | None = state.backward_of
        place = of_forward or user_place()
        if place is None:
            return None
        code, line = place
        key = code, line, owner_of(place), of_forward is not None
        found = self.origins.get(key)
        if found is None:
            name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
            made = Origin(code.co_filename, line, name, key[2], key[3])
            found = self.origins[key] = made
        return found

    def _results(self, op: Op, args: tuple[Any, ...]) -> tuple[tuple[TensorMeta, ...], Any]:
        """Metas of the results, and the named tuple they come in if they do."""
        if op.meta is None:
            body = self.whole.body(op, args)
            return body.metas, body.kind if hasattr(body.kind, "_fields") else None
        return self._own_results(op, args), None

    def _own_results(self, op: Op, args: tuple[Any, ...]) -> tuple[TensorMeta, ...]:
        results = results_of(op, metas_of(op, args), args)
        if has_scalars_to_check(op, results[0].dtype):
            check_scalars(op, args, results[0].dtype)
        return results


def _place(t: Any) -> Any:
    """Of elements in memory: a tensor and its conjugate are one value."""
    return id(t._storage.buffer), t._offset, with_flip(t._meta, False)


def fills_memory(t: Any) -> bool:
    """Whether it has every byte of its memory, each once."""
    meta: TensorMeta = t._meta
    size = bytes_of(t._storage)
    return bool(meta.is_dense and not offset_of(t) and meta.numel * meta.dtype.itemsize == size)


def cover_of(t: Any) -> Any:
    """All of the memory of a tensor in one row, by its dtype."""
    count = bytes_of(t._storage) // t._meta.dtype.itemsize
    return make_tensor(t._storage, 0, t._meta.like(shape=(count,)))
