"""The backward pass over records alone, for a graph that nobody has looked at.

Machine code hangs records on results (see `pending`). As long as all of a graph is records and
leaves without hooks, gradients can go from record to record: no nodes, edges or saved-tensor
objects are made, which is most of what a backward pass of small tensors costs. Anything else
(`grad_fn` read, hooks, in-place histories, `create_graph`) is the engine's; `backward` here then
declines before it has done anything. The order of the visits is the engine's, so that sums of
gradients are rounded alike.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from lucerne.base.where import describe
from lucerne.ir.dispatch import state as dispatch_state
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Op, Part
from lucerne.ops.move import filled
from lucerne.tensor.autograd.names import grad_name
from lucerne.tensor.autograd.node import accumulate, anomaly, fit
from lucerne.tensor.autograd.pending import RELEASED, Record
from lucerne.tensor.autograd.saved import stale_message
from lucerne.tensor.autograd.state import AutogradState
from lucerne.tensor.base import TensorBase

OP, ARGS, AUTOS, MASK, VERSIONS, META, BARE, PLACE = range(8)
_GRADIENT, _ARGUMENT, _ARGUMENT_META, _RESULT, _RESULT_META, _CONSTANT = range(6)


def backward(t: Any, keep_graph: bool) -> bool:
    """Gradients of the scalar `t` to all leaves; False if this graph needs the engine."""
    record = t._record
    if record is None or anomaly.enabled:
        return False
    found = _visits(record)
    if found is None:
        return False
    order, uses = found
    grad_before, dispatch_state.grad_enabled = dispatch_state.grad_enabled, False
    try:
        _run(order, uses, _one(t._meta), keep_graph)
    finally:
        dispatch_state.grad_enabled = grad_before
    return True


@functools.lru_cache(maxsize=64)
def _one(meta: TensorMeta) -> Any:
    """The gradient a scalar starts with. Formulas don't write to what arrives: one serves all."""
    return filled(tuple(meta.shape), 1, meta.dtype, meta.device, None)


def _visits(root: Record) -> tuple[list[Record], dict[int, int]] | None:
    """Records from the deepest up, and how often each leaf is used; None: not for this pass."""
    done: set[int] = set()
    order: list[Record] = []
    uses: dict[int, int] = {}
    stack = [root]
    while stack:
        top = stack[-1]
        if id(top) in done:
            stack.pop()
            continue
        if len(top) == 1 or top[VERSIONS] is RELEASED:
            return None
        waiting = False
        for auto in top[AUTOS]:
            if type(auto) is list and id(auto) not in done:
                stack.append(auto)
                waiting = True
        if waiting:
            continue
        for i in _recipe(top[OP], top[MASK])[0]:
            auto = top[AUTOS][i]
            if type(auto) is list:
                continue
            if not _plain_leaf(top[ARGS][i], auto):
                return None
            uses[id(auto)] = uses.get(id(auto), 0) + 1
        done.add(id(top))
        order.append(top)
        stack.pop()
    return order, uses


def _plain_leaf(t: Any, state: Any) -> bool:
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
def _recipe(op: Op, mask: int) -> tuple[list[int], list[Any]]:
    """Which arguments get gradients, and the formulas to call: (formula, reads, targets), where a
    target is an argument and the part of the formula's result that is its gradient, or None."""
    wanted = [i for i, n in enumerate(op.args) if mask >> i & 1 and n in op.derivatives]
    needs = frozenset(op.args[i] for i in wanted)
    steps: dict[Any, Any] = {}
    for i in wanted:
        formula, reads = op.derivatives[op.args[i]]
        several = type(formula) is Part
        call = formula.whole if isinstance(formula, Part) else formula
        key = call if several else (call, i)
        if key not in steps:
            steps[key] = (call, [_reader(op, r, needs) for r in reads], [])
        steps[key][2].append((i, formula.index if isinstance(formula, Part) else None))
    return wanted, list(steps.values())


def _reader(op: Op, name: str, needs: frozenset[str]) -> tuple[int, Any]:
    """How to find what a formula names."""
    if name == "g":
        return _GRADIENT, 0
    if name == "y":
        return _RESULT, 0
    if name in op.args:
        return _ARGUMENT, op.args.index(name)
    if name == "y_meta":
        return _RESULT_META, 0
    if name == "needs":
        return _CONSTANT, needs
    return _ARGUMENT_META, op.args.index(name.removesuffix("_meta"))


def _run(order: list[Record], uses: dict[int, int], g: Any, keep_graph: bool) -> None:
    flow = _Flow(uses)
    flow.arriving[id(order[-1])] = g
    record = order[-1]
    try:
        for record in reversed(order):
            g = flow.arriving.pop(id(record), None)
            for call, reads, targets in _recipe(record[OP], record[MASK])[1]:
                if g is None:
                    parts: Any = dict.fromkeys(part or 0 for _, part in targets)
                else:
                    values = [g if r[0] == _GRADIENT else _read(record, *r) for r in reads]
                    result = call(*values)
                    parts = [result] if targets[0][1] is None else list(result)
                    del result, values  # who holds a gradient decides whether it is copied
                for i, part in targets:
                    flow.deliver(record, i, parts, part or 0)
            if g is not None and not keep_graph:
                _release(record)
    except Exception as error:
        _explain(error, record)
        raise


class _Flow:
    """Gradients under way: to records, and to leaves that are used more than once."""

    def __init__(self, uses: dict[int, int]) -> None:
        self.uses = uses
        self.arriving: dict[int, Any] = {}
        self.waiting: dict[int, Any] = {}

    def deliver(self, record: Record, i: int, parts: Any, part: int) -> None:
        """Take a part out of `parts` and give it to what argument `i` came from."""
        g, parts[part] = parts[part], None
        arg, auto = record[ARGS][i], record[AUTOS][i]
        key = id(auto)
        meta = arg._meta if isinstance(arg, TensorBase) else arg
        if g is not None and g._meta is not meta:
            g = fit(g, meta)
        if type(auto) is list:
            if g is not None:
                have = self.arriving.get(key)
                self.arriving[key] = g if have is None else have + g
            return
        left = self.uses[key] = self.uses[key] - 1
        have = self.waiting.pop(key, None)
        if have is not None:
            g = have if g is None else have + g
            have = None
        if g is None:
            return
        if left:
            self.waiting[key] = g
        elif (
            auto.grad is None
            and g._meta is meta  # a sum may be laid out differently from the leaf
            and _is_free(g._storage, g._view)
            and sys.getrefcount(g) <= _ALONE
        ):
            auto.grad = g
            for hook in list((auto.post_hooks or {}).values()):
                hook(arg)
        else:
            accumulate(arg, g)


def _is_free(storage: Any, view: Any) -> bool:
    """Whether the memory of a tensor is that tensor's alone."""
    return view is None and storage.owner is None and sys.getrefcount(storage) <= _ALONE + 1


def _count_alone() -> int:
    fresh = object()
    return sys.getrefcount(fresh)


_ALONE = _count_alone()
"""What `getrefcount` says of an object that only one local variable holds."""


def _read(record: Record, kind: int, at: Any) -> Any:
    """What a formula names: a tensor saved by the forward pass, a meta, a parameter."""
    if kind == _ARGUMENT:
        arg, version = record[ARGS][at], record[VERSIONS][at]
        if version is None:
            return arg._meta if isinstance(arg, TensorBase) else arg
        return _unwritten(record, arg, version)
    if kind == _ARGUMENT_META:
        arg = record[ARGS][at]
        return arg._meta if isinstance(arg, TensorBase) else arg
    if kind == _RESULT:
        return _unwritten(record, record[BARE], 0)
    return record[META] if kind == _RESULT_META else at


class _Named:
    """Stands for the node of a record in messages."""

    def __init__(self, record: Record) -> None:
        self.place = record[PLACE]
        self._name = grad_name(record[OP], record[ARGS])

    def name(self) -> str:
        return self._name


def _unwritten(record: Record, t: Any, version: int) -> Any:
    if t._storage.version != version:
        raise RuntimeError(stale_message(t, version, _Named(record)))
    return t


def _explain(error: Exception, record: Record) -> None:
    """An error says which line of the forward pass it belongs to."""
    node = _Named(record)
    if node.place is not None:
        error.add_note(f"in the backward pass of {node.name()}, recorded at {describe(node.place)}")


def _release(record: Record) -> None:
    """Forget what was saved; edges stay, and a second pass is refused by the engine."""
    pairs = zip(record[ARGS], record[AUTOS], strict=True)
    record[ARGS] = tuple(
        [a._meta if isinstance(a, TensorBase) and not _is_leaf(auto) else a for a, auto in pairs]
    )
    record[VERSIONS], record[BARE] = RELEASED, None


def _is_leaf(auto: Any) -> bool:
    return type(auto) is AutogradState and auto.grad_fn is None and auto.requires_grad
