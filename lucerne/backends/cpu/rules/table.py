"""The kernel table: a rule turns a graph node into something that runs.

    @rule("gather")
    def gather(node):
        return Kernel(...)       # or None: this case is not taken, the reference backend runs it

A rule looks at `node.args` (Values with `.meta` where tensors flow in, statics otherwise) and
`node.outputs`; it must return code that does not depend on sizes (pass them in `extra`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne.ir.graph import Node

Rule = Callable[[Node], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of the ops with these qualified names."""

    def decorate(fn: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"the cpu backend has a rule for {name!r} already")
            RULES[name] = fn
        return fn

    return decorate
