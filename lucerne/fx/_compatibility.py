"""torch's marks of what stays the same between its versions: accepted, without meaning here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that changes nothing.

    >>> compatibility(is_backward_compatible=True)(len) is len
    True
    """
    return lambda found: found
