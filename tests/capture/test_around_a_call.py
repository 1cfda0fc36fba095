"""What a compiled call costs beside its program: guards of modules, the edges of its node, a pass
that is one node and leaves. Each is as it was where nothing was spared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.capture.aot.backward import Joint


class Other(nn.Module):
    """Nothing to do with the function: its changes are noted all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0


def _net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _add_hook(net: Any) -> None:
    net[1].register_forward_hook(lambda module, args, out: out * 2)


def _replace(net: Any) -> None:
    net[0].weight = nn.Parameter(torch.full((4, 3), 0.5))


def _swap_values(net: Any) -> None:
    """The same objects under other names."""
    first, last = net._modules.pop("0"), net._modules.pop("2")
    net._modules.update({"3": first, "4": last})


def _change_class(net: Any) -> None:
    net[1].__class__ = nn.Sigmoid


def _set_attribute(net: Any) -> None:
    net[2].extra = 1


def _write_table(net: Any) -> None:
    net[2]._parameters["bias"] = nn.Parameter(torch.ones(2))


CHANGES = [_add_hook, _replace, _swap_values, _change_class, _set_attribute, _write_table]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_modules_are_seen_beside_changes_elsewhere(
    change: Callable[[Any], None],
) -> None:
    net, other, x = _net(), Other(), torch.ones(2, 3)
    compiled = torch.compile(net)
    for k in range(3):
        other.count = k
        torch.testing.assert_close(compiled(x), net(x))
    change(net)
    for k in range(3):
        other.count = k
        torch.testing.assert_close(compiled(x), net(x))


def test_a_change_elsewhere_keeps_the_guards() -> None:
    net, other, x = _net(), Other(), torch.ones(2, 3)
    compiled = torch.compile(net)
    compiled(x)
    (entry,) = compiled.forward.entries
    for k in range(5):
        other.count = k
        assert entry.guards.unchanged()
    _add_hook(net)
    assert not entry.guards.unchanged()


def test_leaves_keep_what_the_pass_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient is copied on its way."""
    places: list[int] = []
    computed = Joint.computed

    def noted(self: Joint, *given: Any) -> list[Any]:
        found = computed(self, *given)
        places.extend([g.data_ptr() for g in found if g is not None])
        return found

    monkeypatch.setattr(Joint, "computed", noted)
    net = _net()
    compiled = torch.compile(net)
    for _ in range(3):
        places.clear()
        net.zero_grad()
        compiled(torch.ones(2, 3)).sum().backward()
        assert {p.grad.data_ptr() for p in net.parameters()} <= set(places)


def _gradients(fn: Any, net: Any, way: str) -> list[Any]:
    """What one way to ask for gradients gives."""
    seen: list[Any] = []
    net.zero_grad()
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    if way == "hook":
        net[0].weight.register_hook(lambda g: seen.append(g * 2))
    if way == "after":
        net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad * 3))
    out = fn(x)
    if way == "node hook":
        out.grad_fn.register_hook(lambda after, before: seen.append(before[0] * 4))
    if way == "input only":
        return [*torch.autograd.grad(out.sum(), x)]
    if way == "weight twice":
        out = out + net[0].weight.sum()
    out.square().sum().backward(retain_graph=way == "twice")
    if way == "twice":
        out.square().sum().backward()
    return [x.grad, *[p.grad for p in net.parameters()], *seen]


WAYS = ["plain", "hook", "after", "node hook", "input only", "weight twice", "twice"]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_eager(way: str) -> None:
    nets = _net(), _net()
    fns = torch.compile(nets[0]), nets[1]
    for _ in range(3):
        found, expected = (_gradients(f, n, way) for f, n in zip(fns, nets, strict=True))
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
        # Another history of a parameter: what was looked up for it counts no more.
        for net in nets:
            net[2].weight.requires_grad_(False)
            net[2].weight.requires_grad_(True)


def two_results(net: Any, x: Any) -> tuple[Any, Any]:
    y = net(x)
    return y.sin(), y.exp().sum(-1)


def _asked(fn: Any, net: Any, what: str) -> tuple[Any, ...]:
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    first, second = fn(net, x)
    total = first.sum() if what == "of one result" else first.sum() + second.sum()
    wanted = [x, net[2].bias] if what == "two" else [x]
    found = torch.autograd.grad(total, wanted, retain_graph=what == "then all")
    if what == "then all":
        found += torch.autograd.grad(total, list(net.parameters()))
    return found


@pytest.mark.parametrize("what", ["input", "two", "of one result", "then all"])
def test_a_pass_for_the_gradients_that_are_asked_for(what: str) -> None:
    """It is made after some times, and gives what the whole pass gives."""
    net = _net()
    compiled = torch.compile(two_results)
    for _ in range(7):
        found, expected = _asked(compiled, net, what), _asked(two_results, net, what)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
    (entry,) = compiled.entries
    lean = [joint for joint in entry.joint.made_lean.values() if joint is not None]
    assert any(len(joint.result_metas) < len(net._modules) for joint in lean)
    again = _net()
    compiled(again, torch.ones(2, 3))[0].sum().backward()
    expected = torch.autograd.grad(two_results(again, torch.ones(2, 3))[0].sum(), again[0].weight)
    torch.testing.assert_close(again[0].weight.grad, *expected)
