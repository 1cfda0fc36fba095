"""Public functions that modules below them call: the root, which knows them all, opens the doors.

`Module.compile` is `lucerne.compile`, which knows graphs, which hold modules: an import would go in
a circle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Doors:
    """Set when `lucerne` is imported."""

    compile: Callable[..., Any]
