"""The plan of a program's memory: nothing overlaps that lives together, and little is wasted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from benchmarks import sides
from lucerne._src.base.config import config
from lucerne._src.ir.checks.lifetimes import bytes_of, check_places, most_in_use
from lucerne._src.ir.program import ARENA, RESULT, Program, places
from lucerne._src.loops.memory import Lifetime, Spare, in_use, plan

ROOMS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 30), st.integers(0, 12)).map(
        lambda x: Lifetime(x[0] * 100, x[1], x[1] + x[2])
    ),
    max_size=40,
)
SPARES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda x: Spare(x[0] * 100, x[1])),
    max_size=8,
)


def check_plan(rooms: list[Lifetime], spares: list[Spare], size: int) -> None:
    """Every room lies inside of its buffer while that is free, and over no other one."""
    for k, room in enumerate(rooms):
        which, at = room.home
        assert at % 64 == 0
        room_there = size if which < 0 else spares[which].nbytes
        assert at >= 0
        assert at + room.nbytes <= room_there
        assert which < 0 or room.last < spares[which].until
        for other in rooms[:k]:
            together = other.first <= room.last and room.first <= other.last
            if together and other.home[0] == which and room.nbytes and other.nbytes:
                start = other.home[1]
                assert at + room.nbytes <= start or start + other.nbytes <= at


@settings(max_examples=300, deadline=None)
@given(rooms=ROOMS, spares=SPARES)
def test_nothing_overlaps_that_lives_together(rooms: list[Lifetime], spares: list[Spare]) -> None:
    size = plan(rooms, spares)
    check_plan(rooms, spares, size)
    assert size >= max(in_use([r for r in rooms if r.home[0] < 0]), default=0)


def test_the_check_fails_on_wrong_plans() -> None:
    together = [Lifetime(100, 0, 3, (-1, 0)), Lifetime(100, 3, 4, (-1, 64))]
    with pytest.raises(AssertionError):
        check_plan(together, [], 1000)
    with pytest.raises(AssertionError):
        check_plan([Lifetime(100, 0, 3, (-1, 0))], [], 64)
    with pytest.raises(AssertionError):
        check_plan([Lifetime(100, 0, 3, (0, 0))], [Spare(100, 3)], 0)


def test_a_result_is_used_until_it_is_made() -> None:
    rooms = [Lifetime(8192, 0, 4), Lifetime(8192, 5, 6), Lifetime(8192, 2, 7)]
    spare = Spare(8192, 7)
    assert plan(rooms, [spare]) == 8192
    assert [r.home for r in rooms] == [(0, 0), (0, 0), (-1, 0)]


def test_large_rooms_first_where_that_is_better() -> None:
    """In the order of time a small one would take the end of what a large one needs later."""
    rooms = [Lifetime(6400, 0, 1), Lifetime(640, 1, 9), Lifetime(6400 + 640, 2, 9)]
    assert plan(rooms, []) == max(in_use(rooms)) == 6400 + 640 + 640
    check_plan(rooms, [], 6400 + 640 + 640)


# ---- whole programs ----------------------------------------------------------------------------


def program_of(name: str) -> tuple[Any, Any, Program]:
    """A small training step: its job, the compiled step, and the program after one call."""
    job = sides.training(torch, "step", name, sides.SIZES[name][1])
    step = sides.step_of(torch, "step", job, compiled=True)
    step(*job.batch)
    return job, step, step.entries[-1].stages.program


def check_results(program: Program) -> int:
    """Results hold other values only before they are made. Returns how many steps write such."""
    made: dict[int, int] = {}
    borrowed = 0
    for number, step in enumerate(program.steps):
        for place in step.outputs:
            if place.kind == RESULT and place.meta is program.results[place.index]:
                made[place.index] = number
    for number, step in enumerate(program.steps):
        for place in (*places(step.inputs), *step.outputs):
            if place.kind == RESULT and place.meta is not program.results[place.index]:
                assert number < made[place.index], (number, str(step))
                borrowed += place in step.outputs
    return borrowed


@pytest.mark.parametrize("name", ["gpt", "resnet", "mlp"])
def test_training_steps_waste_little(name: str) -> None:
    _, _, program = program_of(name)
    check_places(program)
    assert program.arena <= 1.1 * most_in_use(program)
    borrowed = check_results(program)
    assert borrowed or name != "gpt"  # the others have too small weights at this size


def test_the_check_of_results_fails() -> None:
    _, _, program = program_of("gpt")
    steps = program.steps
    at = next(
        k
        for k, s in enumerate(steps)
        if any(p.kind == RESULT and p.meta is not program.results[p.index] for p in s.outputs)
    )
    with pytest.raises(AssertionError):
        check_results(replace(program, steps=[*steps, steps[at]]))


def test_scores_turn_into_their_gradient() -> None:
    """The largest values of a language model, of which there is only one now."""
    _, _, program = program_of("gpt")
    step = next(s for s in program.steps if s.name == "cross_entropy_classes_backward")
    scores, gradient = places(step.inputs)[1], step.outputs[0]
    assert (scores.kind, scores.offset) == (gradient.kind, gradient.offset)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scores_over_their_gradient_are_the_same_bits(reduction: str, dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(37, 101).to(dtype).requires_grad_()
    weight = torch.rand(101).to(dtype)
    target = torch.randint(0, 101, (37,))
    target[5] = -100

    def gradient(x: Any) -> Any:
        scores = x * 2
        loss = torch.nn.functional.cross_entropy(scores, target, weight=weight, reduction=reduction)
        return torch.autograd.grad(loss.sum(), scores)[0]

    expected = gradient(x)
    found = torch.compile(gradient, mode="bitwise")(x)
    assert torch.equal(found, expected)


def test_element_wise_values_take_the_place_of_what_ends() -> None:
    def chain(x: Any, y: Any) -> Any:
        a = x @ y
        b = a.relu()
        c = (b @ y).sigmoid()
        return c @ y

    x = torch.randn(64, 64)
    # in a mode of its own each op is a step
    compiled = torch.compile(chain, options={"disable": ["fuse"]})
    assert torch.allclose(compiled(x, x), chain(x, x))
    program = compiled.entries[-1].stages.program
    relu = next(s for s in program.steps if s.name == "relu")
    assert relu.outputs[0] == places(relu.inputs)[0]
    used = {(p.kind, p.offset) for s in program.steps for p in s.outputs}
    assert len(used) <= 3
    assert program.arena <= 2 * bytes_of(x._meta)
    assert any(kind != ARENA for kind, _ in used)


@pytest.mark.parametrize("memory", ["poison", "guarded"])
@pytest.mark.parametrize("name", ["gpt", "resnet", "mlp"])
def test_no_value_is_lost(name: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Junk in all memory before a call, or every value on pages of its own: the same bits."""

    def trained() -> list[Any]:
        job, step, _ = program_of(name)
        losses = [step(*job.batch).detach() for _ in range(2)]
        return [*losses, *(p.grad for p in job.model.parameters()), *job.model.parameters()]

    expected = trained()
    monkeypatch.setattr(config, "program_memory", memory)
    found = trained()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


# ---- what a compilation tells ------------------------------------------------------------------


def test_stages_are_a_table() -> None:
    _, step, program = program_of("mlp")
    text = str(step.entries[-1].stages)
    for word in ("capture", "functionalize", "cse", "lower", "assemble", "kernels: ", "memory: "):
        assert word in text
    assert f"arena {program.arena / 1e6:.1f} MB" in text
