"""Backward passes around compiled functions: histories, checkpoints, anomaly mode, falling back."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.loops.group import Grouping
from lucerne.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from tests.faults.planting import planted

nn, F = torch.nn, torch.nn.functional


def gradients(fn: Callable[..., Any], *args: Any) -> list[Any]:
    """The result of a function, and the gradients of its arguments."""
    given = [
        a.detach().clone().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a
        for a in args
    ]
    out = fn(*given)
    out.sum().backward()
    found = [a.grad for a in given if torch.is_tensor(a) and a.is_floating_point()]
    return [None if t is None else t.detach().tolist() for t in (out, *found)]


def near(a: Any, b: Any) -> bool:
    """Whether nested lists agree but for rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(near, a, b))
    return a == b if a is None or b is None else abs(a - b) <= 1e-5 * max(1.0, abs(a))


# ---- two accumulations, then a break ------------------------------------------------------------


def _twice(x: Any, b: Any) -> Any:
    z = torch.zeros(3).add_(x)
    y = torch.zeros(3).add_(z)
    return y * int(b.max())


def _messages(x: Any, b: Any) -> Any:
    """A hand-written layer of a graph network."""
    out = torch.zeros(3).index_add_(0, torch.tensor([0, 1, 1]), x)
    out = torch.zeros(3).index_add_(0, torch.tensor([2, 1, 0]), out)
    pooled = torch.zeros(int(b.max()) + 1).index_add_(0, torch.tensor([0, 1, 1]), out)
    return pooled * 2


def _of_a_global(x: Any, b: Any) -> Any:
    _KEPT.detach_().zero_()
    _KEPT.add_(x)
    return (_KEPT * int(b.max())).exp()


def _through_a_view(x: Any, b: Any) -> Any:
    z = torch.zeros(2, 3)
    z[0].add_(x)
    z[1].copy_(z[0] * 2)
    return z * int(b.max())


_KEPT = torch.zeros(3)


@pytest.mark.parametrize("fn", [_twice, _messages, _of_a_global, _through_a_view])
def test_accumulations_before_a_break(fn: Callable[..., Any]) -> None:
    compiled = torch.compile(fn)
    for k in range(3):
        args = torch.linspace(-1, 1, 3) + k, torch.tensor([0, 1])
        assert near(gradients(compiled, *args), gradients(fn, *args))


def test_a_trace_leaves_no_history() -> None:
    """A real tensor that a trace writes to keeps the history that it had."""
    kept = torch.zeros(3)

    def fn(x: Any) -> Any:
        kept.add_(x)
        return (kept * 2).sum()

    compiled = torch.compile(fn)
    x = torch.ones(3, requires_grad=True)
    for k in range(3):
        compiled(x).backward()
        assert x.grad.tolist() == [2.0] * 3
        names = [kept.grad_fn.name(), *(e[0].name() for e in kept.grad_fn.next_functions if e[0])]
        assert "StandIn" not in names
        kept.detach_()
        x.grad = None
        assert kept.tolist() == [k + 1.0] * 3


VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda y: (y, y[0]),
    "two views": lambda y: (y, y[0], y.t()),
    "in a dict": lambda y: ({"out": y}, y[-1]),
    "view of a view": lambda y: (y, y.t()[1]),
    "no base": lambda y: (y[0], y[1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_beside_their_base(name: str) -> None:
    """Who writes to a view that a function returns writes to the base that it returns as well."""

    def fn(x: Any) -> Any:
        return VIEWS[name](x.sin())

    found = []
    for made in (fn, torch.compile(fn)):
        for _ in range(2):
            x = torch.linspace(0, 1, 4).reshape(2, 2).requires_grad_()
            first, view = made(x)[:2]
            base = first["out"] if isinstance(first, dict) else first
            view.mul_(3)
            (base.sum() + (view * view).sum()).backward()
            found.append([base.tolist(), view.tolist(), x.grad.tolist()])
    assert near(found[0], found[2])
    assert near(found[1], found[3])


# ---- checkpoints --------------------------------------------------------------------------------


def _layer(compiled: bool) -> Any:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    return torch.compile(made) if compiled else made


_KEEP = functools.partial(create_selective_checkpoint_contexts, [torch.matmul, F.linear])
CHECKPOINTS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda m, x: checkpoint(m, x, use_reentrant=False),
    "reentrant": lambda m, x: checkpoint(m, x, use_reentrant=True),
    "not stopped early": lambda m, x: checkpoint(m, x, use_reentrant=False, early_stop=False),
    "unchecked": lambda m, x: checkpoint(m, x, use_reentrant=False, determinism_check="none"),
    "nested": lambda m, x: checkpoint(
        lambda y: checkpoint(m, y, use_reentrant=False) * 2, x, use_reentrant=False
    ),
    "nested reentrant": lambda m, x: checkpoint(
        lambda y: checkpoint(m, y, use_reentrant=True) * 2, x, use_reentrant=True
    ),
    "selective": lambda m, x: checkpoint(m, x, use_reentrant=False, context_fn=_KEEP),
    "sequential": lambda m, x: checkpoint_sequential([m, torch.tanh, m], 2, x, use_reentrant=False),
    "saved on the host": lambda m, x: _saved_on_cpu(m, x),
    "in a compiled function": lambda m, x: torch.compile(
        lambda y: checkpoint(m, y, use_reentrant=False)
    )(x),
}  # fmt: skip


def _saved_on_cpu(m: Any, x: Any) -> Any:
    with torch.autograd.graph.save_on_cpu():
        return m(x)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_of_compiled_modules(name: str) -> None:
    """The first call, other sizes, and calls that are warm."""
    way, plain, compiled = CHECKPOINTS[name], _layer(False), _layer(True)
    for rows in (2, 2, 3, 5, 2, 1):
        found = []
        for module in (plain, compiled):
            module.zero_grad()
            x = torch.linspace(-1, 1, 4 * rows).reshape(rows, 4)
            found.append([*gradients(lambda y, m=module: way(m, y), x),
                          *(p.grad.tolist() for p in module.parameters())])  # fmt: skip
        assert near(*found)


def test_a_checkpoint_of_a_function_with_a_break() -> None:
    def fn(x: Any) -> Any:
        h = (x * 2).tanh()
        return h * int(h.detach().abs().max() * 10) + h.exp()

    compiled = torch.compile(fn)
    for rows in (2, 2, 3):
        x = torch.linspace(-1, 1, rows)
        want = gradients(fn, x)
        assert near(gradients(lambda y: checkpoint(compiled, y, use_reentrant=False), x), want)


def test_a_checkpoint_draws_the_same_numbers() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5))
    for _ in range(3):
        x = torch.ones(64, requires_grad=True)
        y = checkpoint(compiled, x, use_reentrant=False)
        y.sum().backward()
        assert y.tolist() == x.grad.tolist()


def test_a_checkpoint_keeps_nothing_else() -> None:
    """What the program saves is computed again, not kept."""
    seen: list[Any] = []
    compiled = torch.compile(lambda x: x.exp().sin())
    x = torch.ones(3, requires_grad=True)
    compiled(x)
    y = checkpoint(compiled, x, use_reentrant=False)
    kept = y.grad_fn.saved
    seen += [t for t in kept if torch.is_tensor(t)]
    assert kept
    assert not seen


def test_a_checkpoint_of_a_function_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that an earlier call took are still there for its backward pass."""
    compiled = torch.compile(lambda x, k: (x * k).exp().sin() * k, dynamic=False)
    x = torch.linspace(0, 1, 3, requires_grad=True)
    first = checkpoint(compiled, x, 2, use_reentrant=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled.give_up("no more")
    first.sum().backward()
    y = x.detach().clone().requires_grad_()
    ((y * 2).exp().sin() * 2).sum().backward()
    assert near(x.grad.tolist(), y.grad.tolist())


# ---- anomaly mode -------------------------------------------------------------------------------


@pytest.mark.parametrize("forward_inside", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_anomaly_mode(forward_inside: bool, warm: bool) -> None:
    compiled = torch.compile(lambda x: (x * x).sum())
    if warm:
        compiled(torch.ones(3, requires_grad=True)).backward()
    x = torch.ones(3, requires_grad=True)
    y = None if forward_inside else compiled(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            (compiled(x) if y is None else y).backward()
    assert x.grad.tolist() == [2.0] * 3


def _nan(x: Any) -> Any:
    return (x * 0).sqrt().mul(0).sum()


@pytest.mark.parametrize("forward_inside", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_anomaly_mode_names_the_op(forward_inside: bool, warm: bool) -> None:
    """A NaN raises what it raises in eager mode."""
    texts = []
    for fn in (_nan, torch.compile(_nan)):
        if warm:
            fn(torch.ones(2, requires_grad=True)).backward()
        x = torch.ones(2, requires_grad=True)
        y = None if forward_inside else fn(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan") as told:
                (fn(x) if y is None else y).backward()
        texts.append(str(told.value).partition("\n")[0])
    assert texts[0] == texts[1]


def test_anomaly_mode_inside() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        with torch.autograd.detect_anomaly():
            (x * x).sum().backward()
        return x.grad

    compiled = torch.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            assert compiled(torch.ones(3)).tolist() == [2.0] * 3
    assert not torch.is_anomaly_enabled()


# ---- falling back -------------------------------------------------------------------------------


def test_an_error_in_fusion_runs_as_eager_does() -> None:
    def fn(x: Any, w: Any, r: Any) -> Any:
        return F.conv2d(x, w) * r

    args = torch.randn(3, 3, 5, 3), torch.randn(1, 3, 3, 3), torch.randn(1)
    compiled = torch.compile(fn)
    told = pytest.warns(UserWarning, match="in the stage 'fusion'")
    with planted(Grouping.__init__.__code__, IndexError), told:
        assert near(compiled(*args).tolist(), fn(*args).tolist())
    assert near(gradients(compiled, *args), gradients(fn, *args))


def test_a_backward_pass_that_fails_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Any) -> Any:
        return (x * x).exp().sum()

    compiled = torch.compile(fn)
    x = torch.linspace(0, 1, 3)
    compiled(x.clone().requires_grad_())
    joint = compiled.entries[0].joint

    def broken(*args: Any) -> None:
        raise IndexError("broken")

    monkeypatch.setattr(joint, "runner", broken)
    monkeypatch.setattr(joint, "launch", broken)  # the same by one call of machine code
    with pytest.warns(UserWarning, match="made once more for its gradients"):
        assert near(gradients(compiled, x), gradients(fn, x))
