"""The programs of `tests/scripts` with their functions compiled, or the forwards of their models.

A program is text: the imports are changed, `@torch.compile` is put before every function of the
module ("functions": whole steps, data, factories, whatever the program has) or before every
`forward` ("forwards": every layer by itself, inside of each other). `mode="bitwise"` continues the
eager stream of random numbers, so the printed lines must be those that torch prints.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.sources import printed_by, scripts, swapped

WAYS = ("functions", "forwards")
_COMPILED = '@__import__("lucerne").compile(mode="bitwise")\n'
_BEFORE = {"functions": r"^()(?=def \w+\()", "forwards": r"^( +)(?=def forward\(self)"}
TWICE = "a compiled function can be differentiated once, these programs do it twice"
REFUSED = {
    ("custom_function", "forwards"): TWICE,
    ("neural_ode", "forwards"): TWICE,
    ("neural_ode", "functions"): "torch.utils.checkpoint of a function that was compiled in parts",
}
"""Programs that can't be compiled this way, and why."""


def programs() -> dict[str, Path]:
    """By name: the scripts."""
    return {p.stem: p for p in scripts()}


def lucernes(source: str, way: str) -> str:
    """A program of torch's as one of Lucerne's, compiled in one of the `WAYS` ("" for neither)."""
    source = swapped(source, "lucerne")
    if way:
        before = _BEFORE[way]
        source = re.sub(before, lambda found: found[1] + _COMPILED + found[1], source, flags=re.M)
    return source


def differences(name: str, way: str) -> list[str]:
    """Lines that are not those of torch."""
    source = programs()[name].read_text(encoding="utf-8")
    want, got = printed_by(source, name), printed_by(lucernes(source, way), name)
    found = [f"torch:   {a}\nlucerne: {b}" for a, b in zip(want, got, strict=False) if a != b]
    return found + [f"{len(want)} lines, and {len(got)}"] * (len(want) != len(got))
