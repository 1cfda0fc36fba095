"""Cases: a function, the world it lives in, and what happens to that world between two calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Case:
    """`setup` defines `f` and changes `x` if it likes; `call` is evaluated twice, then once after
    each of the `steps`."""

    group: str
    name: str
    setup: str
    steps: list[str]
    call: str = "f(x)"
    options: dict[str, Any] = field(default_factory=dict)
    """`wrap=False`: the setup compiles with `C(...)` itself. `bitwise`: compiled bit by bit.
    `sign`: signs of zeros count. `tol`: tolerance. `text=False`: only the kind of an error counts.
    `differs`: why this is one of the documented differences."""

    def __str__(self) -> str:
        return f"{self.group} {self.name}"


CASES: list[Case] = []


def case(
    group: str,
    name: str,
    setup: str,
    steps: Sequence[str] = (),
    call: str = "f(x)",
    **options: Any,
) -> None:
    """Put a case into the table."""
    CASES.append(Case(group, name, setup, list(steps), call, options))


def body_of(lines: str) -> str:
    """Lines as the body of a function."""
    return "\n".join(f" {line}" for line in lines.split("\n"))
