"""The tables of a module: parameters, buffers and modules by name.

Programs that were compiled for a module hold its parameters. Some code puts others straight into
the tables (`module._parameters["weight"] = w`), so a table tells whenever it changes.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process.structure_version import StructureVersion


class Members(dict[str, Any]):
    """A dict that counts its changes among those of all modules.

    >>> from lucerne._src.base.process.structure_version import StructureVersion
    >>> from lucerne.nn.modules.members import Members
    >>> table, before = Members(), StructureVersion.count
    >>> table["weight"] = None
    >>> StructureVersion.count > before
    True
    """

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        StructureVersion.count += 1
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        StructureVersion.count += 1
        dict.__delitem__(self, key)

    def __ior__(self, other: Any) -> Members:  # type: ignore[misc,override]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and files hold a plain dict; a module makes its own table of it."""
        return dict, (dict(self),)

    def __copy__(self) -> Members:
        return Members(self)

    def copy(self) -> Members:
        return Members(self)

    def update(self, *args: Any, **kwargs: Any) -> None:
        StructureVersion.count += 1
        dict.update(self, *args, **kwargs)

    def pop(self, *args: Any) -> Any:
        StructureVersion.count += 1
        return dict.pop(self, *args)

    def popitem(self) -> tuple[str, Any]:
        StructureVersion.count += 1
        return dict.popitem(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        StructureVersion.count += 1
        return dict.setdefault(self, key, default)

    def clear(self) -> None:
        StructureVersion.count += 1
        dict.clear(self)
