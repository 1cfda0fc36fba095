"""What a graph can't hold: with `fullgraph` an error that names the line, else a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.capture.trace.fake import CaptureError, expose, fake_tensor
from tests.capture.scene import entries_of, given_up


def item(x: Any) -> Any:
    return x * x.sum().item()


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def shows(x: Any) -> Any:
    print(x, file=sys.stdout)
    return x * 2


def as_numpy(x: Any) -> Any:
    return torch.from_numpy(x.numpy() * 2)


def loop_over_positions(x: Any) -> Any:
    return x * sum(range(x.nonzero().shape[0]))


def loop_over_masked(x: Any) -> Any:
    return x * sum(range(x[x > 0].shape[0]))


def seeded(x: Any) -> Any:
    torch.manual_seed(3)
    return x + torch.rand(3)


SEEN: list[Any] = []


def appends(x: Any) -> Any:
    SEEN.append(x * 2)
    return x + 1


COUNTS = {"calls": 0}


def counts(x: Any) -> Any:
    COUNTS["calls"] += 1
    return x + COUNTS["calls"]


def not_for_graphs(x: Any) -> Any:
    return kept_out(x) + 1


@torch.compiler.disable
def kept_out(x: Any) -> Any:
    return x * 2


ROWS: list[tuple[Callable[..., Any], str]] = [
    (item, "item()"),
    (branch, "decides by the values of a tensor"),
    (shows, "print"),
    (as_numpy, "numpy()"),
    (loop_over_positions, "depends on the data"),
    (loop_over_masked, "depends on the data"),
    (seeded, "manual_seed"),
    (not_for_graphs, "kept_out"),
]


@pytest.mark.parametrize(("fn", "text"), ROWS, ids=lambda x: getattr(x, "__name__", ""))
def test_fullgraph_raises_and_names_the_line(fn: Callable[..., Any], text: str) -> None:
    compiled = torch.compile(fn, fullgraph=True)
    with pytest.raises(CaptureError, match=r"break \d+ .*Fix: ") as raised:
        compiled(torch.tensor([1.0, 2.0, -3.0]))
    assert text in str(raised.value)
    assert f"test_refusals.py:{fn.__code__.co_firstlineno + 1}" in str(raised.value)


@pytest.mark.parametrize(
    ("fn", "text"), [*ROWS, (appends, ""), (counts, "")], ids=lambda x: getattr(x, "__name__", "")
)
def test_without_it_the_same_results_and_a_note(fn: Callable[..., Any], text: str) -> None:
    SEEN.clear()
    COUNTS["calls"] = 0
    x = torch.tensor([1.0, 2.0, -3.0])
    want = [fn(x) for _ in range(3)]
    SEEN.clear()
    COUNTS["calls"] = 0
    compiled = torch.compile(fn)
    for a in want:  # no warnings: they are errors here
        assert torch.equal(a, compiled(x))
    assert len(SEEN) == (3 if fn is appends else 0)
    assert COUNTS["calls"] == (3 if fn is counts else 0)
    assert any(text in str(b) for b in compiled.breaks) or not text
    assert given_up(compiled) == ""


class Fails(nn.Module):
    """Changes everything it can reach, then raises."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))
        self.state: Any = torch.zeros(3)

    def forward(self, x: Any) -> Any:
        (x * self.weight).sum().backward()
        self.count.add_(1)
        self.state = x * 2
        raise KeyError("in the middle")


def seen(m: Any) -> list[Any]:
    grad = None if m.weight.grad is None else m.weight.grad.tolist()
    return [grad, m.count.item(), m.state.tolist()]


def test_an_error_of_the_function_is_seen_as_without_compiling() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    plain, other = Fails(), Fails()
    compiled = torch.compile(other, fullgraph=True)
    for _ in range(2):
        for m in (plain, compiled):
            with pytest.raises(KeyError, match="in the middle"):
                m(x)
        assert seen(other) == seen(plain)


def test_what_a_capture_touched_is_put_back() -> None:
    class Looks(Fails):
        def forward(self, x: Any) -> Any:
            (x * self.weight).sum().backward()
            self.count.add_(1)
            self.state = x * 2
            return float(x.sum())

    m = Looks()
    m.weight.grad = torch.ones(3)
    grad, state = m.weight.grad, m.state
    with pytest.raises(CaptureError):
        torch.compile(m, fullgraph=True)(torch.ones(3))
    assert m.weight.grad is grad
    assert m.state is state
    assert seen(m) == [[1.0] * 3, 0.0, [0.0] * 3]


def test_optimizer_state_after_a_refused_capture_is_that_of_no_steps() -> None:
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.Adam([w], 0.1)

    def step(x: Any) -> float:
        opt.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        opt.step()
        return float(loss)

    compiled = torch.compile(step)
    compiled(torch.ones(3))
    other = nn.Parameter(torch.ones(3))
    plain = torch.optim.Adam([other], 0.1)
    (torch.ones(3) * other).sum().backward()
    plain.step()
    assert torch.equal(w, other)
    assert opt.state[w]["step"] == plain.state[other]["step"]


def test_an_index_that_is_too_large_is_an_index_error() -> None:
    table = nn.Embedding(4, 2)
    compiled = torch.compile(table, fullgraph=True)
    good = compiled(torch.tensor([0, 3]))
    with pytest.raises(IndexError, match="index out of range"):
        compiled(torch.tensor([0, 4]))
    assert torch.equal(compiled(torch.tensor([0, 3])), good)


def test_checks_are_made_at_every_call() -> None:
    loss = torch.compile(nn.BCELoss(), fullgraph=True)
    good = torch.tensor([0.2, 0.8]), torch.tensor([0.0, 1.0])
    want = nn.BCELoss()(*good)
    for _ in range(2):
        assert torch.allclose(loss(*good), want)
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            loss(torch.tensor([0.2, 1.8]), good[1])
    assert entries_of(loss) == 1


def test_shapes_that_do_not_fit_say_what_eager_says() -> None:
    fn = torch.compile(lambda a, b: a @ b, fullgraph=True)
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    with pytest.raises(RuntimeError) as want:
        a @ b
    with pytest.raises(RuntimeError) as have:
        fn(a, b)
    assert str(have.value) == str(want.value)


def test_differentiating_twice_is_refused_in_words() -> None:
    """Where the function can't be run once more: it would draw other numbers."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.compile(lambda x: (x**3 + torch.rand(2)).sum(), fullgraph=True)(x)
    (g,) = torch.autograd.grad(y, [x], create_graph=True)
    assert g.tolist() == [3.0, 12.0]
    with pytest.raises(RuntimeError, match="once, not twice"):
        g.sum().backward()


def test_backward_through_an_earlier_call_is_refused_in_words() -> None:
    w = torch.ones(3, requires_grad=True)
    kept = {"h": torch.zeros(3)}

    def fn(x: Any) -> Any:
        kept["h"] = kept["h"] * w + x
        kept["h"].sum().backward()
        return kept["h"] * 2

    compiled = torch.compile(fn, fullgraph=True)
    compiled(torch.ones(3))
    with pytest.raises((CaptureError, RuntimeError), match=r"earlier call|second time"):
        compiled(torch.ones(3))


def test_too_many_versions_say_why() -> None:
    fn = torch.compile(lambda x, k: x * (k << 0))  # (what is only multiplied is one program)
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(12):
            assert fn(x, k).tolist() == [float(k)] * 2
    assert len(told) == 1
    assert "compiled 8 times already" in str(told[0].message)
    assert "k is 8, it was 7" in str(told[0].message)


def test_a_tensor_that_escapes_says_what_it_is() -> None:
    """(No way out is known that a trace does not see: it is led out here.)"""
    left = fake_tensor(torch.ones(3)._meta)
    expose([left])
    assert "without values" in repr(left)
    for use in (lambda: left + 1, lambda: left.sum(), lambda: left.tolist(), lambda: bool(left[0])):
        with pytest.raises(CaptureError, match="has no values"):
            use()
