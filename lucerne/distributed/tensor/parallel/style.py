"""`lucerne.distributed.tensor.parallel.style` (a window)."""

from __future__ import annotations

from lucerne._src.distributed.mesh.styles import ParallelStyle as ParallelStyle
