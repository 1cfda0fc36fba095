"""The backward pass over records, against the engine over nodes: the same bits, the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
import lucerne.nn.functional as F
from lucerne._src.tensor.autograd import records
from lucerne._src.tensor.storage import FAST

pytestmark = pytest.mark.skipif(FAST is None, reason="records are written by machine code only")

Leaves = list[Any]


def leaves() -> Leaves:
    torch.manual_seed(3)
    shapes = ((6, 5), (5, 5), (5,), (4, 5), (4,))
    return [torch.randn(*s).requires_grad_() for s in shapes]


def layers(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    hidden = F.linear(x, w, b).relu()
    return F.cross_entropy(F.linear(hidden, v, c), torch.tensor([0, 1, 2, 3, 0, 1]))


def used_often(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return (x * x + x * b - (x @ w).tanh()).sum() + (b * b).sum() * 0.5 + (v * b).exp().mean()


def dead_ends(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return (x.detach() * w[0].sum() + (x > 0).float() * x).mean() + c.sum() * 0.0


def views(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return (x.t()[1:3].reshape(-1) * x[:, 1:3].t().reshape(-1)).sum() + w.view(25).sum()


PROGRAMS: list[Callable[..., Any]] = [layers, used_often, dead_ends, views]


def gradients(program: Callable[..., Any], given: Leaves, look: bool, times: int = 1) -> Leaves:
    for t in given:
        t.grad = None
    for _ in range(times):
        loss = program(*given)
        if look:
            assert loss.grad_fn is not None  # from here on there are nodes
        loss.backward()
    return [t.grad for t in given]


def is_taken(program: Callable[..., Any], given: Leaves) -> bool:
    """Whether the third call is all records: the first two teach machine code the calls."""
    for _ in range(3):
        loss = program(*given)
    flow = None if loss._record is None else records.plan(loss._record)
    return flow is not None and not flow.edges


def test_programs_are_taken() -> None:
    assert is_taken(layers, leaves())
    assert is_taken(used_often, leaves())


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_same_bits_as_the_engine(program: Callable[..., Any], times: int) -> None:
    given = leaves()
    is_taken(program, given)
    found = [g if g is None else g.clone() for g in gradients(program, given, False, times)]
    wanted = gradients(program, given, True, times)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (torch.equal(a, b) and a.stride() == b.stride())


def test_a_second_pass_is_refused() -> None:
    given = leaves()
    is_taken(layers, given)
    loss = layers(*given)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    assert loss.grad_fn.name() == "NllLossBackward0"


def test_a_kept_graph_serves_twice() -> None:
    given = leaves()
    is_taken(layers, given)
    once = [g.clone() for g in gradients(layers, given, False)]
    for t in given:
        t.grad = None
    loss = layers(*given)
    loss.backward(retain_graph=True)
    loss.backward()
    for g, t in zip(once, given, strict=True):
        assert torch.equal(t.grad, g + g)


def test_a_write_since_is_noticed() -> None:
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        y = x * 2
        loss = (y * y).sum()
    y.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        loss.backward()
    assert any("recorded at" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("retain", [False, True])
def test_hooks_are_called(retain: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    seen: list[str] = []
    x.register_hook(lambda g: seen.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("after"))
    for _ in range(3):
        y = x * 2
        if retain:
            y.retain_grad()
        y.sum().backward()
    assert seen == ["leaf", "after"] * 3
    assert not retain or torch.equal(y.grad, torch.ones(3))


def test_post_hooks_alone_stay_here() -> None:
    x = torch.ones(3, requires_grad=True)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    assert is_taken(lambda x: (x * 2).sum(), [x])
    (x * 2).sum().backward()
    assert torch.equal(seen[0], torch.full((3,), 2.0))


def test_a_gradient_is_taken_over_only_if_nobody_else_has_it() -> None:
    x, y = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    for _ in range(3):
        x.grad = y.grad = None
        loss = (x + y).sum()
        loss.backward()
    x.grad.add_(1)
    assert torch.equal(y.grad, torch.ones(4, 4))


def test_a_fresh_gradient_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    monkeypatch.setattr(records, "accumulate", lambda leaf, g: copied.append(leaf))
    w, x = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
    assert is_taken(lambda w: (x @ w).sum(), [w])
    for _ in range(4):
        w.grad = None
        (x @ w).sum().backward()
    assert not copied
    assert w.grad is not None
