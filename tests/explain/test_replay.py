"""Going the way of a compiled version again leads to the same program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import lucerne as torch
from lucerne._src.capture.report.replay import replay
from lucerne._src.explain.memory import memory_of
from lucerne._src.ir.checks.lifetimes import most_in_use
from tests.explain.scenes import Training, batch


def assert_same_way(compiled: Any) -> None:
    """Every version's programs, as made and as made again, are the same text."""
    assert compiled.entries
    for entry in compiled.entries:
        parts = replay(entry, compiled.options)
        made = [entry.stages.program]
        if entry.joint is not None:
            made.append(entry.joint.stages.program)
        assert [str(p.program) for p in parts] == [str(p) for p in made]
        for part, program in zip(parts, made, strict=True):
            assert part.program is not None
            assert [s.origins for s in part.program.steps] == [s.origins for s in program.steps]
            assert str(part.stages[-1].graph).startswith("graph(")


def test_the_check_sees_a_difference() -> None:
    compiled = torch.compile(lambda x: x.sin().cos())
    compiled(torch.ones(4))
    compiled.options.disable = frozenset(("fuse",))
    with pytest.raises(AssertionError):
        assert_same_way(compiled)


weight = torch.rand(6, 6, requires_grad=True)
OPS: dict[str, Callable[[Any], Any]] = {
    "sin": lambda x: x.sin(),
    "in place": lambda x: x.mul(2).add_(1),
    "product": lambda x: x @ x,
    "weight": lambda x: x @ weight,
    "turned": lambda x: x.T,
    "fold": lambda x: x - x.mean(1, keepdim=True),
    "softmax": lambda x: x.softmax(0),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "constant": lambda x: x + torch.ones(6) * 3,
    "cat": lambda x: torch.cat([x[:3], x[3:] * 2]),
    "twice": lambda x: x.exp() + x.exp(),
}


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=6))
def test_random_programs(names: list[str]) -> None:
    def program(x: Any) -> Any:
        for name in names:
            x = OPS[name](x)
        return x

    compiled = torch.compile(program)
    compiled(torch.rand(6, 6))
    assert_same_way(compiled)
    for entry in compiled.entries:
        made = entry.stages.program
        plan = memory_of(made)
        assert plan.peak == most_in_use(made) <= plan.arena
        assert plan.peak <= sum(owner.nbytes for owner in plan.owners)


def test_a_training_step() -> None:
    step = torch.compile(Training().step)
    step(*batch())
    assert_same_way(step)


@pytest.mark.parametrize(
    "options", [{"mode": "bitwise"}, {"options": {"disable": ["cse"]}}], ids=str
)
def test_options(options: Any) -> None:
    compiled = torch.compile(lambda x: (x.exp() + x.exp()).sum(), **options)
    compiled(torch.rand(5, 5))
    assert_same_way(compiled)


def test_other_sizes() -> None:
    compiled = torch.compile(lambda x: (x * 2).softmax(1), dynamic=True)
    compiled(torch.rand(4, 5))
    compiled(torch.rand(7, 5))
    assert_same_way(compiled)
