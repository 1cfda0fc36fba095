"""Arguments and results as flat lists of leaves, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

LEAF = "."


def flatten(tree: Any, leaves: list[Any]) -> Any:
    """Append the leaves to a list; returns the shape of the tree, which can be compared."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind, tuple([flatten(x, leaves) for x in tree])
    if isinstance(tree, dict):
        return kind, tuple(tree), tuple([flatten(x, leaves) for x in tree.values()])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind, tuple([flatten(x, leaves) for x in tree])
    if is_dataclass(tree) and not isinstance(tree, type):
        own = getattr(tree, "__dict__", None)
        names = [f.name for f in fields(tree)] if own is None else list(own)
        return kind, tuple(names), tuple([flatten(getattr(tree, n), leaves) for n in names])
    leaves.append(tree)
    return LEAF


def rebuild(shape: Any, leaves: Iterator[Any]) -> Any:
    """The tree of a shape, with leaves taken in order."""
    if shape is LEAF:
        return next(leaves)
    kind = shape[0]
    items = [rebuild(s, leaves) for s in shape[-1]]
    if kind is tuple or kind is list:
        return kind(items)
    if len(shape) == 2:
        return kind(*items)
    if type(shape[1]) is not tuple:  # a tensor that wraps others (`wrappers.Kind`)
        return shape[1].close(items)
    if issubclass(kind, dict):
        # A mapping, not pairs: a Counter would count those.
        return kind(dict(zip(shape[1], items, strict=True)))
    made = object.__new__(kind)  # `__init__` need not take every field, and has run once already
    for name, item in zip(shape[1], items, strict=True):
        object.__setattr__(made, name, item)
    return made
