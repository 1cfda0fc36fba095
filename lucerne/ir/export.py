"""Public names come from the table: a namespace module fills itself with the entries that name it."""

from __future__ import annotations

from typing import Any

from lucerne.ir import op as op_
from lucerne.ir.define import fronts


def public_names(namespace: str) -> dict[str, Any]:
    """Every public function of a namespace, aliases included. Fronts win over ops of the same name."""
    found: dict[str, Any] = {}
    for op in op_.table().values():
        if op.namespace == namespace:
            for name in (op.name, *op.aliases):
                found[name] = op.public
    for front in fronts().values():
        if front.namespace == namespace:
            for name in (front.name, *front.aliases):
                found[name] = front.function
    return found


def fill(module: dict[str, Any], namespace: str) -> None:
    """Put the namespace's functions into a module's globals, keeping what is there already."""
    for name, function in public_names(namespace).items():
        module.setdefault(name, function)
