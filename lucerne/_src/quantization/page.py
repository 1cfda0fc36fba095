"""The quality report as text and as one page."""

from __future__ import annotations

import html
from typing import Any

from lucerne._src.capture.report import page as shell

_HEAD = ("layer", "shape", "codes", "SQNR dB", "share", "loss", "bytes", "")


def summary(report: Any) -> list[str]:
    """The lines under the table."""
    kept = [x.name for x in report.layers if x.kept]
    lines = [
        f"{report.measured}: {report.loss_before:.6g} -> {report.loss_after:.6g} "
        f"({report.change:+.3%})",
        f"bytes of the weights: {report.bytes_before:,} -> {report.bytes_after:,}",
        f"ms a batch: {report.ms_before:.2f} -> {report.ms_after:.2f}",
    ]
    if report.budget is not None:
        within = report.change <= report.budget
        said = ", ".join(kept) if kept else "none"
        lines.append(
            f"budget {report.budget:.3%}: {'kept' if within else 'NOT kept'}; layers that stay in "
            f"float: {said}"
        )
    return lines


def _cells(x: Any) -> tuple[str, ...]:
    return (
        x.name, f"{x.shape[0]}x{x.shape[1]}", x.stored, f"{x.sqnr:.1f}", f"{x.share:.1%}",
        f"{x.change:+.2e}", f"{x.bytes_before:,} -> {x.bytes_after:,}",
        "stays in float" if x.kept else "",
    )  # fmt: skip


def as_text(report: Any) -> str:
    """A table for the terminal."""
    rows = [_HEAD, *(_cells(x) for x in report.layers)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *summary(report)])


def as_html(report: Any) -> str:
    """A page with everything in it."""
    rows = []
    for x in report.layers:
        *cells, said = (html.escape(c) for c in _cells(x))
        rows.append((*cells, f'<meter value="{x.share:.4f}"></meter> {said}'))
    told = "".join(f"<p>{html.escape(line)}</p>" for line in summary(report))
    return shell.page("What few bits cost", told + shell.table(_HEAD, rows))
