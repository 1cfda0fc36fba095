"""Questions about two graphs of one function: which node made what, and where they part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucerne._src.capture.shadow.nearness import Array, Difference, NearnessRule
from lucerne._src.capture.shadow.replay import Ran
from lucerne._src.ir.graph import Graph, Node, Value, flat_inputs, operands
from lucerne._src.transforms.interpret import held
from lucerne._src.transforms.rewrite import producers


def one_op_inputs(node: Node, seen: dict[int, Array]) -> list[Any] | None:
    """What flows into a node, from values as they were when they were made."""
    found: list[Any] = []
    for x in flat_inputs(node.op, node.args):
        if type(x) is Value:
            if x.index not in seen:
                return None
            found.append(held(seen[x.index], x.meta))
        else:
            found.append(x)
    return found


def broken(error: Exception) -> Difference:
    """A graph that can't even be run."""
    text = f"running it op by op raises {type(error).__name__}: {error}"
    return Difference(float("inf"), (), None, None, 0, 0, text)


def first_new(before: Graph, after: Graph) -> Node | None:
    """The first node that a pass made or changed."""
    old = set(map(id, before.nodes))
    return next((n for n in after.nodes if id(n) not in old), None)


def alike(a: Array, b: Array) -> Array | None:
    same = (a == b) | ((a != a) & (b != b))
    return None if same.all() else same


def maker(graph: Graph, at: tuple[str, int]) -> Node | None:
    """The node that makes an output, or what an input holds at the end."""
    which, k = at
    if which == "output":
        wanted = graph.outputs[k].index
    else:
        target = graph.inputs[k].index
        wanted = next((v.index for t, v in graph.writes if t.index == target), -1)
    return next((n for n in graph.nodes if any(v.index == wanted for v in n.outputs)), None)


def aligned(before: Graph, after: Graph) -> Iterator[tuple[Value, Value, Node]]:
    """Values that stand for the same thing in two graphs of one function, in order."""
    made = {v.index: v for n in before.nodes for v in n.outputs}
    shared = [
        (made[v.index], v, n) for n in after.nodes for v in n.outputs if made.get(v.index) is v
    ]
    if shared:
        yield from shared
        return
    others = iter(after.nodes)
    for node in before.nodes:
        if not node.outputs:
            continue
        for other in others:
            metas = [v.meta for v in other.outputs] == [v.meta for v in node.outputs]
            if other.op is node.op and metas:
                for a, b in zip(node.outputs, other.outputs, strict=True):
                    yield a, b, node
                break


def first_changed(before: Graph, was: Ran, after: Graph, now: Ran) -> list[Node]:
    """The first node that makes something else than it made before a pass, behind the one whose
    result it reads no longer: the culprit comes first."""
    rule = NearnessRule(local=False)
    old, new = producers(before), producers(after)
    for a, b, node in aligned(before, after):
        if a.index not in was.seen or b.index not in now.seen:
            continue
        x, y = now.seen[b.index], was.seen[a.index]
        if x.shape != y.shape or rule.difference(x, y, a.meta.dtype) is None:
            continue
        pairs = zip(operands(old[a.index].args), operands(new[b.index].args), strict=False)
        for p, q in pairs:
            if p is not q and p.index in old and not _same_seen(was, p, now, q):
                return [old[p.index], node]
        return [node]
    return []


def _same_seen(was: Ran, p: Value, now: Ran, q: Value) -> bool:
    x, y = was.seen.get(p.index), now.seen.get(q.index)
    if x is None or y is None or x.shape != y.shape:
        return False
    return NearnessRule(local=False).difference(y, x, p.meta.dtype) is None


def words(at: tuple[str, int]) -> str:
    which, k = at
    return f"result {k} of the graph" if which == "output" else f"what input {k} holds at the end"
