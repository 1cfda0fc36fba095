"""The pictures of the page, as SVG: time, the roofline, memory."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from lucerne._src.explain.colours import Colours
from lucerne._src.explain.memory import line_of, size
from lucerne._src.explain.report import KernelReport, MemoryReport, PartReport, Report
from lucerne._src.explain.text import duration, rate

WIDTH = 1200
_GAP = 14
"""Between parts."""
_MOST_DECADES = 6
"""Of speed in the roofline: what is slower lies on its bottom."""
_LEAST_WIDTH = 0.6
"""Of a kernel in the picture: what is over sooner would not be seen."""


def text(x: object) -> str:
    """Safe between tags and in attributes."""
    return html.escape(str(x), quote=True)


def key(part: int, kernel: KernelReport) -> str:
    """What names a kernel all over the page."""
    return f"{part}-{kernel.number}"


def tip(kernel: KernelReport) -> str:
    """What is said when the mouse is over a kernel."""
    lines = [
        f"{kernel.number}: {kernel.name}",
        f"{duration(kernel.seconds)}, limited by {kernel.verdict}"
        + (f", {100 * kernel.fraction:.0f} % of the limit" if kernel.verdict != "overhead" else ""),
        " · ".join(x for x in (rate(kernel), f"{size(kernel.nbytes)} moved", _flops(kernel)) if x),
        *dict.fromkeys(
            line_of(o) + (f" ({o.module})" if o.module else "") for o in kernel.origins[:6]
        ),
    ]
    return text("\n".join(lines))


def _flops(kernel: KernelReport) -> str:
    return f"{kernel.flops / 1e9:.3g} GFLOP" if kernel.flops else ""


Spans = list[list[tuple[float, float]]]
"""For each part, for each kernel: where it begins in the picture and how wide it is."""


def spans(report: Report) -> Spans:
    """All kernels of all parts in a row, with room between the parts."""
    total = report.seconds or 1.0
    widths = [
        [max(_LEAST_WIDTH, WIDTH * k.seconds / total) for k in part.kernels]
        for part in report.parts
    ]
    gaps = _GAP * (len(report.parts) - 1)
    scale = (WIDTH - gaps) / (sum(map(sum, widths)) or 1.0)
    found: Spans = []
    x = 0.0
    for listed in widths:
        found.append([])
        for w in listed:
            found[-1].append((x, w * scale))
            x += w * scale
        x += _GAP
    return found


def timeline(report: Report, colours: Colours, height: int = 64) -> str:
    """Kernels in order, as wide as they take long; parts stand apart."""
    boxes = []
    where = spans(report)
    for number, part in enumerate(report.parts):
        for kernel, (x, w) in zip(part.kernels, where[number], strict=True):
            label = ""
            if w > 46:
                shown = kernel.name[: int((w - 8) / 6.3)]
                label = (
                    f'<text x="{x + 5:.1f}" y="{height / 2 + 4}" class="in">{text(shown)}</text>'
                )
            gap = 0.8 if w > 3 else 0.0
            boxes.append(
                f'<g class="k" data-k="{key(number, kernel)}" data-tip="{tip(kernel)}">'
                f'<rect x="{x:.2f}" y="2" width="{max(w - gap, 0.3):.2f}" height="{height - 4}" '
                f'rx="2" fill="{colours.of_kernel(kernel)}"/>{label}</g>'
            )
        if number and where[number]:
            x = where[number][0][0] - _GAP / 2
            css = "half" if part.name == "backward" else "cut"
            told = "the backward pass, whenever it is called" if css == "half" else "a break"
            boxes.append(
                f'<g data-tip="{told}"><rect x="{x - 5:.1f}" y="0" width="10" height="{height}" '
                f'fill="transparent"/><line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}" '
                f'class="{css}"/></g>'
            )
    return _svg(height, "".join(boxes), "The kernels in the order in which they run")


def memory(report: Report, height: int = 104) -> str:
    """Bytes of the arena in use while each kernel runs, under the kernels."""
    peak = max((p.memory.peak for p in report.parts if p.memory is not None), default=0)
    if not peak:
        return ""
    where = spans(report)
    body = [
        _area(part, number, where[number], part.memory, height, peak)
        for number, part in enumerate(report.parts)
        if part.memory is not None and part.memory.in_use
    ]
    return _svg(height, "".join(body), "Scratch memory in use over time")


def _area(
    part: PartReport,
    number: int,
    where: list[tuple[float, float]],
    plan: MemoryReport,
    height: int,
    peak: int,
) -> str:
    top = 18
    scale = (height - top) / peak
    points, bars = [f"{where[0][0]:.1f},{height}"], []
    for kernel, (x, w), used in zip(part.kernels, where, plan.in_use, strict=True):
        y = height - used * scale
        points += [f"{x:.1f},{y:.1f}", f"{x + w:.1f},{y:.1f}"]
        bars.append(
            f'<rect class="k bar" data-k="{key(number, kernel)}" x="{x:.1f}" y="{top}" '
            f'width="{w:.2f}" height="{height - top}" data-tip="'
            f'{text(f"{size(used)} in use")}\n{tip(kernel)}"/>'
        )
    points.append(f"{sum(where[-1]):.1f},{height}")
    found = f'<polygon points="{" ".join(points)}" class="area"/>' + "".join(bars)
    if plan.peak < peak:
        return found
    x, w = where[plan.at]
    side, away = ("end", -6) if x > WIDTH / 2 else ("start", 6)
    return found + (
        f'<line x1="{x + w / 2:.1f}" x2="{x + w / 2:.1f}" y1="6" y2="{height}" class="peak"/>'
        f'<text x="{x + w / 2 + away:.1f}" y="13" text-anchor="{side}" class="note">'
        f"{size(plan.peak)} at kernel {plan.at}</text>"
    )


def _svg(height: int, body: str, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(label)}">{body}</svg>'


# ---- the roofline -------------------------------------------------------------------------------


class Roofline:
    """Kernels by their arithmetic intensity and their speed, under what the machine can do."""

    WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 330, 46, 34, 24

    def __init__(self, report: Report) -> None:
        self.report = report
        self.dots = [
            (p, k)
            for p, part in enumerate(report.parts)
            for k in part.kernels
            if k.flops and k.nbytes and k.seconds
        ]
        rates = report.limits.get("gflops", {})
        used = {k.dtype if k.dtype in rates else "float32" for _, k in self.dots}
        self.peaks = {name: rates[name] for name in sorted(used) if name in rates} or {"": 1.0}
        self.peak = max(self.peaks.values())
        self.bandwidth = report.limits.get("memory_gbs", 1.0) or 1.0
        intensities = [k.flops / k.nbytes for _, k in self.dots] or [1.0]
        speeds = [k.flops / k.seconds / 1e9 for _, k in self.dots] or [1.0]
        ridge = self.peak / self.bandwidth
        self.x = _decades(min([*intensities, ridge]), max([*intensities, ridge * 2]))
        low, high = _decades(min(speeds), max([*speeds, self.peak]))
        self.y = max(low, high - _MOST_DECADES), high

    def at(self, intensity: float, gflops: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.x, self.y
        x = (math.log10(intensity) - x0) / (x1 - x0)
        y = (math.log10(gflops) - y0) / (y1 - y0)
        high = self.HEIGHT - self.BOTTOM - self.TOP
        return (
            self.LEFT + x * (self.WIDTH - self.LEFT - 20),
            self.HEIGHT - self.BOTTOM - max(y, 0.0) * high,
        )

    def svg(self, colours: Colours) -> str:
        if not self.dots:
            return ""
        body = [*self._grid(), *self._roof(), *self._dots(colours)]
        return (
            f'<svg viewBox="0 0 {self.WIDTH} {self.HEIGHT}" role="img" '
            f'aria-label="Roofline">{"".join(body)}</svg>'
        )

    def _grid(self) -> Iterator[str]:
        (x0, x1), (y0, y1) = self.x, self.y
        bottom, right = self.HEIGHT - self.BOTTOM, self.WIDTH - 12
        for d in range(x0, x1 + 1):
            x, _ = self.at(10.0**d, 10.0**y0)
            yield _grid_line(x, self.TOP, x, bottom)
            yield _axis_label(x, self.HEIGHT - 18, "middle", d)
        for d in range(y0, y1 + 1):
            _, y = self.at(10.0**x0, 10.0**d)
            yield _grid_line(self.LEFT, y, right, y)
            yield _axis_label(self.LEFT - 6, y + 4, "end", d)
        yield (
            f'<text x="{self.WIDTH - 12}" y="{self.HEIGHT - 4}" class="axis" text-anchor="end">'
            "operations for each byte</text>"
            f'<text x="{self.LEFT}" y="9" class="axis">GFLOP/s</text>'
        )

    def _roof(self) -> Iterator[str]:
        left = max(10.0 ** self.x[0], 10.0 ** self.y[0] / self.bandwidth)
        right = 10.0 ** self.x[1]
        for name, peak in self.peaks.items():
            points = [(left, left * self.bandwidth), (peak / self.bandwidth, peak), (right, peak)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*p) for p in points))
            yield f'<polyline points="{path}" class="roof"/>'
            x, y = self.at(right, peak)
            yield (
                f'<text x="{x:.1f}" y="{y - 5:.1f}" class="note" text-anchor="end">'
                f"{text(name)} {peak:,.0f} GFLOP/s</text>"
            )
        cache = self.report.limits.get("cache_gbs", 0.0)
        if cache > self.bandwidth:
            ends = [(left, left * cache), (self.peak / cache, self.peak)]
            (x, y), (x2, y2) = (self.at(*p) for p in ends)
            yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="roof thin"/>'
            x, y = self.at(self.peak / cache / 3, self.peak / 3)
            yield (
                f'<text x="{x - 6:.1f}" y="{y:.1f}" class="axis" text-anchor="end">caches '
                f"{cache:,.0f} GB/s</text>"
            )
        ridge = self.peak / self.bandwidth
        x, y = self.at(ridge / 2.5, self.peak / 2.5)
        yield (
            f'<text x="{x - 8:.1f}" y="{y:.1f}" class="note" text-anchor="end">'
            f"memory {self.bandwidth:,.0f} GB/s</text>"
        )

    def _dots(self, colours: Colours) -> Iterator[str]:
        total = self.report.seconds or 1.0
        for part, kernel in sorted(self.dots, key=lambda x: -x[1].seconds):
            x, y = self.at(kernel.flops / kernel.nbytes, kernel.flops / kernel.seconds / 1e9)
            radius = 2.5 + 26 * math.sqrt(kernel.seconds / total)
            yield (
                f'<circle class="k dot" data-k="{key(part, kernel)}" cx="{x:.1f}" cy="{y:.1f}" '
                f'r="{min(radius, 18):.1f}" fill="{colours.of_kernel(kernel)}" '
                f'data-tip="{tip(kernel)}"/>'
            )


def _decades(low: float, high: float) -> tuple[int, int]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return first, max(last, first + 1)


def _grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="grid"/>'


def _axis_label(x: float, y: float, anchor: str, d: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="axis" text-anchor="{anchor}">{_power(d)}</text>'


def _power(d: int) -> str:
    return f"{10.0**d:g}" if -4 < d < 5 else f"1e{d}"


def shares(values: Sequence[tuple[str, float, str]]) -> str:
    """A bar divided by shares: (label, share, CSS class)."""
    total = sum(v for _, v, _ in values) or 1.0
    return "".join(
        f'<span class="{css}" style="flex:{v / total:.4f}" title="{text(label)} '
        f'{100 * v / total:.0f} %"></span>'
        for label, v, css in values
        if v
    )
