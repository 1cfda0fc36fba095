"""Colours: every line of the user's code has a hue, and so has all that comes from it."""

from __future__ import annotations

from lucerne._src.base.process.source_location import Origin
from lucerne._src.explain.report import KernelReport, Report

_GOLDEN = 137.508
_GREY = -1


class Colours:
    """A hue for each line, in the order in which kernels come from them."""

    def __init__(self, report: Report) -> None:
        self.hues: dict[tuple[str, int], float] = {}
        for kernel in report.kernels():
            for o in kernel.origins:
                at = o.file, o.line
                if at not in self.hues:
                    self.hues[at] = (210 + len(self.hues) * _GOLDEN) % 360

    def of_line(self, file: str, line: int) -> str:
        """CSS for a line; grey where no kernel comes from it."""
        return _css(self.hues.get((file, line), _GREY), backward=False)

    def of_origin(self, origin: Origin) -> str:
        """CSS for a line, darker if it is of the backward pass."""
        return _css(self.hues.get((origin.file, origin.line), _GREY), origin.backward)

    def of_kernel(self, kernel: KernelReport) -> str:
        """CSS for a kernel: the line that it mainly comes from."""
        origin = main_origin(kernel)
        return _css(_GREY, backward=False) if origin is None else self.of_origin(origin)


def main_origin(kernel: KernelReport) -> Origin | None:
    """The first line that a kernel comes from."""
    return kernel.origins[0] if kernel.origins else None


def _css(hue: float, backward: bool) -> str:
    if hue == _GREY:
        return "hsl(220 6% 58%)"
    return f"hsl({hue:.0f} 42% 44%)" if backward else f"hsl({hue:.0f} 68% 56%)"
