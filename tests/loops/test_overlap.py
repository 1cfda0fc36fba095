"""The check of results that lie over operands: right steps pass, and it finds what a plan with a
wrong rule does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.lifetimes import ProgramError
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.program import ARENA, Place, Step
from lucerne._src.loops import lower
from lucerne._src.loops.group import is_elementwise
from lucerne._src.loops.overlap import check_overlaps
from tests.loops.test_over_operands import TURNED

SQUARE = make_meta(torch.float32, (4, 4), None, torch.device("cpu"))
TURN = make_meta(torch.float32, (4, 4), (1, 4), torch.device("cpu"))
ROW = make_meta(torch.float32, (4,), None, torch.device("cpu"))
MUL, ADD, PERMUTE, SUM = (op_.get(name) for name in ("mul", "add2", "permute", "sum"))


def step(*offsets: int, turned: bool = False, second: bool = False) -> Step:
    """`x * y` (or the `t` of it by x), and `x + y` too, laid at these offsets of the arena: what is
    read first, then what is written."""
    graph = Graph()
    x, y = graph.input(SQUARE), graph.input(SQUARE)
    [made] = graph.call(MUL, (x, y), [SQUARE])
    if turned:
        [other] = graph.call(PERMUTE, (made, (1, 0)), [TURN])
        [made] = graph.call(MUL, (other, x), [SQUARE])
    graph.outputs = (made,)
    if second:
        graph.outputs = (made, *graph.call(ADD, (x, y), [SQUARE]))
    places = [Place(ARENA, 0, at, SQUARE) for at in offsets]
    return Step(graph, tuple(places[:2]), tuple(places[2:]))


RIGHT: dict[str, Step] = {
    "apart": step(0, 64, 128, turned=True),
    "over one": step(0, 64, 64),
    "over both, two results": step(0, 64, 64, 0, second=True),
    "over one that is read twice": step(0, 0, 0),
}
WRONG: dict[str, Step] = {
    "turned inside": step(0, 64, 64, turned=True),
    "begins elsewhere": step(0, 64, 32),
    "begins inside an element": step(0, 64, 66),
    "two results in one place": step(0, 64, 128, 128, second=True),
    "the second over what the first still reads": step(0, 64, 128, 4, second=True),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_steps_pass(name: str) -> None:
    check_overlaps([RIGHT[name]], ())


@pytest.mark.parametrize("name", WRONG)
def test_wrong_steps_are_found(name: str) -> None:
    with pytest.raises(ProgramError, match="the memory plan is wrong"):
        check_overlaps([WRONG[name]], ())


def test_ops_that_read_any_element_need_leave() -> None:
    graph = Graph()
    graph.outputs = tuple(graph.call(SUM, (graph.input(SQUARE), 0, False), [ROW]))
    over = Step(graph, (Place(ARENA, 0, 0, SQUARE),), (Place(ARENA, 0, 0, ROW),))
    with pytest.raises(ProgramError, match="reads any element"):
        check_overlaps([over], ())
    with pytest.raises(ProgramError, match="reads any element"):
        check_overlaps([over], {"sum"})  # not of its operand's shape


def _only_elementwise(_: Any, unit: lower.StepDraft) -> bool:
    return all(is_elementwise(node) for node in unit.nodes)


def _heard(name: str) -> list[str]:
    """What is said while a program with gradients is compiled, whose numbers must be right."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 4), torch.randn(4, 4)

    def fn(x: Any) -> Any:
        return TURNED[name](((x @ w) ** 2).relu())

    found = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for call in (fn, torch.compile(fn)):
            leaf = x.clone().requires_grad_()
            (call(leaf) * torch.arange(16.0).reshape(4, 4).sin()).sum().backward()
            found.append(leaf.grad)
    torch.testing.assert_close(*found)
    return [text for told in heard if "memory plan is wrong" in (text := str(told.message))]


def test_a_rule_that_looks_at_ops_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule as it was: gradients of `minimum(y, y.t())` were written over what is still read."""
    monkeypatch.setattr(lower, "_stays_at_its_index", _only_elementwise)
    found = {name for name in TURNED if _heard(name)}
    assert "smaller of both" in found


def test_the_rule_as_it_is_passes() -> None:
    assert not [text for name in TURNED for text in _heard(name)]


def test_draws_are_made_of_numbers() -> None:
    """Their operand says where in the stream they are: it is no element of theirs."""

    def fn(x: Any) -> Any:
        y = (x @ x).relu()
        return (torch.nn.functional.dropout(y) * 2 + torch.rand_like(y)) @ x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.compile(fn)(torch.randn(4, 4)).shape == (4, 4)
