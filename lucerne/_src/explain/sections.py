"""The sections of the page below the first screen: tables that fold."""

from __future__ import annotations

from lucerne._src.explain import charts
from lucerne._src.explain.charts import key, text
from lucerne._src.explain.collect import module_seconds, op_seconds
from lucerne._src.explain.colours import Colours
from lucerne._src.explain.memory import line_of, short, size
from lucerne._src.explain.report import PartReport, PassReport, Report
from lucerne._src.explain.text import duration, handed_on, rate

_SHOWN_PAIRS = 24
_SHOWN_OWNERS = 10


def _title(report: Report, number: int, part: PartReport) -> str:
    return "" if len(report.parts) == 1 else f"<h3>{number + 1}. {text(part.name)}</h3>"


def breaks(report: Report) -> str:
    """What a graph could not hold, in red, with the fix."""
    found = []
    if report.given_up:
        found.append(
            f'<div class="break"><b>{text(report.function)} runs uncompiled</b>'
            f"<p>{text(report.given_up)}</p></div>"
        )
    for b in report.breaks:
        where = f"{short(b.file)}:{b.line}" if b.file else "an unknown line"
        found.append(
            f'<div class="break"><b>Break at {text(where)}</b> <span>in {text(b.function)} · '
            f"{text(b.kind)}, number {b.number}</span><p>{text(b.reason)}</p>"
            f"<p><b>Fix:</b> {text(b.fix)}</p>"
            + (f"<p><b>Costs:</b> {text(handed_on(b))}</p>" if b.nbytes else "")
            + "</div>"
        )
    if len(report.breaks) > 1:
        found.insert(1 if report.given_up else 0, "<h2>Breaks <small>the worst first</small></h2>")
    return f'<section class="breaks">{"".join(found)}</section>' if found else ""


def kernels(report: Report, colours: Colours) -> str:
    """Every kernel: what it does, how long it takes, and against which limit."""
    rows = []
    for p, part in enumerate(report.parts):
        total = part.seconds or 1.0
        for k in part.kernels:
            lines = ", ".join(dict.fromkeys(line_of(o) for o in k.origins)) or "the compiler"
            modules = ", ".join(dict.fromkeys(o.module for o in k.origins if o.module))
            share = k.seconds / total
            near = "" if k.verdict == "overhead" else f"{100 * k.fraction:.0f} %"
            number = k.number if len(report.parts) == 1 else f"{p + 1}.{k.number}"
            rows.append(
                f'<tbody><tr class="k" data-k="{key(p, k)}"><td data-v="{p * 1e6 + k.number:g}">'
                f'<i class="dot" style="background:{colours.of_kernel(k)}"></i>{number}</td>'
                f'<td class="name">{text(k.name)}</td><td>{text(k.shape)} {text(k.dtype)}</td>'
                f'<td class="r" data-v="{k.seconds:.9f}">{duration(k.seconds)}</td>'
                f'<td class="r" data-v="{share:.6f}">{100 * share:.1f} %</td>'
                f'<td class="r" data-v="{k.nbytes}">{size(k.nbytes)}</td>'
                f'<td class="r" data-v="{k.flops}">{_flops(k.flops)}</td>'
                f'<td class="r">{rate(k)}</td>'
                f'<td data-v="{k.verdict}"><span class="v {k.verdict}">{k.verdict}</span></td>'
                f'<td class="r" data-v="{k.fraction:.6f}">{near}</td>'
                f"<td>{text(lines)}</td><td>{text(modules)}</td></tr>"
                f'<tr class="more" hidden><td colspan="12"><pre>{text(k.text)}</pre></td></tr>'
                "</tbody>"
            )
    if not rows:
        return ""
    heads = (
        "", "kernel", "result", "time", "share", "moved", "FLOP", "reaches", "limited by",
        "of limit", "lines", "module",
    )  # fmt: skip
    head = "".join(f"<th>{h}</th>" for h in heads)
    return (
        '<section class="card"><h2>Kernels <small>click a head to sort, a row to see what it '
        f'computes</small></h2><div class="scroll"><table id="kernels"><thead><tr>{head}</tr>'
        f"</thead>{''.join(rows)}</table></div></section>"
    )


def _flops(count: int) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count) if count else ""


def totals(report: Report) -> str:
    """Time by module and by what kernels compute."""
    columns = []
    most = report.seconds or 1.0
    for title, seconds in (("by module", module_seconds(report)), ("by op", op_seconds(report))):
        found = sorted(seconds.items(), key=lambda x: -x[1])[:_SHOWN_OWNERS]
        rows = "".join(
            f'<tr><td class="r">{duration(took)}</td><td class="r">{100 * took / most:.0f} %</td>'
            f'<td><i class="bar" style="width:{60 * took / most:.1f}px"></i></td>'
            f"<td>{text(name)}</td></tr>"
            for name, took in found
        )
        columns.append(f"<div><h4>{title}</h4><table>{rows}</table></div>")
    if not report.seconds:
        return ""
    return (
        '<section class="card"><h2>Totals <small>of all kernels</small></h2>'
        f'<div class="two">{"".join(columns)}</div></section>'
    )


def separate(report: Report) -> str:
    """Why neighbours are two kernels, by reason."""
    found = []
    for p, part in enumerate(report.parts):
        reasons: dict[str, list[str]] = {}
        for s in part.separate:
            keys = f"{p}-{s.first} {p}-{s.second}"
            told = f"{s.first} {s.op} → {s.second} {s.reader}"
            reasons.setdefault(s.why, []).append(
                f'<span class="k chip" data-k="{keys}">{text(told)}</span>'
            )
        rows = []
        for why, pairs in sorted(reasons.items(), key=lambda x: -len(x[1])):
            more = len(pairs) - _SHOWN_PAIRS
            rest = f' <span class="chip">and {more} more</span>' if more > 0 else ""
            rows.append(
                f"<details><summary><b>{len(pairs)}</b> &times; {text(why)}</summary><p>"
                f"{' '.join(pairs[:_SHOWN_PAIRS])}{rest}</p></details>"
            )
        if rows:
            found.append(_title(report, p, part) + "".join(rows))
    if not found:
        return ""
    return (
        '<section class="card"><h2>Not fused, and why <small>pairs of kernels of which one reads '
        f"what the other makes</small></h2>{''.join(found)}</section>"
    )


def memory(report: Report) -> str:
    """Who owns the bytes at the worst moment, by line and by module."""
    found = []
    for p, part in enumerate(report.parts):
        plan = part.memory
        if plan is None or not plan.peak:
            continue
        columns = []
        for name, title in (("label", "by line"), ("module", "by module")):
            rows = "".join(
                f'<tr><td class="r">{size(nbytes)}</td><td><i class="bar" style="width:'
                f'{60 * nbytes / plan.peak:.1f}px"></i></td><td>{text(label)}</td></tr>'
                for label, nbytes in plan.by(name)[:_SHOWN_OWNERS]
            )
            columns.append(f"<div><h4>{title}</h4><table>{rows}</table></div>")
        found.append(
            f"{_title(report, p, part)}<p>Arena {size(plan.arena)}, of which {size(plan.peak)} are "
            f"in use while kernel {plan.at} runs. Arguments (parameters included) "
            f"{size(plan.arguments)}, results {size(plan.results)}.</p>"
            f'<div class="two">{"".join(columns)}</div>'
        )
    title = "<h2>Memory at the worst moment</h2>"
    return f'<section class="card">{title}{"".join(found)}</section>' if found else ""


def passes(report: Report) -> str:
    """Every stage of the compiler with what it changed."""
    found = []
    for p, part in enumerate(report.parts):
        if not part.passes:
            continue
        most = max(x.after for x in part.passes) or 1
        rows = "".join(_pass(x, most) for x in part.passes)
        rows += (
            f'<div class="pass">{_bar(len(part.kernels), most)} <b>kernels</b> '
            "<small>nodes that one loop nest computes are one kernel</small></div>"
        )
        found.append(_title(report, p, part) + rows)
    if not found:
        return ""
    return (
        '<section class="card"><h2>The way through the compiler <small>nodes after each stage; '
        f"open one to see what it changed</small></h2>{''.join(found)}</section>"
    )


def _pass(x: PassReport, most: int) -> str:
    change = x.after - x.before
    told = f'<span class="change">{change:+d}</span>' if change else ""
    head = f"{_bar(x.after, most)} <b>{text(x.name)}</b>{told} <small>{text(x.why)}</small>"
    if not x.diff:
        return f'<div class="pass">{head}</div>'
    lines = "".join(_diff_line(line) for line in x.diff.splitlines())
    return (
        f'<details class="pass"><summary>{head}</summary><pre class="diff">{lines}</pre></details>'
    )


def _bar(count: int, most: int) -> str:
    width = 160 * count / most
    return (
        f'<span class="nodes">{count}</span><span class="fill"><i class="bar" '
        f'style="width:{width:.0f}px"></i></span>'
    )


def _diff_line(line: str) -> str:
    css = {"+": ' class="plus"', "-": ' class="minus"', "@": ' class="at"'}.get(line[:1], "")
    return f"<span{css}>{text(line)}\n</span>"


def guards(report: Report) -> str:
    """When the program is used, and what it cost to make."""
    columns = []
    seen: set[tuple[str, ...]] = set()
    for p, part in enumerate(report.parts):
        told = tuple(part.guards)
        if told and told not in seen:
            seen.add(told)
            items = "".join(f"<li>{text(g)}</li>" for g in told)
            columns.append(f"<div>{_title(report, p, part)}<ul>{items}</ul></div>")
    compiles = "".join(
        f'<tr><td class="r">{duration(c.seconds)}</td><td>'
        f"{text(c.why if c.kind == c.why else f'{c.kind}: {c.why}')}</td></tr>"
        for c in report.compiles
    )
    stages: dict[str, float] = {}
    for part in report.parts:
        for name, seconds in part.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds
    most = max(stages.values(), default=1.0) or 1.0
    cost = "".join(
        f'<tr><td class="r">{duration(s)}</td><td><i class="bar" style="width:'
        f'{100 * s / most:.0f}px"></i></td><td>{text(name)}</td></tr>'
        for name, s in stages.items()
    )
    again = (
        f"<div><h4>compiles of this function</h4><table>{compiles}</table></div>"
        if compiles
        else ""
    )
    spent = f"<div><h4>time of compiling, by stage</h4><table>{cost}</table></div>" if cost else ""
    if not columns and not again:
        return ""
    return (
        '<section class="card"><h2>Guards <small>used again as long as all of this holds</small>'
        f'</h2><div class="two">{"".join(columns)}<div>{again}{spent}</div></div></section>'
    )


__all__ = ["breaks", "charts", "guards", "kernels", "memory", "passes", "separate", "totals"]
