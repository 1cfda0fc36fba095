"""`lucerne.quasirandom`: points that fill a cube more evenly than random ones."""

from __future__ import annotations

from lucerne._src.sobol import SobolEngine as SobolEngine

__all__ = ["SobolEngine"]
