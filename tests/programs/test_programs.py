"""Training programs give torch's losses, eager and compiled; `bitwise` gives eager's bits.

Three steps of some of them here; all of them, 16 steps: `python -m tests.programs`, or at night.
"""

import importlib.util

import pytest

from tests.programs import page
from tests.programs.__main__ import summary, text
from tests.programs.measure import Cell, Row, deviation, measured
from tests.programs.rows import WAYS, Program, found

OURS = found("lucerne")
COMPILED = {
    "by_hand": ("step", "bitwise step"), "few_shot": ("model",), "graph_classification": ("model",),
    "maml": ("step",), "mobilenet_ema": ("model",), "seq2seq": ("step",),
}  # fmt: skip
"""What is compiled for every change: hand-written updates, sizes that change, a break, a gradient
of a gradient, 1 x 1 convolutions of single pixels, two optimizers."""
EAGER = ("gpt", "dcgan", "ddpm", "sac", "ctc_speech", "yolo")


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_as_eager(name: str) -> None:
    row = measured(name, OURS[name], None, 3, COMPILED[name])
    assert not row.wrong, text(row)
    assert set(row.cells) == {"eager", *COMPILED[name]}


@pytest.mark.torch
@pytest.mark.parametrize("name", EAGER)
def test_eager_as_torch(name: str) -> None:
    row = measured(name, OURS[name], found("torch")[name], 3, ())
    assert not row.wrong, text(row)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OURS)
def test_every_way(name: str) -> None:
    theirs = found("torch") if importlib.util.find_spec("torch") else {}
    row = measured(name, OURS[name], theirs.get(name))
    assert not row.wrong, "\n".join(f"{c.way}: {c.error or c.deviation}" for c in row.wrong)


def test_there_are_programs() -> None:
    assert len(OURS) >= 40
    assert len({made.program.field for made in OURS.values()}) >= 12
    assert all(made.program.why or made.program.limit == 1e-5 for made in OURS.values())
    assert sum(made.program.strided for made in OURS.values()) <= 3


def test_a_difference_is_found() -> None:
    assert deviation([(1.0,)], [(1.0,)]) == 0
    assert deviation([(100.0,)], [(101.0,)]) == pytest.approx(0.01)
    assert deviation([(1.0,)], [(1.0,), (1.0,)]) == float("inf")
    assert deviation([(1.0,)], [(float("nan"),)]) == float("inf")

    def drifting(run):
        yield from ([1.0, 2.0] if run.way == "eager" else [1.0, 2.1])
        run.model(run.torch.nn.Linear(1, 1))
        run.step(abs)

    drifting.program = Program("planted")
    row = measured("drifting", drifting, None)
    assert {c.way for c in row.wrong} == set(WAYS) - {"eager"}
    assert "4 wrong" in summary([row])


def test_the_page_shows_what_is_wrong() -> None:
    row = Row("net", Program("vision"), 1.0)
    row.cells = {"eager": Cell("eager"), "model": Cell("model", deviation=1.0, limit=1e-5)}
    shown = page.html([row])
    assert shown.count("class=bad") == 1
    assert "http" not in shown
