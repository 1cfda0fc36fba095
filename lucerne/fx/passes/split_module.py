"""split_module: a graph as a graph of parts, each a module of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.node import Node, map_arg


@dataclass
class _Part:
    name: str
    graph: Graph = field(default_factory=Graph)
    inputs: dict[Node, Node] = field(default_factory=dict)
    """Values from outside, and the placeholder of each."""
    outputs: dict[Node, None] = field(default_factory=dict)
    env: dict[Node, Node] = field(default_factory=dict)
    needs: dict[str, None] = field(default_factory=dict)


def split_module(
    m: GraphModule,
    root_m: Any,
    split_callback: Callable[[Node], int | str],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool = False,
    partition_affix: str | None = None,
) -> GraphModule:
    """A module that calls one submodule (`submod_0`, ...) for each part that the callback names.

    >>> import lucerne as torch
    >>> from lucerne.fx.passes.split_module import split_module
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x + 1))
    >>> split = split_module(traced, None, lambda node: node.name == "relu")
    >>> [node.target for node in split.graph.nodes if node.op == "call_module"]
    ['submod_False', 'submod_True']
    """
    parts: dict[str, _Part] = {}
    owner: dict[Node, str] = {}
    for node in m.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            name = str(split_callback(node))
            parts.setdefault(name, _Part(name))
            owner[node] = name
    for node in m.graph.nodes:
        _note_flow(node, owner, parts)
    order = list(parts) if keep_original_order else _ordered(parts)
    for node in m.graph.nodes:
        if node in owner or node.op == "get_attr":
            _copy_into_parts(node, owner, parts, m, qualname_map)
    affix = f"_{partition_affix}" if partition_affix else ""
    return _assembled(m, [parts[p] for p in order], affix)


def _note_flow(node: Node, owner: dict[Node, str], parts: dict[str, _Part]) -> None:
    """What each part reads from outside and gives to others."""
    mine = owner.get(node)
    for used in node.all_input_nodes:
        theirs = owner.get(used)
        if used.op == "get_attr" or theirs == mine:
            continue
        if theirs is not None:
            parts[theirs].outputs.setdefault(used)
        if mine is not None:
            part = parts[mine]
            if theirs is not None:
                part.needs.setdefault(theirs)
            if used not in part.inputs:
                made = part.graph.placeholder(used.name, type_expr=used.type)
                made.meta = dict(used.meta)
                part.inputs[used] = part.env[used] = made


def _ordered(parts: dict[str, _Part]) -> list[str]:
    done: list[str] = []
    waiting = list(parts)
    while waiting:
        ready = [p for p in waiting if all(n in done for n in parts[p].needs)]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        done.append(ready[0])
        waiting.remove(ready[0])
    return done


def _copy_into_parts(
    node: Node,
    owner: dict[Node, str],
    parts: dict[str, _Part],
    m: GraphModule,
    qualname_map: dict[str, str] | None,
) -> None:
    if node.op == "get_attr":
        for user in node.users:
            part = parts.get(owner.get(user, ""))
            if part is not None and node not in part.env:
                part.env[node] = part.graph.node_copy(node)
        return
    part = parts[owner[node]]
    part.env[node] = part.graph.node_copy(node, lambda n: part.env[n])
    if node.op == "call_module" and qualname_map is not None:
        qualname_map[f"submod_{part.name}.{node.target}"] = node.target


def _assembled(m: GraphModule, parts: list[_Part], affix: str) -> GraphModule:
    """The graph that calls the parts."""
    graph = Graph()
    env: dict[Node, Node] = {}
    modules: dict[str, Any] = {}
    for node in m.graph.nodes:
        kept = node.op == "get_attr" and any(u.op == "output" for u in node.users)
        if node.op == "placeholder" or kept:
            env[node] = graph.node_copy(node)
            if kept:
                found: Any = m
                for name in node.target.split("."):
                    found = getattr(found, name)
                modules[node.target] = found
    for part in parts:
        results = list(part.outputs)
        values = [part.env[n] for n in results]
        part.graph.output(values[0] if len(values) == 1 else tuple(values))
        name = f"submod{affix}_{part.name}"
        modules[name] = GraphModule(m, part.graph, name)
        made = graph.call_module(name, tuple(env[n] for n in part.inputs))
        if len(results) == 1:
            env[results[0]] = made
        else:
            for i, node in enumerate(results):
                env[node] = graph.call_function(operator.getitem, (made, i))
    for node in m.graph.nodes:
        if node.op == "output":
            returned = graph.output(map_arg(node.args[0], lambda n: env[n]), node.type)
            returned.meta = dict(node.meta)
    return GraphModule(modules, graph)
