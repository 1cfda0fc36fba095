"""Where the time and the memory go, with PyTorch's spelling, over eager and compiled alike.

See docs/guide/profiler.md. `lucerne.profiler.limits` tells what the machine can do at best.
"""

from __future__ import annotations

from lucerne.profiler import itt as itt
from lucerne.profiler.annotation import record_function as record_function
from lucerne.profiler.merging import CollectiveWait as CollectiveWait
from lucerne.profiler.merging import merge_traces as merge_traces
from lucerne.profiler.profiler import kineto_available as kineto_available
from lucerne.profiler.profiler import profile as profile
from lucerne.profiler.profiler import supported_activities as supported_activities
from lucerne.profiler.profiler import tensorboard_trace_handler as tensorboard_trace_handler
from lucerne.profiler.schedules import DeviceType as DeviceType
from lucerne.profiler.schedules import ProfilerAction as ProfilerAction
from lucerne.profiler.schedules import ProfilerActivity as ProfilerActivity
from lucerne.profiler.schedules import schedule as schedule

__all__ = [
    "CollectiveWait",
    "DeviceType",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "merge_traces",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
