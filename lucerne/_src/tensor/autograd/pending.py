"""Records of calls, turned into nodes when somebody looks at them.

Machine code (and, for what it does not run itself, `written` here) notes what a call was; a
training step in which nobody looks at `grad_fn` never needs the nodes. A record is a list

    [op, arguments, autos, mask, versions, meta of the result, bare result or None, place, number]

with the name of the node to be at its end if that isn't the op's own and, once expanded, a list of
one AutogradState. Arguments that backward does not read are given by their metas alone, so that
their memory is free; `autos` is what the arguments' `_auto` was: a record, a state or None. For an
argument that is a list of tensors each of these is a tuple. `number` counts records and nodes in
the order in which they are made. A call with several results has tuples of metas and bare results,
and each result that can have a gradient holds a part: [record, which of the results].
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.config import config
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.base.process.source_location import user_place
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd.node import (
    Edge,
    GradientNode,
    OpNode,
    anomaly,
    gradient_edge,
    next_in_order,
    reads_of,
)
from lucerne._src.tensor.autograd.saved import SavedOutput, SavedTensor, hooks
from lucerne._src.tensor.autograd.state import AutogradState, ViewState, requires_grad, state_of
from lucerne._src.tensor.base import TensorBase, make_tensor, plain_types
from lucerne._src.tensor.storage import FAST

Record = list[Any]

OP, ARGS, AUTOS, MASK, VERSIONS, META, BARE, PLACE, NUMBER, SHOWN = range(10)
EXPANDED, PART = 1, 2
"""Lengths of lists that are no records: a state, and one of several results."""
RELEASED = ("released",)
"""Stands for the versions of a record whose gradient was taken: nothing is saved any more."""
_MOST_ARGUMENTS = 32


# ---- writing -----------------------------------------------------------------------------------


def written(op: Op, args: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
    """Write the record of a call that Python has run; False if its history takes a node now."""
    if FAST is None or hooks.stack or anomaly.enabled or len(args) > _MOST_ARGUMENTS:
        return False
    if len(outs) == 1 and op_.TENSOR_LIST not in op.kinds:
        return _written_one(op, args, outs[0])
    autos = FAST.autos_of(args)
    if autos is None or any(type(o) not in plain_types for o in outs):
        return False
    mask = 0
    for i, (name, arg, auto) in enumerate(zip(op.args, args, autos, strict=True)):
        if type(arg) is tuple:
            if any(isinstance(x, TensorBase) and type(x) not in plain_types for x in arg):
                return False
            needs = any(a is not None for a in auto)
            if needs and op.kinds[i] != op_.TENSOR_LIST:
                return False
        elif isinstance(arg, TensorBase) and type(arg) not in plain_types:
            return False
        else:
            needs = auto is not None
        if needs and name in op.derivatives:
            mask |= 1 << i
    return not mask or _write(op, args, autos, mask, outs)


def _written_one(op: Op, args: tuple[Any, ...], out: Any) -> bool:
    """`written` for one result and no lists of tensors: the commonest call, in one function."""
    autos = FAST.autos_of(args)
    if autos is None or type(out) not in plain_types:
        return False
    mask = 0
    states: list[Any] = []
    for i, auto in enumerate(autos):
        if type(auto) is tuple:
            if any(a is not None for a in auto):
                return False
            auto = None
        elif auto is not None:
            mask |= 1 << i
        states.append(auto)
    mask, reads, result_is_read = _template(op, mask)
    if not mask:
        return all(type(a) in plain_types or not isinstance(a, TensorBase) for a in args)
    kept: list[Any] = []
    versions: list[Any] = []
    for i, arg in enumerate(args):
        version = None
        if type(arg) in plain_types:
            if reads[i]:
                storage = arg._storage
                storage.saved = True
                version = storage.version
            elif not _is_leaf(states[i]):
                arg = arg._meta
        elif isinstance(arg, TensorBase):
            return False
        kept.append(arg)
        versions.append(version)
    if result_is_read and out._storage.version:
        return False
    bare = _bare(out) if result_is_read else None
    place = user_place() if config.user_lines else None
    meta = out._meta
    if meta.dtype.category in (dt.FLOAT, dt.COMPLEX):
        out._record = [
            op, tuple(kept), tuple(states), mask, tuple(versions), meta, bare, place,
            next_in_order(),
        ]  # fmt: skip
    return True


@functools.lru_cache(maxsize=4096)
def _template(op: Op, given: int) -> tuple[int, tuple[bool, ...], bool]:
    """For the arguments that have a history: those of them with a formula, which arguments the
    formulas read, and whether they read the result."""
    mask = sum(1 << i for i, n in enumerate(op.args) if given >> i & 1 and n in op.derivatives)
    reads = _read_by(op, mask)
    return mask, tuple([n in reads for n in op.args]), _is_result_read(reads, 0, 1)


def _write(
    op: Op, args: tuple[Any, ...], autos: tuple[Any, ...], mask: int, outs: tuple[Any, ...]
) -> bool:
    reads = _read_by(op, mask)
    saved = [_is_result_read(reads, i, len(outs)) for i in range(len(outs))]
    if any(read and o._storage.version for read, o in zip(saved, outs, strict=True)):
        return False
    kept, states, versions = [], [], []
    for kind, name, arg, auto in zip(op.kinds, op.args, args, autos, strict=True):
        if kind == op_.TENSOR_LIST:
            both = [_kept(name in reads, x, a) for x, a in zip(arg, auto, strict=True)]
            thing: Any = tuple([k for k, _ in both])
            version: Any = tuple([v for _, v in both]) if name in reads and both else None
        else:
            thing, version = _kept(name in reads, arg, auto)
            auto = None if type(auto) is tuple else auto
        kept.append(thing)
        states.append(auto)
        versions.append(version)
    metas: Any = tuple([o._meta for o in outs])
    bare: Any = None
    if any(saved):
        pairs = zip(saved, outs, strict=True)
        bare = tuple([_bare(o) if read else None for read, o in pairs])
    one = len(outs) == 1
    if one:
        metas, bare = metas[0], None if bare is None else bare[0]
    place = user_place() if config.user_lines else None
    record = [
        op, tuple(kept), tuple(states), mask, tuple(versions), metas, bare, place, next_in_order(),
    ]  # fmt: skip
    for i, o in enumerate(outs):
        if o._meta.dtype.category in (dt.FLOAT, dt.COMPLEX):
            o._record = record if one else [record, i]
    return True


@functools.lru_cache(maxsize=4096)
def _read_by(op: Op, mask: int) -> frozenset[str]:
    return reads_of(op, tuple([n for i, n in enumerate(op.args) if mask >> i & 1]))


def _is_result_read(reads: frozenset[str], i: int, count: int) -> bool:
    return "y" in reads or (count > 1 and i < len(op_.RESULTS) and op_.RESULTS[i] in reads)


def _kept(read: bool, arg: Any, auto: Any) -> tuple[Any, Any]:
    """What a record keeps of an argument, and its version if backward reads it."""
    if type(arg) not in plain_types:
        return arg, None
    if read:
        storage = arg._storage
        storage.saved = True
        return arg, storage.version
    return (arg if _is_leaf(auto) else arg._meta), None


def _is_leaf(auto: Any) -> bool:
    return isinstance(auto, AutogradState) and auto.grad_fn is None


def _bare(o: Any) -> Any:
    """A result without its history, which would be a cycle."""
    o._storage.saved = True
    return make_tensor(o._storage, o._offset, o._meta)


def name_last(t: Any, name: str) -> None:
    """Have the node that made `t` shown by this name."""
    record = t._record
    if record is None:
        node = t._auto and t._auto.grad_fn
        if node is not None:
            node.__dict__["shown"] = name
        return
    whole = record[0] if len(record) == PART else record
    if len(whole) == EXPANDED:
        whole[0].grad_fn.__dict__["shown"] = name
    else:
        whole[SHOWN:] = [name]


# ---- becoming nodes ----------------------------------------------------------------------------


def records_in(autos: Any) -> Iterator[Record]:
    """The records that lists of autos name, parts by their whole."""
    for auto in autos:
        if type(auto) is list:
            yield auto[0] if len(auto) == PART else auto
        elif type(auto) is tuple:
            yield from records_in(auto)


def expand_auto(t: Any, record: Record) -> None:
    """Make the nodes that lead to `t`, deepest first and without recursion."""
    whole = record[0] if len(record) == PART else record
    stack = [whole]
    while stack:
        top = stack[-1]
        if len(top) == EXPANDED:
            stack.pop()
            continue
        missing = [a for a in records_in(top[AUTOS]) if len(a) != EXPANDED]
        if missing:
            stack.extend(missing)
        else:
            top[:] = [_expanded(*top)]
            if Watch.current is not None:  # who saw the call knows it by its record
                top[0].grad_fn.__dict__["of_record"] = id(top)
            stack.pop()
    t._auto = state_in(record)


def state_in(record: Record) -> AutogradState:
    """The state of a result whose record was expanded."""
    if len(record) == PART:
        whole, number = record
        record[:] = [AutogradState(whole[0].grad_fn, number, requires_grad=True)]
    state: AutogradState = record[0]
    return state


def _expanded(
    op: Any, args: tuple[Any, ...], autos: tuple[Any, ...], mask: int, versions: tuple[Any, ...],
    meta: Any, bare: Any, place: Any, number: int, shown: str | None = None,
) -> AutogradState:  # fmt: skip
    node = OpNode.__new__(OpNode)
    node.op, used = op, versions is RELEASED
    metas = [_meta_of(a) for a in args]
    node.plain = metas
    node.inputs = []
    edges: list[Edge | None] = []
    for i, (name, kept) in enumerate(zip(op.args, metas, strict=True)):
        if not mask >> i & 1 or name not in op.derivatives:
            continue
        if type(autos[i]) is tuple:
            wanted = [j for j, auto in enumerate(autos[i]) if auto is not None]
            node.inputs += [(name, j, kept[j]) for j in wanted]
            edges += [edge_of(args[i][j], autos[i][j]) for j in wanted]
        else:
            node.inputs.append((name, None, kept))
            edges.append(edge_of(args[i], autos[i]))
    GradientNode.start(node, edges, meta if type(meta) is tuple else (meta,), place)
    node.sequence = number
    if shown is not None:
        node.__dict__["shown"] = shown
    node.reads = reads_of(op, tuple([name for name, _, _ in node.inputs]))
    several = type(meta) is tuple
    results = [n for n in op_.RESULTS if n in node.reads] if several else []
    saves = (
        bool(results)
        or "y" in node.reads
        or any(n in node.reads and _holds_meta(k) for n, k in zip(op.args, metas, strict=True))
    )
    node.released = used and saves
    node.saved = {}
    for name, arg, version in zip(op.args, args, () if used else versions):  # noqa: B905
        if name in node.reads and version is not None:
            node.saved[name] = _saved(arg, version, node)
    if "y" in node.reads and not used:
        node.saved["y"] = _saved_results(bare, node)
    for name in () if used else results:
        i = op_.RESULTS.index(name)
        node.saved[name] = SavedOutput.at_start(bare[i], node, i)
    return AutogradState(node, 0, requires_grad=True)


def _meta_of(arg: Any) -> Any:
    if isinstance(arg, TensorBase):
        return arg._meta
    if type(arg) is tuple:
        return tuple([x._meta if isinstance(x, TensorBase) else x for x in arg])
    return arg


def _holds_meta(kept: Any) -> bool:
    if type(kept) is tuple:
        return any(isinstance(x, TensorMeta) for x in kept)
    return isinstance(kept, TensorMeta)


def _saved(arg: Any, version: Any, node: GradientNode) -> Any:
    if type(arg) is not tuple:
        return SavedTensor.at_version(arg, node, version)
    pairs = zip(arg, version, strict=True)
    return tuple([x if v is None else SavedTensor.at_version(x, node, v) for x, v in pairs])


def _saved_results(bare: Any, node: GradientNode) -> Any:
    if type(bare) is not tuple:
        return SavedOutput.at_start(bare, node)
    return tuple([SavedOutput.at_start(b, node, i) for i, b in enumerate(bare)])


def edge_of(arg: Any, auto: Any) -> Edge:
    """Where the gradient of an argument flows: to the node it had when it was used."""
    if type(auto) is list:
        auto = state_in(auto)
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
    several = steps[-1][2] is not None or (parent is not None and parent.several)
    t._view = ViewState(base, steps, version, several=several, no_grad=no_grad)
