"""Arguments and results as flat lists of leaves, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import is_
from typing import Any

from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.base.tree import BUILTIN
from lucerne._src.tensor.base import TensorBase, plain_types

LEAF = "."
_PLAIN = frozenset((type(None), bool, int, float, str))


_NONE: Mapping[Any, Any] = {}


@dataclass(frozen=True)
class Registered:
    """How an object of a registered class is put together, in the shape of a tree."""

    unflatten: Callable[[Any, Any], Any]
    context: Any

    def close(self, items: list[Any]) -> Any:
        return self.unflatten(items, self.context)


class KeptContainer:
    """A leaf that stands for a container which was there before, and is given out as it is: a
    thing, or where it is found in the arguments of the call."""

    __slots__ = ("path", "thing")

    def __init__(self, thing: Any, path: tuple[Any, ...] | None = None) -> None:
        self.thing, self.path = thing if path is None else None, path

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is KeptContainer and other.thing is self.thing and other.path == self.path
        )

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return f"the same {type(self.thing).__name__}"

    def now(self, given: Any) -> Any:
        """The container; `given`: arguments and named arguments."""
        found: Any = self.thing if self.path is None else given
        for key in self.path or ():
            found = found[key] if is_a(found, (tuple, list, dict)) else getattr(found, key)
        return found


def has_fields(x: Any) -> bool:
    """Whether it is an object of a dataclass. (`is_dataclass` would ask the object.)"""
    return hasattr(type(x), "__dataclass_fields__")


def _has_tensors(tree: tuple[Any, ...]) -> bool:
    """(`*args` of the call at hand is a tuple that was there before, and holds other tensors at the
    next.)"""
    leaves: list[Any] = []
    flatten(tree, leaves)
    return any(is_a(x, TensorBase) for x in leaves)


def keeping(tree: Any, is_old: Callable[[Any], KeptContainer | None]) -> Any:
    """The tree with `KeptContainer` in place of containers that were there before."""
    kind: Any = type(tree)
    if kind is tuple or (is_a(tree, tuple) and hasattr(tree, "_fields")):
        kept = None if _has_tensors(tree) else is_old(tree)
        if kept is not None:
            return kept
        parts = [keeping(x, is_old) for x in tree]
        if all(map(is_, parts, tree)):
            return tree
        return tuple(parts) if kind is tuple else kind(*parts)
    made = has_fields(tree)
    if not (kind is list or is_a(tree, dict) or made):
        return tree
    kept = is_old(tree)
    if kept is not None:
        return kept
    if kind is list:
        tree[:] = [keeping(x, is_old) for x in tree]
    elif is_a(tree, dict):
        for key, x in tree.items():
            dict.__setitem__(tree, key, keeping(x, is_old))
    else:
        own = own_dict(tree)
        for name in [f.name for f in fields(tree)] if own is None else list(own):
            object.__setattr__(tree, name, keeping(getattr(tree, name), is_old))
    return tree


def flatten(tree: Any, leaves: list[Any], nodes: Mapping[Any, Any] = _NONE) -> Any:
    """Append the leaves to a list; returns the shape of the tree, which can be compared.

    `nodes`: classes of further containers, each with its `NodeDef`.
    """
    kind = type(tree)
    if kind in plain_types or kind in _PLAIN:
        leaves.append(tree)
        return LEAF
    if kind is tuple or kind is list:
        return kind, tuple([flatten(x, leaves, nodes) for x in tree])
    if kind in nodes and kind not in BUILTIN:
        parts, context = nodes[kind].flatten_fn(tree)
        shapes = tuple([flatten(x, leaves, nodes) for x in parts])
        return kind, Registered(nodes[kind].unflatten_fn, context), shapes
    if is_a(tree, dict):
        below = [flatten(x, leaves, nodes) for x in tree.values()]
        if is_a(tree, defaultdict):  # one leaf more than keys: what makes those that are missing
            leaves.append(tree.default_factory)
            below.append(LEAF)
        return kind, tuple(tree), tuple(below)
    if is_a(tree, tuple) and hasattr(tree, "_fields"):
        return kind, tuple([flatten(x, leaves, nodes) for x in tree])
    if has_fields(tree):
        own = own_dict(tree)
        names = [f.name for f in fields(tree)] if own is None else list(own)
        return kind, tuple(names), tuple([flatten(getattr(tree, n), leaves, nodes) for n in names])
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
    if type(shape[1]) is not tuple:  # a tensor that wraps others (`subclasses.Kind`), `Registered`
        return shape[1].close(items)
    if issubclass(kind, defaultdict):
        factory = items.pop()
        return kind(factory, dict(zip(shape[1], items, strict=True)))
    if issubclass(kind, dict):
        # A mapping, not pairs: a Counter would count those.
        return kind(dict(zip(shape[1], items, strict=True)))
    made = object.__new__(kind)  # `__init__` need not take every field, and has run once already
    for name, item in zip(shape[1], items, strict=True):
        object.__setattr__(made, name, item)
    return made
