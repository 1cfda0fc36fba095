"""Records that machine code hangs on results, turned into nodes when somebody looks at them.

The fast path writes down what a call was; a training step in which nobody looks at `grad_fn` needs
the nodes only when `backward` arrives. A record is a list

    [op, arguments, autos, mask, versions, meta of the result, bare result or None, place]

and, once expanded, a list of one AutogradState. Arguments that backward does not read are given by
their metas alone, so that their memory is free; `autos` is what the arguments' `_auto` was.
"""

from __future__ import annotations

from typing import Any

from lucerne.ir.meta import TensorMeta
from lucerne.tensor.autograd.node import Edge, Node, OpNode, gradient_edge, reads_of
from lucerne.tensor.autograd.saved import SavedOutput, SavedTensor
from lucerne.tensor.autograd.state import AutogradState, ViewState, requires_grad, state_of
from lucerne.tensor.base import TensorBase

Record = list[Any]

RELEASED = ("released",)
"""Stands for the versions of a record whose gradient was taken: nothing is saved any more."""


def expand_auto(t: Any, record: Record) -> None:
    """Make the nodes that lead to `t`, deepest first and without recursion."""
    stack = [record]
    while stack:
        top = stack[-1]
        if len(top) == 1:
            stack.pop()
            continue
        missing = [a for a in top[2] if type(a) is list and len(a) != 1]
        if missing:
            stack.extend(missing)
        else:
            top[:] = [_expanded(*top)]
            stack.pop()
    t._auto = record[0]


def _expanded(
    op: Any, args: tuple[Any, ...], autos: tuple[Any, ...], mask: int, versions: tuple[Any, ...],
    meta: TensorMeta, bare: Any, place: Any,
) -> AutogradState:  # fmt: skip
    node = OpNode.__new__(OpNode)
    node.op, used = op, versions is RELEASED
    metas = [a._meta if isinstance(a, TensorBase) else a for a in args]
    node.plain = metas
    node.inputs = []
    edges: list[Edge | None] = []
    for i, (name, kept) in enumerate(zip(op.args, metas, strict=True)):
        if mask >> i & 1 and name in op.derivatives:
            node.inputs.append((name, None, kept))
            edges.append(_edge(args[i], autos[i]))
    Node.start(node, edges, (meta,), place)
    node.reads = reads_of(op, tuple([name for name, _, _ in node.inputs]))
    saves = "y" in node.reads or any(
        name in node.reads and isinstance(kept, TensorMeta)
        for name, kept in zip(op.args, metas, strict=True)
    )
    node.released = used and saves
    node.saved = {}
    for name, arg, version in zip(op.args, args, () if used else versions):  # noqa: B905
        if name in node.reads and version is not None:
            node.saved[name] = SavedTensor.at_version(arg, node, version)
    if "y" in node.reads and not used:
        node.saved["y"] = SavedOutput.at_start(bare, node)
    return AutogradState(node, 0, requires_grad=True)


def _edge(arg: Any, auto: Any) -> Edge:
    """Where the gradient of an argument flows: to the node it had when it was used."""
    if type(auto) is list:
        auto = auto[0]
    if auto.grad_fn is not None:
        return auto.grad_fn, auto.output_nr
    return gradient_edge(arg)


def adopt(view: Any) -> None:
    """A view made when its base needed no gradient: its memory was written to since, and if that
    made the base part of a graph, the view is part of it too (its history is replayed)."""
    base = view._view.base
    if requires_grad(base) and state_of(base).grad_fn is not None:
        view._auto = AutogradState(requires_grad=True)


def expand_view(t: Any, record: tuple[Any, tuple[Any, ...], int, bool]) -> None:
    """Make the view state of a view that machine code made."""
    source, steps, version, no_grad = record
    parent = source._view
    base = source if parent is None else parent.base
    steps = steps if parent is None else (*parent.steps, *steps)
    several = parent is not None and parent.several
    t._view = ViewState(base, steps, version, several=several, no_grad=no_grad)
