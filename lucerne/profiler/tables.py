"""Tables of events, as PyTorch prints them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_SPACE = 2
_NUMBER_WIDTH = 12
SORTS = (
    "cpu_time", "cuda_time", "xpu_time", "cpu_time_total", "self_cpu_time_total",
    "cpu_memory_usage", "self_cpu_memory_usage", "device_time", "device_time_total",
    "self_device_time_total", "device_memory_usage", "self_device_memory_usage", "count", "flops",
)  # fmt: skip
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
_FLOP_UNITS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


@dataclass(frozen=True)
class Widths:
    """The widest a column may be; 0: no limit."""

    source: int = 75
    name: int = 55
    shapes: int = 80


def time_text(us: float, unit: str | None = None) -> str:
    """Microseconds in the unit that suits them, or in the one that is asked for."""
    if unit is not None:
        if unit not in _UNITS:
            raise ValueError(f"time_unit should be one of {list(_UNITS)}, not {unit!r}")
        return f"{us / _UNITS[unit]:.3f}{unit}"
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    if us >= 1e3:
        return f"{us / 1e3:.3f}ms"
    return f"{us:.3f}us"


def memory_text(nbytes: int) -> str:
    """Bytes in the unit that suits them."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(nbytes) >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} B"


def share_text(part: float, whole: float) -> str:
    return "NaN" if not whole else f"{part * 100 / whole:.2f}%"


def _flops_unit(events: Sequence[Any]) -> tuple[str, float]:
    """The unit in which the smallest count is at least one."""
    counts = [e.flops for e in events if e.flops > 0]
    if not counts:
        return _FLOP_UNITS[0], 1.0
    power = min(max(int(math.log10(min(counts)) / 3), 0), len(_FLOP_UNITS) - 1)
    return _FLOP_UNITS[power], 10.0 ** (3 * power)


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    text: Callable[[Any], str]


def _cut(text: str, width: int) -> str:
    return text[: width - 3] + "..." if 0 < width < len(text) else text


def table(
    events: Any,
    sort_by: str | None,
    row_limit: int,
    widths: Widths,
    header: str | None,
    top_level_only: bool,
    unit: str | None,
) -> str:
    """The text of `EventList.table`."""
    if not len(events):
        return ""
    shown = list(events)
    if sort_by is not None:
        if sort_by not in SORTS:
            raise ValueError(f"sort_by should be one of {', '.join(SORTS)}, not {sort_by!r}")
        shown.sort(key=lambda e: getattr(e, sort_by.replace("cuda", "device")), reverse=True)
    whole = events.self_cpu_time_total
    columns = _columns(events, shown, widths, whole, unit)
    line = "".join("-" * c.width + " " * _SPACE for c in columns)
    lines = [line]
    if header is not None:
        lines = ["=" * len(line), header, *lines]
    lines += ["".join(f"{c.title:>{c.width}}" + " " * _SPACE for c in columns), line]
    rows = [e for e in shown if not (top_level_only and e.cpu_parent is not None)]
    for event in rows[: row_limit if row_limit >= 0 else None]:
        cells = (f"{c.text(event):>{c.width}}" + " " * _SPACE for c in columns)
        lines.append("".join(cells))
        lines += _stack_lines(event, columns, widths)
    lines += [line, f"Self CPU time total: {time_text(whole, unit)}", ""]
    return "\n".join(lines)


def _columns(
    events: Any, shown: Sequence[Any], widths: Widths, whole: float, unit: str | None
) -> list[_Column]:
    longest = max(len(e.key) for e in shown) + 4
    name_width = min(longest, widths.name) if widths.name else longest
    columns = [_Column("Name", name_width, lambda e: _cut(e.key, name_width))]

    def add(title: str, text: Callable[[Any], str], width: int = _NUMBER_WIDTH) -> None:
        columns.append(_Column(title, width, text))

    add("Self CPU %", lambda e: share_text(e.self_cpu_time_total, whole))
    add("Self CPU", lambda e: time_text(e.self_cpu_time_total, unit))
    add("CPU total %", lambda e: share_text(e.cpu_time_total, whole))
    add("CPU total", lambda e: time_text(e.cpu_time_total, unit))
    add("CPU time avg", lambda e: time_text(e.cpu_time, unit))
    if events.profile_memory:
        add("CPU Mem", lambda e: memory_text(e.cpu_memory_usage))
        add("Self CPU Mem", lambda e: memory_text(e.self_cpu_memory_usage))
    add("# of Calls", lambda e: str(e.count))
    _add_wide_columns(shown, widths, add)
    if events.with_flops:
        name, size = _flops_unit(shown)
        add(f"Total {name}", lambda e: f"{e.flops / size:.3f}" if e.flops > 0 else "--")
    return columns


def _add_wide_columns(shown: Sequence[Any], widths: Widths, add: Callable[..., None]) -> None:
    shapes = max((len(str(e.input_shapes)) for e in shown if e.input_shapes), default=0)
    if any(e.input_shapes for e in shown):
        width = shapes + 4 if not widths.shapes else min(shapes + 4, widths.shapes)
        add("Input Shapes", lambda e: _cut(str(e.input_shapes or "[]"), width), width)
    stacks = [line for e in shown for line in (e.stack or ())]
    if stacks:
        width = max(len(line) for line in stacks) + 4
        width = min(width, widths.source) if widths.source else width
        add("Source Location", lambda e: _tail((e.stack or [""])[0], width), width)


def _tail(text: str, width: int) -> str:
    """The end of a place in the source, which says the most."""
    return "..." + text[len(text) - width + 3 :] if 0 < width < len(text) else text


def _stack_lines(event: Any, columns: list[_Column], widths: Widths) -> list[str]:
    """The other lines of a stack, under the first."""
    where = next((k for k, c in enumerate(columns) if c.title == "Source Location"), None)
    if where is None:
        return []
    lines = []
    for entry in (event.stack or ())[1:]:
        cells = [
            f"{_tail(entry, c.width) if k == where else '':>{c.width}}" + " " * _SPACE
            for k, c in enumerate(columns)
        ]
        lines.append("".join(cells))
    return lines
