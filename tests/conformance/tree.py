"""Nested lists, tuples and dicts of either framework: their leaves, and their outline.

A `Size` is a leaf on both sides: it is a value, not a container of results.
"""

from collections.abc import Callable
from typing import Any

Leaf = Callable[[Any], Any]


def is_container(x: Any) -> bool:
    """Whether to look inside `x`."""
    return isinstance(x, (list, tuple, dict)) and type(x).__name__ != "Size"


def leaves(x: Any) -> list[Any]:
    """All leaves, depth first."""
    if not is_container(x):
        return [x]
    items = x.values() if isinstance(x, dict) else x
    return [leaf for item in items for leaf in leaves(item)]


def paths(x: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """All leaves with their keys, as `a.0.b`."""
    if not is_container(x):
        return [(prefix, x)]
    items = x.items() if isinstance(x, dict) else enumerate(x)
    return [found for key, item in items for found in paths(item, f"{prefix}.{key}".strip("."))]


def map_leaves(f: Leaf, x: Any) -> Any:
    """The same nesting with `f` applied to every leaf."""
    if not is_container(x):
        return f(x)
    if isinstance(x, dict):
        return {key: map_leaves(f, value) for key, value in x.items()}
    items = [map_leaves(f, item) for item in x]
    if type(x) in (list, tuple):
        return type(x)(items)
    if hasattr(x, "_fields"):
        return type(x)(*items)
    return type(x)(items)


def field_names(x: Any) -> tuple[str, ...]:
    """Names under which a tuple's items can be reached, empty for a plain tuple."""
    fields: tuple[str, ...] = getattr(x, "_fields", ()) or getattr(type(x), "__match_args__", ())
    return fields


def outline(x: Any) -> Any:
    """What must agree before leaves are compared: kinds, lengths and field names."""
    if not is_container(x):
        return "*"
    if isinstance(x, dict):
        return {key: outline(value) for key, value in x.items()}
    kind = "list" if isinstance(x, list) else "tuple"
    fields = field_names(x)
    label = f"{kind}({', '.join(fields)})" if fields else kind
    return (label, *(outline(item) for item in x))
