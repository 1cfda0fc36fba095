"""Nested containers as flat lists and back: lists, tuples, named tuples, dicts, and classes that
were registered (`utils._pytree.register_pytree_node`)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

NODES: dict[Any, Any] = {}
"""How objects of a class are taken apart and put together (a `NodeDef`), by class: the registry of
`utils._pytree`, which fills it."""
BUILTIN = frozenset((tuple, list, dict, OrderedDict, defaultdict, deque))
"""Python's own containers, of which this module knows without the registry."""


def node_of(tree: Any) -> Any:
    """The registered way to take an object apart; None: it is a plain container, or none."""
    kind = type(tree)
    return None if kind in BUILTIN else NODES.get(kind)


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to every leaf, keeping the containers."""
    if (node := node_of(tree)) is not None:
        parts, context = node.flatten_fn(tree)
        return node.unflatten_fn([tree_map(fn, x) for x in parts], context)
    if isinstance(tree, tuple):
        items = [tree_map(fn, t) for t in tree]
        if type(tree) is tuple:
            return tuple(items)
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, list):
        return [tree_map(fn, t) for t in tree]
    if isinstance(tree, defaultdict):
        made = {k: tree_map(fn, v) for k, v in tree.items()}
        return type(tree)(tree.default_factory, made)
    if isinstance(tree, dict):
        return type(tree)((k, tree_map(fn, v)) for k, v in tree.items())
    return fn(tree)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves, in order."""
    if (node := node_of(tree)) is not None:
        return [leaf for x in node.flatten_fn(tree)[0] for leaf in tree_leaves(x)]
    if isinstance(tree, (tuple, list)):
        return [leaf for t in tree for leaf in tree_leaves(t)]
    if isinstance(tree, dict):
        return [leaf for t in tree.values() for leaf in tree_leaves(t)]
    return [tree]
