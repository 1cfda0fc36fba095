"""A plan for people: on a terminal, and as one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lucerne._src.backends.contract.placement import MeshShape
from lucerne._src.backends.contract.planned import Chip, PlannedProgram
from lucerne._src.capture.report import page
from lucerne._src.distributed.plan.costs import StepCosts, costs_of, fixes, reshards
from lucerne._src.explain.memory import size
from lucerne._src.explain.sheet import aligned
from lucerne._src.explain.text import duration

_MOST_ROWS = 8
_MOST_SQUARES = 1024
_COLOURS = ("#3b6fd4", "#2f9e4f", "#c8322b", "#8a6fd1", "#d09a2c")
Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


@dataclass
class ClusterPlan:
    """All that was found out."""

    script: str
    chip: Chip
    programs: list[PlannedProgram]
    eager: Mapping[str, int] = field(default_factory=dict)
    looks: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    """Of a processor, for the whole plan."""
    resident: int = 0
    """The most memory that planning took."""

    @property
    def costs(self) -> list[StepCosts]:
        """Of the programs that were compiled."""
        return [costs_of(p, self.chip) for p in self.programs if p.compiled]

    @property
    def fits(self) -> bool:
        return all(c.fits for c in self.costs)


def mesh_text(mesh: MeshShape | None) -> str:
    """A mesh by its sizes.

    >>> mesh_text(MeshShape((2, 2), ("data", "model"), (0, 1, 2, 3)))
    '4 devices (data=2, model=2)'
    """
    if mesh is None:
        return "1 device"
    pairs = zip(mesh.names, mesh.sizes, strict=True)
    return f"{len(mesh.devices)} devices ({', '.join(f'{a}={n}' for a, n in pairs)})"


# ---- tables --------------------------------------------------------------------------------------


def memory_rows(costs: StepCosts) -> list[tuple[str, int]]:
    """What is in the memory of each device."""
    m = costs.program.memory
    return [
        ("arguments", m.arguments),
        ("results", m.results - m.aliased),
        ("temporaries", m.temporaries),
        ("code", m.code),
        ("other tensors", m.elsewhere),
    ]


def memory_table(costs: StepCosts) -> Table:
    shown = [(name, n) for name, n in memory_rows(costs) if n]
    shares = [(name, size(n), f"{100 * n / costs.chip.memory:.1f} %") for name, n in shown]
    return ("memory of each device", "bytes", "of the chip"), shares


def sent_table(costs: StepCosts) -> Table:
    rows = [
        (
            s.kind, " x ".join(s.axes) or "-", str(s.devices), str(s.count), size(s.nbytes),
            duration(s.seconds),
        )
        for s in costs.sent
    ]  # fmt: skip
    return ("sent", "along", "devices", "times", "bytes", "at least"), rows


def argument_table(costs: StepCosts) -> Table:
    kinds: dict[tuple[str, str], list[int]] = {}
    for a in costs.program.arguments:
        row = kinds.setdefault((a.what, a.placements or "-"), [0, 0, 0])
        row[0] += 1
        row[1] += a.nbytes
        row[2] += a.whole
    rows = [
        (what, where, str(n), size(each), size(whole))
        for (what, where), (n, each, whole) in list(kinds.items())[:_MOST_ROWS]
    ]
    return ("largest arguments", "placements", "count", "on each device", "in all"), rows


def reshard_lines(costs: StepCosts) -> list[str]:
    """Where tensors are moved in the middle of a program, and what to do about it."""
    return [
        f"{row} ({size(row.nbytes)} by {', '.join(sorted(row.kinds))})"
        for row in reshards(costs.program)[:_MOST_ROWS]
    ]


def verdict(costs: StepCosts) -> str:
    """Whether it fits."""
    fits = "it fits" if costs.fits else "IT DOES NOT FIT"
    return f"peak {size(costs.peak)} of {size(costs.chip.memory)} on each device: {fits}"


def times(costs: StepCosts) -> list[str]:
    """How long a step takes."""
    p = costs.program
    limit = max(
        ("products", costs.products), ("memory", costs.moved), ("the wire", costs.wire),
        key=lambda pair: pair[1],
    )[0]  # fmt: skip
    return [
        f"products {p.flops / 1e12:.3g} TFLOP on each device: {duration(costs.products)} at best",
        f"memory {size(p.nbytes)} moved on each device: {duration(costs.moved)}",
        f"wire {duration(costs.wire)}",
        f"a step takes {duration(costs.best)} (all overlapped) to {duration(costs.worst)} "
        f"(one after the other, products at {100 * costs.chip.reached:.0f} % of the best); "
        f"most of it: {limit}",
    ]


def notes(plan: ClusterPlan) -> list[str]:
    """What the figures leave out."""
    found = []
    for p in plan.programs:
        if not p.compiled:
            found.append(f"not compiled: a program that {p.name} called once, and then another one")
    for line, n in list(plan.looks.items())[:_MOST_ROWS]:
        found.append(f"a number was looked at {n} times, and was nan: {line}")
    if plan.eager:
        total = sum(plan.eager.values())
        most = max(plan.eager, key=lambda line: plan.eager[line])
        found.append(f"{total} calls outside of compiled functions are in no figure (most: {most})")
    found.append(
        f"planning took {plan.seconds:.1f} s of a processor, {size(plan.resident)} of memory; of "
        f"these {sum(p.seconds for p in plan.programs):.1f} s to trace and compile"
    )
    return found


def _title(plan: ClusterPlan, costs: StepCosts) -> str:
    return f"{mesh_text(costs.program.mesh)} of {plan.chip.name}: {costs.program.name}"


# ---- a terminal ----------------------------------------------------------------------------------


def text(plan: ClusterPlan) -> str:
    """The plan as lines."""
    lines = [f"{plan.script}, planned for {plan.chip.name} ({plan.chip.note})"]
    for costs in plan.costs:
        lines += ["", _title(plan, costs), ""]
        for (heads, rows), left in _tables(costs):
            if rows:
                made = aligned([heads, *rows], left)
                lines += [made[0], "-" * max(map(len, made)), *made[1:], ""]
        found = reshard_lines(costs)
        lines += ["changes of placement:", *[f"  {row}" for row in found], ""] if found else []
        lines += [*times(costs), verdict(costs)]
        lines += [f"  {k}. {fix}" for k, fix in enumerate(fixes(costs), 1)]
    return "\n".join([*lines, "", *notes(plan)])


def _tables(costs: StepCosts) -> list[tuple[Table, int]]:
    """Each with how many of its columns hold words."""
    return [
        (memory_table(costs), 1),
        (argument_table(costs), 2),
        (sent_table(costs), 2),
    ]


# ---- a page --------------------------------------------------------------------------------------


def html(plan: ClusterPlan) -> str:
    """The plan as one file that needs no other."""
    body = [f"<p>{page.escape(plan.script)}; {page.escape(plan.chip.note)}</p>"]
    for costs in plan.costs:
        body.append(f"<h2>{page.escape(_title(plan, costs))}</h2>")
        style = "" if costs.fits else ' class="bad"'
        body.append(f"<p{style}><b>{page.escape(verdict(costs))}</b></p>")
        body.append(_listed(fixes(costs), "ol"))
        body.append(_memory_picture(costs) + _time_picture(costs))
        body.append(_mesh_picture(costs.program.mesh, plan.chip))
        for (heads, rows), left in _tables(costs):
            if rows:
                cells = [[page.escape(c) for c in row] for row in rows]
                body.append(page.table(heads, cells, left) + "<br>")
        found = reshard_lines(costs)
        body.append("<p>changes of placement</p>" + _listed(found, "ul") if found else "")
        body.append(_listed(times(costs), "ul"))
    body.append("<h2>Notes</h2>" + _listed(notes(plan), "ul"))
    return page.page(f"Plan for {plan.chip.name}", "".join(body))


def _listed(lines: list[str], kind: str) -> str:
    items = "".join(f"<li>{page.escape(line)}</li>" for line in lines)
    return f"<{kind}>{items}</{kind}>" if lines else ""


def _bars(title: str, rows: list[tuple[str, float, str]], scale: float, mark: float = 0) -> str:
    """Rows of (name, length, what is said of it), one below the other."""
    made = []
    for k, (name, length, said) in enumerate(rows):
        width = 560 * length / scale if scale else 0
        made.append(
            f'<text x="0" y="{22 * k + 15}">{page.escape(name)}</text>'
            f'<rect x="130" y="{22 * k + 3}" width="{max(width, 0.5):.1f}" height="16" rx="2" '
            f'fill="{_COLOURS[k % len(_COLOURS)]}" opacity="0.75"/>'
            f'<text x="{140 + width:.0f}" y="{22 * k + 15}">{page.escape(said)}</text>'
        )
    height = 22 * len(rows)
    if mark:
        at = 130 + 560 * mark / scale
        made.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}" stroke="#c8322b" '
            'stroke-width="2" stroke-dasharray="4 3"/>'
        )
    return (
        f"<h3>{page.escape(title)}</h3>"
        f'<svg viewBox="0 0 900 {height}" width="900" font-size="12" fill="currentColor" '
        f'role="img" aria-label="{page.escape(title)}">{"".join(made)}</svg>'
    )


def _memory_picture(costs: StepCosts) -> str:
    rows = [(name, float(n), size(n)) for name, n in memory_rows(costs) if n]
    rows.append(("all", float(costs.peak), size(costs.peak)))
    scale = float(max(costs.peak, costs.chip.memory))
    title = "Memory of each device (the dashed line is the chip's)"
    return _bars(title, rows, scale, costs.chip.memory)


def _time_picture(costs: StepCosts) -> str:
    reached = costs.products / costs.chip.reached
    rows = [
        ("products", reached, duration(reached)),
        ("memory", costs.moved, duration(costs.moved)),
    ]
    rows += [(f"{s.kind} {' x '.join(s.axes)}", s.seconds, duration(s.seconds)) for s in costs.sent]
    return _bars("Time of a step, one after the other", rows, costs.worst)


def _mesh_picture(mesh: MeshShape | None, chip: Chip) -> str:
    """The devices as squares, those of a host in one colour."""
    if mesh is None:
        return ""
    across = mesh.sizes[-1] if len(mesh.sizes) > 1 and mesh.sizes[-1] > 1 else 0
    shown = min(len(mesh.devices), _MOST_SQUARES)
    across = min(across or math.ceil(math.sqrt(4 * shown)), 64)
    squares = "".join(
        f'<rect x="{14 * (k % across)}" y="{14 * (k // across)}" width="12" height="12" rx="2" '
        f'fill="{_COLOURS[number // chip.together % len(_COLOURS)]}" opacity="0.75">'
        f"<title>device {number}, host {number // chip.together}</title></rect>"
        for k, number in enumerate(mesh.devices[:shown])
    )
    rest = len(mesh.devices) - shown
    more = f"<p><small>and {rest} more</small></p>" if rest else ""
    high = 14 * math.ceil(shown / across)
    return (
        f"<h3>{page.escape(mesh_text(mesh))}</h3>"
        f'<svg viewBox="0 0 {14 * across} {high}" width="{14 * across}" role="img" '
        f'aria-label="{page.escape(mesh_text(mesh))}">{squares}</svg>{more}'
    )
