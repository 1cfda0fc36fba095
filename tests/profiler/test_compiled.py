"""Profiles of compiled programs: each kernel with its time, its work and the user's line."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.process.profiler_hook import PROGRAM, Watch
from lucerne.profiler import profile

F = torch.nn.functional


def training(backend: str | None = None) -> Any:
    """A step of a small network, compiled: (step, its network)."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    @torch.compile(backend=backend)
    def step(x: Any, target: Any) -> Any:
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, net


def bits_after(around: Any, backend: str | None = None) -> list[bytes]:
    """Losses and weights of some steps; those in the middle run inside `around`."""
    step, net = training(backend)
    torch.manual_seed(2)
    x, target = torch.randn(8, 16), torch.tensor([0, 1, 2, 3] * 2)
    found = [step(x, target), step(x, target), step(x, target)]
    with around:
        found += [step(x, target), step(x, target)]
    found.append(step(x, target))
    return [t.detach().numpy().tobytes() for t in [*found, *net.parameters()]]


@pytest.mark.parametrize("backend", [None, "reference"], ids=["host", "reference"])
def test_results_are_the_same_bit_for_bit(backend: str | None) -> None:
    plain = bits_after(nullcontext(), backend)
    assert bits_after(profile(record_shapes=True, profile_memory=True), backend) == plain


@pytest.fixture(scope="module")
def profiled() -> profile:
    step, _ = training()
    x, target = torch.randn(8, 16), torch.tensor([0, 1, 2, 3] * 2)
    for _ in range(4):
        step(x, target)
    options = {"record_shapes": True, "with_stack": True, "with_flops": True}
    made = len(step.entries)
    with profile(**options) as prof:
        step(x, target)
        step(x, target)
    assert len(step.entries) == made  # nothing is compiled again because somebody looks
    return prof


def test_a_program_is_one_event_with_its_kernels_inside(profiled: profile) -> None:
    programs = [e for e in profiled.events() if e.cpu_parent is None]
    assert [p.name for p in programs] == ["Compiled: step"] * 2
    for program in programs:
        kernels = program.cpu_children
        assert len(kernels) >= 5
        assert all(k.is_compiled and k.extra["Bytes"] > 0 for k in kernels)
        before = program.time_range.start
        for kernel in kernels:
            assert before <= kernel.time_range.start <= kernel.time_range.end
            before = kernel.time_range.end
        assert before <= program.time_range.end
    assert [k.name for k in programs[0].cpu_children] == [k.name for k in programs[1].cpu_children]


def test_kernels_are_named_after_their_ops_and_know_their_line(profiled: profile) -> None:
    kernels = profiled.events()[0].cpu_children
    names = [k.name for k in kernels]
    assert any(name.startswith("fused::linear+relu") for name in names)
    assert "aten::_fused_adam_" in names
    product = next(k for k in kernels if k.name.startswith("fused::linear"))
    assert product.input_shapes[0] == [8, 16]
    assert product.flops >= 2 * 8 * 16 * 32
    assert any(line.startswith(__file__) for line in product.extra["Lines"])
    assert product.stack == product.extra["Lines"]


def test_kernels_are_in_the_table(profiled: profile) -> None:
    averages = profiled.key_averages()
    text = averages.table(sort_by="self_cpu_time_total")
    assert "Compiled: step" in text
    assert {a.count for a in averages if a.key == "Compiled: step"} == {2}


def test_backward_called_from_outside_is_a_program_of_its_own() -> None:
    weight = torch.randn(6, 6, requires_grad=True)

    @torch.compile
    def forward(x: Any) -> Any:
        return (x @ weight).tanh().sum()

    x = torch.randn(3, 6)
    for _ in range(3):
        forward(x).backward()
    with profile() as prof:
        forward(x).backward()
    programs = [e for e in prof.events() if e.kind == PROGRAM]
    assert len(programs) == 2
    inside = programs[1].cpu_parent
    assert inside is not None
    assert inside.scope == 1  # a node of the backward pass


def test_capturing_shows_no_ops_of_its_own() -> None:
    @torch.compile
    def work(x: Any) -> Any:
        return (x * 2).exp().sum()

    x = torch.randn(5)
    with profile() as prof:
        work(x)
        work(x)
    assert {e.name for e in prof.events() if e.cpu_parent is None} == {"Compiled: work"}


def test_a_kernel_that_raises_leaves_everything_clean() -> None:
    @torch.compile
    def pick(x: Any, index: Any) -> Any:
        return x[index] * 2

    x, good, bad = torch.randn(5), torch.tensor([1]), torch.tensor([9])
    pick(x, good)
    with profile(), pytest.raises(IndexError):
        pick(x, bad)
    assert Watch.current is None
    assert pick(x, good).shape == (1,)


def test_eager_and_compiled_stand_side_by_side() -> None:
    double = torch.compile(lambda x: x * 2)
    x = torch.ones(4)
    double(x)
    with profile() as prof:
        y = x.exp()
        y = double(y)
        y.sum()
    names = [e.name for e in prof.events() if e.cpu_parent is None]
    assert names[0] == "aten::exp"
    assert names[1].startswith("Compiled")
    assert names[2] == "aten::sum"
