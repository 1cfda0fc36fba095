"""Every planted nan or inf is named at its birth, eagerly and compiled; clean steps are quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn

INF = float("inf")
WAYS: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "compiled": torch.compile}

# what is computed of x, the values of x, what is born, a part of the op's name
FORWARD: list[tuple[Callable[[Any], Any], list[float], str, str]] = [
    (lambda x: torch.log(x), [0.0, 1.0], "inf", "log"),
    (lambda x: torch.log(x), [-1.0, 1.0], "nan", "log"),
    (lambda x: torch.sqrt(x), [-1.0, 4.0], "nan", "sqrt"),
    (lambda x: torch.rsqrt(x), [0.0, 4.0], "inf", "rsqrt"),
    (lambda x: torch.exp(x), [100.0, 1.0], "inf", "exp"),
    (lambda x: x / (x - x), [0.0, 0.0], "nan", "div"),
    (lambda x: 1 / x, [0.0, 2.0], "inf", ""),
    (lambda x: x**-1.0, [0.0, 2.0], "inf", "pow"),
    (lambda x: x**0.5, [-1.0, 2.0], "nan", "pow"),
    (lambda x: torch.acos(x), [2.0, 0.0], "nan", "acos"),
    (lambda x: torch.log1p(x), [-1.0, 0.0], "inf", "log1p"),
    (lambda x: torch.atanh(x), [1.0, 0.0], "inf", "atanh"),
    (lambda x: x * 1e30 * 1e30, [1.0, 2.0], "inf", "mul"),
    (lambda x: torch.softmax(x.masked_fill(x > 0, -INF), 0), [1.0, 2.0], "nan", "softmax"),
    (lambda x: x.cumsum(0) * 3e38, [1.0, 2.0], "inf", "mul"),
    (lambda x: (x * 3e38).sum(), [1.0, 1.0], "inf", "sum"),
    (lambda x: x.std(), [1.0], "nan", "deviation"),
]  # fmt: skip
BACKWARD: list[tuple[Callable[[Any], Any], list[float], str, str]] = [
    (lambda x: torch.sqrt(x), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: x**0.5, [0.0, 1.0], "inf", "SqrtPowerBackward0"),
    (lambda x: torch.acos(x), [1.0, 0.0], "inf", "AcosBackward0"),
    (lambda x: torch.asin(x), [1.0, 0.0], "inf", "AsinBackward0"),
    (lambda x: torch.acosh(x), [1.0, 2.0], "inf", "AcoshBackward0"),
    (lambda x: torch.log(x) * 1e20, [1e-30, 1.0], "inf", "LogBackward0"),
    (lambda x: torch.asin(x), [-1.0, 0.0], "inf", "AsinBackward0"),
    (lambda x: 1e-30 / x, [1e-30, 1.0], "inf", ""),
    (lambda x: x * 1e-30 * 1e-30 * 1e30 * 1e30, [1.0, 1.0], "inf", "MulBackward0"),
    (lambda x: x.rsqrt() * 1e-10, [1e-30, 1.0], "inf", "RsqrtBackward0"),
    (lambda x: x.prod().sqrt(), [0.0, 1.0], "inf", "SqrtBackward0"),
    (lambda x: torch.where(x > 0, x.sqrt(), x), [0.0, 1.0], "nan", "SqrtBackward0"),
    (lambda x: x.norm().sqrt(), [0.0, 0.0], "inf", "SqrtBackward0"),
]


class Planted(nn.Module):
    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self.work = work

    def forward(self, x: Any) -> Any:
        return self.work(x)


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
    assert f"{__file__}:{work.__code__.co_firstlineno} in <lambda>" in notes


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
    assert f"{__file__}:{work.__code__.co_firstlineno} in <lambda>" in notes


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
