"""The table of rules: one function per primitive, from a node and its arguments to results.

    @rule("flip")
    def flip(node, input, dims):
        return jnp.flip(input, dims)

Arguments come in the order of the op's parameters, arrays (tracers) for tensors. A rule returns a
value of the result's dtype and shape, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.backends.xla.types import jtype
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of the primitive with this qualified name."""

    def decorate(fn: Rule) -> Rule:
        if name in RULES:
            raise ValueError(f"the backend xla has a rule for {name!r} already")
        RULES[name] = fn
        return fn

    return decorate


def out(node: Node, k: int = 0) -> TensorMeta:
    """The meta of a result."""
    found: TensorMeta = node.outputs[k].meta
    return found


def out_type(node: Node) -> Any:
    return jtype(out(node).dtype)


def wide_type(node: Node) -> Any:
    """The type that the result is computed in."""
    return jtype(out(node).dtype.compute)
