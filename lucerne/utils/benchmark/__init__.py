"""`lucerne.utils.benchmark`: how long statements take, measured so that it means something."""

from __future__ import annotations

from lucerne.utils.benchmark.compare import Colorize as Colorize
from lucerne.utils.benchmark.compare import Compare as Compare
from lucerne.utils.benchmark.measurement import Measurement as Measurement
from lucerne.utils.benchmark.measurement import TaskSpec as TaskSpec
from lucerne.utils.benchmark.measurement import select_unit as select_unit
from lucerne.utils.benchmark.measurement import trim_sigfig as trim_sigfig
from lucerne.utils.benchmark.measurement import unit_to_english as unit_to_english
from lucerne.utils.benchmark.timer import Language as Language
from lucerne.utils.benchmark.timer import Timer as Timer
from lucerne.utils.benchmark.timer import timer as timer

__all__ = ["Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "timer"]
