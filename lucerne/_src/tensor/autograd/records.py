"""The backward pass over records, for a graph that nobody has looked at.

Records hang on the results of calls (see `pending`). Where a graph is records and leaves without
hooks, gradients can go from record to record: no nodes, edges or saved-tensor objects are made,
which is most of what a backward pass of small tensors costs. Where the records end (`grad_fn` was
read, hooks, in-place histories, a Function) the engine goes on with the gradients that arrived
there: a node never leads to a record (making it expands what it leads to). Records are visited in
the engine's order, the last made first, so that sums of gradients are rounded alike; where a node
made after a record adds to the same sum, the engine does all.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from lucerne._src.base.process.profiler_hook import BACKWARD, FUNCTION, LEAF, Watch, watched
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import RESULTS, GradientPart, Op
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.copy.place import Meshes
from lucerne._src.tensor.autograd.engine import SHOWN_AS, note_place, reachable, run_backward
from lucerne._src.tensor.autograd.names import grad_name
from lucerne._src.tensor.autograd.node import (
    HELD_ONCE,
    LEAF_SHOWN_AS,
    AccumulateGrad,
    Edge,
    accumulate,
    anomaly,
    fit,
    gradients,
    owns_memory,
    plus,
)
from lucerne._src.tensor.autograd.pending import (
    ARGS,
    AUTOS,
    BARE,
    EXPANDED,
    MASK,
    META,
    NUMBER,
    OP,
    PART,
    PLACE,
    RELEASED,
    SHOWN,
    VERSIONS,
    Record,
    edge_of,
    records_in,
)
from lucerne._src.tensor.autograd.saved import stale_message
from lucerne._src.tensor.autograd.state import ADDING, AutogradState
from lucerne._src.tensor.base import TensorBase

_GRADIENT, _ARGUMENT, _ARGUMENT_META, _RESULT, _ONE_RESULT, _RESULT_META, _CONSTANT = range(7)


def backward(t: Any, keep_graph: bool) -> bool:
    """Gradients of the scalar `t` to all leaves; False if this graph needs the engine."""
    root = t._record
    if root is None or anomaly.enabled:
        return False
    flow = plan(root)
    if flow is None:
        return False
    grad_before, dispatch_state.grad_enabled = dispatch_state.grad_enabled, False
    try:
        # While a function is captured, tensors don't outlive it: none may be kept for all.
        start = one.__wrapped__ if dispatch_state.kernel_level else one
        if Watch.current is None:
            flow.arrive(root, start(t._meta))
            _run(flow, keep_graph, flow.order)
        else:
            flow.arrive(root, watched("aten::ones_like", FUNCTION, partial(start, t._meta)))
            _run_watched(flow, keep_graph)
    finally:
        dispatch_state.grad_enabled = grad_before
        dispatch_state.backward_of = None
    if flow.ends:
        run_backward(list(flow.ends.items()), keep_graph=keep_graph, create_graph=False)
    return True


@functools.lru_cache(maxsize=64)
def one(meta: TensorMeta) -> Any:
    """The gradient a scalar starts with. Formulas don't write to what arrives: one serves all."""
    return filled(tuple(meta.shape), 1, meta.dtype, meta.device, None)


# ---- before anything is computed ---------------------------------------------------------------


def plan(root: Record) -> Flow | None:
    """The records to visit, from the deepest up, and where they end; None: not for this pass."""
    if len(root[0] if len(root) == PART else root) == EXPANDED:
        return None
    order = walk([root], nodes=True)
    if order is None:
        return None
    flow = Flow(order)
    for record in order:
        args, autos = record[ARGS], record[AUTOS]
        for i in recipe(record[OP], record[MASK])[0]:
            if type(autos[i]) is tuple:
                for a, one in zip(args[i], autos[i], strict=True):
                    if one is not None:
                        flow.expect(a, one)
            else:
                flow.expect(args[i], autos[i])
    return None if flow.edges and flow.is_mixed() else flow


def walk(roots: Sequence[Record], nodes: bool = False, used: bool = False) -> list[Record] | None:
    """The records that lead to `roots`, in the order in which they were made: torch's, and that of
    compiled calls. None if one was used up, or has become a node, unless `used` or `nodes` allow
    it: the walk ends at a node."""
    done: set[int] = set()
    order: list[Record] = []
    stack = [*records_in(roots)]
    while stack:
        top = stack.pop()
        if id(top) in done:
            continue
        done.add(id(top))
        if len(top) == EXPANDED:
            if not nodes:
                return None
            continue
        if top[VERSIONS] is RELEASED and not used:
            return None
        order.append(top)
        for auto in top[AUTOS]:
            if type(auto) is list:
                stack.append(auto[0] if len(auto) == PART else auto)
            elif type(auto) is tuple:
                stack.extend(records_in(auto))
    order.sort(key=_number)
    return order


def is_plain_leaf(t: Any, state: Any) -> bool:
    """Whether nothing happens at a leaf but adding to its gradient."""
    node = state.accumulator() if state.accumulator is not None else None
    return (
        state.grad_fn is None
        and state.hooks is None
        and (node is None or not (node.pre_hooks or node.post_hooks or node.tensor_hooks))
        and isinstance(t, TensorBase)
        and t._view is None
        and t._auto is state
    )


@functools.lru_cache(maxsize=4096)
def recipe(op: Op, mask: int) -> tuple[list[int], list[Any]]:
    """Which arguments get gradients, and the formulas to call: (formula, reads, targets), where a
    target is an argument and the part of the formula's result that is its gradient, or None."""
    wanted = [i for i, n in enumerate(op.args) if mask >> i & 1 and n in op.derivatives]
    needs = frozenset(op.args[i] for i in wanted)
    steps: dict[Any, Any] = {}
    for i in wanted:
        formula, reads = op.derivatives[op.args[i]]
        several = type(formula) is GradientPart
        call = formula.whole if isinstance(formula, GradientPart) else formula
        key = call if several else (call, i)
        if key not in steps:
            steps[key] = (call, [_reader(op, r, needs) for r in reads], [])
        steps[key][2].append((i, formula.index if isinstance(formula, GradientPart) else None))
    return wanted, list(steps.values())


def _reader(op: Op, name: str, needs: frozenset[str]) -> tuple[int, Any]:
    """How to find what a formula names."""
    if name == "g":
        return _GRADIENT, 0
    if name == "y":
        return _RESULT, 0
    if name in op.args:
        return _ARGUMENT, op.args.index(name)
    if name in RESULTS:
        return _ONE_RESULT, RESULTS.index(name)
    if name == "y_meta":
        return _RESULT_META, 0
    if name == "needs":
        return _CONSTANT, needs
    return _ARGUMENT_META, op.args.index(name.removesuffix("_meta"))


# ---- the pass ----------------------------------------------------------------------------------


def _run_watched(flow: Flow, keep_graph: bool) -> None:
    """`_run`, record by record, each shown as a node of the engine's."""
    for record in reversed(flow.order):
        node = NamedRecord(record)
        run = partial(_run, flow, keep_graph, [record])
        own = partial(watched, node.name(), BACKWARD, run, node)
        watched(SHOWN_AS + node.name(), BACKWARD, own, node)


def _run(flow: Flow, keep_graph: bool, order: list[Record]) -> None:
    record = order[-1]
    seen = bool(dispatch_state.kernel_level)
    try:
        for record in reversed(order):
            g = flow.arriving.pop(id(record), None)
            wanted, steps = recipe(record[OP], record[MASK])
            if g is None:
                for i in wanted:
                    flow.deliver(record, i, [None], 0)
                continue
            if type(g) is list:
                g = gradients(record[OP], g, record[META])
            if seen:
                dispatch_state.backward_of = record[PLACE]
            if len(wanted) == 1 and Watch.current is None:  # the commonest case
                flow.deliver(
                    record, wanted[0], parts_of(record, g, *steps[0]), steps[0][2][0][1] or 0
                )
                if not keep_graph:
                    release(record)
                continue
            # Gradients are given in the order of the arguments, when all are there.
            made = [(step, parts_of(record, g, *step)) for step in steps]
            places = [(i, parts, part or 0) for step, parts in made for i, part in step[2]]
            if len(places) > 2:
                places.sort(key=_first)
            if Watch.current is not None:
                _fit_all(record, places)
            for i, parts, part in places:
                flow.deliver(record, i, parts, part)
            if not keep_graph:
                release(record)
    except Exception as error:
        note_place(error, NamedRecord(record))
        raise


def _fit_all(record: Record, places: list[tuple[int, Any, int]]) -> None:
    """Bring gradients to the shapes of what they belong to before the first is given away, so that
    it shows inside the node; else each is when its turn comes."""
    for i, parts, part in places:
        arg, g = record[ARGS][i], parts[part]
        if g is not None and type(record[AUTOS][i]) is not tuple:
            meta = arg._meta if isinstance(arg, TensorBase) else arg
            if g._meta is not meta:
                parts[part] = fit(g, meta)


def parts_of(record: Record, g: Any, call: Any, reads: Any, targets: Any) -> list[Any]:
    """What one formula gives, in a list that alone holds it: whoever takes a gradient out decides
    by its holders whether it must be copied."""
    values = [g if kind == _GRADIENT else _read(record, kind, at) for kind, at in reads]
    return [call(*values)] if targets[0][1] is None else list(call(*values))


_first, _number = operator.itemgetter(0), operator.itemgetter(NUMBER)


class Flow:
    """Gradients under way: to records, to leaves that are used more than once, to nodes."""

    def __init__(self, order: list[Record]) -> None:
        self.order = order
        self.uses: dict[int, int] = {}
        """How often each plain leaf is still to be reached, by the id of its state."""
        self.leaves: dict[int, Any] = {}
        self.edges: dict[int, Edge] = {}
        """Where the engine takes over, by the id of what the record holds."""
        self.ends: dict[Edge, Any] = {}
        self.arriving: dict[int, Any] = {}
        self.waiting: dict[int, Any] = {}

    def expect(self, arg: Any, auto: Any) -> None:
        """A gradient will go to what `arg` came from."""
        key = id(auto)
        if type(auto) is list:
            whole = auto[0] if len(auto) == PART else auto
            if len(whole) != EXPANDED:
                return
        elif key in self.uses:
            self.uses[key] += 1
            return
        elif is_plain_leaf(arg, auto):
            self.uses[key] = 1
            self.leaves[key] = arg
            return
        if key not in self.edges:
            edge = self.edges[key] = edge_of(arg, auto)
            self.ends[edge] = None

    def is_mixed(self) -> bool:
        """Whether records and nodes add to the same gradients and a node was made after a record:
        only the engine goes back in one order through both. Leaves that nodes reach as well get
        their whole gradient from the engine."""
        nodes = reachable([node for node, _ in self.ends])
        for key, leaf in self.leaves.items():
            accumulator = leaf._auto.accumulator
            if accumulator is not None and accumulator() in nodes:
                edge = self.edges[key] = edge_of(leaf, leaf._auto)
                self.ends[edge] = None
        made = [node.sequence for node in nodes if not isinstance(node, AccumulateGrad)]
        if not made or self.order[0][NUMBER] > max(made):
            return False
        return any(edge in self.ends for node in nodes for edge in node.next_edges)

    def arrive(self, auto: Record, g: Any) -> None:
        """Add to what arrives at a record, or at one of the results of its call."""
        if len(auto) == PART:
            whole, number = auto
            slots = self.arriving.get(id(whole))
            if slots is None:
                slots = self.arriving[id(whole)] = [None] * len(whole[META])
            slots[number] = g if slots[number] is None else plus(slots[number], g)
        else:
            have = self.arriving.get(id(auto))
            self.arriving[id(auto)] = g if have is None else plus(have, g)

    def deliver(self, record: Record, i: int, parts: Any, part: int) -> None:
        """`give` for argument `i`, which may be a list of tensors."""
        arg, auto = record[ARGS][i], record[AUTOS][i]
        if type(auto) is not tuple:
            self.give(arg, auto, parts, part)
            return
        found = [None] * len(auto) if parts[part] is None else list(parts[part])
        parts[part] = None
        for j, one in enumerate(auto):
            if one is not None:
                self.give(arg[j], one, found, j)

    def give(self, arg: Any, auto: Any, parts: Any, part: int) -> None:
        """Take a part out of `parts` and give it to what `arg` came from."""
        g, parts[part] = parts[part], None
        key = id(auto)
        meta = arg._meta if isinstance(arg, TensorBase) else arg
        if g is not None and g._meta is not meta:
            g = fit(g, meta)
        if self.edges and key in self.edges:
            if g is not None:
                edge = self.edges[key]
                have = self.ends.pop(edge)  # the last to arrive is the last: hooks run in order
                self.ends[edge] = g if have is None else plus(have, g)
        elif type(auto) is list:
            if g is not None:
                self.arrive(auto, g)
        else:
            left = self.uses[key] = self.uses[key] - 1
            have = self.waiting.pop(key, None)
            if have is not None:
                g = have if g is None else plus(have, g)
                have = None
            if g is None:
                return
            if left:
                self.waiting[key] = g
                return
            watcher = Watch.current
            span = None if watcher is None else watcher.begin(LEAF_SHOWN_AS, LEAF, arg)
            if (
                auto.grad is None
                and not auto.post_hooks
                and not Meshes.devices
                and g._meta is meta  # a sum may be laid out differently from the leaf
                and owns_memory(g)
                and sys.getrefcount(g) <= HELD_ONCE
                and (meta.contiguous or meta.is_dense)
            ):
                with ADDING:
                    kept = auto.grad is None  # still: another thread may have been faster
                    if kept:
                        auto.grad = g
            else:
                kept = False
            if not kept:
                accumulate(arg, g)
            if watcher is not None and span is not None:
                watcher.end(span)


def _read(record: Record, kind: int, at: Any) -> Any:
    """What a formula names: a tensor saved by the forward pass, a meta, a parameter."""
    if kind == _ARGUMENT:
        arg, version = record[ARGS][at], record[VERSIONS][at]
        if version is None:
            return _meta_of(arg)
        if type(version) is tuple:
            pairs = zip(arg, version, strict=True)
            return tuple([x if v is None else _unwritten(record, x, v) for x, v in pairs])
        return _unwritten(record, arg, version)
    if kind == _ARGUMENT_META:
        return _meta_of(record[ARGS][at])
    if kind == _RESULT:
        bare = record[BARE]
        if type(bare) is tuple:
            return tuple([_unwritten(record, b, 0) for b in bare])
        return _unwritten(record, bare, 0)
    if kind == _ONE_RESULT:
        return _unwritten(record, record[BARE][at], 0)
    return record[META] if kind == _RESULT_META else at


def _meta_of(arg: Any) -> Any:
    if isinstance(arg, TensorBase):
        return arg._meta
    if type(arg) is tuple and any(isinstance(x, TensorBase) for x in arg):
        return tuple([x._meta if isinstance(x, TensorBase) else x for x in arg])
    return arg


class NamedRecord:
    """Stands for the node of a record in messages."""

    def __init__(self, record: Record) -> None:
        self.place, self.of_record = record[PLACE], id(record)
        self._name = record[SHOWN] if len(record) > SHOWN else _shown_name(record)

    def name(self) -> str:
        return self._name


def _shown_name(record: Record) -> str:
    return grad_name(record[OP], [_meta_of(a) for a in record[ARGS]])


def _unwritten(record: Record, t: Any, version: int) -> Any:
    if t._storage.version != version:
        raise RuntimeError(stale_message(t, version, NamedRecord(record)))
    return t


def release(record: Record) -> None:
    """Forget what was saved; edges stay, and a second pass is refused by the engine."""
    versions, autos = record[VERSIONS], record[AUTOS]
    record[VERSIONS], record[BARE] = RELEASED, None
    saved = [i for i, v in enumerate(versions) if v is not None and not _is_leaf(autos[i])]
    if saved:
        left = list(record[ARGS])
        for i in saved:
            left[i] = _left(left[i], autos[i])
        record[ARGS] = tuple(left)


def _left(arg: Any, auto: Any) -> Any:
    """What stays of an argument: a leaf itself, of others the meta."""
    if type(arg) is tuple:
        autos = auto if type(auto) is tuple else (None,) * len(arg)
        return tuple([_left(a, one) for a, one in zip(arg, autos, strict=True)])
    return arg._meta if isinstance(arg, TensorBase) and not _is_leaf(auto) else arg


def _is_leaf(auto: Any) -> bool:
    return isinstance(auto, AutogradState) and auto.grad_fn is None and auto.requires_grad
