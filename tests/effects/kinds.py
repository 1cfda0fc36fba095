"""What a row of the matrix is: a kind of state, as text that is put into programs."""

from __future__ import annotations

from dataclasses import dataclass

PLACES = ("global", "closure", "argument", "attribute")
"""Where the function finds `S`: among globals, in a cell, as an argument, as an attribute of an
object that is a global."""


@dataclass(frozen=True)
class Kind:
    """A kind of state. All are pieces of Python in which the state is called `S`."""

    name: str
    setup: str
    """Makes `S`, and what belongs to it."""
    read: str
    """An expression: a number, or a tensor of one element."""
    write: str = ""
    """Statements that change it; empty: programs can't."""
    change: str = ""
    """Statements by which the caller changes it; `k` is 2.0, 1.0, 3.0 in turn."""
    state: str = ""
    """What is looked at after each call; empty: what `read` gives."""
    rebinds: bool = False
    """Whether `S` itself is bound anew: such a state is no argument."""
    undo: str = ""
    """Statements at the end, for what is everybody's."""
    mode: str | None = None
    """Of `compile`: "bitwise" where random numbers are drawn."""
    group: str = ""
    """The module it stands in."""
    places: tuple[str, ...] = PLACES


KINDS: dict[str, Kind] = {}


def kind(group: str, name: str, setup: str, read: str, **more: object) -> None:
    """Enter a row into the matrix."""
    assert name not in KINDS, name
    KINDS[name] = Kind(name, setup, read, group=group, **more)  # type: ignore[arg-type]
