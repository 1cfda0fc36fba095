"""Attributes that a user's subclass of Tensor calls as the fields of tensors are called.

PyTorch's tensors have no `_meta`, so a library may keep its own under that name (MONAI does). Where
a class' code stores one, that code sees what it stored; everybody else sees the tensor's field.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

_OURS = str(Path(__file__).parents[3])


class OwnField:
    """A field of tensors, beside the attribute of the same name that some functions know."""

    def __init__(self, field: Any, name: str, knowing: frozenset[CodeType]) -> None:
        self.field, self.name, self.knowing = field, name, knowing

    def __get__(self, tensor: Any, owner: type | None = None) -> Any:
        if tensor is None:
            return self
        known = sys._getframe(1).f_code in self.knowing
        return self.read(tensor) if known else self.field.__get__(tensor, owner)

    def __set__(self, tensor: Any, value: Any) -> None:
        if sys._getframe(1).f_code in self.knowing:
            tensor.__dict__[self.name] = value
        else:
            self.field.__set__(tensor, value)

    def __delete__(self, tensor: Any) -> None:
        self.read(tensor)
        del tensor.__dict__[self.name]

    def read(self, tensor: Any) -> Any:
        """The attribute that the class' own code sees."""
        try:
            return tensor.__dict__[self.name]
        except KeyError:
            kind = type(tensor).__name__
            raise AttributeError(f"'{kind}' object has no attribute '{self.name}'") from None


def keep_apart(cls: type, fields: dict[str, Any]) -> None:
    """Let the code of a new class have attributes of its own under the names of these fields."""
    codes = [code for kind in cls.__mro__ for code in _codes_of_class(kind)]
    for name, field in fields.items():
        knowing = frozenset(c for c in codes if name in c.co_names or name in c.co_consts)
        if any(_stores(code, name) for code in knowing):
            setattr(cls, name, OwnField(field, name, knowing))


def _stores(code: CodeType, name: str) -> bool:
    return name in code.co_names and any(
        found.opname == "STORE_ATTR" and found.argval == name
        for found in dis.get_instructions(code)
    )


def _codes_of_class(kind: type) -> Iterator[CodeType]:
    """The code of a class' functions and properties, ours aside."""
    for member in vars(kind).values():
        parts = [member, *(getattr(member, n, None) for n in ("__func__", "fget", "fset", "fdel"))]
        for part in parts:
            code = getattr(part, "__code__", None)
            if isinstance(code, CodeType) and not code.co_filename.startswith(_OURS):
                yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
