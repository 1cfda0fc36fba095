"""`lucerne.autograd.profiler_util`: the classes of a profile's results, where PyTorch has them."""

from lucerne.profiler.events import EventList as EventList
from lucerne.profiler.events import FunctionEvent as FunctionEvent
from lucerne.profiler.events import FunctionEventAvg as FunctionEventAvg
from lucerne.profiler.events import Interval as Interval
