"""Nested containers as flat lists and back, under torch's names (`torch.utils._pytree`).

A registry says which classes are containers (`register_pytree_node`); everything else is a leaf.
`tree_map_only(Tensor, f, args)` is what code for subclasses calls most.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from lucerne._src.base.process.forks import once
from lucerne._src.base.tree import NODES
from lucerne._src.ir.dispatch import call_back
from lucerne.utils._pytree_keys import GetAttrKey as GetAttrKey
from lucerne.utils._pytree_keys import KeyEntry as KeyEntry
from lucerne.utils._pytree_keys import KeyPath as KeyPath
from lucerne.utils._pytree_keys import MappingKey as MappingKey
from lucerne.utils._pytree_keys import SequenceKey as SequenceKey
from lucerne.utils._pytree_keys import key_get as key_get
from lucerne.utils._pytree_keys import keystr as keystr

Context = PyTree = DumpableContext = Any
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]
FlattenWithKeysFunc = Callable[[Any], tuple[list[tuple[Any, Any]], Any]]
ToDumpableContextFn = FromDumpableContextFn = Callable[[Any], Any]
IsLeaf = Callable[[Any], bool] | None


class NodeDef(NamedTuple):
    """How objects of a class are taken apart and put together."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: FlattenWithKeysFunc | None = None


class _Written(NamedTuple):
    """How a class is named in text, and its context."""

    name: str
    to_text: Callable[[Any], Any] | None
    from_text: Callable[[Any], Any] | None


SUPPORTED_NODES: dict[Any, NodeDef] = NODES
_WRITTEN: dict[Any, _Written] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: FlattenFunc,
    unflatten_fn: UnflattenFunc,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: FlattenWithKeysFunc | None = None,
) -> None:
    """Let objects of a class be containers.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda xs, _: Pair(*xs))
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) is not (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or "
            "registered."
        )
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    _WRITTEN[cls] = _Written(name, to_dumpable_context, from_dumpable_context)


_private_register_pytree_node = _register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Let objects of a dataclass be containers of their fields (those of the constructor)."""
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"register_dataclass: {cls} is not a dataclass; decorate it with one")
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    names = fields if field_names is None else list(field_names)
    names = [n for n in names if n not in (drop_field_names or ())]
    unknown = [n for n in names if n not in fields]
    if unknown:
        raise ValueError(f"register_dataclass: {cls} has no fields {unknown}, only {fields}")

    def pairs(x: Any) -> list[tuple[Any, Any]]:
        return [(GetAttrKey(n), getattr(x, n)) for n in names]

    register_pytree_node(
        cls,
        lambda x: ([v for _, v in pairs(x)], names),
        lambda found, context: cls(**dict(zip(context, found, strict=True))),
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=lambda x: (pairs(x), names),
    )


def register_constant(cls: type) -> None:
    """Let objects of a class be part of the structure, with no leaves."""
    register_pytree_node(cls, _constant_flatten, lambda found, context: context)


def is_constant_class(cls: type) -> bool:
    """Whether `register_constant` was called for it."""
    return cls in SUPPORTED_NODES and SUPPORTED_NODES[cls].flatten_fn is _constant_flatten


def _constant_flatten(x: Any) -> tuple[list[Any], Any]:
    return [], x


def _deregister_pytree_node(cls: Any) -> None:
    """Let objects of a class be leaves again."""
    del SUPPORTED_NODES[cls], _WRITTEN[cls]


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class was made by `namedtuple`, or inherits from such a one."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        return False
    fields = getattr(cls, "_fields", None)
    return isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)


def is_namedtuple(obj: Any) -> bool:
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether it is a class as `os.stat` returns: a tuple in C whose places have names."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, name, None), int) for name in _COUNTS)
        and not cls.__flags__ & _MAY_BE_BASE
    )


def is_structseq(obj: Any) -> bool:
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    return is_structseq_class(type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    return is_namedtuple_class(type(obj))


_COUNTS = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
_MAY_BE_BASE = 1 << 10
"""Python's flag of a class that others may inherit from."""


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_class(kind):
        return namedtuple
    return kind


# ---- Python's containers ------------------------------------------------------------------------


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Any]:
    return list(d), None


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _tuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(GetAttrKey(n), v) for n, v in zip(d._fields, d, strict=True)], type(d)


def _ordereddict_flatten(d: OrderedDict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten


def _defaultdict_flatten(d: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _defaultdict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], [d.default_factory, list(d)]


def _deque_flatten(d: deque[Any]) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> deque[Any]:
    return deque(values, maxlen=context)


def _deque_flatten_with_keys(d: deque[Any]) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], d.maxlen


for _row in (
    (tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
    (list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
    (dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    (namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys),
    (OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _dict_flatten_with_keys),
    (defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
    (deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
):
    register_pytree_node(*_row[:3], flatten_with_keys_fn=_row[3])
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})


# ---- structures ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class TreeSpec:
    """The structure of a tree, without its leaves. `type` is None for a single leaf."""

    type: Any
    _context: Any = None
    _children: list[TreeSpec] = dataclasses.field(default_factory=list)

    @property
    def context(self) -> Any:
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        return self._children

    @once
    def num_nodes(self) -> int:
        return 1 + sum(c.num_nodes for c in self._children)

    @once
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(c.num_leaves for c in self._children)

    @once
    def num_children(self) -> int:
        return len(self._children)

    def is_leaf(self) -> bool:
        """Whether it is a single leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        found = list(leaves)
        if len(found) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(found)} but the spec refers "
                f"to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._built(iter(found))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [c._built(leaves) for c in self._children]
        return SUPPORTED_NODES[self.type].unflatten_fn(parts, self._context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What stands in another tree where this one has its leaves."""
        if self.type is None:
            return [tree]
        found = [
            x for c, part in zip(self._children, self._parts(tree), strict=True)
            for x in c.flatten_up_to(part)
        ]  # fmt: skip
        return found

    def _parts(self, tree: Any) -> list[Any]:
        kind = _get_node_type(tree)
        dicts = self.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES
        if kind is not self.type and not dicts:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        if dicts:
            keys = self._context[1] if self.type is defaultdict else self._context
            if set(keys) != set(tree):
                raise ValueError(
                    f"Node keys mismatch{_listed('missing', set(keys) - set(tree))}"
                    f"{_listed('extra', set(tree) - set(keys))}."
                )
            return [tree[k] for k in keys]
        parts, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if len(parts) != self.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {self.num_children}, but got {len(parts)}."
            )
        if self.type is not deque and context != self._context:
            raise ValueError(
                f"Node context mismatch for custom node type {self.type!r}: expected "
                f"{self._context!r}, but got {context!r}."
            )
        return list(parts)

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = indent + 2
        parts = f",\n{' ' * inner}".join(c.__repr__(inner) for c in self._children)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{parts}])"

    def __hash__(self) -> int:
        context = self._context
        if self.type is defaultdict:
            context = [context[0], *context[1]]
        key = tuple(context) if self.type in STANDARD_DICT_TYPES else repr(context)
        return hash((self.type, key, tuple(self._children)))


def _listed(what: str, keys: set[Any]) -> str:
    return f"; {what} key(s): {keys}" if keys else ""


class LeafSpec(TreeSpec):
    """The structure of a single value."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = _LEAF_SPEC = LeafSpec()


def treespec_leaf() -> TreeSpec:
    """The structure of a single value."""
    return _LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = ()) -> TreeSpec:
    """The structure of a tuple of these."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict of these."""
    found = dict(mapping, **kwargs)
    return TreeSpec(dict, list(found), list(found.values()))


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a value is no container."""
    if is_leaf is not None and call_back(is_leaf, tree):
        return True
    return _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, and the structure they came from.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": 3})
    >>> leaves, spec.unflatten([x * 10 for x in leaves])
    ([1, 2, 3], {'a': [10, 20], 'b': 30})
    """
    leaves: list[Any] = []
    return leaves, _flattened(tree, leaves, is_leaf)


def _flattened(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _get_node_type(tree)
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flattened(part, leaves, is_leaf) for part in parts])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The structure with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but "
            f"got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves, one after the other."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """All leaves, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments of a call."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_leaves(tree)]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """`func` on every leaf (with the leaves of further trees of the same structure)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([call_back(func, *xs) for xs in zip(leaves, *others, strict=True)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """`func` on every leaf for what it does; the tree comes back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(kind: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function on values of a type (or those a function picks), others as is."""
    picks = _picks(kind)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: call_back(func, x) if picks(x) else x

    return decorate


def _picks(kind: Any) -> Callable[[Any], bool]:
    union = isinstance(kind, (type, tuple)) or typing.get_origin(kind) is not None
    if union:
        return lambda x: isinstance(x, kind)
    return lambda x: bool(call_back(kind, x))


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    """`func` on the leaves of a type (or of several, or those a function picks).

    >>> tree_map_only(int, lambda x: -x, [1, "a", {"b": 2}])
    [-1, 'a', {'b': -2}]
    """
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    """`tree_map_only` for what it does; the tree comes back."""
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return any(call_back(pred, x) for x in tree_iter(tree, is_leaf))


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return all(call_back(pred, x) for x in tree_iter(tree, is_leaf))


def tree_any_only(
    kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    return any(call_back(pred, x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_all_only(
    kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    return all(call_back(pred, x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves with the keys that lead to each.

    >>> [(keystr(path), leaf) for path, leaf in tree_leaves_with_path({"a": [1, 2]})]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return list(_with_paths((), tree, is_leaf))


def _with_paths(path: KeyPath, tree: Any, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    kind = _get_node_type(tree)
    parts = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if parts is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a "
            "flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, part in parts(tree)[0]:
        yield from _with_paths((*path, key), part, is_leaf)


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """`tree_flatten`, each leaf with its path."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """`tree_map` of a function whose first argument is the path of the leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    leaves = zip(*zip(*found, strict=True), *others, strict=True) if found else ()
    return spec.unflatten([call_back(func, *xs) for xs in leaves])


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """A prefix of a structure, each value repeated for the leaves below it; None: it is none."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for part, child in zip(parts, treespec.children_specs, strict=True):
        more = _broadcast_to_and_flatten(part, child, is_leaf)
        if more is None:
            return None
        found += more
    return found


def _defaultdict_to_text(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _defaultdict_from_text(data: dict[str, Any]) -> list[Any]:
    module = sys.modules.get(data["default_factory_module"])
    factory = getattr(module, data["default_factory_name"], None)
    if factory is None:
        raise ValueError(
            f"treespec_loads: the default of a defaultdict, {data['default_factory_module']}."
            f"{data['default_factory_name']}, is not loaded: import its module first"
        )
    return [factory, data["dict_context"]]


_WRITTEN[defaultdict] = _Written(
    "collections.defaultdict", _defaultdict_to_text, _defaultdict_from_text
)


# ---- structures as text -------------------------------------------------------------------------

_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON."""
    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return json.dumps([_PROTOCOL, _as_data(treespec)])


def _as_data(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    written = _WRITTEN[spec.type]
    context = spec.context
    if spec.type is namedtuple:
        raise NotImplementedError(
            f"treespec_dumps: {context} is a named tuple; register it with register_pytree_node "
            "and a serialized_type_name."
        )
    text = written.to_text(context) if written.to_text else json.dumps(context)
    return {
        "type": written.name,
        "context": text,
        "children_spec": [_as_data(c) for c in spec.children_specs],
    }


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote."""
    protocol, data = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return _from_data(data)


def _from_data(data: dict[str, Any]) -> TreeSpec:
    if data["type"] is None:
        return _LEAF
    found = [k for k, w in _WRITTEN.items() if w.name == data["type"]]
    if not found:
        raise NotImplementedError(
            f"Deserializing {data['type']} in pytree is not registered: call register_pytree_node."
        )
    from_text = _WRITTEN[found[0]].from_text
    context = from_text(data["context"]) if from_text else json.loads(data["context"])
    return TreeSpec(found[0], context, [_from_data(c) for c in data["children_spec"]])


def treespec_pprint(treespec: TreeSpec) -> str:
    """A structure as text, its leaves as stars."""
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))


class _Star:
    def __repr__(self) -> str:
        return "*"
