"""The tables of a module: parameters, buffers and modules by name, hooks by number.

Programs that were compiled for a module hold its parameters. Some code puts others straight into
the tables (`module._parameters["weight"] = w`, `module._forward_hooks.clear()`), so a table tells
whenever it changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from lucerne._src.base.process.structure_version import CountsChanges, StructureVersion


def _counted(change: Any) -> Callable[..., Any]:
    """A method of a table that counts what it does among the changes of all modules."""

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        StructureVersion.count += 1
        return change(self, *args, **kwargs)

    counting.__name__, counting.__doc__ = change.__name__, change.__doc__
    return counting


class Members(dict[str, Any], CountsChanges):
    """A dict that counts its changes among those of all modules.

    >>> from lucerne._src.base.process.structure_version import StructureVersion
    >>> from lucerne.nn.modules.members import Members
    >>> table, before = Members(), StructureVersion.count
    >>> table["weight"] = None
    >>> StructureVersion.count > before
    True
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and files hold a plain dict; a module makes its own table of it."""
        return dict, (dict(self),)

    def __copy__(self) -> Members:
        return Members(self)

    copy = __copy__


class HookTable(OrderedDict[int, Any], CountsChanges):
    """An OrderedDict that counts its changes among those of all modules.

    >>> from lucerne._src.base.process.structure_version import StructureVersion
    >>> from lucerne.nn.modules.members import HookTable
    >>> table, before = HookTable({0: print}), StructureVersion.count
    >>> table.clear()
    >>> StructureVersion.count > before
    True
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (list(self.items()),)

    def __copy__(self) -> HookTable:
        return HookTable(self)

    copy = __copy__

    move_to_end = cast(Any, _counted(OrderedDict.move_to_end))


_CHANGES = (
    "__setitem__", "__delitem__", "__ior__", "update", "pop", "popitem", "setdefault", "clear",
)  # fmt: skip
for _kind in (Members, HookTable):
    for _name in _CHANGES:
        setattr(_kind, _name, _counted(getattr(_kind.__base__, _name)))
