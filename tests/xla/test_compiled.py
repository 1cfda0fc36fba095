"""Whole training steps as one program of the device, beside the host's engine."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.base.config import config
from tests.xla.models import MODELS, Training

jax = pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")
ROWS = [
    pytest.param(
        name,
        optimizer,
        id=f"{name}-{optimizer}",
        marks=[] if (name, optimizer) == ("MLP", "AdamW") else [pytest.mark.nightly],
    )
    for name in MODELS
    for optimizer in ("SGD", "AdamW")
]
FIRST = {("ResNet-18", "SGD"): 2, ("ResNet-18", "AdamW"): 1}
"""How many steps of float32 are compared, if not 10. A last bit decides which element is a window's
maximum or which side of zero a ReLU sees, and one such element changes the losses after it by 1e-3:
on the host too, when its images change by 1e-7 (`test_what_float32_says_of_kinks`). AdamW makes
steps of one size of gradients that are zero but for rounding. All 10 are compared in float64."""


@pytest.mark.parametrize(("name", "optimizer"), ROWS)
def test_a_step_trains_as_on_the_host(name: str, optimizer: str) -> None:
    here, there = (Training(name, optimizer, device) for device in ("cpu", "xla"))
    steps = FIRST.get((name, optimizer), 10)
    assert there.losses(steps) == pytest.approx(here.losses(steps), abs=1e-6)
    assert not backends.bill().rows(), "something left the device"
    if optimizer == "SGD":  # (AdamW divides gradients that are zero but for rounding by their size)
        for a, b in zip(here.state(), there.state(), strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "optimizer", "steps", "error"),
    [
        ("ConvNet", "SGD", 3, 1e-12),
        pytest.param("ResNet-18", "SGD", 10, 1e-9, marks=pytest.mark.nightly),
        pytest.param("ResNet-18", "AdamW", 10, 1e-9, marks=pytest.mark.nightly),
        pytest.param("ResNet-18 of few", "SGD", 10, 1e-6, marks=pytest.mark.nightly),
    ],
)
def test_a_step_in_float64_trains_as_on_the_host(
    name: str, optimizer: str, steps: int, error: float
) -> None:
    made = [Training(name, optimizer, device, dtype=torch.float64) for device in ("cpu", "xla")]
    found = [training.losses(steps) for training in made]
    assert found[1] == pytest.approx(found[0], abs=error)
    for a, b in zip(*[training.state() for training in made], strict=True):
        torch.testing.assert_close(b, a, rtol=error, atol=error)


@pytest.mark.nightly
def test_what_float32_says_of_kinks() -> None:
    """The host alone, its images changed by 1e-7, trains another way when batch norm sees few
    numbers. The device's first steps are as near to float64 as the host's."""
    f32, f64 = torch.float32, torch.float64
    found = []
    for device, nudge, dtype in (
        ("cpu", 0.0, f64), ("cpu", 0.0, f32), ("cpu", 1e-7, f32), ("xla", 0.0, f32)
    ):  # fmt: skip
        made = Training("ResNet-18 of few", "SGD", device, dtype=dtype)
        made.batch[0] *= 1 + nudge
        found.append(made.losses(10))
    exact, host, nudged, there = found
    assert abs(nudged[-1] - host[-1]) > 1e-3, "it is not chaotic any more: compare it in float32"
    for k, (a, b, c) in enumerate(zip(exact[:3], host, there, strict=False)):
        assert abs(c - a) <= max(2 * abs(b - a), 3e-6), f"step {k}: {c}, the host {b}, exactly {a}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_a_step_in_16_bits_trains_as_on_the_host(name: str) -> None:
    here, there = (Training(name, "SGD", device, narrow=True) for device in ("cpu", "xla"))
    steps = FIRST.get((name, "SGD"), 10)
    assert there.losses(steps) == pytest.approx(here.losses(steps), rel=2e-2)


def test_state_is_held_once() -> None:
    found = Training("MLP", "AdamW", "xla")
    found.losses(3)
    gc.collect()
    before = [len(jax.live_arrays()), sum(a.nbytes for a in jax.live_arrays())]
    first = [p._storage.buffer.array for p in found.model.parameters()]
    found.losses(20)
    assert all(a.is_deleted() for a in first), "a parameter was not donated"
    del first
    gc.collect()
    assert [len(jax.live_arrays()), sum(a.nbytes for a in jax.live_arrays())] == before


def _tied(x: Any, y: Any) -> Any:
    x.add_(1)
    y.mul_(2)
    return x + y


def test_arguments_that_share_memory() -> None:
    found = []
    for device in ("cpu", "xla"):
        base = torch.arange(8.0).to(device)
        f = torch.compile(_tied, fullgraph=True)
        found.append([f(base[:4], base[4:]).tolist(), base.tolist()])
        found[-1] += [f(base[1:3].clone(), base[:2]).tolist(), base.tolist()]
    assert found[0] == found[1]


def _decides(x: Any) -> Any:
    y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
    return y + 1


def test_control_flow_is_the_engines() -> None:
    f = torch.compile(_decides, fullgraph=True)
    for sign in (1.0, -1.0):
        x = torch.full((3,), sign)
        assert f(x.to("xla")).tolist() == _decides(x).tolist()


def test_a_later_backward_pass() -> None:
    def loss(w: Any, x: Any) -> Any:
        return torch.tanh(x @ w).square().mean()

    f = torch.compile(loss, fullgraph=True)
    found = []
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        w, x = torch.randn(4, 3), torch.randn(5, 4)
        w = w.to(device).requires_grad_()
        f(w, x.to(device)).backward()
        found.append(w.grad.cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-7)


def _picked(x: Any, i: Any) -> Any:
    return x[i] * 2


def test_a_bad_position_in_a_program_is_raised_at_the_next_wait() -> None:
    f = torch.compile(_picked, fullgraph=True)
    x = torch.arange(4.0).to("xla")
    assert f(x, torch.tensor([3, -1]).to("xla")).tolist() == [6.0, 6.0]
    with pytest.raises(IndexError, match=r"index 4 is out of bounds.*test_compiled\.py"):
        f(x, torch.tensor([0, 4]).to("xla")).tolist()


def test_narrow_products_stay_narrow() -> None:
    f = torch.compile(lambda a, b: (a @ b).float(), fullgraph=True)
    a = torch.randn(8, 8).to(torch.bfloat16).to("xla")
    found = f(a, a)
    want = a.cpu().float() @ a.cpu().float()
    torch.testing.assert_close(found.cpu(), want, rtol=1e-2, atol=1e-2)
    (entry,) = f.entries
    (made,) = entry.runner.inner.inner._programs.values()
    text = made.lowered_text()
    assert "dot_general" in text
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert all("tensor<8x8xbf16>, tensor<8x8xbf16>" in line for line in products)


def test_explain_and_the_profiler_see_one_step() -> None:
    f = torch.compile(lambda x: (x * 2).relu().sum(), fullgraph=True)
    x = torch.ones(4).to("xla")
    f(x)
    (entry,) = f.entries
    assert len(entry.stages.program.steps) == 1
    assert "take" in entry.stages.seconds
    with torch.profiler.profile() as seen:
        f(x)
    assert "relu" in seen.key_averages().table()


def test_a_call_goes_the_short_way_and_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "payoff_calls", 0)
    f = torch.compile(lambda x, y: x.add_(y) * 2, fullgraph=True)
    x, y = torch.ones(4).to("xla"), torch.ones(4).to("xla")
    for k in range(3):
        assert f(x, y).tolist() == [2.0 * (k + 2)] * 4
    (entry,) = f.entries
    assert entry.flat == 2, "a call takes the long way"
    assert entry.quick((x, y)).tolist() == [10.0] * 4
    base = torch.arange(8.0).to("xla")  # views of one cell, with other offsets
    assert f(base[4:], base[:4]).tolist() == [8.0, 12.0, 16.0, 20.0]
    assert f(base[:4], base[4:]).tolist() == [8.0, 14.0, 20.0, 26.0]
    assert base.tolist() == [4.0, 7.0, 10.0, 13.0, 4.0, 6.0, 8.0, 10.0]
    assert f(x, x).tolist() == [20.0] * 4
    with torch.no_grad():
        assert f(x, y.requires_grad_()).tolist() == [22.0] * 4
