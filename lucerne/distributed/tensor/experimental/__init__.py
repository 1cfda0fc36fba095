"""`lucerne.distributed.tensor.experimental`: sequences cut over a mesh (a window)."""

from __future__ import annotations

from lucerne._src.distributed.mesh.context_parallel import context_parallel as context_parallel

__all__ = ["context_parallel"]
