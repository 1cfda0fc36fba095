"""Lazy mode gives what eager gives, says where it was cut, and compiles each graph once."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from tests.lazy.__main__ import alike
from tests.lazy.models import gpt
from tests.support.sources import printed, scripts

nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.lazy_report().clear()
    yield
    torch.set_num_threads(before)


def reasons() -> list[str]:
    return [why for why, _ in torch.lazy_report().cuts]


# ---- the same as eager

ROWS: list[Callable[[], Any]] = []


def row(f: Callable[[], Any]) -> Callable[[], Any]:
    ROWS.append(f)
    return f


@row
def pointwise() -> Any:
    x = torch.randn(3, 4)
    return (x * 2 + 1).sin(), x.sum(0), x.max(1)


@row
def views_and_writes() -> Any:
    x = torch.randn(4, 6)
    y = x * 2
    part = y[1:, ::2]
    part.add_(1)
    y[0] = 5
    turned = y.t()
    turned[2:].mul_(3)
    return x, y, part, turned, y.view(-1)[3:]


@row
def writes_to_what_was_there() -> Any:
    base = torch.arange(12.0)
    seen = base[2:8]
    base.tolist()  # it is there now
    base.add_(1)
    seen.mul_(2)
    base[3] = -1
    return base, seen, base.sum()


@row
def aliases() -> Any:
    x = torch.randn(3)
    y = x + 1
    z = y.data
    d = y.detach()
    z.add_(1)
    return y, z, d, y.clone()


@row
def gradients() -> Any:
    torch.manual_seed(1)
    w = torch.randn(4, 3, requires_grad=True)
    x = torch.randn(5, 4)
    loss = (x @ w).tanh().square().sum()
    loss.backward()
    again = torch.autograd.grad((w * w).sum(), w)[0]
    return loss.detach(), w.grad, again


@row
def second_derivatives() -> Any:
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    (g,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g.detach(), h


@row
def random_numbers() -> Any:
    torch.manual_seed(3)
    a = torch.rand(3)
    b = F.dropout(a + 1, 0.5)
    torch.manual_seed(3)
    c = torch.rand(3)
    p = torch.sigmoid(a)
    return a, b, c, torch.bernoulli(p), torch.randperm(5), torch.randn(2)


@row
def values_decide() -> Any:
    x = torch.arange(6.0)
    total = x.sum()
    out = []
    while total > 1:
        total = total / 2
        out.append(total.item())
    return out, x[x > 2], x.nonzero(), float(total), bool(x[0]), x.tolist()


@row
def training() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2),
                          nn.Linear(8, 3))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return losses, list(model.state_dict().values())


@row
def saved_and_copied() -> Any:
    x = torch.randn(3) * 2
    file = io.BytesIO()
    torch.save({"x": x + 1}, file)
    file.seek(0)
    return torch.load(file)["x"], copy.deepcopy(x * 3), pickle.loads(pickle.dumps(x - 1))


@row
def dtypes() -> Any:
    x = torch.randn(4)
    y = (x * 100).to(torch.int32)
    z = x.to(torch.bfloat16)
    bits = (x + 1).view(torch.int32)
    return y, z * 3, z.float(), y // 3, y % 7, bits, torch.complex(x, x).abs()


@row
def cast_regions() -> Any:
    torch.manual_seed(2)
    layer = nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(torch.randn(2, 4))
    return out, out.float().softmax(-1)


@row
def checkpoints() -> Any:
    torch.manual_seed(4)
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    return x.grad


@row
def modes() -> Any:
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        a = x * 2
    with torch.inference_mode():
        b = x + 1
        b.add_(1)
    return a.requires_grad, a, b.clone()


def _seen(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    if isinstance(x, (list, tuple)):
        return [_seen(v) for v in x]
    return x


def _check(f: Callable[[], Any], mode: str | None = None) -> None:
    torch.manual_seed(0)
    want = _seen(f())
    torch.manual_seed(0)
    with torch.lazy(mode):
        made = f()
    exact = {"rtol": 0, "atol": 0} if mode == "bitwise" else {}
    torch.testing.assert_close(_seen(made), want, equal_nan=True, **exact)


@pytest.mark.parametrize("f", ROWS, ids=lambda f: f.__name__)
def test_rows_are_as_in_eager(f: Any) -> None:
    _check(f)
    assert torch.lazy_report().nodes > 0


@pytest.mark.parametrize("f", [training, gradients, dtypes], ids=lambda f: f.__name__)
def test_every_bit_in_bitwise_mode(f: Any) -> None:
    _check(f, "bitwise")


def test_the_check_notices() -> None:
    calls = iter((1.0, 2.0))
    with pytest.raises(AssertionError):
        _check(lambda: torch.ones(2) * next(calls))


# ---- when it runs


def test_nothing_runs_before_it_is_needed() -> None:
    report = torch.lazy_report()
    with torch.lazy():
        x = torch.ones(3) * 2
        y = (x + 1).sum()
        assert report.evaluated == 0
        assert y.item() == 9
        assert report.evaluated == 1
        z = x * 5  # x is there now
    assert report.evaluated == 2
    assert z.tolist() == [10, 10, 10]
    assert reasons() == ["a value is looked at", "lazy mode ends"]


def test_values_that_nobody_holds_are_not_results() -> None:
    with torch.lazy():
        x = torch.ones(4)
        for _ in range(5):
            x = x * 2
        pending = torch.lazy_report()
        x.sum().item()
    assert pending.evaluated == 1
    assert x.tolist() == [32] * 4


def test_one_compile_for_a_loop() -> None:
    torch.manual_seed(0)
    model, (x, y) = gpt(16, 1, 8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with torch.lazy():
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    report = torch.lazy_report()
    assert (report.evaluated, report.compiled) == (4, 1)
    assert reasons() == ["the optimizer's step is done"]
    assert loss.isfinite()


def test_mistakes_are_raised_at_their_line() -> None:
    with torch.lazy():
        x = torch.ones(2, 3) * 2
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            x @ x
        with pytest.raises(IndexError, match="out of"):
            x[torch.tensor([0, 7])]
        with pytest.raises(RuntimeError, match="must match"):
            x + torch.ones(5)
        assert torch.lazy_report().evaluated <= 1
    assert x.tolist() == [[2] * 3] * 2


def test_checks_of_values_come_when_it_runs() -> None:
    with torch.lazy():
        loss = F.binary_cross_entropy(torch.ones(2) * 3, torch.ones(2))
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            loss.item()


def test_a_loop_that_never_looks_is_cut_where_it_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "lazy_nodes", 50)
    with torch.lazy():
        x = torch.zeros(3)
        for _ in range(60):
            x = x + 1
            x = x * 1.5
            x = x - 0.5
    report = torch.lazy_report()
    assert "the graph has become long" in reasons()
    assert report.evaluated >= 4
    assert report.compiled <= 3
    want = torch.zeros(3)
    for _ in range(60):
        want = (want + 1) * 1.5 - 0.5
    torch.testing.assert_close(x, want)


def test_learning_rates_are_read_anew() -> None:
    w = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0)
    with torch.lazy():
        for k in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 * (k + 1)
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
    assert torch.lazy_report().compiled == 1
    assert w[0].item() == pytest.approx(0.8 * 0.6 * 0.4 * 0.2)


def test_the_switch() -> None:
    torch.lazy_mode(True)
    try:
        x = torch.ones(2) + 1
        torch.lazy_mode(True)  # on already
        with torch.lazy():  # as well
            y = x * 2
        assert torch.lazy_report().evaluated == 0
        torch.lazy_sync()
        assert reasons() == ["somebody asked for it"]
    finally:
        torch.lazy_mode(False)
    torch.lazy_mode(False)
    assert y.tolist() == [4, 4]


def test_an_error_inside_leaves_values_behind() -> None:
    made: list[Any] = []

    def fails() -> None:
        made.append(torch.ones(2) * 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch.lazy():
        fails()
    assert made[0].tolist() == [3, 3]


def test_other_threads_are_not_lazy() -> None:
    found: list[Any] = []
    with torch.lazy():
        x = torch.ones(2) * 3
        torch.lazy_sync()
        thread = threading.Thread(target=lambda: found.append((x + 1).tolist()))
        thread.start()
        thread.join()
    assert found == [[4, 4]]


def test_compiled_functions_join_the_graph() -> None:
    f: Any = torch.compile(lambda x: x.sin() * 2)
    with torch.lazy():
        y = f(torch.ones(3)) + 1
    torch.testing.assert_close(y, torch.ones(3).sin() * 2 + 1)
    assert not f.entries


def test_unknown_modes_are_refused() -> None:
    with (
        pytest.raises(ValueError, match="mode is 'default' or 'bitwise', not 'fast'"),
        torch.lazy("fast"),
    ):
        raise AssertionError


def test_the_report_names_lines_and_fixes() -> None:
    with torch.lazy():
        (torch.ones(2) + 1).tolist()
    told = str(torch.lazy_report())
    assert "1 graphs" in told
    assert f"{__file__}:" in told
    assert "look at it after the loop" in told


# ---- whole scripts


@pytest.mark.parametrize("name", ["views", "two_layers"])
def test_scripts_print_the_same(name: str) -> None:
    (path,) = (p for p in scripts() if p.stem == name)
    want = printed(path, "lucerne")
    with torch.lazy():
        got = printed(path, "lucerne")
    assert len(want) == len(got) > 3
    assert not [pair for pair in zip(want, got, strict=True) if not alike(*pair)]


def test_alike_notices() -> None:
    assert alike("loss 0.12345", "loss 0.12346")
    assert not alike("loss 0.12", "loss 0.13")
    assert not alike("a 1", "b 1")


@pytest.mark.nightly
def test_random_programs() -> None:
    pytest.importorskip("torch")
    from tests.lazy.__main__ import fuzz

    assert fuzz(40, 7000) == 0
