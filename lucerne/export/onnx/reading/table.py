"""The table of ONNX operators.

    @operator("Reshape", numbers=(1,))
    def reshape(n, x, size, *, allowzero=0): ...

A function is called with the node (`reading.step.Step`), its inputs, and its attributes by name.
Inputs are tensors; those at the places `numbers` come as they are: as an array of NumPy if they
follow from sizes and constants alone (then they may hold symbolic sizes), else as a tensor.
`n.ints(x)` reads either. What an operator does with arrays alone is in `host.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """An operator: what runs it, and which of its inputs are needed as numbers."""

    run: Callable[..., Any]
    numbers: tuple[int, ...]


OPERATORS: dict[str, Entry] = {}


def operator(*names: str, numbers: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """Enter a function as the meaning of ONNX operators of the default domain."""

    def decorate(fn: Any) -> Any:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"ONNX's {name} is there already")
            OPERATORS[name] = Entry(fn, numbers)
        return fn

    return decorate
