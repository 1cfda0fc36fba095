"""Finding places of a graph that look like another graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import get_attr
from lucerne.fx.node import Node
from lucerne.fx.operator_schemas import normalize_function


@dataclass
class InternalMatch:
    """A place that looks like the pattern."""

    anchors: list[Node]
    """The pattern's last nodes."""
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    """For each node of the pattern what it is here: a node, or a literal for a placeholder."""
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern, from its last nodes upwards. Placeholders of the pattern fit anything.

    >>> import lucerne as torch
    >>> pattern = torch.fx.symbolic_trace(lambda a: torch.relu(a)).graph
    >>> program = torch.fx.symbolic_trace(lambda x: torch.relu(torch.relu(x) + 1)).graph
    >>> len(SubgraphMatcher(pattern).match(program))
    2
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        for node in pattern.nodes:
            if node.op not in ("output", "placeholder") and not node.users and not _stays(node):
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with an pattern with dead code: "
                    f"nobody uses {node}"
                )
        output = pattern.output_node()
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes = output.all_input_nodes
        last = [n for n in output.all_input_nodes if len(n.users) == 1]
        self.pattern_anchors = [output] if match_output else last

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Every place of `graph` that looks like the pattern and can be cut out."""
        candidates = [
            (a, [n for n in graph.nodes if self._alike(a, n, node_name_match)])
            for a in self.pattern_anchors
        ]
        candidates = [(a, nodes) for a, nodes in candidates if nodes]
        if not candidates:
            return []
        found = []
        for nodes_map in self._assignments(candidates, 0, {}, node_name_match):
            if self._is_contained(nodes_map) and _can_be_one(self._computed(nodes_map)):
                found.append(self._match(nodes_map))
        return self._disjoint(found) if self.remove_overlapping_matches else found

    def _assignments(
        self,
        candidates: list[tuple[Node, list[Node]]],
        at: int,
        known: dict[Node, Any],
        name: str,
    ) -> Iterator[dict[Node, Any]]:
        if at == len(candidates):
            yield known
            return
        anchor, nodes = candidates[at]
        for node in nodes:
            extended = self._extended(anchor, node, known, name)
            if extended is not None:
                yield from self._assignments(candidates, at + 1, extended, name)

    def _match(self, nodes_map: dict[Node, Any]) -> InternalMatch:
        placeholders = [nodes_map[n] for n in self.pattern_placeholder_nodes]
        returning = [nodes_map[n] for n in self.pattern_returning_nodes]
        named = {p.name: n for p, n in nodes_map.items() if isinstance(n, Node)}
        return InternalMatch(self.pattern_anchors, nodes_map, placeholders, returning, named)

    # ---- one node against another ---------------------------------------------------------------

    def _alike(self, mine: Node, theirs: Node, name: str = "") -> bool:
        if mine.op == "placeholder" and not self.match_placeholder:
            return True
        if name and name in theirs.name:
            return True
        if mine.op != theirs.op:
            return False
        if mine.op in ("placeholder", "output"):
            return True
        if mine.op == "get_attr":
            return _same_kind_of_attribute(mine, theirs)
        return mine.target == theirs.target

    def _extended(
        self, mine: Node, theirs: Node, known: dict[Node, Any], name: str = ""
    ) -> dict[Node, Any] | None:
        """What is known when `mine` is `theirs`; None when that can't be."""
        if mine in known:
            return known if known[mine] is theirs else None
        if any(n is theirs for n in known.values()) or not self._alike(mine, theirs, name):
            return None
        known = {**known, mine: theirs}
        if mine.op == "placeholder":
            return known
        pair = _comparable(mine, theirs)
        return None if pair is None else self._values(*pair, known)

    def _values(
        self, mine: list[Any], theirs: list[Any], known: dict[Node, Any]
    ) -> dict[Node, Any] | None:
        if len(mine) != len(theirs):
            return None
        found: dict[Node, Any] | None = known
        for a, b in zip(mine, theirs, strict=True):
            assert found is not None
            if isinstance(a, Node) and isinstance(b, Node):
                found = self._extended(a, b, found)
            elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
                found = self._values(list(a), list(b), found)
            else:
                found = self._literal(a, b, found)
            if found is None:
                return None
        return found

    def _literal(self, a: Any, b: Any, known: dict[Node, Any]) -> dict[Node, Any] | None:
        if isinstance(a, Node) and a.op == "placeholder" and not isinstance(b, Node):
            if a not in known:
                return {**known, a: b}
            fits = known[a] == b
        else:
            fits = not isinstance(a, Node) and type(a) is type(b) and a == b
        return known if fits or self.ignore_literals else None

    # ---- whole places ---------------------------------------------------------------------------

    def _computed(self, nodes_map: dict[Node, Any]) -> list[Node]:
        return [n for p, n in nodes_map.items() if p.op not in ("placeholder", "output")]

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """Whether what is inside is used inside only; results may be used anywhere."""
        inside = {n: p for p, n in nodes_map.items() if p.op != "placeholder"}
        return all(
            user in inside
            for node, mine in inside.items()
            if mine not in self.pattern_returning_nodes
            for user in node.users
        )

    def _disjoint(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        taken: set[Node] = set()
        kept = []
        for match in matches:
            own = set(self._computed(match.nodes_map))
            if not own & taken:
                taken |= own
                kept.append(match)
        return kept


def _stays(node: Node) -> bool:
    return node.op != "call_module" and node.is_impure()


def _same_kind_of_attribute(mine: Node, theirs: Node) -> bool:
    """Whether both read a tensor, whatever its values."""
    found = []
    for node in (mine, theirs):
        if node.graph.owning_module is None:
            raise AssertionError(f"the graph of {node} belongs to no module")
        found.append(get_attr(node.graph.owning_module, node.target))
    return type(found[0]) is type(found[1]) and isinstance(found[0], lu.Tensor)


def _comparable(mine: Node, theirs: Node) -> tuple[list[Any], list[Any]] | None:
    """The arguments of two calls in the same order."""
    a, b = mine, theirs
    if len(a.args) == len(b.args) and list(a.kwargs) == list(b.kwargs):
        return [*a.args, *a.kwargs.values()], [*b.args, *b.kwargs.values()]
    if a.op == "call_function" and getattr(a.target, "op", None) is not None:
        pairs = [
            normalize_function(n.target, n.args, n.kwargs, normalize_to_only_use_kwargs=True)
            for n in (a, b)
        ]
        if pairs[0] is not None and pairs[1] is not None:
            return list(pairs[0].kwargs.values()), list(pairs[1].kwargs.values())
    return None


def _can_be_one(nodes: list[Node]) -> bool:
    """Whether the nodes can be one: nothing outside may lie between two of them."""
    inside = set(nodes)
    waiting = [u for n in nodes for u in n.users if u not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting += list(node.users)
    return True
