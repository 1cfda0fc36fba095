"""The backward pass: nodes in reverse order of creation, each when all its gradients are there."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.process.error_notes import backward_failed
from lucerne._src.base.process.profiler_hook import BACKWARD, Watch
from lucerne._src.base.process.source_location import describe
from lucerne._src.ir.dispatch import call_back
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.ops.checks import zeros_of
from lucerne._src.tensor.autograd.node import AccumulateGrad, Edge, GradientNode, anomaly, plus
from lucerne._src.tensor.autograd.ranges import WithRange

Link = Callable[[GradientNode, Sequence[Any], Sequence[Any]], Sequence[Any]]
"""(node, what it gives, what it was given) -> what it gives: whoever records a pass makes sure here
that the one can be seen to come of the other."""

SHOWN_AS = "autograd::engine::evaluate_function: "
"""How profiles call the handling of a node; what the node itself does is inside."""


class _Run:
    """One backward pass. Gradients wait in `pending[node]` until every consumer has reported."""

    def __init__(self, keep_graph: bool, wanted: dict[Edge, list[int]] | None) -> None:
        self.keep_graph = keep_graph
        self.wanted = wanted
        self.captured: dict[int, Any] = {}
        self.pending: dict[GradientNode, list[Any]] = {}
        self.missing: dict[GradientNode, int] = {}
        self.needed: set[GradientNode] | None = None
        """Nodes that lead to what is wanted; None: all."""
        self.visited: set[GradientNode] | None = None
        """Those, and what is wanted: nobody looks at a gradient that arrives elsewhere."""
        self.ready: list[tuple[int, int, GradientNode]] = []
        self.with_zeros: list[GradientNode] = []
        """Reachable nodes that have gradients of zero to give."""
        self.link: Link | None = None
        self.arrivals = itertools.count()
        """Leaves are served in the order in which their gradients are complete."""
        self.reached: list[Edge] = []
        """The wanted edges, in that order."""

    def prepare(self, roots: list[Edge]) -> None:
        """Count, for every reachable node, how many gradients it has to wait for."""
        seen: set[GradientNode] = set()
        stack = [node for node, _ in roots]
        order: list[GradientNode] = []
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            order.append(node)
            if node.zero_edges:
                self.with_zeros.append(node)
            for edge in node.next_edges:
                if edge is not None:
                    self.missing[edge[0]] = self.missing.get(edge[0], 0) + 1
                    stack.append(edge[0])
        if self.wanted is not None:
            targets = {node for node, _ in self.wanted}
            self.needed = _leading_to(targets, order)
            self.visited = self.needed | targets

    def add(self, edge: Edge, g: Any) -> None:
        node, index = edge
        slots = self.pending.get(node)
        if slots is None:
            slots = self.pending[node] = [None] * len(node.out_metas)
        if g is not None:
            slots[index] = g if slots[index] is None else plus(slots[index], g)

    def arrived(self, node: GradientNode) -> None:
        self.missing[node] -= 1
        if self.missing[node] == 0:
            self.push(node)

    def push(self, node: GradientNode) -> None:
        heapq.heappush(self.ready, (-node.sequence, next(self.arrivals), node))

    def run(self) -> None:
        ready, pending = self.ready, self.pending
        watched = self.wanted is not None or anomaly.enabled
        while ready:
            node = heapq.heappop(ready)[2]
            grads = pending.pop(node, None) or [None] * len(node.out_metas)
            watcher = Watch.current
            span = (
                None if watcher is None else watcher.begin(SHOWN_AS + node.name(), BACKWARD, node)
            )
            try:
                if watched or node.tensor_hooks or node.pre_hooks or node.post_hooks:
                    self.visit(node, grads)
                else:
                    self.pass_through(node, grads)
            finally:
                if watcher is not None and span is not None:
                    watcher.end(span)

    def fill_zeros(self) -> None:
        """Give zeros where nothing has arrived, though a gradient depends on it in steps: torch
        sends tensors of zeros all the way, here one comes out at the end."""
        asked = self.wanted is not None
        seen: set[GradientNode] = set()
        stack = [edge[0] for node in self.with_zeros for edge in node.zero_edges]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            stack.extend(e[0] for e in (*node.next_edges, *node.zero_edges) if e is not None)
            if isinstance(node, AccumulateGrad) and node.variable.grad is None and not asked:
                node.apply([zeros_of(node.out_metas[0])])
        for (node, index), slots in (self.wanted or {}).items():
            for slot in slots if node in seen else ():
                if self.captured.get(slot) is None:
                    self.captured[slot] = zeros_of(node.out_metas[index])

    def pass_through(self, node: GradientNode, grads: list[Any]) -> None:
        """`visit` for a node that nobody watches: the commonest case, in one function."""
        if grads[0] is None and all(g is None for g in grads):
            results: Sequence[Any] = [None] * len(node.next_edges)
        else:
            results = _guarded(node, grads)
            if not self.keep_graph:
                node.release()
        pending, missing = self.pending, self.missing
        for edge, g in zip(node.next_edges, results, strict=True):
            if edge is None:
                continue
            target, index = edge
            slots = pending.get(target)
            if slots is None:
                slots = pending[target] = [None] * len(target.out_metas)
            if g is not None:
                slots[index] = g if slots[index] is None else plus(slots[index], g)
            left = missing[target] = missing[target] - 1
            if left == 0:
                self.push(target)

    def visit(self, node: GradientNode, grads: list[Any]) -> None:
        grads = _tensor_hooks(node, grads)
        if self.wanted is not None:
            for index in range(len(grads)):
                if (node, index) in self.wanted:
                    self.reached.append((node, index))
                for slot in self.wanted.get((node, index), ()):
                    self.captured[slot] = grads[index]
        results = self.compute(node, grads)
        visited = self.visited
        for edge, g in zip(node.next_edges, results, strict=True):
            if edge is not None and (visited is None or edge[0] in visited):
                self.add(edge, g)
                self.arrived(edge[0])

    def compute(self, node: GradientNode, grads: list[Any]) -> Sequence[Any]:
        skip = self.needed is not None and node not in self.needed
        if skip or (self.wanted is not None and isinstance(node, AccumulateGrad)):
            return [None] * len(node.next_edges)
        if all(g is None for g in grads):
            return [None] * len(node.next_edges)
        asked = None
        if self.visited is not None and not node.post_hooks:
            asked = tuple([e is not None and e[0] in self.visited for e in node.next_edges])
            asked = None if all(asked) else asked
        found = call_node(node, grads, self.keep_graph, asked)
        return found if self.link is None else self.link(node, found, grads)


def call_node(
    node: GradientNode,
    grads: list[Any],
    keep_graph: bool,
    asked: tuple[bool, ...] | None = None,
) -> Sequence[Any]:
    """Hooks around one node's computation."""
    for hook in list((node.pre_hooks or {}).values()):
        changed = call_back(hook, tuple(grads))
        if changed is not None:
            grads = list(changed if isinstance(changed, (tuple, list)) else (changed,))
    results = _guarded(node, grads, asked)
    if not keep_graph:
        node.release()
    for hook in list((node.post_hooks or {}).values()):
        changed = call_back(hook, tuple(results), tuple(grads))
        if changed is not None:
            results = changed if isinstance(changed, (tuple, list)) else (changed,)
    return results


def _guarded(
    node: GradientNode, grads: list[Any], asked: tuple[bool, ...] | None = None
) -> Sequence[Any]:
    """Run a node; an error says which line of the forward pass it belongs to."""
    results: Sequence[Any]
    watcher = Watch.current
    span = None if watcher is None else watcher.begin(node.name(), BACKWARD, node)
    try:
        if anomaly.looks is not None:
            results = anomaly.looks(node, grads, lambda: _watched(node, grads))
        elif dispatch_state.kernel_level:
            results = _watched(node, grads)
        else:
            results = node.apply(grads) if asked is None else node.apply_for(grads, asked)
    except Exception as error:
        note_place(error, node)
        raise
    finally:
        if watcher is not None and span is not None:
            watcher.end(span)
    if anomaly.enabled and anomaly.check_nan and not node.is_watched:
        _refuse_nan(node, grads, results)
    return results


def _watched(node: GradientNode, grads: list[Any]) -> Sequence[Any]:
    """Run a node; who records what it does is asked, and told the line of the forward call."""
    for interpreter in dispatch_state.kernel_level:
        interpreter.before_node(node)
    before, dispatch_state.backward_of = dispatch_state.backward_of, node.place
    try:
        return node.apply(grads)
    finally:
        dispatch_state.backward_of = before


def note_place(error: Exception, node: Any) -> None:
    """Add to an error which line of the forward pass it belongs to."""
    if node.place is not None:
        error.add_note(f"in the backward pass of {node.name()}, recorded at {describe(node.place)}")


def _refuse_nan(node: GradientNode, grads: Sequence[Any], results: Sequence[Any]) -> None:
    for i, g in enumerate(results):
        if g is not None and g.isnan().any().item():
            trace = f"\nThe forward call was:\n{node.trace}" if node.trace else ""
            error = RuntimeError(
                f"Function '{node.name()}' returned nan values in its {i}th output. It was "
                f"recorded at {describe(node.place)}.{trace}"
            )
            given = [(f"gradient {k + 1}", WithRange(x)) for k, x in enumerate(grads)]
            backward_failed(error, node.module, node.place, given)
            raise error


def _tensor_hooks(node: GradientNode, grads: list[Any]) -> list[Any]:
    if not node.tensor_hooks:
        return grads
    grads = list(grads)
    for index, hooks in node.tensor_hooks.items():
        # hooks that keep the gradient for `.grad` (negative keys) see what the others made of it
        for key in sorted(hooks, key=lambda k: k < 0):
            if grads[index] is not None and key in hooks:
                changed = call_back(hooks[key], grads[index])
                if changed is not None:
                    grads[index] = changed
    return grads


class _Apart(_Run):
    """A pass that adds nothing up at the wanted edges where it ends: what arrives there is kept
    part by part."""

    def __init__(self, keep_graph: bool, wanted: dict[Edge, list[int]]) -> None:
        super().__init__(keep_graph, wanted)
        self.parts: dict[Edge, list[Any]] = {edge: [] for edge in wanted}

    def add(self, edge: Edge, g: Any) -> None:
        ends = edge in self.parts and edge[0] not in (self.needed or ())
        if ends and g is not None:
            self.parts[edge].append(g)
        super().add(edge, None if ends else g)


def reachable(roots: Sequence[GradientNode]) -> set[GradientNode]:
    """All nodes that a backward pass from `roots` visits."""
    seen: set[GradientNode] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(edge[0] for edge in node.next_edges if edge is not None)
    return seen


def _leading_to(targets: set[GradientNode], reachable: list[GradientNode]) -> set[GradientNode]:
    """Nodes from which some target can be reached (they must run, others need not). Beyond a node
    that stands for unknown history there may be any."""
    parents: dict[GradientNode, list[GradientNode]] = {}
    for node in reachable:
        for edge in node.next_edges:
            if edge is not None:
                parents.setdefault(edge[0], []).append(node)
    found: set[GradientNode] = set()
    stack = [n for t in targets for n in parents.get(t, ())]
    stack += [n for n in reachable if n.is_unknown and n not in targets]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(parents.get(node, ()))
    return found


@contextmanager
def without_hooks(edges: Iterable[Edge]) -> Iterator[None]:
    """Hooks of tensors from outside see their gradients when those arrive there, not before."""
    hooks = [(node, node.tensor_hooks) for node in {edge[0] for edge in edges}]
    for node, _ in hooks:
        node.tensor_hooks = None
    try:
        yield
    finally:
        for node, found in hooks:
            node.tensor_hooks = found


def run_backward(
    roots: Sequence[tuple[Edge, Any]],
    *,
    keep_graph: bool,
    create_graph: bool,
    wanted: Sequence[Edge] | None = None,
    link: Link | None = None,
    reached: list[Edge] | None = None,
) -> list[Any]:
    """Send gradients from `roots` down the graph; return those that reach `wanted`, in order.
    `link`: asked after each node, where some are `wanted`. `reached` gets those in the order in
    which the pass comes to them."""
    by_edge: dict[Edge, list[int]] | None = None
    if wanted is not None:
        by_edge = {}
        for slot, edge in enumerate(wanted):
            by_edge.setdefault(edge, []).append(slot)
    if wanted is None and link is None and len(roots) == 1 and _is_last(roots[0][0][0]):
        _run_last(*roots[0], keep_graph, create_graph)
        return []
    run = _Run(keep_graph, by_edge)
    run.link = link
    _sent(run, roots, create_graph)
    if reached is not None:
        reached += run.reached
    return [run.captured.get(slot) for slot in range(len(wanted or ()))]


def _is_last(node: GradientNode) -> bool:
    """Whether a pass from this node is the node itself, then leaves, with nobody looking on: what
    remains where a whole model is one node."""
    if node.tensor_hooks or node.pre_hooks or node.post_hooks or node.zero_edges:
        return False
    if anomaly.enabled and not node.is_watched:
        return False
    if Watch.current is not None or dispatch_state.kernel_level:
        return False
    seen: set[GradientNode] = set()
    for edge in node.next_edges:
        if edge is None:
            continue
        leaf = edge[0]
        if type(leaf) is not AccumulateGrad or leaf in seen:
            return False
        if leaf.tensor_hooks or leaf.pre_hooks or leaf.post_hooks:
            return False
        seen.add(leaf)
    return True


def _run_last(edge: Edge, g: Any, keep_graph: bool, create_graph: bool) -> None:
    """A pass without an order to keep: what `_Run` does for such a node."""
    node, index = edge
    grads = [None] * len(node.out_metas)
    grads[index] = g
    if g is None:
        return
    before, dispatch_state.grad_enabled = dispatch_state.grad_enabled, create_graph
    try:
        results = list(_guarded(node, grads))
        if not keep_graph:
            node.release()
        for k, target in enumerate(node.next_edges):
            arrives = [results[k]]
            results[k] = None  # a leaf keeps what nobody else holds
            if target is not None:
                target[0].apply(arrives)
    finally:
        dispatch_state.grad_enabled = before


def gradient_parts(
    roots: Sequence[tuple[Edge, Any]],
    wanted: Sequence[Edge],
    link: Link | None = None,
    reached: list[Edge] | None = None,
) -> list[list[Any]]:
    """`run_backward` to `wanted`, with what arrives at each not added up: whoever adds it to more
    from elsewhere can do so in the order in which one pass over everything would."""
    run = _Apart(True, {edge: [] for edge in wanted})
    run.link = link
    _sent(run, roots, create_graph=False)
    if reached is not None:
        reached += run.reached
    return [run.parts[edge] for edge in wanted]


def _sent(run: _Run, roots: Sequence[tuple[Edge, Any]], create_graph: bool) -> None:
    run.prepare([edge for edge, _ in roots])
    for edge, g in roots:
        run.add(edge, g)
    for node in {edge[0]: None for edge, _ in roots}:
        if run.missing.get(node, 0) == 0:
            run.push(node)
    before = dispatch_state.grad_enabled
    dispatch_state.grad_enabled = create_graph
    try:
        run.run()
        if run.with_zeros:
            run.fill_zeros()
    finally:
        dispatch_state.grad_enabled = before
