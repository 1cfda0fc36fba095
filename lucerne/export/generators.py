"""The default random generator in files: a word, since a file holds no objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.io.errors import CorruptFileError
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.op import OPAQUE
from lucerne._src.tensor.random.api import default_generator
from lucerne.export.errors import ExportError

WORD = "default"


def check(graph: Graph) -> None:
    """Raise if random numbers come from a generator that a file can't name."""
    _mapped(graph, _known)


def as_words(graph: Graph) -> Graph:
    return _mapped(graph, lambda a: WORD if a is default_generator else a)


def as_objects(graph: Graph) -> Graph:
    return _mapped(graph, _object)


def _known(a: Any) -> Any:
    if a is not None and a is not default_generator:
        raise ExportError(
            "export: random numbers come from a generator of their own, which a program can't take "
            "along; use the default generator"
        )
    return a


def _object(a: Any) -> Any:
    if a is not None and a != WORD:
        raise CorruptFileError(f"there is no random generator {str(a)[:40]!r}")
    return None if a is None else default_generator


def _mapped(graph: Graph, change: Callable[[Any], Any]) -> Graph:
    """The same graph with other generators, inside control-flow nodes as well."""
    made = Graph()
    made.inputs, made.outputs, made.writes = graph.inputs, graph.outputs, graph.writes
    made._next = graph._next
    made.nodes = [_node(n, change) for n in graph.nodes]
    return made


def _node(node: Node, change: Callable[[Any], Any]) -> Node:
    if OPAQUE not in node.op.kinds and not any(isinstance(a, Graph) for a in node.args):
        return node
    args = tuple(
        change(a) if k == OPAQUE else _mapped(a, change) if isinstance(a, Graph) else a
        for k, a in zip(node.op.kinds, node.args, strict=True)
    )
    return Node(node.op, args, node.outputs, node.place)
