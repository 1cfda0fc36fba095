"""Drawings are valid, complete and readable: boxes don't overlap, lines go down."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
from lucerne.fx import draw, drawing, symbolic_trace, to_ir
from lucerne.fx.layout import Layout, arrange, layers
from lucerne.fx.passes.graph_drawer import FxGraphDrawer
from lucerne.fx.passes.shape_prop import ShapeProp

SVG = "{http://www.w3.org/2000/svg}"


def net() -> Any:
    nn = lucerne.nn
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_a_page_has_everything_in_it(tmp_path: Path) -> None:
    traced = symbolic_trace(net())
    ShapeProp(traced).propagate(lucerne.ones(5, 3))
    draw(traced, tmp_path / "net.html", title="a <net>")
    page = (tmp_path / "net.html").read_text()
    assert "<title>a &lt;net&gt;</title>" in page
    assert not re.search(r"(src|href)=", page)
    found = re.search(r"<svg.*</svg>", page, re.DOTALL)
    assert found is not None
    root = ET.fromstring(found[0])
    titles = [t.text or "" for t in root.iter(f"{SVG}title")]
    for node in traced.graph.nodes:
        assert any((node.format_node() or "") in t for t in titles)
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert "f32[5, 4]" in shown
    assert len(list(root.iter(f"{SVG}rect"))) == len(traced.graph.nodes)


def test_the_compilers_graphs_are_drawn_too() -> None:
    graph, _ = to_ir(net(), lucerne.ones(5, 3))
    root = ET.fromstring(drawing.svg(graph))
    assert len(list(root.iter(f"{SVG}rect"))) == len(graph.inputs) + len(graph.nodes) + 1
    kinds = {b.kind for b in drawing.boxes(graph)}
    assert {"input", "structural", "pointwise", "output"} <= kinds <= set(drawing.COLORS)


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="received int"):
        drawing.svg(3)


def test_torchs_drawer(tmp_path: Path) -> None:
    inner = symbolic_trace(net())
    drawer = FxGraphDrawer(inner, "net")
    assert list(drawer.get_all_dot_graphs()) == ["net"]
    ET.fromstring(drawer.get_dot_graph().create_svg())
    drawer.get_dot_graph().write_html(tmp_path / "x.html")
    assert (tmp_path / "x.html").exists()


@st.composite
def wirings(draw: st.DrawFn) -> list[list[int]]:
    """For each box the earlier boxes it reads."""
    count = draw(st.integers(1, 14))
    return [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)]


def check(layout: Layout, inputs: list[list[int]]) -> None:
    """Rows don't overlap, boxes of a row neither, and every line goes down."""
    boxes = [s for s in layout.spots if s.box >= 0]
    for a, b in itertools.combinations(layout.spots, 2):
        if a.layer == b.layer:
            assert abs(a.x - b.x) >= (a.width + b.width) / 2 - 1e-6
    for a, b in itertools.combinations(boxes, 2):
        if a.layer < b.layer:
            assert a.y + a.height / 2 < b.y - b.height / 2
    for box, reads in enumerate(inputs):
        for source in reads:
            way = layout.lines[source, box]
            assert [layout.spots[i].layer for i in way] == list(
                range(layout.spots[source].layer, layout.spots[box].layer + 1)
            )
    assert all(s.x - s.width / 2 >= -1e-6 for s in layout.spots)


@given(wirings(), st.lists(st.booleans(), min_size=14, max_size=14))
def test_layout_keeps_its_promises(inputs: list[list[int]], late: list[bool]) -> None:
    sizes = [(30.0 + 7 * (i % 5), 26.0) for i in range(len(inputs))]
    check(arrange(sizes, inputs, late[: len(inputs)]), inputs)


def test_check_sees_an_overlap() -> None:
    layout = arrange([(30.0, 26.0)] * 3, [[], [], [0, 1]], [False] * 3)
    layout.spots[1].x = layout.spots[0].x
    with pytest.raises(AssertionError):
        check(layout, [[], [], [0, 1]])


def test_parameters_stand_where_they_are_read() -> None:
    assert layers([[], [0], [1], [], [2, 3]], [False, False, False, True, False]) == [0, 1, 2, 2, 3]
