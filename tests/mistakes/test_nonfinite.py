"""Every planted nan or inf is named at its birth, eagerly and compiled; clean steps are quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from tests.mistakes.planted import BACKWARD, FORWARD, INF

WAYS: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "compiled": torch.compile}


class Planted(nn.Module):
    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self.work = work

    def forward(self, x: Any) -> Any:
        return self.work(x)


def _training(net: Any, params: Any, loss_of: Callable[..., Any], lr: float = 1e-3) -> Any:
    """A compiled training step."""
    optimizer = torch.optim.AdamW(params, lr)

    def step(*args: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*args)
        loss.backward()
        optimizer.step()
        return loss

    return torch.compile(step, fullgraph=True)


def _must_stay_compiled(compiled: Any) -> None:
    """From now on it fails if it runs as it is written."""
    assert compiled.latest is not None

    def refuses(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it runs uncompiled")

    compiled.fn = refuses


def _found(call: Callable[[], Any]) -> tuple[str, str]:
    """The text of what is raised, and its notes."""
    with torch.detect_nonfinite(), pytest.raises(torch.NonFiniteError) as caught:
        call()
    return str(caught.value), "\n".join(caught.value.__notes__)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", FORWARD, ids=lambda r: f"{r[3]}-{r[2]}")
def test_birth_in_a_forward_pass(row: Any, way: str) -> None:
    work, values, born, op = row
    net = nn.Sequential(nn.Identity(), Planted(work))
    text, notes = _found(lambda: WAYS[way](lambda x: net(x) + 1)(torch.tensor(values)))
    name, _, rest = text.partition("() gave ")
    assert op in name
    assert rest.startswith(f"{born} in ")
    assert "in the forward pass, of " in rest
    assert "float32[" in rest
    assert "net.1: Planted" in notes
    assert f"{work.__code__.co_filename}:{work.__code__.co_firstlineno} in <lambda>" in notes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", BACKWARD, ids=lambda r: f"{r[3]}-{r[2]}")
def test_birth_in_a_backward_pass(row: Any, way: str) -> None:
    work, values, born, node = row
    net = nn.Sequential(nn.Identity(), Planted(work))
    x = torch.tensor(values, requires_grad=True)
    text, notes = _found(lambda: WAYS[way](lambda x: net(x).sum())(x).backward())
    name, _, rest = text.partition(" gave ")
    assert node in name
    assert rest.startswith(f"{born} in ")
    assert "in the backward pass, of float32[" in rest
    assert "the backward pass of net.1: Planted" in notes
    assert f"{work.__code__.co_filename}:{work.__code__.co_firstlineno} in <lambda>" in notes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [*FORWARD, *BACKWARD], ids=lambda r: f"{r[3]}-{r[2]}")
def test_birth_in_a_compiled_step(row: Any) -> None:
    """Forward, backward and optimizer are one program, which writes over the parameter."""
    work, values, born, op = row
    p = nn.Parameter(torch.tensor(values))
    net = nn.Sequential(nn.Identity(), Planted(work))
    step = _training(net, [p], lambda: net(p).sum())
    text, notes = _found(step)
    name, _, rest = text.partition(" gave ")
    assert op in name
    assert rest.startswith(f"{born} in ")
    assert "net.1: Planted" in notes
    assert f"{work.__code__.co_filename}:{work.__code__.co_firstlineno} in <lambda>" in notes
    assert p.tolist() == torch.tensor(values).tolist()  # as it was before the call


def test_sixty_places_are_planted() -> None:
    assert len(FORWARD) + len(BACKWARD) == 60


def test_anomaly_mode_names_module_line_and_ranges() -> None:
    net = nn.Sequential(Planted(lambda x: torch.sqrt(x * 0) * 0))
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan") as caught:
        net(x).sum().backward()
    assert "Function 'SqrtBackward0' returned nan values in its 0th output." in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "the backward pass of net.0: Planted" in notes
    assert "float32[2] in [0, 0]" in notes


def test_clean_steps_are_quiet() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    with torch.detect_nonfinite():
        for _ in range(20):
            hidden = net(x).masked_fill(torch.tensor([[False, False, True]]), -INF)
            loss = nn.functional.cross_entropy(hidden[:2], y[:2]) + net(100 * x).abs().mean()
            loss = loss + nn.functional.softplus(200 * net(x)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not torch.is_anomaly_enabled()


def test_given_infinity_is_nobodys_mistake() -> None:
    with torch.detect_nonfinite():
        x = torch.full((2, 2), -INF)
        assert torch.exp(x + 1).sum().item() == 0
        assert torch.empty(3).shape == (3,)


def _model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def test_a_thousand_clean_compiled_steps_are_quiet_and_compiled() -> None:
    net = _model()
    step = _training(net, net.parameters(), lambda x, y: nn.functional.cross_entropy(net(x), y))
    twin = _model()
    same = _training(twin, twin.parameters(), lambda x, y: nn.functional.cross_entropy(twin(x), y))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    assert step(x, y).item() == same(x, y).item()
    _must_stay_compiled(step)
    with torch.detect_nonfinite():
        for _ in range(1000):
            step(x, y)
    for _ in range(1000):
        same(x, y)
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        assert p.tolist() == q.tolist()


@pytest.mark.parametrize("calls", [3, 40, 300])
def test_birth_many_steps_after_the_watch_began(calls: int) -> None:
    """A batch that makes the gradient infinite while the loss is not: it is found in what is
    written, the calls are repeated from a copy, and the right one is named."""
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    net = nn.Sequential(nn.Identity(), Planted(lambda x: torch.sqrt(x - x + x.detach() * 0 + x)))
    step = _training(net, [p], lambda scale: (net(p * scale)).sum(), lr=1e-6)
    good, bad = torch.ones(2), torch.tensor([0.0, 1.0])
    step(good)
    batches = [bad if k == calls - 2 else good for k in range(calls)]
    with pytest.raises(torch.NonFiniteError) as caught:
        _watched_calls(step, batches)
    assert "SqrtBackward0 gave inf in 1 of 2 values in the backward pass" in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "net.1: Planted" in notes


def _watched_calls(step: Any, batches: list[Any]) -> None:
    with torch.detect_nonfinite():
        for batch in batches:
            step(batch)


def test_random_numbers_are_those_of_the_call() -> None:
    """Eager would draw others: the program itself tells, which ran with them."""
    net = nn.Sequential(nn.Dropout(0.5), Planted(lambda x: torch.log(x)))
    x = torch.ones(64, requires_grad=True)
    once = torch.compile(lambda x: net(x) + 1)
    step = _training(net, [x], lambda: net(x).sum())
    for call in (lambda: once(x), step):
        text, notes = _found(call)
        assert text.startswith("log() gave inf in ")
        assert "in the forward pass, of float32[64] in [0, 2]" in text
        assert "1" in notes


def test_a_part_of_a_function_with_a_break_is_watched() -> None:
    net = _model()

    def f(x: Any) -> Any:
        y = net(x)
        print(end="")
        sys.getrefcount(y)
        return torch.log(y - y)

    text, notes = _found(lambda: torch.compile(f)(torch.ones(2, 4)))
    assert text.startswith("log() gave inf in 6 of 6 values in the forward pass")
    assert "return torch.log(y - y)" in notes


def test_backward_of_a_compiled_call_stays_compiled() -> None:
    net = _model()
    loss = torch.compile(lambda x: net(x).square().mean(), fullgraph=True)
    x = torch.randn(5, 4)
    for _ in range(3):
        loss(x).backward()
    _must_stay_compiled(loss)
    with torch.detect_nonfinite():
        for _ in range(5):
            loss(x).backward()
    with torch.autograd.detect_anomaly():
        for _ in range(5):
            loss(x).backward()
    loss(x).backward()


def test_infinite_results_that_are_meant_are_nobodys_mistake() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    masked = torch.compile(lambda x: x.masked_fill(mask, -INF))
    with torch.detect_nonfinite():
        for _ in range(8):
            assert masked(torch.ones(2, 2))[0, 0].item() == -INF
