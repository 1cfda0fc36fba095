"""`lucerne.autograd.profiler`: the older spelling of `lucerne.profiler`, and its markers."""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne._src.base.refusals import only
from lucerne.profiler import profiler as profiles
from lucerne.profiler.annotation import record_function as record_function
from lucerne.profiler.events import EventList as EventList
from lucerne.profiler.events import FunctionEvent as FunctionEvent
from lucerne.profiler.events import FunctionEventAvg as FunctionEventAvg
from lucerne.profiler.schedules import ProfilerActivity as ProfilerActivity

__all__ = [
    "EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "load_nvprof", "parse_nvprof_trace",
    "profile", "record_function",
]  # fmt: skip


class profile:
    """Record everything while it is entered. `enabled=False`: do nothing at all.

    >>> import lucerne
    >>> x = lucerne.ones(3)
    >>> with lucerne.autograd.profiler.profile() as prof:
    ...     y = x.exp().sum()
    >>> [event.name for event in prof.function_events]
    ['aten::exp', 'aten::sum']
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
        record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False,
        use_cpu: bool = True, **others: Any,
    ) -> None:  # fmt: skip
        only("profile", "use_cpu", use_cpu, True, "the processor is all there is to watch")
        self.enabled = enabled
        self._profile = profiles.profile(
            use_cuda=use_cuda or use_device == "cuda", record_shapes=record_shapes,
            with_flops=with_flops, profile_memory=profile_memory, with_stack=with_stack,
            with_modules=with_modules, **others,
        )  # fmt: skip
        self.entered = False

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._profile.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList:
        """Everything that was recorded."""
        return self._profile.events()

    def __repr__(self) -> str:
        return "<unfinished profile>" if not self._profile._done else repr(self.function_events)

    def __str__(self) -> str:
        return "<unfinished profile>" if not self._profile._done else str(self.function_events)

    def table(self, *args: Any, **kwargs: Any) -> str:
        return self.function_events.table(*args, **kwargs)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Any:
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        return self.function_events.total_average()

    def export_chrome_trace(self, path: str) -> None:
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        self._profile.export_stacks(path, metric)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of everything."""
        return self.function_events.self_cpu_time_total


class _Marks:
    """Marks for somebody else's profiler, which can't be reached from here."""

    tool = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> _Marks:
        if self.enabled:
            raise RuntimeError(
                f"{type(self).__name__}: ops can't be marked for {self.tool} here. "
                "lucerne.profiler.profile(...).export_chrome_trace(path) writes a trace that "
                "Perfetto and chrome://tracing open"
            )
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was begun."""


class emit_nvtx(_Marks):
    """Marks for NVIDIA's tools: refused, unless `enabled=False`."""

    tool = "NVTX"


class emit_itt(_Marks):
    """Marks for Intel's VTune: refused, unless `enabled=False`."""

    tool = "ITT"


def load_nvprof(path: str) -> NoReturn:
    """A file of NVIDIA's profiler; none can be made here."""
    raise RuntimeError(f"load_nvprof: {path!r} can't be read; there is no NVIDIA profiler here")


parse_nvprof_trace = load_nvprof
