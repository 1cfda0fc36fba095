"""Nested containers as flat lists and back: lists, tuples, named tuples, dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to every leaf, keeping the containers."""
    if isinstance(tree, tuple):
        items = [tree_map(fn, t) for t in tree]
        if type(tree) is tuple:
            return tuple(items)
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, list):
        return [tree_map(fn, t) for t in tree]
    if isinstance(tree, dict):
        return type(tree)((k, tree_map(fn, v)) for k, v in tree.items())
    return fn(tree)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves, in order."""
    if isinstance(tree, (tuple, list)):
        return [leaf for t in tree for leaf in tree_leaves(t)]
    if isinstance(tree, dict):
        return [leaf for t in tree.values() for leaf in tree_leaves(t)]
    return [tree]
