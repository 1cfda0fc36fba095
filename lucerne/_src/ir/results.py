"""Named results: `values, indices = x.max(0)` and `x.max(0).values` both work, as in torch."""

from __future__ import annotations

import collections
from typing import Any

_TYPES: dict[str, type] = {}


def named(name: str, fields: str) -> Any:
    """The tuple type of an op's results; prints as `torch.return_types.name(...)`.

    >>> named("max", "values indices")(1, 2)
    torch.return_types.max(
    values=1,
    indices=2)
    """
    found = _TYPES.get(name)
    if found is None:
        base = collections.namedtuple(name, fields)  # type: ignore[misc]
        found = type(
            name, (base,), {"__slots__": (), "__repr__": _represent, "__reduce__": _reduce}
        )
        found.__module__ = "torch.return_types"
        _TYPES[name] = found
    return found


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuild, (type(self).__name__, " ".join(self._fields), tuple(self))


def _rebuild(name: str, fields: str, parts: tuple[Any, ...]) -> Any:
    return named(name, fields)(*parts)


def _represent(self: Any) -> str:
    lines = ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self, strict=True))
    return f"torch.return_types.{type(self).__name__}(\n{lines})"


def types() -> dict[str, type]:
    return _TYPES
