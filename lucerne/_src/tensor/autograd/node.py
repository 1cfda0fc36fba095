"""Nodes of the backward graph: what to compute, from what, and where the results go."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.config import config
from lucerne._src.base.process.error_notes import running_module
from lucerne._src.base.process.source_location import Place, is_capturing, user_place
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import call_back
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import RESULTS, GradientPart, Op
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.copy.place import Meshes, inherit
from lucerne._src.tensor.autograd.hooks import RemovableHandle
from lucerne._src.tensor.autograd.names import grad_name as grad_name
from lucerne._src.tensor.autograd.saved import USED_UP, SavedOutput, SavedTensor
from lucerne._src.tensor.autograd.state import (
    ADDING,
    AutogradState,
    requires_grad,
    set_history,
    state_of,
)
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.storage import FAST

Edge = tuple["GradientNode", int]
next_in_order: Callable[[], int] = (
    itertools.count().__next__ if FAST is None else FAST.next_in_order
)
"""Numbers for nodes and for records that may become nodes, in the order in which they are made: a
backward pass goes back in it."""
LEAF_SHOWN_AS = "torch::autograd::AccumulateGrad"
"""How profiles and messages call what adds to the gradient of a leaf."""


class _Anomaly:
    """Anomaly mode: remember the forward stack of each node, look for nan in each gradient."""

    enabled = False
    check_nan = True
    looks: Callable[[Any, Sequence[Any], Callable[[], Sequence[Any]]], Sequence[Any]] | None = None
    """Makes each node of a backward pass run: given it, its gradients, and what runs it."""
    paused = False
    """Whether it is off only while a function is captured (`graph.unwatched`)."""
    ends: Callable[[bool], None] | None = None
    """Told when somebody stops looking (True: nothing was raised), for what is looked at later."""


anomaly = _Anomaly()


class GradientNode:
    """A step of the backward pass. `next_edges[i]` says who receives the i-th gradient."""

    __slots__ = (
        "__dict__", "__weakref__", "next_edges", "out_metas", "place", "post_hooks", "pre_hooks",
        "sequence", "tensor_hooks", "trace",
    )  # fmt: skip
    zero_edges: Sequence[Edge] = ()
    """Where a gradient of zero goes (`Op.zero_for`)."""
    is_unknown = False
    """Whether it stands for history that can't be seen from here."""
    module = ""
    """In anomaly mode: which module made the forward call."""
    is_watched = False
    """Whether it looks at its gradients itself."""
    keeps_stack = True
    """Whether anomaly mode keeps where it was made."""

    def __init__(self, next_edges: list[Edge | None], out_metas: tuple[TensorMeta, ...]) -> None:
        self.start(next_edges, out_metas, user_place() if config.user_lines else None)

    def start(
        self,
        next_edges: list[Edge | None],
        out_metas: tuple[TensorMeta, ...],
        place: Place | None,
    ) -> None:
        """Fill the fields every node has; `place` is the user's line of the forward call."""
        self.next_edges = next_edges
        self.out_metas = out_metas
        self.sequence = next_in_order()
        self.place = place
        self.trace = ""
        if anomaly.enabled and self.keeps_stack:
            self.trace = "".join(traceback.format_stack()[:-4])
            self.module = running_module()
        self.tensor_hooks: dict[int, dict[int, Callable[..., Any]]] | None = None
        self.pre_hooks: dict[int, Callable[..., Any]] | None = None
        self.post_hooks: dict[int, Callable[..., Any]] | None = None

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"

    @property
    def next_functions(self) -> tuple[tuple[GradientNode | None, int], ...]:
        return tuple((None, 0) if e is None else (as_shown(e[0]), e[1]) for e in self.next_edges)

    @property
    def metadata(self) -> dict[str, Any]:
        """A place for a user's own notes about this node."""
        found: dict[str, Any] = self.__dict__.setdefault("_metadata", {})
        return found

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this node has run."""
        if self.post_hooks is None:
            self.post_hooks = {}
        return RemovableHandle.add(self.post_hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node runs."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return RemovableHandle.add(self.pre_hooks, hook)

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        """Gradients for each of `next_edges` from the gradients of this node's outputs."""
        raise NotImplementedError

    def apply_for(self, grads: Sequence[Any], asked: tuple[bool, ...] | None) -> list[Any]:
        """`apply` where nobody looks at some of the gradients (True: it is asked for). A node that
        can do with less work for them says so here."""
        return self.apply(grads)

    def hooks_inside(self, index: int) -> dict[int, Callable[..., Any]] | None:
        """Where hooks of an output go whose gradient is complete only inside of the node, which
        calls them itself; None: what arrives at the node is the whole gradient."""
        return None

    def written_slot(self) -> int | None:
        """For an in-place call: which of `next_edges` belongs to the tensor written over."""
        return None

    def release(self) -> None:
        """Forget what was saved: the graph is used up."""


class Gradients(tuple[Any, ...]):
    """Gradients of several results. Those that nobody asked for are zeros, made when looked at."""

    metas: tuple[TensorMeta, ...]

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self)[i]
        found = tuple.__getitem__(self, i)
        return zeros_of(self.metas[i]) if found is None else found

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def gradients(op: Op, grads: Sequence[Any], metas: tuple[TensorMeta, ...]) -> tuple[Any, ...]:
    """What the formulas of an op with several results read as `g`."""
    if all(g is not None for g in grads):
        return tuple(grads)
    if op.kind == op_.VIEW:
        pairs = zip(grads, metas, strict=True)
        return tuple([zeros_of(m) if g is None else g for g, m in pairs])
    made = Gradients(grads)
    made.metas = metas
    return made


class OpNode(GradientNode):
    """The derivative of one op call, by the formulas of its entry."""

    __slots__ = ("inputs", "op", "plain", "reads", "released", "saved")

    def __init__(
        self, op: Op, args: tuple[Any, ...], outs: tuple[Any, ...], replaced: Any = None
    ) -> None:
        self.op = op
        self.released = False
        self.inputs: list[tuple[str, int | None, TensorMeta]] = []
        edges: list[Edge | None] = []
        plain: list[
            Any
        ] = []  # per parameter: the meta of a tensor, metas of a list, else the value
        for name, arg in zip(op.args, args):  # noqa: B905 - hot path, lengths agree
            if isinstance(arg, TensorBase):
                plain.append(arg._meta)
                if name in op.derivatives and arg._needs_grad:
                    self.inputs.append((name, None, arg._meta))
                    edges.append(gradient_edge(arg))
            elif type(arg) is tuple and arg and name in op.derivatives:
                plain.append(self._add_list(name, arg, edges))
            else:
                plain.append(arg)
        super().__init__(edges, tuple([o._meta for o in outs]))
        self.plain = plain
        self.reads = reads_of(op, tuple([name for name, _, _ in self.inputs]))
        self.saved: dict[str, Any] = {}
        for name, arg in zip(op.args, args):  # noqa: B905
            if name in self.reads and _holds_tensor(arg):
                first = replaced is not None and name == op.args[0]
                self.saved[name] = _save(replaced if first else arg, self)

    def save_result(self, outs: tuple[Any, ...]) -> None:
        if "y" in self.reads:
            saved = tuple(SavedOutput(o, self, i) for i, o in enumerate(outs))
            self.saved["y"] = saved[0] if len(saved) == 1 else saved
        for i, name in enumerate(RESULTS[: len(outs)] if len(outs) > 1 else ()):
            if name in self.reads:
                self.saved[name] = SavedOutput(outs[i], self, i)

    def _add_list(self, name: str, arg: tuple[Any, ...], edges: list[Edge | None]) -> Any:
        for i, t in enumerate(arg):
            if isinstance(t, TensorBase) and requires_grad(t):
                self.inputs.append((name, i, t._meta))
                edges.append(gradient_edge(t))
        return tuple([t._meta if isinstance(t, TensorBase) else t for t in arg])

    def name(self) -> str:
        return self.__dict__.get("shown") or grad_name(self.op, self.plain)

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        if self.released:
            raise RuntimeError(USED_UP)
        g = grads[0] if len(self.out_metas) == 1 else gradients(self.op, grads, self.out_metas)
        found: dict[Any, Any] = {}
        result = []
        for name, index, meta in self.inputs:
            if name not in found:
                found[name] = self._formula(name, g, found)
            part = found[name]
            part = part[index] if index is not None and part is not None else part
            if part is not None and part._meta is not meta:
                part = fit(part, meta)
            result.append(part)
        return result

    def _read(self, name: str) -> Any:
        """What a formula names, but `g`: a saved tensor, a parameter, a meta."""
        saved = self.saved.get(name)
        if saved is not None:
            return _unpack(saved)
        at = _places(self.op).get(name)
        if at is not None:
            return self.plain[at]
        if name == "y_meta":
            return self.out_metas[0] if len(self.out_metas) == 1 else self.out_metas
        assert name == "needs", name
        return frozenset([n for n, _, _ in self.inputs])

    def _formula(self, name: str, g: Any, found: dict[Any, Any]) -> Any:
        formula, reads = self.op.derivatives[name]
        if type(formula) is not GradientPart:
            return formula(*[g if r == "g" else self._read(r) for r in reads])
        if formula.whole not in found:  # the gradients of several inputs, made once
            values = [g if r == "g" else self._read(r) for r in reads]
            found[formula.whole] = formula.whole(*values)
        return found[formula.whole][formula.index]

    @property
    def next_functions(self) -> tuple[tuple[GradientNode | None, int], ...]:
        """One entry per differentiable argument, those that need no gradient included."""
        edges = {(n, i): e for (n, i, _), e in zip(self.inputs, self.next_edges, strict=True)}
        found: list[Any] = []
        for name, kind, plain in zip(self.op.args, self.op.kinds, self.plain, strict=True):
            if name in self.op.derivatives and kind in "tl":
                places: Any = range(len(plain)) if kind == "l" else (None,)
                found.extend(edges.get((name, i)) or (None, 0) for i in places)
        return tuple(found)

    def written_slot(self) -> int | None:
        first = self.op.args[0]
        return next((i for i, (n, _, _) in enumerate(self.inputs) if n == first), None)

    def release(self) -> None:
        """Only what was saved is used up: a node that needs nothing can run again."""
        if self.saved:
            self.saved = {}
            self.released = True


@functools.cache
def _places(op: Op) -> dict[str, int]:
    """Where among the parameters a formula's names are: `input`, `input_meta`, ..."""
    found = {name: i for i, name in enumerate(op.args)}
    return {**{f"{name}_meta": i for name, i in found.items()}, **found}


@functools.cache
def _class_named(name: str) -> type[OpNode]:
    return type(name, (OpNode,), {"__slots__": ()})


def as_shown(node: Any) -> Any:
    """A node as a user sees it: its type carries torch's name.

    Done on the first look, not on recording.
    """
    if type(node) is OpNode:
        node.__class__ = _class_named(node.name())
    return node


@functools.lru_cache(maxsize=4096)
def reads_of(op: Op, names: tuple[str, ...]) -> frozenset[str]:
    """What the formulas of these inputs read: nothing else is kept for backward."""
    return frozenset(r for name in names for r in op.derivatives[name][1])


def _holds_tensor(arg: Any) -> bool:
    if isinstance(arg, TensorBase):
        return True
    return type(arg) is tuple and any(isinstance(t, TensorBase) for t in arg)


def _save(arg: Any, node: GradientNode) -> Any:
    if isinstance(arg, tuple):
        return tuple(SavedTensor(t, node) if hasattr(t, "_meta") else t for t in arg)
    return SavedTensor(arg, node)


def _unpack(saved: Any) -> Any:
    if isinstance(saved, tuple):
        return tuple(x.unpack() if hasattr(x, "unpack") else x for x in saved)
    return saved.unpack() if hasattr(saved, "unpack") else saved


def fit(g: Any, meta: TensorMeta) -> Any:
    """Bring a gradient to the shape and dtype of what it is the gradient of."""
    have: TensorMeta = g._meta
    if have.shape != meta.shape:
        lead = have.ndim - meta.ndim
        if lead > 0 and have.shape[lead:] == meta.shape:  # as a bias was broadcast: rows only
            g = g.sum(tuple(range(lead)))
        else:
            g = g.sum_to_size(meta.shape)
        have = g._meta
    if have.dtype is not meta.dtype:
        if have.dtype.category == dt.COMPLEX and meta.dtype.category != dt.COMPLEX:
            g = g.real
        if g._meta.dtype is not meta.dtype:
            g = g.to(meta.dtype)
    return g


def plus(have: Any, g: Any) -> Any:
    """The sum of two gradients. One of a dense and a sparse tensor starts with the dense one."""
    return g + have if have.is_sparse and not g.is_sparse else have + g


class AccumulateGrad(GradientNode):
    """The end of the line: adds what arrives to a leaf's .grad."""

    __slots__ = ("variable",)
    is_watched = True  # (it makes no numbers)

    def __init__(self, variable: Any) -> None:
        self.start([], (variable._meta,), None)
        self.variable = variable
        self.sequence = 1 << 62  # leaves are served first, so their buffers are free early

    def name(self) -> str:
        return LEAF_SHOWN_AS

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {hex(id(self))}>"

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        g, grads = grads[0], ()  # from here on only `g` holds it, unless somebody else does
        if g is not None:
            accumulate(self.variable, g)
        return []


def accumulate(leaf: Any, g: Any) -> None:
    """Add `g` to `leaf.grad`; the first one is kept as it is unless somebody else may write it."""
    if Meshes.devices:
        g = inherit(g, leaf)
    state = state_of(leaf)
    if not state.post_hooks:
        with ADDING:
            _add(state, leaf._meta, g)
        return
    # A trace holds `ADDING` from its beginning to its end: whoever has this lock may wait for that.
    with contextlib.nullcontext() if is_capturing() else state.post_hooks.lock:
        with ADDING:
            _add(state, leaf._meta, g)
        for hook in list(state.post_hooks.values()):
            call_back(hook, leaf)


def _add(state: AutogradState, meta: TensorMeta, g: Any) -> None:
    if state.grad is None:
        state.grad = _own(g, meta)
    elif requires_grad(g) or requires_grad(state.grad):
        state.grad = state.grad + g
    elif g.is_sparse is not state.grad.is_sparse:  # together they are dense
        if g.is_sparse:
            state.grad.add_(g.to_dense())
        else:
            state.grad = g + state.grad
    else:
        state.grad.add_(g)


def _own(g: Any, meta: TensorMeta) -> Any:
    """A gradient that nothing else aliases, in the leaf's layout (contiguous if the leaf has gaps
    or elements that share memory): how it was computed doesn't show."""
    if requires_grad(g):
        return g.clone()
    if not (meta.contiguous or meta.is_dense):
        meta = meta.like(shape=tuple(meta.shape))
    if _is_ours_alone(g) and g._meta is meta:
        return g
    g = g.detach()
    if g.layout is not lo.strided:
        return g
    return g.clone() if g._meta.strides == meta.strides else _in_layout(g, meta)


_HOLDERS = 5
"""References of a gradient nobody else holds, as `_is_ours_alone` sees them: the variables of
`apply`, `accumulate`, `_add` and `_own`, and its own argument (a test would tell if that changed).
"""


def _is_ours_alone(g: Any) -> bool:
    """Whether neither the tensor nor its memory is reachable from anywhere else."""
    return sys.getrefcount(g) <= _HOLDERS + 2 and owns_memory(g)


def owns_memory(g: Any) -> bool:
    """Whether the memory of a tensor is that tensor's alone."""
    storage = g._storage
    return g._view is None and storage.owner is None and sys.getrefcount(storage) <= HELD_ONCE + 1


def _count_held_once() -> int:
    fresh = object()
    return sys.getrefcount(fresh)


HELD_ONCE = _count_held_once()
"""What `getrefcount` says of an object that only one local variable holds."""


def _in_layout(g: Any, meta: TensorMeta) -> Any:
    made = g.new_empty_strided(meta.shape, meta.strides)
    made.copy_(g)
    return made


def gradient_edge(t: Any) -> Edge:
    """Where the gradient of `t` flows: the node that made it, or its accumulator."""
    state = state_of(t)
    if t._view is not None:
        refresh_view(t)
        state = state_of(t)
    if state.grad_fn is not None:
        return state.grad_fn, state.output_nr
    node = state.accumulator() if state.accumulator is not None else None
    if node is None:
        node = AccumulateGrad(t)
        state.accumulator = weakref.ref(node)
        if state.hooks is not None:
            node.tensor_hooks = {0: state.hooks}
    return node, 0


def refresh_view(t: Any) -> None:
    """If the base was written to since, the view's history is that of the base now: replay it."""
    view = t._view
    if view.version == t._storage.version or not requires_grad(view.base):
        return
    if state_of(view.base).grad_fn is None:
        return
    view.version = t._storage.version
    again = view.replay(view.base)
    set_history(t, state_of(again).grad_fn, state_of(again).output_nr)
