"""Every family of ops, imported so that the table is complete: found by walking the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lucerne._src.base.process import forks

_HERE = os.path.dirname(__file__)


def _families(room: str = "") -> Iterator[str]:
    """Modules of this folder and its rooms. (`pkgutil` takes ten times as long, at each start.)"""
    for name in sorted(os.listdir(os.path.join(_HERE, room))):
        if name.endswith(".py") and not name.startswith("_"):
            yield f"{room}.{name[:-3]}".lstrip(".")
        elif not room and os.path.exists(os.path.join(_HERE, name, "__init__.py")):
            yield from _families(name)


for _name in _families():
    if _name != "families":
        forks.import_module(f"{__package__}.{_name}")
