"""The kernel table: a rule is a NumPy function for one primitive.

    @rule("sort")
    def sort(input, dim, descending, stable):
        return values, indices

A rule takes the op's parameters in order, with arrays for tensors (types NumPy lacks arrive widened
to their compute type) and returns fresh arrays, which are converted to the dtype of the planned
results and written. `raw=True` rules get and return the stored bits as they are: for ops that only
move elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, tuple[Rule, bool]] = {}


def rule(name: str, *, raw: bool = False) -> Callable[[Rule], Rule]:
    """Enter a NumPy function as the rule of the primitive with this qualified name."""

    def decorate(fn: Rule) -> Rule:
        if name in RULES:
            raise ValueError(f"the reference backend has a rule for {name!r} already")
        RULES[name] = (fn, raw)
        return fn

    return decorate
