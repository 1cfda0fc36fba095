"""Events: what a profile gives to its user, with the attributes that PyTorch's have."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from lucerne._src.base.process.profiler_hook import ANNOTATION, BACKWARD, PROGRAM
from lucerne.profiler import chrome, tables
from lucerne.profiler.recording import Recording, Span
from lucerne.profiler.schedules import DeviceType

_SCOPES = {ANNOTATION: 7, BACKWARD: 1}
"""PyTorch's numbers: a user's annotation, a function of the backward pass; 0 for ops."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """From when to when, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


class _Times:
    """What events and averages share: times in microseconds, and their texts."""

    cpu_time_total: float
    self_cpu_time_total: float
    count: int

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return tables.time_text(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return tables.time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return tables.time_text(self.self_cpu_time_total)

    device_time = device_time_total = self_device_time_total = 0.0
    """Of an accelerator: there is none."""
    device_memory_usage = self_device_memory_usage = 0


class FunctionEvent(_Times):
    """One thing that happened: an op, a kernel of a compiled program, an annotation, ..."""

    def __init__(self, span: Span, began: int, number: int, thread: int) -> None:
        self.id = number
        self.node_id = -1
        self.name = self.key = self.trace_name = span.name
        self.time_range = Interval((span.begin - began) / 1e3, (span.end - began) / 1e3)
        self.thread = thread
        self.native_thread = span.thread
        self.fwd_thread: int | None = None
        self.kernels: list[Any] = []
        self.count = 1
        self.kind = span.kind
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes = span.shapes or []
        self.input_types = span.types or []
        self.concrete_inputs = span.values or []
        self.kwinputs: dict[str, Any] = {}
        self.stack = span.stack
        self.module_hierarchy = span.modules
        self.scope = _SCOPES.get(span.kind, 0)
        self.is_user_annotation = span.kind == ANNOTATION
        self.is_async = self.is_remote = self.is_legacy = False
        self.use_device: str | None = None
        self.device_type, self.device_index = DeviceType.CPU, 0
        self.sequence_nr = span.sequence
        self.flops = span.flops
        self.cpu_memory_usage = span.memory_end - span.memory_begin
        self.extra = span.extra or {}
        """What only the kernels of compiled programs have (`Lines` and `Bytes`), or collectives
        (`Group`, `Number`, `Call`, `Line`)."""

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children)

    def shift(self, us: float) -> None:
        """It happened so much later: counted from the beginning of an earlier stretch."""
        self.time_range = Interval(self.time_range.start + us, self.time_range.end + us)

    @property
    def is_compiled(self) -> bool:
        """Whether it is a compiled program, or a kernel of one."""
        return self.kind == PROGRAM or "Bytes" in self.extra

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
            f"cpu_children={[c.id for c in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class FunctionEventAvg(_Times):
    """All events of one key together."""

    def __init__(self) -> None:
        self.key = ""
        self.count = self.node_id = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.use_device: str | None = None
        self.device_type = DeviceType.CPU
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.flops = 0
        self.input_shapes: Any = ""
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []

    def add(self, other: Any) -> FunctionEventAvg:
        """Count an event, or all those of another average, in."""
        if not self.key:
            self.key, self.node_id = other.key, other.node_id
            self.input_shapes, self.stack = other.input_shapes, other.stack
            self.scope, self.cpu_parent = other.scope, other.cpu_parent
            self.cpu_children = other.cpu_children
            self.is_user_annotation = other.is_user_annotation
        for name in (
            "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage",
            "flops", "count",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def __iadd__(self, other: Any) -> FunctionEventAvg:
        return self.add(other)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage}>"
        )


class EventList(list[Any]):
    """Events, or averages of events, that print as a table.

    >>> EventList([]).total_average().count
    0
    """

    def __init__(
        self, events: Iterable[Any] = (), *, profile_memory: bool = False, with_flops: bool = False,
        span_us: float | None = None, trace: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(events)
        self.profile_memory, self.with_flops = profile_memory, with_flops
        self._span_us, self._trace = span_us, trace

    def _like(self, events: Iterable[Any]) -> EventList:
        return EventList(
            events, profile_memory=self.profile_memory, with_flops=self.with_flops,
            span_us=self.self_cpu_time_total, trace=self._trace,
        )  # fmt: skip

    @property
    def self_cpu_time_total(self) -> float:
        """The time of everything, in microseconds: each moment counts once."""
        if self._span_us is not None:
            return self._span_us
        return float(sum(e.self_cpu_time_total for e in self))

    def __str__(self) -> str:
        return self.table()

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a text table, in PyTorch's columns.

        `sort_by`: `cpu_time`, `cpu_time_total`, `self_cpu_time_total`, `cpu_memory_usage`,
        `self_cpu_memory_usage`, `count` or `flops`. `time_unit`: "s", "ms" or "us" for all rows
        instead of what suits each.
        """
        widths = tables.Widths(
            max_src_column_width, max_name_column_width, max_shapes_column_width
        )  # fmt: skip
        return tables.table(
            self, sort_by, row_limit, widths, header, top_level_events_only, time_unit
        )

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Events of the same name (and the same shapes, and the same innermost lines) as one.

        Ops here have no overloads: `group_by_overload_name` changes nothing.
        """
        groups: dict[Any, FunctionEventAvg] = defaultdict(FunctionEventAvg)
        for event in self:
            key: list[Any] = [event.key, event.node_id, event.scope]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key.append(tuple((event.stack or [])[:group_by_stack_n]))
            groups[tuple(key)].add(event)
        made = self._like(groups.values())
        for average in made:
            average.stack = list((average.stack or [])[:group_by_stack_n])
            if not group_by_input_shapes:
                average.input_shapes = ""
        return made

    def total_average(self) -> FunctionEventAvg:
        """Everything as one average."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = "Total"
        total.key = "Total"
        return total

    def export_chrome_trace(self, path: str) -> None:
        """A file for Perfetto or chrome://tracing."""
        if self._trace is None:
            raise RuntimeError("only the events of a profile can be written as a trace")
        chrome.write(path, self._trace)

    def supported_export_stacks_metrics(self) -> list[str]:
        return ["self_cpu_time_total", "cpu_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """A file for flame graphs: a stack on each line, outermost first, and its microseconds."""
        known = self.supported_export_stacks_metrics()
        if metric not in known:
            raise ValueError(f"metric should be one of: {known}, not {metric!r}")
        chrome.write_stacks(path, self, metric)


def events_of(recording: Recording) -> EventList:
    """The events of a recording, thread by thread, parents before their children."""
    threads: dict[int, int] = {}
    """Numbers of threads, in the order in which they appear."""
    for span in sorted(recording.spans, key=lambda s: s.begin):
        threads.setdefault(span.thread, len(threads) + 1)
    spans = sorted(recording.spans, key=lambda s: (threads[s.thread], s.begin, -s.end))
    made: dict[int, FunctionEvent] = {}
    listed: list[FunctionEvent] = []
    for number, span in enumerate(spans):
        event = FunctionEvent(span, recording.began, number, threads[span.thread])
        made[id(span)] = event
        listed.append(event)
    for span in spans:
        parent = None if span.parent is None else made.get(id(span.parent))
        if parent is not None:
            made[id(span)].cpu_parent = parent
            parent.cpu_children.append(made[id(span)])
    _count_work_once(listed)
    _link_backward(listed)
    top = sum(e.cpu_time_total for e in listed if e.cpu_parent is None)
    return EventList(
        listed, profile_memory=recording.wanted.memory, with_flops=recording.wanted.flops,
        span_us=top,
    )  # fmt: skip


def _count_work_once(events: Sequence[FunctionEvent]) -> None:
    """An op whose parts have counts of their own has none: sums would count the work twice."""
    for event in events:
        if event.flops:
            parent = event.cpu_parent
            while parent is not None:
                parent.flops = 0
                parent = parent.cpu_parent


def _link_backward(events: Sequence[FunctionEvent]) -> None:
    """Nodes of the backward pass know the thread of the op that they belong to."""
    forward = {e.sequence_nr: e.thread for e in events if e.sequence_nr >= 0 and e.scope == 0}
    for event in events:
        if event.scope == _SCOPES[BACKWARD] and event.sequence_nr in forward:
            event.fwd_thread = forward[event.sequence_nr]
