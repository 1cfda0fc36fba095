"""Recording: a call hangs a node on its results; an in-place call moves a tensor's history."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd import pending
from lucerne._src.tensor.autograd.names import label_of
from lucerne._src.tensor.autograd.node import Edge, GradientNode, OpNode, gradient_edge
from lucerne._src.tensor.autograd.state import AutogradState, requires_grad, set_history, state_of
from lucerne._src.tensor.base import TensorBase, make_tensor


def needs_grad(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether any tensor argument requires grad."""
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "t":
            if isinstance(a, TensorBase) and a._needs_grad:
                return True
        elif kind == "l" and any(isinstance(x, TensorBase) and requires_grad(x) for x in a):
            return True
    return False


def record(op: Op, args: tuple[Any, ...], result: Any) -> None:
    """Make the results of a call know how they came about."""
    outs = result if isinstance(result, tuple) else (result,)
    if not any(_differentiable(o) for o in outs):
        return
    if not op.derivatives and (op.explicit or op.kind == op_.COMPOSITE):
        return
    zeros = _zero_edges(op, args) if op.zero_for else ()
    if op.derivatives and not zeros and pending.written(op, args, outs):
        return
    node = _node(op, args, outs, zeros)
    if node is None:
        return
    for i, o in enumerate(outs):
        if _differentiable(o):
            o._auto = AutogradState(node, i, requires_grad=True)
    if isinstance(node, OpNode):
        node.save_result(outs)


def _differentiable(o: Any) -> bool:
    return isinstance(o, TensorBase) and o._meta.dtype.category in (dt.FLOAT, dt.COMPLEX)


def _node(
    op: Op, args: tuple[Any, ...], outs: tuple[Any, ...], zeros: Sequence[Edge]
) -> GradientNode | None:
    if not op.derivatives:
        return NotImplementedNode(op, args, outs)
    node = OpNode(op, args, outs)
    if zeros:
        node.zero_edges = zeros
    return node if node.next_edges or zeros else None


def _zero_edges(op: Op, args: tuple[Any, ...]) -> list[Edge]:
    """Where the arguments come from on which an op depends in steps alone."""
    given = zip(op.args, args, strict=True)
    return [gradient_edge(a) for n, a in given if n in op.zero_for and requires_grad(a)]


class NotImplementedNode(GradientNode):
    """Stands where a derivative is missing: says so when a gradient arrives."""

    __slots__ = ("op",)

    def __init__(self, op: Op, args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        tensors = [a for a in args if isinstance(a, TensorBase) and requires_grad(a)]
        super().__init__([gradient_edge(t) for t in tensors], tuple(o._meta for o in outs))
        self.op = op

    def name(self) -> str:
        return "NotImplemented"

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise NotImplementedError(
            f"derivative for {self.op.qualified} is not implemented. Hint: detach() its inputs, or "
            "write a lucerne.autograd.Function with the derivative you need."
        )


# ---- in place ---------------------------------------------------------------------------------


def check_in_place(t: Any) -> None:
    """What torch forbids: writing over a leaf, or over a view that shares it."""
    view = t._view
    if requires_grad(t) and state_of(t).grad_fn is None and view is None:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    if view is None:
        return
    base = view.base
    if requires_grad(base) and state_of(base).grad_fn is None:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    if view.several and (requires_grad(t) or requires_grad(base)):
        raise RuntimeError(
            "Output 0 of a function that returns multiple views is a view and is being modified "
            "inplace. This view is the output of a function that returns multiple views. Such "
            "functions do not allow the output views to be modified inplace. You should replace "
            "the inplace operation by an out-of-place one."
        )
    if view.no_grad and requires_grad(base):
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You "
            "can clarify your code by moving both the view and the inplace either both inside the "
            "no_grad block (if you don't want the inplace to be tracked) or both outside (if you "
            "want the inplace to be tracked)."
        )


def node_for(op: Op, args: tuple[Any, ...], target: Any, original: Any) -> GradientNode | None:
    """The node of an in-place call, made before the write so that it sees the old history."""
    if not op.derivatives:
        if op.explicit:
            return OpNode(op, args, (target,))
        return NotImplementedNode(op, args, (target,))
    return OpNode(op, args, (target,), replaced=None if original is target else original)


def frozen_history(t: Any) -> AutogradState | None:
    if not requires_grad(t):
        return None
    node, index = gradient_edge(t)
    return AutogradState(node, index, requires_grad=True)


def rebase(target: Any, node: GradientNode) -> None:
    """Make `node` the history of `target`, and of its base when it is a view."""
    view = target._view
    if view is None:
        _set_history(target, node)
    else:
        base = view.base
        edge = gradient_edge(base) if requires_grad(base) else None
        slices = CopySlices(base, edge, view, node)
        _set_history(base, slices)
        view.version = -1
        state_of(target).requires_grad = True
        gradient_edge(target)
    if isinstance(node, OpNode):
        node.save_result((target,))


def _set_history(t: Any, node: GradientNode) -> None:
    if not requires_grad(t):
        _tell_views(t)
    set_history(t, node, 0)


def _tell_views(base: Any) -> None:
    """Views made before `base` required grad require it from now on; their history is replayed."""
    for reference in base._storage.views or ():
        view = reference()
        if view is not None and view._view is not None and view._view.base is base:
            state_of(view).requires_grad = True
            # Machine code takes it for unseen from now on: a record would find the history it has
            # when the record is expanded, which may be a later one.
            view._view = view._view


class CopySlices(GradientNode):
    """A write into part of a tensor: its gradient goes through the writer, the rest passes."""

    __slots__ = ("inner", "self_slot", "view")

    def __init__(self, base: Any, edge: Edge | None, view: Any, inner: GradientNode) -> None:
        self.self_slot = inner.written_slot()
        others = [e for i, e in enumerate(inner.next_edges) if i != self.self_slot]
        super().__init__([edge, *others], (base._meta,))
        self.inner = inner
        self.view = view

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        g = _laid_out(grads[0], self.out_metas[0])
        part = self.view.replay(g)
        found = list(self.inner.apply([part.clone()]))
        mine = None if self.self_slot is None else found.pop(self.self_slot)
        return [_overwritten(g, part, mine), *found]

    def release(self) -> None:
        self.inner.release()


def _laid_out(g: Any, meta: Any) -> Any:
    """A copy of a gradient with the strides of the base: the steps of a view read it alike."""
    if g._meta.strides == meta.strides and meta.is_dense:
        return g.clone()
    return g.new_empty_strided(meta.shape, meta.strides).copy_(g)


def _overwritten(g: Any, part: Any, mine: Any) -> Any:
    """`g` with the written part replaced by that part's own gradient."""
    if mine is None:
        part.zero_()
    else:
        part.copy_(mine)
    return g


# ---- composites -------------------------------------------------------------------------------


def detached_from_inputs(result: Any, args: tuple[Any, ...]) -> Any:
    """A body may return its input as it is, or a view of a tensor it made, which has no history;
    the recorded result must be a tensor of its own."""
    if isinstance(result, tuple):
        fresh = tuple(detached_from_inputs(r, args) for r in result)
        return type(result)(*fresh) if hasattr(result, "_fields") else fresh
    if isinstance(result, TensorBase) and (
        any(result is a for a in args)
        or (result._view is not None and not _shares(result._storage, args))
    ):
        made = make_tensor(result._storage, result._offset, result._meta)
        stack = dispatch_state.kernel_level
        return stack[-1].aliased(made, result, False) if stack else made
    return result


def _shares(storage: Any, args: tuple[Any, ...]) -> bool:
    return any(
        _shares(storage, a) if type(a) is tuple else getattr(a, "_storage", None) is storage
        for a in args
    )


@functools.lru_cache(maxsize=4096)
def _keywords(op: Op) -> tuple[int, ...] | None:
    """The places of the parameters that a body takes by name alone; None: there are none."""
    return tuple([i for i, p in enumerate(op.params) if p.keyword_only]) or None


def call_body(op: Op, args: tuple[Any, ...]) -> Any:
    """The body of a composite with every parameter given."""
    keywords = _keywords(op)
    if keywords is None:
        result = op.body(*args)
    else:
        named = {op.args[i]: args[i] for i in keywords}
        result = op.body(*[a for i, a in enumerate(args) if i not in keywords], **named)
    name = label_of(op, args)
    if name is not None:
        for r in result if isinstance(result, tuple) else (result,):
            if isinstance(r, TensorBase) and r._needs_grad and not any(r is a for a in args):
                pending.name_last(r, name)
    return result


def in_opmath(op: Op, args: tuple[Any, ...]) -> Any:
    """Run a body on float32 copies of 16-bit floats, and round its results once.

    Operands of several float types are left to the body: what it is made of promotes them, or
    refuses, as it does in torch. (`opmath="first"`: the first says what the results are.)
    """
    low: list[dt.dtype] = []
    if "dtype" in op.args and args[op.args.index("dtype")] is not None:
        return call_body(op, args)
    if op.needs_opmath is True and _is_mixed(args):
        return call_body(op, args)

    def up(a: Any) -> Any:
        if isinstance(a, TensorBase) and a._meta.dtype.compute is not a._meta.dtype:
            low.append(a._meta.dtype)
            return a.to(a._meta.dtype.compute)  # type: ignore[attr-defined]
        return (
            tuple(up(x) for x in a)
            if isinstance(a, tuple) and a and isinstance(a[0], TensorBase)
            else a
        )

    result = call_body(op, tuple(up(a) for a in args))
    if not low:
        return result
    target = low[0]

    def down(r: Any) -> Any:
        if isinstance(r, tuple):
            parts = [down(x) for x in r]
            return type(r)(*parts) if hasattr(r, "_fields") else tuple(parts)
        if isinstance(r, TensorBase) and r._meta.dtype is target.compute:
            return r.to(target)  # type: ignore[attr-defined]
        return r

    return down(result)


def _is_mixed(args: tuple[Any, ...]) -> bool:
    """Whether there are tensors of several float types."""
    kinds = {
        a._meta.dtype
        for given in args
        for a in (given if isinstance(given, tuple) else (given,))
        if isinstance(a, TensorBase) and a._meta.dtype.category >= dt.FLOAT
    }
    return len(kinds) > 1
