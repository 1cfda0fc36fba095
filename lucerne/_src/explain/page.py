"""The page: one HTML file with everything in it, that needs no network and opens anywhere."""

from __future__ import annotations

import html
import io
import keyword
import textwrap
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lucerne._src.capture.ledger import AGAIN
from lucerne._src.capture.report import page as shell
from lucerne._src.explain import charts, sections
from lucerne._src.explain.charts import text
from lucerne._src.explain.collect import joined, line_kernels
from lucerne._src.explain.colours import Colours
from lucerne._src.explain.memory import short, size
from lucerne._src.explain.report import (
    COMPUTE,
    MEMORY,
    OVERHEAD,
    KernelReport,
    Report,
    SourceReport,
    StopReport,
)
from lucerne._src.explain.text import duration

_SHOWN_WINS = 4


def quoted(page: str) -> str:
    """A page as the value of an attribute."""
    return html.escape(page, quote=True)


def page(report: Report) -> str:
    """The whole page."""
    colours = Colours(report)
    body = [
        _head(report),
        sections.breaks(report),
        _pictures(report, colours),
        '<div class="two">',
        f'<div class="side">{_code(report, colours)}{sections.totals(report)}</div>',
        f'<div class="side">{_roofline(report, colours)}{_wins(report)}'
        f"{sections.memory(report)}</div>",
        "</div>",
        sections.kernels(report, colours),
        sections.separate(report),
        sections.passes(report),
        sections.guards(report),
    ]
    return shell.document(
        f"{report.function} explained",
        _file("page.css"),
        f"<main>{''.join(body)}</main>"
        f'<div id="tip" hidden></div><script>{_file("page.js")}</script>',
    )


@cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


# ---- the first screen ---------------------------------------------------------------------------


def _head(report: Report) -> str:
    kernels = list(report.kernels())
    tiles = []
    if report.parts:
        peak = max((p.memory.peak for p in report.parts if p.memory is not None), default=0)
        several = len(report.parts) > 1
        tiles += [
            _tile(duration(report.seconds), "in kernels, each at its best"),
            _tile(str(len(kernels)), f"kernels in {len(report.parts)} programs" if several else
                  "kernels in 1 program"),
            _limited(report),
            _tile(size(peak), "scratch memory at the worst moment"),
        ]  # fmt: skip
    if report.compiles:
        again = sum(c.kind in AGAIN for c in report.compiles)
        often = f"{again} recompile{'' if again == 1 else 's'}" if again else "no recompiles"
        total = duration(sum(c.seconds for c in report.compiles))
        tiles.append(_tile(total, f"of compiling, {often}"))
    count = len(report.breaks)
    bad = " bad" if count or report.given_up else " good"
    what = "uncompiled" if report.given_up else str(count)
    label = "what it runs as" if report.given_up else "break" if count == 1 else "breaks"
    tiles.append(_tile(what, label, bad))
    where = f"{short(report.file)}:{report.line}" if report.file else ""
    busy = f'<p class="sub busy">{text(report.busy)}</p>' if report.busy else ""
    machine = report.limits.get("processor", "")
    return (
        "<header><div><h1>"
        f'{text(report.function)}</h1><p class="sub" title="{text(report.file)}">{text(where)} · '
        f"{text(machine)}, {report.threads} thread{'' if report.threads == 1 else 's'}</p>"
        f"{busy}</div>"
        '<button id="theme" title="Dark or light">◐</button></header>'
        f'<div class="tiles">{"".join(tiles)}</div>'
    )


def _tile(figure: str, label: str, css: str = "") -> str:
    return f'<div class="tile{css}"><b>{text(figure)}</b><span>{text(label)}</span></div>'


def _limited(report: Report) -> str:
    """How much of the time is limited by what."""
    total = report.seconds or 1.0
    parts = [
        (v, sum(k.seconds for k in report.kernels() if k.verdict == v), v)
        for v in (COMPUTE, MEMORY, OVERHEAD)
    ]
    words = " · ".join(f"{100 * s / total:.0f} % {v}" for v, s, _ in parts if s)
    return (
        f'<div class="tile wide"><div class="shares">{charts.shares(parts)}</div>'
        f"<span>limited by: {words}</span></div>"
    )


def _pictures(report: Report, colours: Colours) -> str:
    if not any(part.kernels for part in report.parts):
        return ""
    apart = "; red: a break" if report.breaks else ""
    below = charts.memory(report)
    if below:
        title = '<h2 class="under">Scratch memory <small>while each kernel runs</small></h2>'
        below = title + below
    return (
        '<section class="card"><h2>Kernels over time <small>the colour is the line they come from, '
        f"darker: its backward pass{apart}</small></h2>{charts.timeline(report, colours)}"
        f"{below}</section>"
    )


# ---- the source ---------------------------------------------------------------------------------


def _code(report: Report, colours: Colours) -> str:
    kernels = line_kernels(report)
    seconds = {at: _split([k for _, k in found], at) for at, found in kernels.items()}
    most = max((a + b for a, b in seconds.values()), default=0.0) or 1.0
    stops: dict[tuple[str, int], list[StopReport]] = {}
    for b in report.breaks:
        stops.setdefault((b.file, b.line), []).append(b)
    alone = {(x.file, x.line): joined(x.ops) for x in report.outside}
    blocks = []
    for source in _ordered(report, seconds):
        rows = []
        for number, (plain, shown) in enumerate(_highlighted(source), source.first):
            at = source.file, number
            rows.append(
                _line(number, shown, colours.of_line(*at), kernels.get(at, []),
                      seconds.get(at, (0.0, 0.0)), most, alone.get(at, ""))
            )  # fmt: skip
            for stop in stops.get(at, ()):
                indent = len(plain) - len(plain.lstrip())
                rows.append(
                    f'<div class="stop" style="margin-left:calc(13.4rem + {indent}ch)">'
                    f"break {stop.number}: {text(stop.reason)}<br><b>Fix:</b> {text(stop.fix)}"
                    "</div>"
                )
        title = f"{source.name} · " if source.name else ""
        blocks.append(
            f'<div class="file" title="{text(source.file)}">{text(title)}'
            f'{text(short(source.file))}</div><div class="code">{"".join(rows)}</div>'
        )
    return (
        '<section class="card source"><h2>Your code <small>time of the kernels that come from each '
        "line, forward and <i>backward</i></small></h2>" + "".join(blocks) + "</section>"
    )


def _split(kernels: list[KernelReport], at: tuple[str, int]) -> tuple[float, float]:
    """Seconds of a line, forward and backward; a kernel's time is divided among its lines."""
    forward = backward = 0.0
    for k in kernels:
        for origin, seconds in k.by_line():
            if (origin.file, origin.line) == at and origin.backward:
                backward += seconds
            elif (origin.file, origin.line) == at:
                forward += seconds
    return forward, backward


def _ordered(
    report: Report, seconds: dict[tuple[str, int], tuple[float, float]]
) -> list[SourceReport]:
    """The function itself, then those that take longest."""

    def cost(source: SourceReport) -> float:
        lines = range(source.first, source.first + len(source.lines))
        return sum(sum(seconds.get((source.file, n), (0.0, 0.0))) for n in lines)

    return [*report.sources[:1], *sorted(report.sources[1:], key=cost, reverse=True)]


def _line(
    number: int, shown: str, colour: str, kernels: list[tuple[int, KernelReport]],
    seconds: tuple[float, float], most: float, alone: str,
) -> str:  # fmt: skip
    """A line of source; `alone`: its ops that no program computed."""
    keys = " ".join(charts.key(p, k) for p, k in kernels)
    told = bars = ""
    if kernels:
        forward, backward = (100 * s / most for s in seconds)
        told = duration(sum(seconds))
        bars = (
            f'<i class="back" style="width:{backward:.1f}%;background:{colour}"></i>'
            f'<i style="width:{forward:.1f}%;background:{colour}"></i>'
        )
    css = "line k" if kernels else "line"
    hint = f"{duration(seconds[0])} forward, {duration(seconds[1])} backward" if kernels else ""
    mark = f'<span class="alone">outside of programs: {text(alone)}</span>' if alone else ""
    return (
        f'<div class="{css}" data-k="{keys}"><span class="left" title="{hint}">'
        f'<span class="ms">{told}</span><span class="time">{bars}</span>'
        f'<span class="no" style="border-color:{colour if kernels else "transparent"}">{number}'
        f"</span></span><code>{shown or ' '}</code>{mark}</div>"
    )


def _highlighted(source: SourceReport) -> Iterator[tuple[str, str]]:
    """Each line as it is, and as HTML with keywords, strings and comments marked."""
    marks: dict[int, list[tuple[int, int, str]]] = {}
    lines = textwrap.dedent("\n".join(source.lines)).split("\n")
    for token in _tokens("\n".join(lines)):
        css = {tokenize.COMMENT: "c", tokenize.STRING: "s", tokenize.NUMBER: "n"}.get(token.type)
        if token.type == tokenize.NAME and keyword.iskeyword(token.string):
            css = "w"
        if css and token.start[0] == token.end[0]:
            marks.setdefault(token.start[0], []).append((token.start[1], token.end[1], css))
    for number, line in enumerate(lines, 1):
        found, at = [], 0
        for start, stop, css in marks.get(number, ()):
            found += [text(line[at:start]), f'<em class="{css}">{text(line[start:stop])}</em>']
            at = stop
        yield line, "".join([*found, text(line[at:])])


def _tokens(code: str) -> list[tokenize.TokenInfo]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            found.append(token)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return found
    return found


# ---- beside the source --------------------------------------------------------------------------


def _roofline(report: Report, colours: Colours) -> str:
    picture = charts.Roofline(report).svg(colours)
    if not picture:
        return ""
    return (
        '<section class="card"><h2>Against the machine <small>measured limits; a dot is a kernel, '
        f"its size the time</small></h2>{picture}</section>"
    )


def _wins(report: Report) -> str:
    """Where time could be won: what a kernel takes beyond what the machine needs."""
    lost = sorted(
        ((p, k) for p, part in enumerate(report.parts) for k in part.kernels),
        key=lambda x: x[1].least - x[1].seconds,
    )
    total = report.seconds or 1.0
    rows = []
    for p, k in lost[:_SHOWN_WINS]:
        won = k.seconds - k.least
        if won > 0:
            rows.append(
                f'<li class="k" data-k="{charts.key(p, k)}"><b>{duration(won)}</b> '
                f"{text(k.name[:48])} takes {duration(k.seconds)} "
                f"({100 * k.seconds / total:.0f} %), the machine could do it in "
                f"{duration(k.least)}</li>"
            )
    if not rows:
        return ""
    return (
        '<section class="card"><h2>Where time could be won <small>at most</small></h2>'
        f'<ul class="wins">{"".join(rows)}</ul></section>'
    )
