"""The body of a composite, recorded once for each kind of arguments.

A model's blocks call the same composites with tensors of the same kinds. What such a body records
follows from the metas of its tensors and from its other arguments (`op.fuse` says so: eager makes
one kernel of it by that very key), so the second time its nodes are written down without running
it. Bodies that do anything else, or give back a view, run each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucerne._src.base import defaults
from lucerne._src.base.exact import ITSELF, exact
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.dispatch import state
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import plain_types
from lucerne._src.tensor.subclasses import torch_function

_STATICS = ITSELF | {bool, float}


class _Given(NamedTuple):
    """An argument of the composite, by number."""

    at: int


class _Made(NamedTuple):
    """A result of a node of the body, by the number of the node and its own."""

    node: int
    at: int


class _Call(NamedTuple):
    op: Op
    args: tuple[Any, ...]
    metas: list[TensorMeta]


class RecordedBody(NamedTuple):
    """What a body records, and which of it are its results (`kind`: in what they come)."""

    calls: list[_Call]
    results: list[_Made]
    kind: type | None


class BodyRecords:
    """The bodies that a recorder has met."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self._known: dict[Any, RecordedBody | None] = {}
        """By key; None: one that has to run each time."""

    def run(self, op: Op, args: tuple[Any, ...], body_of: Callable[..., Any]) -> Any:
        """The result of a body that records nothing for autograd."""
        key = self._key(op, args)
        if key is None:
            return body_of(op, args)
        if key not in self._known:
            return self._learned(key, op, args, body_of)
        known = self._known[key]
        return body_of(op, args) if known is None else self._written(known, args)

    def _key(self, op: Op, args: tuple[Any, ...]) -> Any:
        """All that a body depends on; None: it may be more."""
        if not op.fuse or Guarding.count or state.inference or state.cast is not None:
            return None
        alone = len(state.kernel_level) == 1 and not state.call_level
        if not alone or torch_function.dispatching or self.recorder.keeps_draws:
            return None
        key: list[Any] = [op, defaults.get_default_dtype()]
        memories = set()
        for a in args:
            if type(a) in plain_types:
                if a._meta.flipped or id(a._storage.buffer) in memories:
                    return None  # (two tensors over one memory: the body could tell)
                memories.add(id(a._storage.buffer))
                key.append(a._meta)
            elif _is_static(a):
                key.append(exact(a))
            else:
                return None
        return tuple(key)

    def _learned(self, key: Any, op: Op, args: tuple[Any, ...], body_of: Any) -> Any:
        recorder = self.recorder
        inputs, nodes = recorder.mark()
        before = recorder.marks()
        result = body_of(op, args)
        given = {recorder.known(a): k for k, a in enumerate(args) if type(a) in plain_types}
        graph = recorder.graph
        own = all(v in given for v in graph.inputs[inputs:])
        quiet = recorder.marks() == before
        found = _body(graph.nodes[nodes:], given) if own and quiet else None
        self._known[key] = None if found is None else self._ended(found, graph, nodes, args, result)
        return result

    def _ended(
        self, calls: list[_Call], graph: Graph, nodes: int, args: tuple[Any, ...], result: Any
    ) -> RecordedBody | None:
        """The body with its results, if each of them is a tensor of its own."""
        made = {
            v: _Made(k, i)
            for k, node in enumerate(graph.nodes[nodes:])
            if node.op.kind != op_.VIEW
            for i, v in enumerate(node.outputs)
        }
        outs = result if isinstance(result, tuple) else (result,)
        if not outs or len(set(map(id, outs))) != len(outs):
            return None
        results = []
        for o in outs:
            if type(o) not in plain_types or any(o is a for a in args):
                return None
            at = made.get(self.recorder.known(o))
            if at is None or o._auto is not None or o._view is not None or o._offset:
                return None
            results.append(at)
        return RecordedBody(calls, results, type(result) if isinstance(result, tuple) else None)

    def _written(self, body: RecordedBody, args: tuple[Any, ...]) -> Any:
        """The same nodes again, for these arguments."""
        recorder = self.recorder
        made: list[tuple[Value, ...]] = []

        def value(x: Any) -> Any:
            kind = type(x)
            if kind is _Given:
                return recorder.value(args[x.at])
            if kind is _Made:
                return made[x.node][x.at]
            return tuple(map(value, x)) if kind is tuple else x

        for call in body.calls:
            made.append(recorder.node(call.op, tuple(map(value, call.args)), call.metas))
        outs = []
        for at in body.results:
            v = made[at.node][at.at]
            outs.append(fake_tensor(v.meta))
            recorder.know_made(outs[-1], v)
        if body.kind is None:
            return outs[0]
        return body.kind(*outs) if hasattr(body.kind, "_fields") else tuple(outs)


def _is_static(a: Any) -> bool:
    if type(a) is tuple:
        return all(type(x) in _STATICS for x in a)
    return type(a) in _STATICS


def _body(nodes: list[Node], given: dict[Any, int]) -> list[_Call] | None:
    """Nodes with their operands by number; None: they hold something that is not the body's own."""
    made: dict[Value, Any] = {}
    calls = []
    for k, node in enumerate(nodes):
        if not node.outputs or node.op.kind == op_.RANDOM or node.op.data_dependent:
            return None
        plain = not may_raise(node) and not any(type(a) is Graph for a in node.args)
        if not plain or any(v not in made and v not in given for v in operands(node.args)):
            return None

        def numbered(x: Any) -> Any:
            if type(x) is Value:
                return made[x] if x in made else _Given(given[x])
            return tuple(map(numbered, x)) if type(x) is tuple else x

        args = tuple(map(numbered, node.args))
        calls.append(_Call(node.op, args, [v.meta for v in node.outputs]))
        made.update((v, _Made(k, i)) for i, v in enumerate(node.outputs))
    return calls
