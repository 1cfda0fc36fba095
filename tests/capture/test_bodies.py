"""Bodies of composites, recorded once: the graph is word for word that of running each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
import lucerne.nn.functional as F
from lucerne._src.capture.trace.bodies import BodyRecords
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.graph import Graph
from lucerne._src.tensor.subclasses import torch_function

nn = torch.nn


class Block(nn.Module):
    def __init__(self, width: int = 8, inner: int = 16, rate: float = 0.1) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.drop = nn.Dropout(rate)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.down(F.gelu(self.up(self.norm(x)))))
        return self.last(x + F.softmax(y, -1))


def blocks(count: int = 3, **options: Any) -> Any:
    return nn.Sequential(*(Block(**options) for _ in range(count)))


def other_rate() -> Any:
    made = blocks()
    made[1].drop.p = 0.5
    return made


def frozen() -> Any:
    made = blocks()
    made[1].norm.weight.requires_grad_(False)
    made[2].requires_grad_(False)
    return made


def other_width() -> Any:
    return nn.Sequential(Block(), Block(inner=24), Block(), nn.Linear(8, 6), Block(6), Block(6))


def tied() -> Any:
    made = blocks()
    made[2].norm.weight = made[0].norm.weight
    made[1].last.weight = made[1].norm.weight
    return made


def hooked() -> Any:
    made = blocks()
    made[1].norm.register_forward_hook(lambda module, given, out: out * 2)
    return made


def one_in_eval() -> Any:
    made = blocks()
    made[1].eval()
    return made


def other_eps() -> Any:
    made = blocks()
    made[1].norm.eps = 1e-3
    return made


def views() -> Any:
    """Operands that are parts of others, seen here for the first time."""
    made = blocks()
    flat = torch.ones(16)
    made[1].norm.weight = nn.Parameter(flat[:8])
    made[1].norm.bias = nn.Parameter(flat[8:])
    return made


class SameTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Any) -> Any:
        x = F.layer_norm(x, (8,), self.weight, torch.zeros(8))
        x = F.layer_norm(x, (8,), self.weight, self.weight)
        x = F.layer_norm(x, (8,), None, None)
        with torch.no_grad():
            y = F.layer_norm(x, (8,), self.weight, x[0, 0])
        return F.layer_norm(x, (3, 8), x[0], x[1]) + y


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = blocks()

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.inner[0](x)
        x = self.inner[1](x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner[2](x).float()


def normed() -> Any:
    rows = [nn.Sequential(nn.BatchNorm1d(3), nn.GroupNorm(1, 3), nn.InstanceNorm1d(3))] * 2
    return nn.Sequential(*rows, nn.BatchNorm1d(3), nn.LogSoftmax(-1), nn.LogSoftmax(-1))


ROWS: dict[str, Callable[[], Any]] = {
    "blocks": blocks,
    "another dropout rate in one": other_rate,
    "a frozen parameter, a frozen block": frozen,
    "another width in one": other_width,
    "tied weights": tied,
    "a hook in one": hooked,
    "one in eval mode": one_in_eval,
    "another eps in one": other_eps,
    "parameters that are views": views,
    "one tensor twice": SameTwice,
    "autocast in some": Mixed,
    "other norms": normed,
}


def captured(make: Callable[[], Any]) -> tuple[list[str], list[Any]]:
    """The graph with the line of each node, and what the step gives."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    @torch.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x)[..., :2], x[..., :2])
        loss.backward()
        optimizer.step()
        return loss

    torch.manual_seed(1)
    given = torch.rand(2, 3, 8)
    found = [float(step(given)) for _ in range(2)]
    [entry] = step.entries
    graph: Graph = entry.captured.graph
    rest = [f"{graph.inputs} {graph.outputs} {graph.writes}"]
    lines = [f"{n} at {n.place}" for n in graph.nodes] + rest
    return lines, [*found, *(p.detach().tolist() for p in model.parameters())]


@pytest.mark.parametrize("name", ROWS)
def test_the_graph_is_that_of_running_each_body(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = captured(ROWS[name])
    monkeypatch.setattr(Recorder, "body", Interpreter.body)
    wanted = captured(ROWS[name])
    assert found[0] == wanted[0]
    assert found[1] == wanted[1]


def test_a_body_runs_once_for_equal_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    again = BodyRecords._written

    def note(self: BodyRecords, body: Any, args: Any) -> Any:
        written.append(len(body.calls))
        return again(self, body, args)

    monkeypatch.setattr(BodyRecords, "_written", note)
    monkeypatch.setattr(torch_function, "dispatching", set())  # (other tests have such classes)
    captured(blocks)
    assert [n for n in written if n > 10] != []
    captured(lambda: blocks(6))
    assert len([n for n in written if n > 10]) == 2 * (2 + 5)  # (captured again with gradients)
