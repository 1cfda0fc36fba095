"""Which library's new release broke a scenario: sweeps in a file, and the next one beside it.

A scenario that passed and fails now has a cause: a library among those it needs came in another
version, or Lucerne changed. Both are told apart by the versions that the last sweep wrote down.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Requires = Callable[[str], Iterable[str]]


def versions() -> dict[str, str]:
    """Version by name of every distribution that is installed."""
    found = importlib.metadata.distributions()
    return {_plain(d.metadata["Name"]): d.version for d in found if d.metadata["Name"]}


def required(distribution: str) -> list[str]:
    """The names of what a distribution asks for, extras aside; of one that is not here, none."""
    try:
        lines = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    plain = [line for line in lines if "extra ==" not in line]
    return [_plain(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in plain]


def closure(distribution: str, requires: Requires = required) -> set[str]:
    """A distribution, what it asks for, what that asks for, and so on."""
    found: set[str] = set()
    wanted = [_plain(distribution)]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += requires(name)
    return found


def broken(
    before: Mapping[str, Any], now: Mapping[str, Any], needs: Callable[[str], set[str]]
) -> list[str]:
    """A line for each scenario that passed before and fails now; `needs`: the closure of a scenario
    by its name."""
    old, new = before["versions"], now["versions"]
    moved = {n: f"{n} {old.get(n, '-')} -> {new[n]}" for n in new if old.get(n) != new[n]}
    lines = []
    for name, row in now["scenarios"].items():
        if (
            row["state"] in ("fails", "differs")
            and before["scenarios"].get(name, {}).get("state") == "ok"
        ):
            releases = sorted(moved[n] for n in needs(name) & set(moved))
            cause = "; ".join(releases) or "no library of it changed, so Lucerne did"
            lines.append(f"{name} broke: {cause}: {row['why']}")
    return lines


def distribution_of(library: str) -> str:
    """The distribution that a module of this name comes from."""
    return importlib.metadata.packages_distributions().get(library, [library])[0]


def read(path: Path) -> dict[str, Any] | None:
    """The last sweep, if there was one."""
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def write(path: Path, sweep: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(sweep, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _plain(name: str) -> str:
    """As pip compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()
