"""Constants that are known by a name and compared by identity: layouts, memory formats, ..."""

from __future__ import annotations

from typing import Self


class Named:
    """One such constant. A subclass says how pickle finds it again (`__reduce__`)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __deepcopy__(self, memo: object) -> Self:
        return self
