"""The table of formulas."""

from __future__ import annotations

from collections.abc import Callable

Formula = Callable[..., None]
FORMULAS: dict[str, Formula] = {}


def formula(name: str) -> Callable[[Formula], Formula]:
    """Enter a function `f(frame, *arguments of the op)` as the meaning of a primitive."""

    def decorate(fn: Formula) -> Formula:
        FORMULAS[name] = fn
        return fn

    return decorate
