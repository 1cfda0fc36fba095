"""Arguments and results of transformed functions: trees of tensors, `argnums`, torch's checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.tree import NODES
from lucerne._src.capture.trace.pytree import LEAF, flatten, rebuild
from lucerne._src.tensor import api as lu

Tree = Any
"""The shape of nested tuples, lists and dicts; leaves stand for anything else."""


def leaves_of(tree: Any) -> tuple[list[Any], Tree]:
    """The leaves of nested containers, and how to put others in their place."""
    leaves: list[Any] = []
    return leaves, flatten(tree, leaves, NODES)


def put_back(leaves: Sequence[Any], shape: Tree) -> Any:
    return rebuild(shape, iter(leaves))


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to its tensors; other leaves stay."""
    leaves, shape = leaves_of(tree)
    return put_back([function(x) if isinstance(x, lu.Tensor) else x for x in leaves], shape)


def spelled(shape: Tree) -> str:
    """A tree as messages show it: a star for each leaf."""
    if shape is LEAF:
        return "*"
    kind, *keys, items = shape
    inside = [spelled(s) for s in items]
    if issubclass(kind, dict) and type(keys[0]) is tuple:
        return "{" + ", ".join(f"{k!r}: {s}" for k, s in zip(keys[0], inside, strict=True)) + "}"
    opened, closed = ("[", "]") if kind is list else ("(", ")")
    return opened + ", ".join(inside) + ("," if kind is tuple and len(items) == 1 else "") + closed


# ---- argnums -----------------------------------------------------------------------------------


def chosen(args: tuple[Any, ...], argnums: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Which arguments to differentiate: their positions, and they themselves."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    several = argnums if isinstance(argnums, tuple) else (argnums,)
    at = tuple(_position(n, len(args)) for n in several)
    if not at:
        raise RuntimeError("argnums must be non-empty")
    if len(set(at)) != len(at):
        raise RuntimeError(f"argnums elements must be unique, got {at}")
    return at, tuple(args[i] for i in at)


def _position(n: Any, count: int) -> int:
    if not isinstance(n, int):
        raise RuntimeError(f"argnum must be int, got: {type(n)}")
    if not -count <= n < count:
        raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    return n % count


def replaced(args: tuple[Any, ...], at: tuple[int, ...], new: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with those at some positions replaced."""
    found = list(args)
    for i, x in zip(at, new, strict=True):
        found[i] = x
    return tuple(found)


# ---- checks ------------------------------------------------------------------------------------


def parted(result: Any, has_aux: bool, api: str) -> tuple[Any, Any]:
    """The output of a function and what it returned beside it."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


def check_outputs(output: Any, leaves: list[Any], api: str) -> None:
    """Refuse results that hold something else than tensors, or nothing."""
    if not leaves:
        raise RuntimeError(
            f"{api}: Expected f to be a function that has non-empty output (got output = {output})"
        )
    for x in leaves:
        if not isinstance(x, lu.Tensor):
            raise RuntimeError(
                f"{api}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(x)}"
            )


def check_tensors(leaves: list[Any], api: str, name: str) -> None:
    if not leaves:
        raise RuntimeError(f"{api}: Expected {name} to contain at least one Tensor.")
    for x in leaves:
        if not isinstance(x, lu.Tensor):
            raise RuntimeError(f"{api}: Expected {name} to only contain Tensors, got {type(x)}")


def refuse_complex(api: str, tree: Any, what: str) -> None:
    for i, x in enumerate(leaves_of(tree)[0]):
        if isinstance(x, lu.Tensor) and x.is_complex():
            raise RuntimeError(
                f"{api}: Expected all {what} to be real but received complex tensor at flattened "
                f"input idx: {i}"
            )
