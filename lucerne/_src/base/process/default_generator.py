"""The generator that random ops draw from when none is given: installed by the tensor layer."""

from __future__ import annotations

from typing import Any


class _Holder:
    __slots__ = ("generator",)

    def __init__(self) -> None:
        self.generator: Any = None


_holder = _Holder()


def install(generator: Any) -> None:
    _holder.generator = generator


def generator_or_default(generator: Any) -> Any:
    """`generator` itself, or the process-wide one."""
    return _holder.generator if generator is None else generator
