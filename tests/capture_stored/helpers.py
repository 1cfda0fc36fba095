"""What some functions of the table call in another module."""

from __future__ import annotations

from typing import Any

SCALE = 3.0


def scaled(x: Any) -> Any:
    return x * SCALE


class Chosen:
    """Gives a function that nobody names in code."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def named(self, name: str) -> Any:
        return getattr(self.owner, "un" + name)


class Functions:
    @staticmethod
    def unnamed(x: Any) -> Any:
        return Hidden.more(x)


class Hidden:
    """Found by its name in a global of this module only."""

    @staticmethod
    def more(x: Any) -> Any:
        return x + 0.25
