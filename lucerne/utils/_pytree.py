"""Nested containers as flat lists and back, under torch's names (`torch.utils._pytree`).

`tree_map_only(Tensor, f, args)` is what code for subclasses calls most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lucerne._src.ir.dispatch import call_back
from lucerne.fx._pytree import LEAF as _LEAF
from lucerne.fx._pytree import TreeSpec as TreeSpec
from lucerne.fx._pytree import tree_flatten as tree_flatten
from lucerne.fx._pytree import tree_map as _map_one
from lucerne.fx._pytree import tree_unflatten as _unflatten

PyTree = Any


def LeafSpec() -> TreeSpec:
    """The structure of a single value."""
    return _LEAF


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The structure with these leaves."""
    return _unflatten(list(leaves), treespec)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves, in order."""
    return tree_flatten(tree)[0]


def tree_structure(tree: Any) -> TreeSpec:
    return tree_flatten(tree)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """`func` on every leaf (with the leaves of further trees of the same structure)."""
    if not rests:
        return _map_one(partial(call_back, func), tree)
    leaves, spec = tree_flatten(tree)
    others = [tree_leaves(r) for r in rests]
    return tree_unflatten([call_back(func, *xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """`func` on the leaves of a type (or of several, or those a function picks).

    >>> tree_map_only(int, lambda x: -x, [1, "a", {"b": 2}])
    [-1, 'a', {'b': -2}]
    """
    if callable(kind) and not isinstance(kind, type):
        return _map_one(lambda x: call_back(func, x) if call_back(kind, x) else x, tree)
    return _map_one(lambda x: call_back(func, x) if isinstance(x, kind) else x, tree)


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    return any(map(pred, tree_leaves(tree)))


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    return all(map(pred, tree_leaves(tree)))


def tree_iter(tree: Any) -> Any:
    return iter(tree_leaves(tree))
