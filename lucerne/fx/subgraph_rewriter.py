"""Rewriting: every place that looks like a pattern becomes something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucerne.fx._symbolic_trace import symbolic_trace
from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import GraphModule, get_attr
from lucerne.fx.node import Node
from lucerne.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from lucerne.nn.modules import Module

MatchFilter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A place that was replaced: the pattern's last node, and the nodes by those of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """The same with the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace every place of a module's graph that looks like `pattern`.

    Both are functions (or graphs, or modules) with the same parameters, which stand for anything.
    Places that overlap one that was found before, or whose inner values are used elsewhere, stay.

    >>> import lucerne as torch
    >>> traced = torch.fx.symbolic_trace(lambda x, w: torch.relu(x @ w) + 1)
    >>> matches = torch.fx.replace_pattern(
    ...     traced, lambda a: torch.relu(a) + 1, lambda a: torch.clamp(a, min=0).add(1)
    ... )
    >>> print(traced.code.strip())
    def forward(self, x, w):
        matmul = x @ w;  x = w = None
        clamp = torch.clamp(matmul, min = 0);  matmul = None
        add_1 = clamp.add(1);  clamp = None
        return add_1
    """
    found = _replace(gm, pattern, replacement)
    return [Match(anchor=m.anchor, nodes_map=m.nodes_map) for m in found]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: Sequence[MatchFilter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """The same where every filter agrees: `filter(match, graph, pattern_graph)`.

    `replacement_callback` makes a replacement for each match; `ignore_literals` lets numbers of the
    pattern fit any other.
    """
    return _replace(
        gm,
        pattern,
        replacement,
        match_filters or (),
        ignore_literals,
        replacement_callback,
        node_name_match,
    )


def _graph_of(x: Any) -> Graph:
    if isinstance(x, Graph):
        return x
    return x.graph if isinstance(x, GraphModule) else symbolic_trace(x).graph


def _replace(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    filters: Sequence[MatchFilter] = (),
    ignore_literals: bool = False,
    callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    name: str = "",
) -> list[ReplacedPatterns]:
    graph, wanted = gm.graph, _graph_of(pattern)
    matches = SubgraphMatcher(wanted, ignore_literals=ignore_literals).match(graph, name)
    matches = [m for m in matches if all(f(m, graph, wanted) for f in filters)]
    if replacement is None and callback is None:
        raise AssertionError(
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    common = None if replacement is None else _graph_of(replacement)
    changed: dict[Node, Node] = {}
    done = []
    for match in matches:
        new = common if callback is None else callback(match, graph, wanted)
        assert new is not None
        made = _replace_one(graph, wanted, match, new, changed)
        done.append(ReplacedPatterns(match.anchors[0], match.nodes_map, made))
    gm.recompile()
    if isinstance(replacement, Module):
        _take_attributes(gm, replacement)
    return done


def _replace_one(
    graph: Graph, wanted: Graph, match: InternalMatch, new: Graph, changed: dict[Node, Node]
) -> list[Node]:
    """Put `new` in the place of a match. `changed` says what replaced nodes of earlier matches."""
    parameters = [n for n in new.nodes if n.op == "placeholder"]
    if len(parameters) != len(match.placeholder_nodes):
        raise AssertionError(
            f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(parameters)}"
        )
    for mine, theirs in match.nodes_map.items():
        if isinstance(theirs, Node) and theirs in changed:
            match.nodes_map[mine] = changed[theirs]
    match.placeholder_nodes = [
        changed.get(n, n) if isinstance(n, Node) else n for n in match.placeholder_nodes
    ]
    values: dict[Node, Any] = dict(zip(parameters, match.placeholder_nodes, strict=True))
    with graph.inserting_before(_place(graph, match.returning_nodes)):
        results = graph.graph_copy(new, values)
    results = (results,) if isinstance(results, Node) else tuple(results)
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results)}"
        )
    for old, made in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(made)
        changed[old] = made
    for node in reversed(wanted.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    given = [n for n in match.placeholder_nodes if isinstance(n, Node)]
    return [n for n in values.values() if isinstance(n, Node) and n not in given]


def _place(graph: Graph, results: list[Node]) -> Node:
    """Before which node the new ones go: the first that uses a result."""
    users = {user for node in results for user in node.users}
    if users:
        return min(users)
    return max(results).next


def _take_attributes(gm: GraphModule, replacement: Any) -> None:
    """Modules and tensors that the replacement brought with it."""
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        try:
            get_attr(gm, node.target)
            continue
        except AttributeError:
            pass
        try:
            found = get_attr(replacement, node.target)
        except AttributeError:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                f"{node.target}, but the referenced attribute does not exist in either the "
                "original GraphModule or the replacement"
            ) from None
        if isinstance(found, Module):
            gm.add_submodule(node.target, found)
        else:
            *parents, last = node.target.split(".")
            owner = get_attr(gm, ".".join(parents)) if parents else gm
            setattr(owner, last, found)
    gm.delete_all_unused_submodules()
    gm.graph.lint()
