"""What programs ask oneDNN. Lucerne's kernels are its own: the setting is kept, without effect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lucerne._src.base.process import tables

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2
enabled = True
deterministic = False
allow_tf32: bool | None = None
_NAMES = ("enabled", "deterministic", "allow_tf32")
tables.add_switches(sys.modules[__name__], *_NAMES)


def is_available() -> bool:
    return False


@contextmanager
def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool | None = True
) -> Iterator[None]:
    """Other settings for a while."""
    here = globals()
    before = {name: here[name] for name in _NAMES}
    here.update(enabled=enabled, deterministic=deterministic, allow_tf32=allow_tf32)
    try:
        yield
    finally:
        here.update(before)
