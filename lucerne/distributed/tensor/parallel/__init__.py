"""`lucerne.distributed.tensor.parallel`: tensor parallelism by plans (a window)."""

from __future__ import annotations

from lucerne._src.distributed.mesh.styles import ColwiseParallel as ColwiseParallel
from lucerne._src.distributed.mesh.styles import ParallelStyle as ParallelStyle
from lucerne._src.distributed.mesh.styles import PrepareModuleInput as PrepareModuleInput
from lucerne._src.distributed.mesh.styles import (
    PrepareModuleInputOutput as PrepareModuleInputOutput,
)
from lucerne._src.distributed.mesh.styles import PrepareModuleOutput as PrepareModuleOutput
from lucerne._src.distributed.mesh.styles import RowwiseParallel as RowwiseParallel
from lucerne._src.distributed.mesh.styles import SequenceParallel as SequenceParallel
from lucerne._src.distributed.mesh.styles import loss_parallel as loss_parallel
from lucerne._src.distributed.mesh.styles import parallelize_module as parallelize_module

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
