"""A store of its own for a test, in this process: a new `compile` asks it like a new process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.capture.cache.disk import lookup

MEGABYTE = 1 << 20
SCALE = 0.5
HELD = torch.linspace(-1.0, 1.0, 6)


class Bench:
    """`ask` compiles a function anew and says whether its program came from the store."""

    def __init__(self, folder: Path, patch: Any, limit: int = 64 * MEGABYTE) -> None:
        self.folder, self.patch = folder, patch
        self.cache = Cache(str(folder), limit, ".program", "compiled programs")
        self.account = lookup.CacheCounts()
        self.around = "the package and the machine of this test"
        patch.setattr(lookup, "folder", lambda: self.cache)
        patch.setattr(lookup, "surroundings", lambda backend: self.around)
        patch.setattr(lookup, "account", self.account)
        patch.setattr(config, "program_cache", True)

    def ask(self, fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, str]:
        """What a new compiled version of the function gives, and "hit", "miss" or "refused"."""
        before = self.account.hits, self.account.kept
        found = torch.compile(fn, fullgraph=True, **options)(*args)
        hits, kept = self.account.hits - before[0], self.account.kept - before[1]
        return found, "hit" if hits else "miss" if kept else "refused"

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.program"))


def subject(x: Any) -> Any:
    return (x * SCALE).tanh() + HELD


def other(x: Any) -> Any:
    return (x * SCALE).tanh() - HELD


def given() -> Any:
    return torch.linspace(-2.0, 2.0, 24).reshape(4, 6)
