"""A counter of changes to the structure of programs: modules, hooks, optimizers.

Whoever keeps something that was derived from the structure (a compiled function) looks at one
number at each call, and at the structure itself only when the number has moved.
"""

from __future__ import annotations


class StructureVersion:
    """`count` moves whenever a module or an optimizer gets another attribute, part or hook."""

    count = 0


class CountsChanges:
    """A table each of whose changes moves the count. (Others have to be looked at each time.)"""

    __slots__ = ()


def note_change() -> None:
    StructureVersion.count += 1
