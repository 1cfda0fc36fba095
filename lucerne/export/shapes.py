"""Trees of arguments and results in files: tuples, lists, dicts, and records by their fields."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import make_dataclass
from typing import Any

from lucerne._src.capture.trace.pytree import LEAF
from lucerne._src.io.errors import CorruptFileError

_DEEPEST = 100
_MOST_FIELDS = 10_000


def plain_shape(shape: Any) -> Any:
    """A shape in which records count by their fields: a loaded program has classes of its own."""
    if shape is LEAF or shape == LEAF:
        return LEAF
    kind, parts = shape[0], tuple(plain_shape(s) for s in shape[-1])
    if kind is tuple or kind is list:
        return kind, parts
    if len(shape) == 2:
        return "fields", kind._fields, parts
    return ("dict" if issubclass(kind, dict) else "fields"), shape[1], parts


def to_json(shape: Any) -> Any:
    if shape is LEAF:
        return LEAF
    kind, parts = shape[0], [to_json(s) for s in shape[-1]]
    if kind is tuple or kind is list:
        return [kind.__name__, parts]
    if len(shape) == 2:
        return ["namedtuple", kind.__name__, list(kind._fields), parts]
    if issubclass(kind, dict):
        if not all(isinstance(k, (str, int)) for k in shape[1]):
            raise TypeError("save: keys of dicts among arguments and results must be text or ints")
        return ["OrderedDict" if issubclass(kind, OrderedDict) else "dict", list(shape[1]), parts]
    return ["dataclass", kind.__name__, list(shape[1]), parts]


def from_json(told: Any, depth: int = 0) -> Any:
    """A shape; classes that the file names are made anew, with nothing but their fields."""
    if told == LEAF:
        return LEAF
    if type(told) is not list or not told or depth > _DEEPEST or type(told[-1]) is not list:
        raise CorruptFileError("a tree of arguments or results is damaged")
    parts = tuple(from_json(x, depth + 1) for x in told[-1])
    if told[0] in ("tuple", "list") and len(told) == 2:
        return (tuple if told[0] == "tuple" else list), parts
    if told[0] in ("dict", "OrderedDict") and len(told) == 3:
        keys = told[1]
        if type(keys) is not list or len(keys) != len(parts) or not _are_keys(keys):
            raise CorruptFileError("the keys of a dict are damaged")
        return (OrderedDict if told[0] == "OrderedDict" else dict), tuple(keys), parts
    if told[0] in ("namedtuple", "dataclass") and len(told) == 4:
        name, names = told[1], told[2]
        if not _is_name(name) or type(names) is not list or len(names) != len(parts):
            raise CorruptFileError("a record among arguments or results is damaged")
        if (
            len(names) > _MOST_FIELDS
            or not all(map(_is_name, names))
            or len(set(names)) != len(names)
        ):
            raise CorruptFileError("the fields of a record are damaged")
        if told[0] == "namedtuple":
            return namedtuple(name, names), parts
        return make_dataclass(name, names), tuple(names), parts
    raise CorruptFileError(f"a tree has a part of an unknown kind: {str(told[0])[:40]!r}")


def _are_keys(keys: list[Any]) -> bool:
    return all(type(k) in (str, int) for k in keys) and len(set(keys)) == len(keys)


def _is_name(x: Any) -> bool:
    return type(x) is str and x.isidentifier() and not x.startswith("_") and len(x) < 200


def count_leaves(shape: Any) -> int:
    return 1 if shape is LEAF else sum(count_leaves(s) for s in shape[-1])


__all__ = ["count_leaves", "from_json", "plain_shape", "to_json"]
