"""`lucerne.distributed.pipelining`: a model in stages (a window)."""

from __future__ import annotations

from lucerne._src.distributed.pipelining.schedules import Schedule1F1B as Schedule1F1B
from lucerne._src.distributed.pipelining.schedules import ScheduleGPipe as ScheduleGPipe
from lucerne._src.distributed.pipelining.schedules import (
    ScheduleInterleaved1F1B as ScheduleInterleaved1F1B,
)
from lucerne._src.distributed.pipelining.schedules import ScheduleLoopedBFS as ScheduleLoopedBFS
from lucerne._src.distributed.pipelining.stage import PipelineStage as PipelineStage

__all__ = [
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleLoopedBFS",
]
