"""`lucerne.distributed.tensor.experimental._attention`: torch has these names there."""

from __future__ import annotations

from lucerne._src.distributed.mesh.context_parallel import context_parallel as context_parallel
from lucerne._src.distributed.mesh.context_parallel import (
    context_parallel_unshard as context_parallel_unshard,
)
from lucerne._src.distributed.mesh.context_parallel import set_rotate_method as set_rotate_method

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]
