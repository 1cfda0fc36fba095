"""The table of rules: what an op is in ONNX.

    @rule("transpose")
    def transpose(c, node, input, dim0, dim1):
        return c.node("Transpose", [c.of(input)], perm=...)

A rule is called with the translation `c` (`translate.py`), the node, and its arguments, in which
numbers that follow from sizes are formulas. It returns the name of the result (of each result), or
NotImplemented: the ops of the body then stand in its place. Ops that need none: pointwise ones
(their bodies run on a machine whose instructions are ONNX nodes, or their entry names an ONNX
operator), reductions (by the monoid of their entry), and composites without a rule, which are taken
apart when a program is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir import op as op_

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
_WHEN: dict[str, Callable[..., bool]] = {}


def rule(*names: str, when: Callable[..., bool] | None = None) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of the ops with these qualified names.

    `when`: for which arguments (tensors, and numbers that may be symbolic) a composite has one; for
    others it is taken apart when a program is recorded.
    """

    def decorate(fn: Rule) -> Rule:
        for name in names:
            op_.get(name)  # a rule of an op that is not there would rot unseen
            if name in RULES:
                raise ValueError(f"{name} has a rule already")
            RULES[name] = fn
            if when is not None:
                _WHEN[name] = when
        return fn

    return decorate


def has_rule(op: op_.Op, args: tuple[Any, ...]) -> bool:
    """Whether a composite is kept whole for ONNX."""
    name = op.qualified
    return name in RULES and (name not in _WHEN or _WHEN[name](*args))
