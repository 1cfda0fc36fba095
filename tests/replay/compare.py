"""Two folders of what was written: which programs differ, and where first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rooms.move import in_text

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{14,}\b")
_LEFT_OUT = (".s", ".html")
"""Follow from what is compared."""


@dataclass(frozen=True)
class Difference:
    file: str
    line: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n  - {self.old[:160]}\n  + {self.new[:160]}"


def files(root: Path) -> dict[str, Path]:
    found = (p for p in root.rglob("*") if p.is_file() and p.suffix not in _LEFT_OUT)
    return {str(p.relative_to(root)): p for p in found}


def normal(text: str, names: Mapping[str, str]) -> list[str]:
    """Lines without addresses; modules by the names that they have now."""
    return _ADDRESS.sub("0x", in_text(text, dict(names))).splitlines()


def differences(old: Path, new: Path, names: Mapping[str, str] | None = None) -> list[Difference]:
    """The first different line of every file; files that only one of both has."""
    here, there, found = files(old), files(new), []
    for name in sorted({*here, *there}):
        if name not in here or name not in there:
            sides = ("there is no such file", "a file")
            found.append(Difference(name, 0, *(sides if name in there else sides[::-1])))
            continue
        a = normal(here[name].read_text(encoding="utf-8"), names or {})
        b = normal(there[name].read_text(encoding="utf-8"), {})
        found += _first(name, a, b)
    return found


def _first(name: str, a: list[str], b: list[str]) -> list[Difference]:
    for k, (x, y) in enumerate(zip(a, b, strict=False), 1):
        if x != y:
            return [Difference(name, k, x, y)]
    if len(a) == len(b):
        return []
    longer = (a, b)[len(b) > len(a)][min(len(a), len(b))]
    sides = ("", longer) if len(b) > len(a) else (longer, "")
    return [Difference(name, min(len(a), len(b)) + 1, *sides)]
