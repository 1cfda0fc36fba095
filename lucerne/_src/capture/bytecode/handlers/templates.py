"""Template strings (Python 3.14)."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.machine import Machine

templatelib: Any
try:
    from string import templatelib  # type: ignore[attr-defined, no-redef]
except ImportError:  # before 3.14
    templatelib = None

_CONVERSIONS = (None, "s", "r", "a")


def build_interpolation(machine: Machine, frame: PythonFrame, flags: int) -> None:
    """A value, its text in the source, and a format if the lowest bit is set."""
    taken = 2 + (flags & 1)
    value, text, *spec = frame.stack[-taken:]
    made = templatelib.Interpolation(value, text, _CONVERSIONS[flags >> 2], *spec)
    frame.stack[-taken:] = [made]


def build_template(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    strings, values = frame.stack[-2:]
    parts = chain.from_iterable(zip_longest(strings, values))
    frame.stack[-2:] = [templatelib.Template(*(x for x in parts if x is not None))]
