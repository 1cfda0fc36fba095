"""The CPU engine: kernels written in Python, compiled by LLVM in process."""

from __future__ import annotations

from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.cpu.rules import table

_COMMON = ("pointwise", "move", "reduce")
"""Families that nearly every program uses: loaded at once, so that first calls take a millisecond.
The others are loaded by the first op that needs them: products would be a tenth of the import."""


def make() -> CpuBackend:
    for family in _COMMON:
        table.load(family)
    return CpuBackend()
