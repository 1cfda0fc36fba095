"""What a Python says of its own instructions; needs nothing but that Python.

As a script it prints them as JSON, for another Python to compare with.
"""

from __future__ import annotations

import dis
import json
import opcode
from typing import Any

_KINDS = (
    ("jump", "hasjrel"), ("jump", "hasjabs"), ("name", "hasname"), ("constant", "hasconst"),
    ("comparison", "hascompare"), ("local", "haslocal"), ("free", "hasfree"),
)  # fmt: skip
_PSEUDO = 256
"""Numbers from here on are the compiler's own: they are in no code."""


def described() -> dict[str, dict[str, Any]]:
    """By name of an instruction: what its argument is, and what it does to the stack's height for
    the arguments 0 to 3, going on and jumping."""
    special: set[str] = set()
    for names in getattr(opcode, "_specializations", {}).values():
        special |= set(names)
    found = {}
    for name, number in sorted(dis.opmap.items()):
        inner = name in special or name.startswith("INSTRUMENTED_") or number >= _PSEUDO
        if not inner:
            found[name] = {"argument": _kind(number), "effect": _effects(number)}
    return found


def _kind(number: int) -> str:
    for kind, numbers in _KINDS:
        if number in getattr(dis, numbers):
            return kind
    takes = number in dis.hasarg if hasattr(dis, "hasarg") else number >= dis.HAVE_ARGUMENT
    return "number" if takes else "none"


def _effects(number: int) -> list[Any]:
    found: list[Any] = []
    for argument in range(4) if _kind(number) != "none" else (None,):
        for jump in (False, True):
            try:
                found.append(dis.stack_effect(number, argument, jump=jump))
            except ValueError:
                found.append(None)
    return found


if __name__ == "__main__":
    print(json.dumps(described()))
