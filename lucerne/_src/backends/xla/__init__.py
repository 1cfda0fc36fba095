"""The device `xla`: XLA through JAX's public API, with which it serves CPUs, GPUs and TPUs.

JAX is an engine here and nothing else: no transformation of its own, no random numbers. This folder
alone imports it, and is imported itself only when somebody uses the device.
"""

from __future__ import annotations

from lucerne._src.backends.xla.backend import XlaBackend


def make() -> XlaBackend:
    return XlaBackend()
