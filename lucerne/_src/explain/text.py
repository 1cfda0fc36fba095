"""An explanation for the terminal."""

from __future__ import annotations

from lucerne._src.backends.contract.fallback_report import Bill
from lucerne._src.explain.collect import joined, line_seconds, module_seconds, op_seconds
from lucerne._src.explain.memory import line_of, short, size
from lucerne._src.explain.report import (
    OVERHEAD,
    KernelReport,
    MemoryReport,
    PartReport,
    Report,
    StopReport,
)

_MOST = 12


def table(report: Report) -> str:
    """All of it, the most expensive things first."""
    lines = [headline(report), ""]
    lines += _breaks(report)
    for k, part in enumerate(report.parts):
        lines += _part(part, k, len(report.parts))
    lines += _outside(report)
    lines += _bill(report)
    lines += [report.busy, ""] if report.busy else []
    lines += _lines(report)
    lines += _totals("by module", module_seconds(report), report.seconds)
    lines += _totals("by op", op_seconds(report), report.seconds)
    lines += _compiles(report)
    return "\n".join(lines).rstrip() + "\n"


def headline(report: Report) -> str:
    """One sentence: what the function became."""
    if not report.parts:
        why = report.given_up or "no program ran in this call"
        return f"{report.function} runs uncompiled: {why}"
    kernels = _counted(sum(len(p.kernels) for p in report.parts), "kernel")
    programs = _counted(len(report.parts), "program")
    breaks = _counted(len(report.breaks), "break")
    return (
        f"{report.function}: {programs}, {kernels}, {duration(report.call_seconds)} a call "
        f"({duration(report.seconds)} in kernels), {breaks}"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(2.5), duration(0.0123), duration(4.2e-6)
    ('2.50 s', '12.30 ms', '4.20 us')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.2f} us"


def rate(kernel: KernelReport) -> str:
    """What a kernel reaches, in the unit of what limits it."""
    if not kernel.seconds:
        return ""
    if kernel.verdict == "compute":
        return f"{kernel.flops / kernel.seconds / 1e9:.0f} GFLOP/s"
    return f"{kernel.nbytes / kernel.seconds / 1e9:.1f} GB/s"


def in_words(kernel: KernelReport) -> str:
    """What limits a kernel, and how near to that limit it comes."""
    if kernel.verdict == OVERHEAD:
        return OVERHEAD
    return f"{kernel.verdict}, at {100 * kernel.fraction:.0f} %"


def _breaks(report: Report) -> list[str]:
    found = ["breaks, the worst first"] if len(report.breaks) > 1 else []
    for b in report.breaks:
        found += [
            f"break {b.number} at {short(b.file)}:{b.line} in {b.function}: {b.reason}",
            f"  fix: {b.fix}",
            *([f"  costs: {handed_on(b)}"] if b.nbytes else []),
        ]
    return [*found, ""] if found else []


def handed_on(stop: StopReport) -> str:
    """What a break costs, in words."""
    return (
        f"{size(stop.nbytes)} are handed on through memory, one more program is launched, and "
        "nothing is fused across"
    )


def _part(part: PartReport, number: int, count: int) -> list[str]:
    title = part.name if count == 1 else f"program {number + 1} of {count}, {part.name}"
    lines = [f"{title}: {_counted(len(part.kernels), 'kernel')}, {duration(part.seconds)}"]
    if part.passes:
        changed = [p for k, p in enumerate(part.passes) if not k or p.after != p.before]
        way = "  ".join(f"{p.name} {p.after}" for p in changed)
        lines.append(f"  nodes  {way}  -> {_counted(len(part.kernels), 'kernel')}")
    lines.append(f"  {'kernel':<34}{'time':>10}{'':>6}{'':>14}  {'limited by':<19}lines")
    ranked = sorted(part.kernels, key=lambda k: -k.seconds)
    for k in ranked[:_MOST]:
        share = f"{100 * k.seconds / part.seconds:.0f} %" if part.seconds else ""
        name = f"{k.number}: {k.name}"
        name = name if len(name) <= 33 else name[:30] + "..."
        verdict = in_words(k)
        where = ", ".join(dict.fromkeys(line_of(o) for o in k.origins))
        lines.append(
            f"  {name:<34}{duration(k.seconds):>10}{share:>6}{rate(k):>14}  {verdict:<19}{where}"
        )
    if len(ranked) > _MOST:
        rest = sum(k.seconds for k in ranked[_MOST:])
        lines.append(f"  and {len(ranked) - _MOST} more, {duration(rest)}")
    lines += _separate(part)
    if part.memory is not None:
        lines += _memory(part.memory)
    lines += ["  guards", *(f"    {g}" for g in part.guards[:_MOST])]
    if len(part.guards) > _MOST:
        lines.append(f"    and {len(part.guards) - _MOST} more")
    return [*lines, ""]


def _separate(part: PartReport) -> list[str]:
    counts: dict[str, list[str]] = {}
    for s in part.separate:
        counts.setdefault(s.why, []).append(f"{s.first}-{s.second}")
    lines = ["  not fused"] if counts else []
    for why, pairs in sorted(counts.items(), key=lambda x: -len(x[1])):
        shown = ", ".join(pairs[:4]) + (", ..." if len(pairs) > 4 else "")
        lines.append(f"    {len(pairs):>4} x {why} ({shown})")
    return lines


def _memory(memory: MemoryReport) -> list[str]:
    lines = [
        f"  memory  arena {size(memory.arena)}, in use at the worst moment {size(memory.peak)} "
        f"(kernel {memory.at}); arguments {size(memory.arguments)}, results {size(memory.results)}"
    ]
    lines += [f"    {size(nbytes):>10}  {label}" for label, nbytes in memory.by("label")[:5]]
    modules = [(m, n) for m, n in memory.by("module") if m != "(no module)"]
    lines += [f"    {size(nbytes):>10}  module {module}" for module, nbytes in modules[:5]]
    return lines


def _outside(report: Report) -> list[str]:
    rows = [
        f"  {short(x.file)}:{x.line} in {x.function}: {joined(x.ops)}"
        for x in report.outside[:_MOST]
    ]
    return ["ops outside of programs, one by one", *rows, ""] if rows else []


def _bill(report: Report) -> list[str]:
    if not report.bill:
        return []
    rows = str(Bill.of(report.bill)).splitlines()
    return ["left its device", *(f"  {row}" for row in rows), ""]


def _lines(report: Report) -> list[str]:
    found = sorted(line_seconds(report).items(), key=lambda x: -x[1])[:_MOST]
    if not found:
        return []
    total = report.seconds or 1.0
    rows = [
        f"  {100 * seconds / total:>5.1f} %  {duration(seconds):>10}  {line_of(origin)}"
        + (f" ({origin.module})" if origin.module else "")
        for origin, seconds in found
    ]
    return ["by line", *rows, ""]


def _totals(title: str, seconds: dict[str, float], total: float) -> list[str]:
    found = sorted(seconds.items(), key=lambda x: -x[1])[:_MOST]
    rows = [
        f"  {100 * took / (total or 1.0):>5.1f} %  {duration(took):>10}  {name}"
        for name, took in found
    ]
    return [title, *rows, ""] if len(rows) > 1 else []


def _compiles(report: Report) -> list[str]:
    rows = [
        f"  {duration(c.seconds):>10}  " + (c.why if c.kind == c.why else f"{c.kind}: {c.why}")
        for c in report.compiles
    ]
    return ["compiled", *rows] if rows else []
