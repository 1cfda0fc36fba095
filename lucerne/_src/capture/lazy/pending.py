"""Pending: what was called in lazy mode and has not run yet.

Every result has memory of its own from the start, only nothing is in it yet: tensors, views and
aliases are what they are in eager mode, and running the graph fills their memory. A memory that
nobody holds any more when the graph runs is no result of it. Tensors that were there before are
inputs; one that does not fill its memory is read as a part of all of it, so that writes through one
view are seen by the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.config import config
from lucerne._src.base.process.source_location import user_place
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.capture.lazy import cuts
from lucerne._src.capture.lazy.programs import LazyRef, Programs, static_key, tensor_inputs
from lucerne._src.capture.trace.fake import CaptureError, is_fake
from lucerne._src.capture.trace.recorder import cover_of, fills_memory
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace, Interpreter, unseen
from lucerne._src.ir.graph import Graph, Node, Value, parts_of, run_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.random.draws import draw
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor.autograd.modes import set_grad_enabled
from lucerne._src.tensor.base import TensorBase, make_tensor, new_tensor
from lucerne._src.tensor.eager.inplace import plan_copy
from lucerne._src.tensor.eager.keys import metas_of, results_of
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.tensor.storage import Storage

_DRAW: Op = draw.op  # type: ignore[attr-defined]
_AS_STRIDED: Op = strided_view.op  # type: ignore[attr-defined]


class _Foreign(Exception):  # noqa: N818 - a way out, not a mistake
    """A tensor that is not on the host, or has no bytes: its ops are none of our business."""


class PendingMemory:
    """One memory that the graph knows: how its root reads it, and the value of that."""

    __slots__ = ("geometry", "is_made", "places", "ref", "root")

    def __init__(self, root: Value, t: Any, is_made: bool, ref: Any) -> None:
        self.root, self.is_made, self.ref = root, is_made, ref
        self.geometry = t._meta, t._offset, t._storage.nbytes
        self.places: list[Any] = []


class Pending(Interpreter):
    """Writes down what is called; `run_now` runs it."""

    level = "kernel"

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._cut_at: Any = None
        self._begin()

    def _begin(self) -> None:
        self.graph = Graph()
        self.inputs: list[Any] = []
        """The tensor or number of each input of the graph: kept alive until it has run."""
        self.memories: dict[int, PendingMemory] = {}
        """By id of a buffer."""
        self.values: dict[Any, Value] = {}
        """By place: buffer, offset, meta."""
        self.key: list[Any] = []
        self.number: dict[int, LazyRef] = {}
        """Where in the key a value was made, by its index."""
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []

    # ---- values --------------------------------------------------------------------------------

    def _value(self, x: Any) -> Any:
        if isinstance(x, TensorBase):
            found = self.values.get((id(x._storage.buffer), x._offset, x._meta))
            return found if found is not None else self._reading(x)
        if type(x) is GivenFloat:
            return self._input(NUMBER_METAS[float], float(x.now()))
        return x

    def _input(self, meta: Any, thing: Any) -> Value:
        value = self.graph.input(meta)
        self.number[value.index] = LazyRef(len(self.number))
        self.key.append(meta)
        self.inputs.append(thing)
        return value

    def _reading(self, t: Any) -> Value:
        """A tensor that no op of the graph made: from before, or another reading of a memory."""
        memory = self.memories.get(id(t._storage.buffer))
        if t._meta.device.type != backends.HOST or is_fake(t):
            raise _Foreign
        if memory is None:
            whole = t if fills_memory(t) else cover_of(t)
            value = self._input(whole._meta, whole)
            self._know(whole, value, is_made=False)
            if whole is t:
                return value
            memory = self.memories[id(t._storage.buffer)]
        meta, offset, _ = memory.geometry
        if t._meta.dtype is not meta.dtype:
            raise CaptureError("one memory is read as tensors of different types")
        args = memory.root, tuple(t._meta.shape), t._meta.strides, t._offset - offset
        key = tuple([self._key(a) for a in args])
        value = self._node(_AS_STRIDED, args, (t._meta,), key)[0]
        self._place(t, value)
        return value

    def _know(self, t: Any, root: Value, *, is_made: bool) -> None:
        buffer = t._storage.buffer
        at = id(buffer)
        ref = weakref.ref(buffer, lambda _: self._forget(at)) if is_made else None
        self.memories[at] = PendingMemory(root, t, is_made, ref)
        self._place(t, root)

    def _place(self, t: Any, value: Value) -> None:
        place = id(t._storage.buffer), t._offset, t._meta
        self.values.setdefault(place, value)
        self.memories[place[0]].places.append(place)

    def _forget(self, at: int) -> None:
        """A memory is gone: its address may be somebody else's soon."""
        memory = self.memories.pop(at, None)
        for place in memory.places if memory is not None else ():
            self.values.pop(place, None)

    def _node(self, op: Op, args: tuple[Any, ...], metas: Sequence[TensorMeta], key: Any) -> Any:
        graph, number = self.graph, self.number
        outputs = tuple([graph.value(m) for m in metas])
        graph.nodes.append(Node(op, args, outputs))
        self.key.append((op, key, metas))
        for v in outputs:
            number[v.index] = LazyRef(len(number))
        return outputs

    def is_pending(self, storage: Any) -> bool:
        """Whether what a memory should hold is not in it yet."""
        memory = self.memories.get(id(storage.buffer))
        return memory is not None and (memory.is_made or memory.root.index in self._written)

    @property
    def _written(self) -> set[int]:
        """Roots of inputs that nodes write to."""
        roots = set()
        for node in self.graph.nodes:
            if not node.outputs:
                roots.add(node.args[0].index)
        if not roots:
            return roots
        return {m.root.index for m in self.memories.values()}  # views too: all is brought up

    # ---- what the dispatcher calls -------------------------------------------------------------

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        return self.programs.whole(op, args)

    def touches(self, storage: Any) -> None:
        """Somebody gets at bytes without an op."""
        if self.graph.nodes and self.is_pending(storage):
            self.cut(cuts.READ)

    def reads(self, tensor: Any) -> None:
        self.touches(tensor._storage)

    def checks_later(self, flag: Any, error: Callable[[], Exception]) -> bool:
        self.checks.append((flag, error))
        return True

    def step_done(self) -> None:
        """An optimizer's step is over: a loop comes by here each time."""
        self.cut(cuts.STEP)

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        why: str | None = None
        if op.data_dependent or op.kind == op_.RANDOM or op.checks == op_.POSITIONS:
            why = self._refused(op, args)
        if why is None:
            try:
                return self._record(op, args, out, proceed)
            except _Foreign:
                why = ""
            except CaptureError:
                why = cuts.OTHER
        if why == cuts.OTHER or (why and self._any_pending(args)):
            self.cut(why)
        cuts.REPORT.alone += 1
        return proceed(op, args, out)

    def _any_pending(self, args: tuple[Any, ...]) -> bool:
        flat = [x for a in args for x in (a if type(a) is tuple else (a,))]
        return any(isinstance(x, TensorBase) and self.is_pending(x._storage) for x in flat)

    def _refused(self, op: Op, args: tuple[Any, ...]) -> str | None:
        """Why a call is not written down; None: it is; empty: it needs nothing that is."""
        if op.data_dependent:
            return cuts.SHAPE
        if op.kind == op_.RANDOM:  # now, in eager's order; `draw` asks its operand for a shape only
            return "" if op is _DRAW else cuts.RANDOM
        if not self._in_range(op, args):
            return cuts.OTHER  # eager says what is wrong, at this line
        return None

    def _in_range(self, op: Op, args: tuple[Any, ...]) -> bool:
        """Whether positions that are there already are positions of the tensor."""
        sizes = [int(n) for n in args[0]._meta.shape]
        listed = op.kinds[1] == op_.TENSOR_LIST
        looked = enumerate(args[1]) if listed else [(args[1], args[2])]
        for d, t in looked:
            if t is None or t._meta.dtype.category != dt.INTEGER or not t._meta.numel:
                continue
            if not sizes or self.is_pending(t._storage):
                continue
            found, size = bits(t), sizes[d]
            if int(found.max()) >= size or int(found.min()) < -size:
                return False
        return True

    def _record(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if len(self.graph.nodes) >= config.lazy_nodes // 2:
            self._not_too_long()
        placed, key = [], []
        for a in args:
            kind = type(a)
            if kind is tuple:
                inner = tuple([self._value(x) for x in a])
                placed.append(inner)
                key.append((tuple, tuple([self._key(x) for x in inner])))
            else:
                value = self._value(a)
                placed.append(value)
                key.append(self._key(value))
        given = tuple(placed)
        if type(out) is InPlace:
            self._node(op, given, (), tuple(key))
            return None
        if op.kind == op_.VIEW:
            result = proceed(op, args, out)
            outs = result if isinstance(result, tuple) else (result,)
            values = self._node(op, given, tuple([o._meta for o in outs]), tuple(key))
            for o, v in zip(outs, values, strict=True):
                self._place(o, v)
            return result
        metas, named = self._results(op, args)
        if metas[0].device.type != backends.HOST:
            return proceed(op, args, out)
        made = [new_tensor(m) for m in metas]
        for o, v in zip(made, self._node(op, given, metas, tuple(key)), strict=True):
            self._know(o, v, is_made=True)
        return made[0] if len(made) == 1 else named(*made) if named else tuple(made)

    def _key(self, x: Any) -> Any:
        return self.number[x.index] if type(x) is Value else static_key(x)

    def _results(self, op: Op, args: tuple[Any, ...]) -> tuple[tuple[TensorMeta, ...], Any]:
        if op.meta is None:
            body = self.programs.whole.body(op, args)
            if body is None:
                raise CaptureError(f"{op.name} has no graph")
            return body.metas, body.kind if hasattr(body.kind, "_fields") else None
        return results_of(op, metas_of(op, args), args), None

    def _not_too_long(self) -> None:
        """A loop that never looks at anything is cut at one line of it, again and again: the
        pieces are then whole rounds, and the same graph each time."""
        count = len(self.graph.nodes)
        place = user_place()
        if count >= config.lazy_nodes:
            self._cut_at = place
            self.cut(cuts.LONG)
        elif self._cut_at is not None and place == self._cut_at:
            self.cut(cuts.LONG)

    # ---- running -------------------------------------------------------------------------------

    def cut(self, why: str) -> None:
        if self.graph.nodes:
            cuts.REPORT.cut(why, user_place())
            self.run_now()

    def run_now(self) -> None:
        """Run what was written down; afterwards all memories hold what they should."""
        if not self.graph.nodes:
            self._begin()
            return
        graph, inputs, checks = self.graph, self.inputs, self.checks
        live = [(m.root, m.geometry, m.ref()) for m in self.memories.values() if m.is_made]
        live = [x for x in live if x[2] is not None]
        live.sort(key=lambda x: x[0].index)
        roots = [root for root, _, _ in live]
        results = [_over(buffer, meta, nbytes) for _, (meta, _, nbytes), buffer in live]
        key = (*self.key, tuple([self.number[r.index] for r in roots]))
        self._begin()
        cuts.REPORT.evaluated += 1
        cuts.REPORT.nodes += len(graph.nodes)
        with unseen():
            self._run(key, graph, roots, inputs, results)
        for flag, error in checks:
            if bool(flag):
                raise error()

    def _run(
        self, key: Any, graph: Graph, roots: list[Value], inputs: list[Any], results: list[Any]
    ) -> None:
        program = self.programs.get(key, graph, roots)
        if program is None:
            self._one_by_one(graph, roots, inputs, results)
            self.programs.did_without()
            return
        began = perf_counter()
        of_tensors = tensor_inputs(graph)
        arguments = [inputs[k] for k in of_tensors]
        numbers = tuple([x for x in inputs if not isinstance(x, TensorBase)])
        program.runner(arguments, numbers, results)
        for k in program.written:
            _wrote(arguments[k])
        cuts.REPORT.seconds_running += perf_counter() - began

    def _one_by_one(
        self, graph: Graph, roots: list[Value], inputs: list[Any], results: list[Any]
    ) -> None:
        """A graph that no program can be made of: as eager mode would have run it."""
        with set_grad_enabled(False):
            known = run_graph(graph, inputs, _again)
            for root, result in zip(roots, results, strict=True):
                plan_copy(result, known[root.index])
        for t in inputs:
            if isinstance(t, TensorBase):
                _wrote(t)


def _again(node: Node, args: tuple[Any, ...]) -> Any:
    if not node.outputs:
        plan_copy(args[0], args[1])
        return ()
    return _viewed(node, args) if node.op.kind == op_.VIEW else dispatch.entry.run(node.op, args)


def _viewed(node: Node, args: tuple[Any, ...]) -> Any:
    """A view by its geometry: public functions would ask other questions."""
    source = args[0]
    return tuple([make_tensor(source._storage, at, m) for m, at in parts_of(node, source)])


def _over(buffer: Any, meta: TensorMeta, nbytes: int) -> Any:
    """A tensor over a memory."""
    return make_tensor(Storage(buffer, nbytes, meta.device), 0, meta)


def _wrote(t: Any) -> None:
    """What was kept of a memory (packed operands) is out of date now. Versions were counted when
    the write was called."""
    buffer = t._storage.buffer
    if hasattr(buffer, "writes"):
        buffer.writes += 1
