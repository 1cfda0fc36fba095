"""Functions inside a captured function, each as a graph of its own: what control-flow nodes hold.

A branch is run on the fakes of the capture around it, watched by a recorder of its own. Tensors it
reads that it did not make are inputs of its graph: what is handed to it, what it finds in its
closure, parameters of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.capture.trace.fake import CaptureError, expose, fake_tensor
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.tensor.autograd.engine import run_backward
from lucerne._src.tensor.autograd.modes import enable_grad, no_grad
from lucerne._src.tensor.autograd.node import gradient_edge
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase
from lucerne._src.transforms.functionalize import functionalize

Function = Callable[..., Any]


class SubRecorder(Recorder):
    """Records a branch. Tensors of the capture around it come from outside, as all others do."""

    knows_values = False

    def __init__(self, whole: Any) -> None:
        super().__init__(whole)
        self._flipped: list[Any] = []
        """Conjugates and negated views that were made inside: a branch is given values."""

    def aliased(self, made: Any, source: Any, detached: bool) -> Any:
        if source._meta.flipped and not any(source is x for x in self._flipped):
            raise CaptureError(
                "a branch reads a conjugate or negated view from outside: give it a copy "
                "(resolve_conj(), resolve_neg())"
            )
        if made._meta.flipped:
            self._flipped.append(made)
            if not source._meta.flipped:
                self.value(source)
        return made

    def _other_reading(self, t: Any, is_view: bool) -> Value:
        known = self._roots.get(id(t._storage.buffer))
        if known is not None and known[0] not in self.known_inputs:
            return super()._other_reading(t, is_view)
        return self.input(t)


@dataclass
class TracedBranch:
    """A function as a graph: `tensors` are those of the inputs after the first ones."""

    graph: Graph
    tensors: list[Any]
    constants: set[int]
    """Ids of tensors that the function made of Python's numbers."""
    shape: Any
    metas: list[TensorMeta]
    given: int = 0
    """How many inputs come before `tensors`."""
    others: list[Any] = field(default_factory=list)
    """Results that are no tensors."""


def traced(fn: Function, args: Sequence[Any], what: str, first: Sequence[Any] = ()) -> TracedBranch:
    """`fn(*args)` as a graph. `first`: tensors that are its first inputs, used or not."""
    sub = SubRecorder(_whole())
    with _inside(sub), no_grad():
        for t in first:
            sub.input(t)
        result = dispatch.call_inside(fn, *args)
        leaves: list[Any] = []
        shape = flatten(result, leaves)
        return _branch(sub, leaves, shape, what, len(first))


def _branch(sub: SubRecorder, leaves: list[Any], shape: Any, what: str, given: int) -> TracedBranch:
    for x in leaves:
        if not isinstance(x, TensorBase):
            raise CaptureError(
                f"{what}: a {type(x).__name__} is returned, where a program can have only tensors"
            )
    outs = [fresh(x) for x in leaves]
    return finished(sub, outs, shape, what, given)


def finished(sub: SubRecorder, outs: list[Any], shape: Any, what: str, given: int) -> TracedBranch:
    values = [sub.value(t) for t in outs]
    graph = functionalize(sub.graph, [], frozenset(sub.constants), values)
    if graph.writes:
        raise CaptureError(
            f"{what}: a tensor from outside is written to, which a program can't take back if the "
            "other way is gone. Return the new value instead."
        )
    tensors = sub.outside[given:]
    if any(not isinstance(t, TensorBase) for t in tensors):
        raise CaptureError(f"{what}: a number that is read anew for each call is used inside")
    constants = {
        id(t) for v, t in zip(sub.graph.inputs, sub.outside, strict=True) if v in sub.constants
    }
    return TracedBranch(graph, tensors, constants, shape, [t._meta for t in outs], given)


def fresh(t: Any) -> Any:
    """A copy in memory of its own, in the ordinary order: results of all branches lie alike."""
    return clone_as(t, lo.contiguous_format)


def _whole() -> Any:
    top: Any = dispatch.state.kernel_level[-1]
    return top.whole


@contextmanager
def _inside(sub: SubRecorder) -> Iterator[None]:
    """Nobody but the branch's own recorder sees what happens."""
    with dispatch.unseen():
        try:
            with sub:
                yield
        finally:
            outside = {id(t) for t in sub.outside}
            expose(t for t in sub.seen_tensors if id(t) not in outside)


# ---- derivatives --------------------------------------------------------------------------------


def is_differentiable(meta: TensorMeta) -> bool:
    return meta.dtype.category in (dt.FLOAT, dt.COMPLEX)


def contiguous(meta: TensorMeta) -> TensorMeta:
    return make_meta(meta.dtype, tuple(meta.shape), None, meta.device)


def stand_in(meta: TensorMeta) -> Any:
    """A tensor without bytes, in the ordinary order."""
    return fake_tensor(contiguous(meta))


def differentiated(
    fn: Function,
    args: Sequence[Any],
    what: str,
    inputs: Sequence[Any],
    wanted: Sequence[Any],
    metas: Sequence[TensorMeta],
    add: Sequence[Any] = (),
) -> TracedBranch:
    """A graph from `inputs`, `add` and the gradients of the differentiable results of `fn(*args)`
    (whose metas are known) to the gradients of `wanted` (which are among the inputs), with `add`
    added to the last ones.

    The results are computed again inside: nothing but the inputs is kept for it.
    """
    sub = SubRecorder(_whole())
    with _leaves(inputs, wanted), _inside(sub), enable_grad():
        tangents = [stand_in(m) for m in metas if is_differentiable(m)]
        for t in (*inputs, *add, *tangents):
            sub.input(t)
        leaves: list[Any] = []
        flatten(dispatch.call_inside(fn, *args), leaves)
        outs = [fresh(x) for x in leaves]
        floats = [o for o in outs if is_differentiable(o._meta)]
        pairs = list(zip(floats, tangents, strict=True))
        roots = [(gradient_edge(o), g) for o, g in pairs if o._needs_grad]
        edges = [gradient_edge(t) for t in wanted]
        found: list[Any] = [None] * len(wanted)
        if roots:
            found = run_backward(roots, keep_graph=False, create_graph=False, wanted=edges)
        with no_grad():
            grads = [
                zeros_of(contiguous(t._meta)) if g is None else fresh(g)
                for t, g in zip(wanted, found, strict=True)
            ]
            start = len(grads) - len(add)
            grads[start:] = [a + g for a, g in zip(add, grads[start:], strict=True)]
            given = len(inputs) + len(add) + len(tangents)
            return finished(sub, grads, None, what, given)


@contextmanager
def _leaves(inputs: Sequence[Any], wanted: Sequence[Any]) -> Iterator[None]:
    """Inside, the wanted tensors are leaves that need gradients and the others need none, whatever
    they are outside."""
    seen = {id(t): t for t in (*inputs, *wanted)}
    needed = {id(t) for t in wanted}
    before = [(t, t._auto, t._view) for t in seen.values()]
    try:
        for t in seen.values():
            t._auto = AutogradState(requires_grad=True) if id(t) in needed else None
            t._view = None
        yield
    finally:
        for t, auto, view in before:
            t._auto, t._view = auto, view


# ---- several graphs for one node ----------------------------------------------------------------


def together(branches: Sequence[TracedBranch]) -> tuple[list[Graph], list[Any]]:
    """The graphs of some branches with one list of inputs after the given ones, and its tensors."""
    tensors: dict[int, Any] = {}
    for b in branches:
        for t in b.tensors:
            tensors.setdefault(id(t), t)
    graphs = []
    for b in branches:
        known = dict(zip(map(id, b.tensors), b.graph.inputs[b.given :], strict=True))
        b.graph.inputs[b.given :] = [
            known[k] if k in known else b.graph.value(t._meta) for k, t in tensors.items()
        ]
        graphs.append(b.graph)
    return graphs, list(tensors.values())


def tell_constants(branches: Sequence[TracedBranch]) -> None:
    """Tensors that branches made of Python's numbers are constants of the capture around them."""
    top: Any = dispatch.state.kernel_level[-1]
    for b in branches:
        for t in b.tensors:
            if id(t) in b.constants and not top.has_seen(t):
                top.made(t)
