"""There is one road from graph to program, its steps are one list, and the page is that list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lucerne as torch
from lucerne import cli
from lucerne._src.capture.report.replay import replay
from lucerne._src.ir.graph import Graph
from lucerne._src.pipeline import passes
from lucerne._src.pipeline.road import Road

ROOT = Path(__file__).parents[2]
NAMES = [step.name for step in passes.steps()]
STEPS = re.compile(r"(?<!def )\b(count_draws|make_runner|Lowering|partition\.split|split_graph)\(")
ELSEWHERE = {
    "_src/pipeline/road.py": "the road",
    "_src/loops/lower.py": "a program of a graph by itself, for tests",
    "_src/capture/shadow/eagerly.py": "one draw of an eager run, as programs make it",
    "_src/capture/cache/disk/lookup.py": "assembles a program that was read from disk",
    "_src/capture/cache/disk/program_codec.py": "likewise, of a graph inside of a node",
}


def test_the_page_has_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/inside/passes.md").read_text(encoding="utf-8")
    assert passes.as_markdown() in page, "put what `lucerne passes` prints into the page"
    assert cli.main(["passes"]) == 0
    assert capsys.readouterr().out == passes.as_markdown()


def test_names_are_different() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[0] == "functionalize"
    assert NAMES[-1] == "assembly"


def calls() -> list[str]:
    """Where steps are called, besides the road."""
    found = []
    for path in sorted((ROOT / "lucerne").rglob("*.py")):
        file = path.relative_to(ROOT / "lucerne").as_posix()
        text = path.read_text(encoding="utf-8")
        if file not in ELSEWHERE:
            found += [f"{file}: {step}" for step in STEPS.findall(text)]
    return found


def test_nobody_goes_another_road() -> None:
    assert calls() == []
    for file in ELSEWHERE:
        assert STEPS.search((ROOT / "lucerne" / file).read_text(encoding="utf-8")), file


def test_a_report_has_every_step_of_its_graphs() -> None:
    compiled = torch.compile(lambda x, w: torch.dropout((x @ w).relu(), 0.5, True).sum())
    x, w = torch.ones(4, 3), torch.ones(3, 2, requires_grad=True)
    compiled(x, w).backward()
    first, second = replay(compiled.entries[0], compiled.options)
    seen = [stage.name for stage in (*first.stages, *second.stages)]
    assert seen[0] == "capture"
    ends = ("take", "fusion", "memory plan", "assembly")  # (of a backend, no graphs)
    known = [name for name in NAMES if name not in ends]
    assert {*seen} == {"capture", *known}


def test_a_road_without_a_backend_ends_with_its_graphs() -> None:
    road = Road(None)
    assert road.improved(Graph()).nodes == []
    with pytest.raises(ValueError, match="ends with its graphs"):
        road.compiled(Graph())
