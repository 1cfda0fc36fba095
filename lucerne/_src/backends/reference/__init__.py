"""The reference device: NumPy, slow and obvious.

Runs everywhere; what other backends are held to.
"""

from __future__ import annotations

from lucerne._src.backends.reference.backend import ReferenceBackend


def make() -> ReferenceBackend:
    return ReferenceBackend()
