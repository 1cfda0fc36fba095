"""The CPU engine: kernels written in Python, compiled by LLVM in process."""

from __future__ import annotations

from lucerne.backends.cpu.backend import CpuBackend


def make() -> CpuBackend:
    return CpuBackend()
