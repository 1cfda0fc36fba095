"""`estimate_memory` says what real steps take, runs nothing and leaves everything as it was."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src import backends
from lucerne.optim.optimizer import Optimizer
from tests.memory.compare import LIMIT, compared

pytestmark = pytest.mark.skipif(
    backends.get("cpu").memory is None, reason="the host's backend does not count its memory"
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("MLP", "checkpointed"),
        ("autoencoder", "eager"),
        ("autoencoder", "compiled"),
        ("embeddings", "eager"),
        ("U-Net", "checkpointed"),
        ("LSTM", "eager"),
    ],
)
def test_within_the_limit_of_the_measured_peak(name: str, way: str) -> None:
    """(`python -m tests.memory` compares all models in all ways.)"""
    estimate, measured, report = compared(name, way)
    assert abs(estimate / measured - 1) <= LIMIT
    assert sum(h.nbytes for h in report.held) == report.peak == sum(report.by_kind.values())


def _net() -> Any:
    return nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.Dropout(0.5), nn.GELU())


def test_everything_stays_as_it_was() -> None:
    net, x = _net(), torch.randn(64, 256)
    optimizer = torch.optim.AdamW(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    values = {k: v.clone() for k, v in net.state_dict().items()}
    grads = [p.grad for p in net.parameters()]
    versions = [g._version for g in grads]
    states = len(optimizer.state), optimizer.state_dict()["state"][0]["step"].item()
    random = torch.get_rng_state()
    torch.estimate_memory(net, x, optimizer)
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in values.items())
    assert all(p.grad is g for p, g in zip(net.parameters(), grads, strict=True))
    assert [g._version for g in grads] == versions
    assert (len(optimizer.state), optimizer.state_dict()["state"][0]["step"].item()) == states
    assert torch.equal(random, torch.get_rng_state())
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]


def test_a_model_that_could_never_be_made() -> None:
    with torch.device("meta"):
        net = nn.Sequential(*[nn.Linear(40000, 40000) for _ in range(30)])
    x = torch.empty(8, 40000, device="meta")
    found = torch.estimate_memory(net, x, torch.optim.Adam)
    assert found.by_kind["parameters"] >= 30 * 4 * 40000**2
    assert found.by_kind["optimizer state"] == 2 * found.by_kind["parameters"]
    assert found.fits is False
    assert "IT DOES NOT FIT" in str(found)
    called = torch.estimate_memory(net, x, train=False)
    assert called.by_kind["gradients"] == called.by_kind["optimizer state"] == 0
    assert called.peak < found.peak / 3


def test_lines_modules_and_kinds() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 1 << 16), nn.Linear(1 << 16, 8)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x).exp())

    found = torch.estimate_memory(Net(), torch.ones(512, 64))
    line = Net.forward.__code__.co_firstlineno + 1
    kept = [h for h in found.held if h.kind == "activations" and h.nbytes >= 4 * 512 << 16]
    assert [h.where for h in kept] == [f"test_estimate.py:{line}"]
    assert found.phase == "backward pass"
    compiled = torch.estimate_memory(torch.compile(Net()), torch.ones(512, 64))
    assert any(h.where.endswith(f"test_estimate.py:{line}") for h in compiled.held)


def test_smaller_with_less_state_and_smaller_batches() -> None:
    net, x = _net(), torch.randn(4096, 256)
    plain = torch.estimate_memory(net, x, torch.optim.SGD).peak
    assert plain < torch.estimate_memory(net, x, torch.optim.Adam).peak
    assert torch.estimate_memory(net, x[:1024], torch.optim.SGD).peak < plain / 2
    half = torch.estimate_memory(net.bfloat16(), x.bfloat16(), torch.optim.SGD).peak
    assert 0.4 * plain < half < 0.8 * plain


def test_what_looks_at_values_says_so() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2000, 3)

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            return y if y.sum() > 0 else y + 1

    with pytest.raises(RuntimeError, match=r"values are looked at .*test_estimate.py:\d+ in forwa"):
        torch.estimate_memory(Looks(), torch.ones(5, 2000))
    with pytest.raises(ValueError, match="give `loss`"):
        torch.estimate_memory(nn.ReLU(), torch.ones(5))


def test_batches_losses_and_optimizers_in_all_forms(tmp_path: Any) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Bilinear(64, 64, 64)

        def forward(self, a: Any, b: Any) -> Any:
            return {"y": self.inner(a, b)}

    a, b, net = torch.ones(32, 64), torch.ones(32, 64), Two()
    made: list[Optimizer] = []

    def maker(params: Any) -> Optimizer:
        made.append(torch.optim.Adam(params))
        return made[-1]

    one = torch.estimate_memory(net, (a, b), maker)
    two = torch.estimate_memory(net, {"a": a, "b": b}, torch.optim.Adam(net.parameters()))
    three = torch.estimate_memory(net, (a,), torch.optim.Adam, lambda y: y["y"].sum(), b=b)
    assert one.peak == two.peak == three.peak
    assert made
    page = one.html()
    assert page.startswith("<!doctype html>")
    assert one._repr_html_() in page
    one.save(tmp_path / "memory.html")
    assert (tmp_path / "memory.html").read_text() == page
