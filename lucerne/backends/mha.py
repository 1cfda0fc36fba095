"""Torch's shortcut for attention layers in evaluation: here there is one path for both."""

from __future__ import annotations

from lucerne._src.base.process import tables


class _Setting:
    fastpath = True


tables.add_switches(_Setting, "fastpath")


def get_fastpath_enabled() -> bool:
    return _Setting.fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Kept, without effect: results are the same."""
    _Setting.fastpath = value
