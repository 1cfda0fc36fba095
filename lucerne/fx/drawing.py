"""Drawings of graphs: one SVG, or one HTML page around it to pan, zoom and point at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lucerne._src.ir import graph as ir
from lucerne._src.ir.op import Op
from lucerne.fx.graph import Graph
from lucerne.fx.layout import Layout, Spot, arrange
from lucerne.fx.names import pretty_target
from lucerne.fx.node import Node, map_aggregate, short_dtype, value_of

COLORS = {
    "input": "#c7e3ff", "parameter": "#d9d2f5", "module": "#ffe2b8", "pointwise": "#d5f0d0",
    "reduction": "#bfe8e4", "view": "#eeeeee", "structural": "#ffd0c9", "random": "#f9d5ec",
    "composite": "#fff3b0", "function": "#e6efc9", "method": "#dbe8d8", "output": "#b9c4d0",
}  # fmt: skip
LETTER = 6.6
"""Width of a letter of the labels."""
MARGIN = 24.0
LONGEST = 34


@dataclass
class Box:
    """What is drawn for one node."""

    title: str
    kind: str
    tip: str
    inputs: list[int]
    note: str
    """Shape and dtype of its value: written on the lines that leave it."""
    late: bool = False


def draw(graph: Any, path: str | Path, title: str | None = None) -> None:
    """Write a page that shows a graph: a GraphModule's, an fx graph or one of the compiler's.

    >>> import lucerne as torch, tempfile, pathlib
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "relu.html"
    >>> torch.fx.draw(traced, place)
    >>> place.read_text()[:15]
    '<!DOCTYPE html>'
    """
    Path(path).write_text(page(graph, title or getattr(graph, "__class__", Graph).__name__))


# ---- what is drawn ------------------------------------------------------------------------------


def boxes(graph: Any) -> list[Box]:
    """A box for each node; inputs come before their readers."""
    graph = getattr(graph, "graph", graph)
    if isinstance(graph, ir.Graph):
        return _ir_boxes(graph)
    if not isinstance(graph, Graph):
        raise TypeError(
            f"expected a GraphModule, an fx.Graph or an ir Graph, received {type(graph).__name__}"
        )
    numbers: dict[Node, int] = {}
    found = []
    for node in graph.nodes:
        numbers[node] = len(numbers)
        reads = [numbers[n] for n in node.all_input_nodes]
        late = node.op == "get_attr"
        found.append(
            Box(_title(node), _kind(node), _tip(node), reads, note_of(value_of(node)), late)
        )
    return found


def _title(node: Node) -> str:
    if node.op in ("placeholder", "output"):
        return node.name
    target = pretty_target(node.target)
    short = target.rpartition(".")[2] if node.op == "call_function" else target
    return f".{short}()" if node.op == "call_method" else short


def _kind(node: Node) -> str:
    if node.op == "call_function":
        op = node.target if isinstance(node.target, Op) else getattr(node.target, "op", None)
        return op.kind if isinstance(op, Op) else "function"
    return {
        "placeholder": "input",
        "get_attr": "parameter",
        "call_module": "module",
        "call_method": "method",
        "output": "output",
    }[node.op]


def _tip(node: Node) -> str:
    lines = [node.format_node() or ""]
    noted = note_of(value_of(node))
    if noted:
        lines.append(noted)
    if node.stack_trace:
        lines.append(node.stack_trace)
    return "\n".join(lines)


def note_of(found: Any) -> str:
    """Shape and dtype of what is known about a value."""
    if isinstance(found, (tuple, list)) and not hasattr(found, "dtype"):
        parts: list[str] = []
        map_aggregate(tuple(found), lambda x: parts.append(note_of(x)))
        return ", ".join(p for p in parts if p)
    if not hasattr(found, "dtype") or not hasattr(found, "shape"):
        return getattr(found, "__name__", "") if isinstance(found, type) else ""
    return f"{short_dtype(found.dtype)}[{', '.join(map(str, found.shape))}]"


def _ir_boxes(graph: ir.Graph) -> list[Box]:
    owner: dict[ir.Value, int] = {}
    found: list[Box] = []
    for value in graph.inputs:
        owner[value] = len(found)
        late = bool(found)  # parameters follow the arguments, and stand where they are read
        found.append(Box(repr(value), "input", value.typed(), [], note_of(value.meta), late))
    for node in graph.nodes:
        reads = [owner[v] for v in ir.operands(node.args)]
        note = ", ".join(note_of(v.meta) for v in node.outputs)
        for value in node.outputs:
            owner[value] = len(found)
        late = not reads
        found.append(Box(node.op.name, node.op.kind, repr(node), reads, note, late))
    written = "".join(f"\nwrite {target!r} = {value!r}" for target, value in graph.writes)
    last = [owner[v] for v in (*graph.outputs, *(value for _, value in graph.writes))]
    returned = ", ".join(map(repr, graph.outputs))
    found.append(Box("return", "output", f"return {returned}{written}", last, ""))
    return found


# ---- SVG ----------------------------------------------------------------------------------------


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _arranged(found: list[Box]) -> Layout:
    sizes = [(max(len(_shortened(b.title)), 3) * LETTER + 20, 26.0) for b in found]
    return arrange(sizes, [b.inputs for b in found], [b.late for b in found])


def svg(graph: Any) -> str:
    """The drawing alone."""
    found = boxes(graph)
    layout = _arranged(found)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="ui-monospace, monospace" '
        'font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
    ]
    noted: set[int] = set()
    for (source, reader), way in layout.lines.items():
        parts.append(_line(found, [layout.spots[i] for i in way], source, reader, noted))
    for i, box in enumerate(found):
        parts.append(_box(box, layout.spots[i], i))
    return "\n".join([*parts, "</g>", "</svg>"])


def _box(box: Box, spot: Spot, number: int) -> str:
    x, y = spot.x - spot.width / 2, spot.y - spot.height / 2
    fill = COLORS.get(box.kind, "#ffffff")
    radius = 13 if box.kind in ("input", "output") else 5
    return (
        f'<g class="box" data-n="{number}"><title>{escape(box.tip)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{spot.width:.1f}" height="{spot.height:.1f}" '
        f'rx="{radius}" fill="{fill}" stroke="#667"/>'
        f'<text x="{spot.x:.1f}" y="{spot.y + 4:.1f}" text-anchor="middle">'
        f"{escape(_shortened(box.title))}</text></g>"
    )


def _line(found: list[Box], spots: list[Spot], source: int, box: int, noted: set[int]) -> str:
    """A line with a curve at each bend, and the shape of its value where it starts."""
    points = [(spots[0].x, spots[0].y + spots[0].height / 2)]
    points += [(s.x, s.y) for s in spots[1:-1]]
    points.append((spots[-1].x, spots[-1].y - spots[-1].height / 2))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = (y + to_y) / 2
        path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
    note = found[source].note
    told = f"{found[source].title} → {found[box].title}" + (f"\n{note}" if note else "")
    text = ""
    if note and source not in noted:
        noted.add(source)
        x, y = (points[0][0] + points[1][0]) / 2 + 4, (points[0][1] + points[1][1]) / 2 + 3
        text = f'<text class="note" x="{x:.1f}" y="{y:.1f}">{escape(_shortened(note))}</text>'
    return (
        f'<g class="line" data-a="{source}" data-b="{box}"><title>{escape(told)}</title>'
        f'<path d="{path}" fill="none" stroke="#99a" marker-end="url(#tip)"/>{text}</g>'
    )


# ---- page ---------------------------------------------------------------------------------------

_STYLE = """
body { margin: 0; font: 13px system-ui, sans-serif; background: #fafafa; color: #223; }
header { padding: 8px 14px; background: #fff; border-bottom: 1px solid #dde; }
header b { margin-right: 12px; }
header span.key { display: inline-block; margin-right: 10px; padding: 1px 7px;
  border: 1px solid #99a; border-radius: 4px; font-size: 11px; }
#view { width: 100vw; height: calc(100vh - 40px); overflow: hidden; cursor: grab; }
#view svg { width: 100%; height: 100%; }
.note { fill: #556; font-size: 9px; }
.box:hover rect { stroke: #c30; stroke-width: 2; }
.line.near path { stroke: #c30; stroke-width: 2; }
"""

_SCRIPT = """
const svg = document.querySelector('#view svg'), box = svg.viewBox.baseVal;
svg.removeAttribute('width'); svg.removeAttribute('height');
function at(e) {
  const p = svg.createSVGPoint(); p.x = e.clientX; p.y = e.clientY;
  return p.matrixTransform(svg.getScreenCTM().inverse());
}
svg.addEventListener('wheel', e => {
  e.preventDefault();
  const p = at(e), k = Math.exp(e.deltaY * 0.0015);
  box.x = p.x - (p.x - box.x) * k; box.y = p.y - (p.y - box.y) * k;
  box.width *= k; box.height *= k;
}, { passive: false });
let from = null;
svg.addEventListener('pointerdown', e => { from = at(e); svg.setPointerCapture(e.pointerId); });
svg.addEventListener('pointermove', e => {
  if (from) { const p = at(e); box.x += from.x - p.x; box.y += from.y - p.y; }
});
svg.addEventListener('pointerup', () => { from = null; });
for (const b of svg.querySelectorAll('.box')) {
  const n = b.dataset.n;
  const near = svg.querySelectorAll(`.line[data-a="${n}"], .line[data-b="${n}"]`);
  b.addEventListener('mouseenter', () => near.forEach(l => l.classList.add('near')));
  b.addEventListener('mouseleave', () => near.forEach(l => l.classList.remove('near')));
}
"""


def page(graph: Any, title: str) -> str:
    """The drawing in a page that needs nothing else: wheel zooms, dragging moves."""
    kinds: Iterable[str] = dict.fromkeys(b.kind for b in boxes(graph))
    keys = "".join(
        f'<span class="key" style="background:{COLORS.get(k, "#fff")}">{escape(k)}</span>'
        for k in kinds
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><b>{escape(title)}</b>{keys}<span>wheel: zoom, drag: move, point: what it is"
        f'</span></header>\n<div id="view">\n{svg(graph)}\n</div>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
