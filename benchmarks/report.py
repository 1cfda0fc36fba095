"""What the suite says: lines in the terminal, JSON, a picture, and one page of HTML."""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import Result, Section

Facts = dict[str, Any]
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_HEAD = f"{'':<46}{'lucerne':>11}{'torch':>11}{'ratio':>8}{'limit':>15}"


def amount(value: float | None, unit: str) -> str:
    """A number with its unit: times in the scale that fits."""
    if value is None:
        return "-"
    if unit != "s":
        return f"{value:.3g} {unit}"
    scale, name = next((s for s in _SCALES if value >= s[0]), _SCALES[-1])
    return f"{value / scale:.3g} {name}"


def verdict(r: Result) -> str:
    """PASS or MISS, with a question mark when the machine was too busy to tell."""
    if r.passed is None:
        return "absent" if r.ours is None else ""
    return ("PASS" if r.passed else "MISS") + ("?" if r.doubtful else "")


def required(r: Result) -> str:
    parts = [] if r.limit is None else [f"{r.limit:.2f}"]
    if r.limit_ours is not None:
        parts.append(amount(r.limit_ours, r.unit))
    return ", ".join(parts)


def machine_line(limits: dict[str, float]) -> str:
    parts = [f"one core: {limits['fma_gflops_core']:.0f} GF/s f32"]
    if "tiles_gflops_core" in limits:
        parts.append(f"{limits['tiles_gflops_core']:.0f} GF/s bf16 tiles")
    parts.append(f"copy {limits['copy_gbs_core']:.1f} GB/s")
    return ", ".join(parts)


def section_head(section: Section) -> str:
    bound = "" if section.mean_limit is None else f" (geometric mean <= {section.mean_limit})"
    return f"\n{section.title}{bound}  [{section.name}]\n{_HEAD}"


def line(r: Result) -> str:
    ratio = "-" if r.ratio is None else f"{r.ratio:.2f}"
    rate = "" if r.rate is None else f"{r.rate:.0f} {r.rate_unit} "
    tail = " ".join(x for x in (rate, r.way, r.note) if x)
    return (
        f"{r.name:<46}{amount(r.ours, r.unit):>11}{amount(r.theirs, r.unit):>11}{ratio:>8}"
        f"{required(r):>15}  {verdict(r):<7}{tail}"
    )


def summary(results: Sequence[Result], facts: Facts) -> None:
    judged = [r for r in results if r.passed is not None]
    passed = sum(bool(r.passed) for r in judged)
    absent = sum(r.ours is None for r in results)
    print(f"\n{passed} of {len(judged)} within their limit, {absent} absent; ", end="")
    print(f"{facts['seconds']:.0f} s, {facts['noisy']:.0%} of the timings on a busy machine")
    if doubtful := sum(r.doubtful for r in judged):
        print(f"{doubtful} verdicts marked '?' mean nothing: measure again on a quiet machine")


def _entry(r: Result) -> dict[str, Any]:
    verdicts = {"ratio": r.ratio, "passed": r.passed, "doubtful": r.doubtful}
    return {**dataclasses.asdict(r), **verdicts}


def write_json(path: str, results: Sequence[Result], facts: Facts) -> None:
    text = json.dumps({**facts, "results": [_entry(r) for r in results]}, indent=1)
    Path(path).write_text(text + "\n")


# ---- picture -----------------------------------------------------------------------------------


def _picture(results: Sequence[Result]) -> bytes | None:
    """Bars of the ratio, one per case; None without matplotlib."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        plt = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return None
    shown = [r for r in results if r.ratio is not None]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.22 * len(shown)))
    for i, r in enumerate(reversed(shown)):
        axes.barh(i, r.ratio, color="#4c956c" if r.passed is not False else "#c8553d")
        if r.limit is not None:
            axes.plot([r.limit, r.limit], [i - 0.4, i + 0.4], color="black", linewidth=1)
    axes.axvline(1.0, color="gray", linewidth=0.8)
    axes.set_yticks(range(len(shown)))
    axes.set_yticklabels([f"{r.section}: {r.name}" for r in reversed(shown)], fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("time of Lucerne / time of torch (less is better; black: limit)")
    axes.margins(y=0.01)
    figure.tight_layout()
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=120)
    plt.close(figure)
    return held.getvalue()


def write_plot(path: str, results: Sequence[Result], facts: Facts) -> None:
    made = _picture(results)
    if made is None:
        print("no picture: --plot needs matplotlib (pip install matplotlib)", file=sys.stderr)
        return
    Path(path).write_bytes(made)


# ---- page --------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ padding: .15em .6em; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, th:first-child {{ text-align: left }}
.PASS {{ color: #2d6a4f }} .MISS {{ color: #b02a1a; font-weight: bold }}
.bar {{ width: 9em; text-align: left }}
.bar i {{ display: block; height: .7em; background: #4c956c }}
.bar i.over {{ background: #c8553d }}
small {{ color: #666 }} img {{ max-width: 100% }}
</style></head><body>
<h1>{title}</h1><p>{facts}</p>{body}</body></html>
"""


def page(title: str, facts: str, body: str) -> str:
    """A page of HTML that needs nothing else; `body` is HTML already."""
    return _PAGE.format(title=html.escape(title), facts=html.escape(facts), body=body)


def write_html(path: str, results: Sequence[Result], facts: Facts) -> None:
    names = list(dict.fromkeys(r.section for r in results))
    body = "".join(_table(n, [r for r in results if r.section == n]) for n in names)
    made = _picture(results)
    picture = ""
    if made is not None:
        data = base64.b64encode(made).decode()
        picture = f'<img alt="ratios" src="data:image/png;base64,{data}">'
    versions = ", ".join(f"{k} {v}".strip() for k, v in facts["versions"].items())
    told = f"{facts['when']}; {versions}; {facts['threads']} threads; "
    told += machine_line(facts["machine"])
    Path(path).write_text(page("Lucerne beside PyTorch", told, body + picture))


def _table(name: str, results: Sequence[Result]) -> str:
    rows = "".join(_row(r) for r in results)
    heads = ("case", "Lucerne", "torch", "ratio", "limit", "", "rate", "")
    head = "".join(f"<th>{h}</th>" for h in heads)
    return f"<h2>{html.escape(name)}</h2><table><tr>{head}</tr>{rows}</table>"


def _row(r: Result) -> str:
    ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
    rate = "" if r.rate is None else f"{r.rate:.0f} {r.rate_unit}"
    note = html.escape(" ".join(x for x in (r.way, r.note) if x))
    over = "" if r.ratio is None or r.ratio <= 1 else " class=over"
    bar = f"<i{over} style='width:{min(100, 50 * (r.ratio or 0)):.0f}%'></i>"
    cells = (amount(r.ours, r.unit), amount(r.theirs, r.unit), ratio, required(r))
    return (
        f"<tr><td>{html.escape(r.name)} <small>{note}</small></td>"
        + "".join(f"<td>{html.escape(c)}</td>" for c in cells)
        + f"<td class={verdict(r).rstrip('?') or 'none'}>{verdict(r)}</td><td>{rate}</td>"
        + f"<td class=bar>{bar}</td></tr>"
    )
