"""Tables of the process that last from call to call: whoever keeps one says so here.

A trace that is given up puts them back as they were (`capture.process_state`).
"""

from __future__ import annotations

from typing import Any

tables: list[dict[Any, Any]] = []
"""Hooks of all modules and of all optimizers."""
switches: list[tuple[Any, str]] = []
"""(owner, attribute) of switches."""
stacks: list[tuple[Any, str]] = []
"""(owner, attribute) of lists that `with` blocks push something on."""
