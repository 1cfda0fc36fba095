"""Structured arguments taken apart and put together again: lists, tuples and dicts of leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucerne.fx.codegen import CodeGen


class TreeSpec(NamedTuple):
    """The shape of a structure: its type, what its type needs besides children, its children."""

    kind: Any
    context: Any
    children: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(c.num_leaves for c in self.children)


LEAF = TreeSpec(None, None, ())
_flatteners: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: Callable[[Any, Any], Any],
    flatten_fn_exact_match_spec: Callable[[Any, Any], bool] | None = None,
) -> None:
    """Take objects of a class apart: `flatten_fn_spec(object, spec)` lists the children."""
    _flatteners[cls] = (
        lambda x: (list(flatten_fn_spec(x, None)), None),
        lambda items, _: cls(*items),
    )


def _children(x: Any) -> tuple[list[Any], Any] | None:
    kind = type(x)
    if kind in _flatteners:
        return _flatteners[kind][0](x)
    if isinstance(x, dict):
        return list(x.values()), tuple(x)
    if isinstance(x, (list, tuple)) and type(x).__name__ != "Size":
        return list(x), None
    return None


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a structure, and its shape.

    >>> tree_flatten({"a": [1, 2], "b": 3})[0]
    [1, 2, 3]
    """
    found = _children(tree)
    if found is None:
        return [tree], LEAF
    items, context = found
    leaves: list[Any] = []
    specs: list[TreeSpec] = []
    for item in items:
        own, spec = tree_flatten(item)
        leaves += own
        specs.append(spec)
    return leaves, TreeSpec(type(tree), context, tuple(specs))


def tree_unflatten(leaves: list[Any], spec: TreeSpec) -> Any:
    """The structure of this shape with these leaves.

    >>> leaves, spec = tree_flatten({"a": [1, 2]})
    >>> tree_unflatten(["x", "y"], spec)
    {'a': ['x', 'y']}
    """
    if spec.kind is None:
        return leaves[0]
    items, at = [], 0
    for child in spec.children:
        items.append(tree_unflatten(leaves[at : at + child.num_leaves], child))
        at += child.num_leaves
    if spec.kind in _flatteners:
        return _flatteners[spec.kind][1](items, spec.context)
    if issubclass(spec.kind, dict):
        return dict(zip(spec.context, items, strict=True))
    return spec.kind(*items) if hasattr(spec.kind, "_fields") else spec.kind(items)


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with `fn` applied to each leaf."""
    leaves, spec = tree_flatten(tree)
    return tree_unflatten([fn(leaf) for leaf in leaves], spec)


def tree_flatten_spec(tree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a structure that must have this shape."""
    leaves, found = tree_flatten(tree)
    if found != spec:
        raise ValueError(f"expected arguments of the structure {spec}, received {found}")
    return leaves


def is_flat(spec: TreeSpec) -> bool:
    """Whether all children are leaves."""
    return all(child.kind is None for child in spec.children)


class PyTreeCodeGen(CodeGen):
    """Code of a graph whose placeholders are the leaves of structured arguments."""

    def __init__(self, orig_args: list[str], in_spec: TreeSpec) -> None:
        super().__init__()
        self.orig_args = orig_args
        self.in_spec = in_spec
        self.out_spec: TreeSpec | None = None

    def process_inputs(self, *args: Any) -> Any:
        skip = 1 if self.orig_args[:1] == ["self"] else 0
        spec = TreeSpec(tuple, None, self.in_spec.children[skip:])
        return tree_flatten_spec(args, spec)

    def process_outputs(self, outputs: Any) -> Any:
        return outputs if self.out_spec is None else tree_unflatten(outputs, self.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        own = self.orig_args if self.orig_args[:1] == ["self"] else ["self", *self.orig_args]
        names = [v.split("=")[0].split(":")[0].strip() for v in free_vars]
        given = ", ".join(self.orig_args if self.orig_args[:1] != ["self"] else own[1:])
        unpack = f"{', '.join(names)}, = self._graph.process_inputs({given})"
        return f"def {self._func_name}({', '.join(own)}){maybe_return_annotation}:\n    {unpack}"

    def generate_output(self, output_args: Any, **options: Any) -> str:
        return f"return self._graph.process_outputs({output_args!r})"
