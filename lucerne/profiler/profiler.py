"""`profile`: record what happens, all the time or by a schedule."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.refusals import only
from lucerne.profiler import chrome, timeline
from lucerne.profiler.annotation import record_function
from lucerne.profiler.events import EventList, events_of
from lucerne.profiler.recording import Recording, Wanted
from lucerne.profiler.schedules import ProfilerAction, ProfilerActivity, Schedule, always

NONE, WARMUP, RECORD, RECORD_AND_SAVE = ProfilerAction


def supported_activities() -> set[ProfilerActivity]:
    """What a profile can look at here: the CPU."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """Whether PyTorch's tracing library is there: no, spans are recorded by this package."""
    return False


class profile:
    """Record ops, backward passes, compiled kernels and named parts while it is entered.

    `activities`: only the CPU is there to look at. `schedule`, `on_trace_ready`: record some of the
    steps (call `step()` after each) and hand the profile to a function when a stretch is complete.
    `record_shapes`, `profile_memory`, `with_stack`, `with_flops`, `with_modules`: what to note
    besides times. `acc_events`: keep the events of all stretches, not only the last one's.

    >>> import lucerne
    >>> from lucerne.profiler import profile
    >>> x = lucerne.ones(4, 4)
    >>> with profile(record_shapes=True) as prof:
    ...     y = (x @ x).relu().sum()
    >>> [event.name for event in prof.events() if event.cpu_parent is None]
    ['aten::matmul', 'aten::relu', 'aten::sum']
    """

    def __init__(
        self, *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        self.activities = _checked(activities, use_cuda)
        _refuse(experimental_config=experimental_config, observer=execution_trace_observer)
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.schedule = always if schedule is None else schedule
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._step_span: record_function | None = None
        self._metadata: dict[str, Any] = {}
        self._recording: Recording | None = None
        self._done: list[Recording] = []
        self._events: EventList | None = None
        self._trace_id = custom_trace_id_callback
        self._collects = True

    # ---- entering and leaving ------------------------------------------------------------------

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, as entering does."""
        self._transit(NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End, as leaving does."""
        self._end_step()
        self._transit(self.current_action, None)

    def step(self) -> None:
        """A step of the program is over: the schedule says what to do in the next."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        self._transit(before, self.current_action)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps:
            self._step_span = record_function(f"ProfilerStep#{self.step_num}")
            self._step_span.__enter__()

    def _end_step(self) -> None:
        if self._step_span is not None:
            self._step_span.__exit__(None, None, None)
            self._step_span = None

    def _transit(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        """From what was done in a step to what is done in the next; None: it is over."""
        recorded = before in (RECORD, RECORD_AND_SAVE)
        records = after in (RECORD, RECORD_AND_SAVE)
        if (before, after) in _MISTAKES:
            notices.warn(f"Incorrect schedule: {before.name} followed by {after.name}")  # type: ignore[union-attr]
        if recorded and (before is RECORD_AND_SAVE or not records):
            self.stop_trace()
            if before is RECORD_AND_SAVE or after is None:
                self._trace_ready()
        if records and (before is not RECORD):
            self.start_trace()

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # ---- one stretch ---------------------------------------------------------------------------

    def prepare_trace(self) -> None:
        """Nothing has to be loaded before a recording starts; the name is PyTorch's."""
        self._events = None

    def start_trace(self) -> None:
        """Begin to record."""
        wanted = Wanted(
            shapes=self.record_shapes, memory=self.profile_memory, stack=self.with_stack,
            flops=self.with_flops, modules=self.with_modules,
        )  # fmt: skip
        recording = Recording(wanted)
        recording.start()
        self._recording = recording
        if not self.acc_events:
            self._done.clear()
        self._events = None

    def stop_trace(self) -> None:
        """Stop recording."""
        recording, self._recording = self._recording, None
        if recording is None:
            raise RuntimeError("the profile is not running: enter it, or call start(), first")
        recording.stop()
        self._done.append(recording)
        self._events = None

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity] = ()
    ) -> None:
        """Stop recording for a while, or go on (inside a running profile)."""
        if ProfilerActivity.CPU not in (list(activities) or [ProfilerActivity.CPU]):
            return  # there is nothing of other kinds to stop or to go on with
        if enable == (self._recording is not None):
            return
        if not enable:
            self.stop_trace()
            return
        done, self._done = self._done, []
        self.start_trace()
        self._done = done

    # ---- results -------------------------------------------------------------------------------

    def events(self) -> EventList:
        """Everything that was recorded, parents before their children."""
        if not self._done:
            raise RuntimeError(
                "nothing was recorded yet: events are there when the profile was left, or in "
                "on_trace_ready when a schedule has completed a stretch"
            )
        if self._events is None:
            self._events = self._made_events()
        return self._events

    def _made_events(self) -> EventList:
        parts = [events_of(recording) for recording in self._done]
        first = self._done[0].began
        listed = [event for part in parts for event in part]
        for recording, part in zip(self._done, parts, strict=True):
            for event in part:
                event.shift((recording.began - first) / 1e3)
        for number, event in enumerate(listed):
            event.id = number
        found = EventList(
            listed, profile_memory=self.profile_memory, with_flops=self.with_flops,
            span_us=sum(part.self_cpu_time_total for part in parts),
        )  # fmt: skip
        found._trace = self._trace(listed)
        return found

    def _trace(self, listed: list[Any]) -> chrome.Trace:
        memory: list[tuple[int, dict[str, int]]] = []
        for recording in self._done:
            if recording.blocks is not None:
                memory += recording.blocks.timeline(recording.ended)
        settings = {
            "trace_id": self.get_trace_id(), "with_stack": int(self.with_stack),
            "profile_memory": int(self.profile_memory), "record_shapes": int(self.record_shapes),
            "with_flops": int(self.with_flops),
        }  # fmt: skip
        return chrome.Trace(listed, self._done[0].began, memory, self._metadata, settings)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Events of one name (and shapes, and innermost lines) as one row each."""
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    @property
    def profiler(self) -> profile | None:
        """Itself, when there are results: PyTorch keeps them in an inner object of this name."""
        return self if self._done else None

    @property
    def function_events(self) -> EventList:
        """The same as `events()`."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of everything."""
        return self.events().self_cpu_time_total

    def memory_peak(self) -> dict[str, int]:
        """Bytes by category at the moment when tensors took the most."""
        self._need_memory("memory_peak")
        return max(
            (r.blocks.peak(r.ended) for r in self._done if r.blocks is not None),
            key=lambda sizes: sum(sizes.values()),
        )

    def _need_memory(self, what: str) -> None:
        if not self.profile_memory:
            raise ValueError(f"profile_memory=True is required for {what}")
        self.events()

    # ---- files ---------------------------------------------------------------------------------

    def export_chrome_trace(self, path: str) -> None:
        """A file for Perfetto (ui.perfetto.dev) or chrome://tracing; compressed if it ends in
        `.gz`."""
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """A file for flame graphs: a stack and its microseconds on each line."""
        if not self.with_stack:
            raise ValueError("with_stack=True is required to export stacks")
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Bytes by category over time: a page (`.html`), or numbers (`.json`, `.json.gz`)."""
        self._need_memory("export_memory_timeline")
        only("export_memory_timeline", "device", device or "cpu", "cpu", "only it is watched")
        stretch = self._done[-1]
        assert stretch.blocks is not None
        timeline.write(path, stretch.blocks, stretch.began, stretch.ended)

    # ---- notes ---------------------------------------------------------------------------------

    def add_metadata(self, key: str, value: str) -> None:
        """A text in the trace files."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same for a text that is JSON itself."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def get_trace_id(self) -> str:
        return "" if self._trace_id is None else self._trace_id()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        self._trace_id = callback


_MISTAKES = {(WARMUP, NONE), (RECORD, NONE), (RECORD, WARMUP)}
"""Transitions that throw away what was recorded, or recorded for nothing."""


def _checked(activities: Any, use_cuda: bool | None) -> set[ProfilerActivity]:
    """The activities, without those of devices that are not there."""
    asked = supported_activities() if activities is None else set(activities)
    if use_cuda:
        asked.add(ProfilerActivity.CUDA)
    known = asked & supported_activities()
    for missing in sorted(asked - known, key=lambda a: a.value):
        notices.warn(f"{missing.name} is not available, disabling {missing.name} profiling")
    if not known:
        raise AssertionError(
            "No valid profiler activities found: only ProfilerActivity.CPU can be recorded here"
        )
    return known


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(
                f"profile: {name} belongs to PyTorch's tracing library, which is not used here; "
                "leave it out"
            )


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: a trace file in `dir_name` for each stretch, named as TensorBoard's
    plug-in looks for it."""

    def handler(prof: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(str(Path(dir_name) / name))

    return handler


__all__: Sequence[str] = [
    "kineto_available", "profile", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
