"""Tables of the process that last from call to call: whoever keeps one says so here.

A trace that is given up puts them back as they were (`capture.process_state`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

tables: list[dict[Any, Any]] = []
"""Hooks of all modules and of all optimizers."""


class ProcessSwitch(NamedTuple):
    """An attribute that is set for a while."""

    owner: Any
    name: str
    first: Any
    """What it was when its module was loaded: a trace may be what loads it."""


switches: list[ProcessSwitch] = []
stacks: list[tuple[Any, str]] = []
"""(owner, attribute) of lists that `with` blocks push something on."""


def add_switches(owner: Any, *names: str) -> None:
    """Attributes of an object, a class or a module that a trace puts back."""
    switches.extend(ProcessSwitch(owner, name, getattr(owner, name)) for name in names)
