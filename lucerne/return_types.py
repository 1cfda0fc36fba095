"""`lucerne.return_types`: the tuple types of ops with several named results."""

from __future__ import annotations

from lucerne.ir.results import types as _types
from lucerne.tensor import load as _load

globals().update(_types())
__all__ = sorted(_types())  # noqa: PLE0605
