"""Blocks that repeat: graph, lines and guards are word for word those of running each block."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
import lucerne.nn.functional as F
from lucerne._src.capture.repeats.modules import Repeats
from lucerne._src.tensor.subclasses import torch_function

nn = torch.nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = 2, nn.Linear(8, 24), nn.Linear(8, 8, bias=False)

    def forward(self, x: Any) -> Any:
        n, t, w = x.shape
        parts = self.qkv(x).split(w, dim=2)
        q, k, v = (p.view(n, t, self.heads, w // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / math.sqrt(w))
        return self.out(y.transpose(1, 2).reshape(n, t, w))


class Block(nn.Module):
    def __init__(self, number: int = 0, rate: float = 0.0) -> None:
        super().__init__()
        self.number, self.scale, self.calls = number, 1.0, 0
        self.sizes, self.names = [8, 8], {"up": "up"}
        self.norm, self.attend = nn.LayerNorm(8), Attention()
        self.up, self.drop = nn.Linear(8, 8), nn.Dropout(rate)
        self.others: list[Any] = []
        self.last: Any = None

    def forward(self, x: Any, *given: Any) -> Any:
        x = x + self.attend(self.norm(x))
        for _ in self.sizes:
            x = x * self.scale
        return x + self.drop(F.gelu(getattr(self, self.names["up"])(x)))


class Stack(nn.Module):
    def __init__(self, kind: Any = Block, count: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind() for _ in range(count))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def changed(change: Callable[[Any], Any]) -> Callable[[], Any]:
    """Blocks, in one of which (or in all) something is changed."""

    def make() -> Any:
        model = Stack()
        change(model)
        return model

    return make


def of(*lines: str, rows: str = "") -> Callable[[], Any]:
    """Blocks whose `forward` begins with these lines."""
    text = "\n    ".join(["def forward(self, x, *given):", *lines, "return Block.forward(self, x)"])

    def make() -> Any:
        scope = {"Block": Block, "torch": torch, "F": F, "ALL": [], "COUNT": {"n": 0}, "nn": nn}
        exec(compile(text, "<forward>", "exec"), scope)
        model = Stack(type("Own", (Block,), {"forward": scope["forward"]}))
        scope["ALL"].extend(model.blocks)
        scope["COUNT"]["weight"] = model.blocks[0].norm.weight
        scope["COUNT"]["method"] = model.blocks[0].up.forward
        for k, block in enumerate(model.blocks):
            block.number = k if rows == "numbered" else 0
            block.others = [model] if rows == "others" else []
        return model

    return make


def _tie(model: Any) -> None:
    model.blocks[2].norm.weight = model.blocks[0].norm.weight
    model.blocks[3].up.weight = model.blocks[3].attend.out.weight


def _freeze(model: Any) -> None:
    model.blocks[1].norm.weight.requires_grad_(False)
    model.blocks[2].requires_grad_(False)


def _mark(model: Any) -> None:
    model.blocks[1].norm.weight.skip = True


def _swap(model: Any) -> None:
    model.blocks[1].up.forward = lambda x: x * 2


class Told(Stack):
    """Each block is given other plain values, or other tensors."""

    def forward(self, x: Any) -> Any:
        mask = torch.ones(3)
        for k, block in enumerate(self.blocks):
            x = block(x, k // 2, mask, x if k == 1 else None)
        return block(x, self.blocks[0].norm.weight, self.blocks[0].up.weight.t())


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x: Any, y: Any) -> Any:
        y = self.up(x) + y
        return y, (x, None)


class OfPairs(Stack):
    def __init__(self) -> None:
        super().__init__(Pairs)

    def forward(self, x: Any) -> Any:
        y = x
        for block in self.blocks:
            x, (y, _) = block(x, y)
        return x + y


class Between(Stack):
    """What a block finds outside changes from block to block."""

    state: Any = None

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            self.state = x
            x = block(x) + self.blocks[0].others[0].state
        return x


def between() -> Any:
    model = Between()
    for block in model.blocks:
        block.others = [model]
    return model


class InNoGrad(Stack):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            x = self.blocks[1](self.blocks[0](x))
        for block in self.blocks:
            x = block(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.blocks[2](x).float()


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.BatchNorm1d(3), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.up(self.norm(x)).relu()


ROWS: dict[str, tuple[Callable[[], Any], int]] = {
    "blocks": (Stack, 3),
    "draws in each": (changed(lambda m: [setattr(b.drop, "p", 0.1) for b in m.blocks]), 0),
    "another number in one": (changed(lambda m: setattr(m.blocks[1], "scale", 2.0)), 2),
    "another int for a float": (changed(lambda m: setattr(m.blocks[1], "scale", 1)), 2),
    "another list in one": (changed(lambda m: m.blocks[1].sizes.append(8)), 2),
    "another name in one": (changed(lambda m: m.blocks[2].names.update(up="norm")), 2),
    "another rate in one": (changed(lambda m: setattr(m.blocks[1].drop, "p", 0.5)), 2),
    "another eps in one": (changed(lambda m: setattr(m.blocks[2].norm, "eps", 0.1)), 2),
    "one in eval mode": (changed(lambda m: m.blocks[2].eval()), 2),
    "a hook in one": (
        changed(lambda m: m.blocks[1].norm.register_forward_hook(lambda m, i, o: o * 2)), 2,
    ),
    "a hook on one": (changed(lambda m: m.blocks[1].register_forward_hook(lambda *a: None)), 2),
    "a hook on the first": (
        changed(lambda m: m.blocks[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))), 2,
    ),
    "tied weights": (changed(_tie), 2),
    "frozen weights": (changed(_freeze), 1),
    "a mark on a weight": (changed(_mark), 2),
    "another forward in one": (changed(_swap), 1),
    "other arguments": (Told, 0),
    "pairs": (OfPairs, 1),
    "a tensor kept between": (between, 0),
    "other modes": (InNoGrad, 4),
    "batch norm": (lambda: Stack(Norms), 0),
    "a counter of its own": (of("self.calls = self.calls + 1", "x = x * self.calls"), 0),
    "a counter outside": (of("COUNT['n'] += 1"), 0),
    "a list outside": (of("ALL.append(1)"), 0),
    "a number of its own": (of("x = x + self.number", rows="numbered"), 0),
    "which one it is": (of("x = x + ALL.index(self)"), 0),
    "whether it is the first": (of("if ALL[0] is self:", "    x = x * 2"), 0),
    "who is among them": (of("for k, b in enumerate(ALL):", "    x = x + k * (b is self)"), 0),
    "by what holds it": (
        of("if self.others[0].blocks[0] is self:", "    x = x * 2", rows="others"), 0,
    ),
    "a weight of the first": (of("x = x * COUNT['weight']"), 0),
    "a method of the first": (of("x = COUNT['method'](x)"), 0),
    "whether it has that weight": (
        of("if COUNT['weight'] is self.norm.weight:", "    x = x * 2"), 0,
    ),
    "a weight found by iteration": (of("x = x * next(iter(self.parameters()))[0]"), 0),
    "no gradients inside": (of("with torch.no_grad():", "    x = x + self.norm(x)"), 0),
    "a tensor of its own is kept": (of("self.last = x * 2"), 0),
    "in place": (of("x = x * 2", "x.add_(1)", "x[0] = 3"), 0),
    "an error inside": (of("try:", "    x.view(7)", "except RuntimeError:", "    x = x * 3"), 0),
    "a new leaf": (of("x = x + torch.zeros(8, requires_grad=True)"), 0),
    "numbers from Python": (of("x = x + torch.tensor([2.0])"), 0),
    "a hook on a tensor": (
        of("x = self.up(x)", "x.register_hook(lambda g: g * 2)"), 0,
    ),
    "draws": (of("x = x + torch.rand_like(x)"), 3),
    "made inside": (of("x = x + torch.arange(8) + torch.zeros(x.shape)"), 3),
    "an inner function": (of("def twice(y):", "    return self.up(y) * 2", "x = twice(x)"), 3),
    "a property of a tensor": (of("x = x.mT.mT if x.ndim == 3 and x.requires_grad else x"), 3),
    "is it a leaf": (of("x = x * (1 if x.is_leaf else 2)"), 0),
}  # fmt: skip


def trained(make: Callable[[], Any], compiled: bool = True) -> tuple[list[str], list[Any]]:
    """The graph with the line of each node and the guards, and what two steps give."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).sigmoid(), x)
        loss.backward()
        optimizer.step()
        return loss

    run: Any = torch.compile(step) if compiled else step
    torch.manual_seed(1)
    given = torch.rand(2, 3, 8)
    found = [float(run(given)) for _ in range(3)]
    lines: list[str] = []
    for entry in run.entries if compiled else ():
        graph = entry.captured.graph
        lines += [f"{n} at {n.place}" for n in graph.nodes]
        lines.append(f"{graph.inputs} {graph.outputs} {graph.writes}")
        lines.append(re.sub(r"# \[\d+\]", "# a hook", entry.guards.source))
    return lines, [*found, *(repr(p.detach().tolist()) for p in model.parameters())]


@pytest.mark.parametrize("name", ROWS)
def test_the_trace_is_that_of_running_each_block(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, least = ROWS[name]
    monkeypatch.setattr(torch_function, "dispatching", set())  # (other tests have such classes)
    again, found_again = Repeats._again, []

    def note(self: Any, *given: Any) -> Any:
        found_again.append(again(self, *given))
        return found_again[-1]

    monkeypatch.setattr(Repeats, "_again", note)
    found = trained(make)
    assert len([x for x in found_again if x is not None]) >= least
    monkeypatch.setattr(Repeats, "begin", lambda *given: None)
    wanted = trained(make)
    assert found[0] == wanted[0]
    assert found[1] == wanted[1]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a number": lambda b: setattr(b, "scale", 2.0),
    "a list": lambda b: b.sizes.append(1),
    "a dict": lambda b: b.names.update(up="norm"),
    "a weight": lambda b: setattr(b.up, "weight", nn.Parameter(torch.ones(8, 8))),
    "a frozen weight": lambda b: b.up.weight.requires_grad_(False),
    "an option of a layer": lambda b: setattr(b.norm, "eps", 0.5),
    "a layer": lambda b: setattr(b, "up", nn.Linear(8, 8, bias=False)),
    "a number deep inside": lambda b: setattr(b.attend, "heads", 4),
    "a hook": lambda b: b.up.register_forward_hook(lambda m, i, o: o + 1),
    "the mode": lambda b: b.eval(),
    "the class": lambda b: setattr(b, "__class__", Other),
}

UNSEEN = ("a frozen weight", "the mode", "a list")
"""What does not change the results of the blocks here."""


class Other(Block):
    def forward(self, x: Any, *given: Any) -> Any:
        return super().forward(x) * 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_block_that_was_not_run_is_guarded(name: str) -> None:
    torch.manual_seed(0)
    model = Stack(Block)
    run, given = torch.compile(model), torch.rand(2, 3, 8)
    assert torch.allclose(run(given), model(given))
    CHANGES[name](model.blocks[2])
    assert torch.allclose(run(given), model(given))
    before = model(given)
    CHANGES[name](model.blocks[3])
    CHANGES[name](model.blocks[0])
    after = model(given)
    assert name in UNSEEN or not torch.equal(before, after)
    assert torch.allclose(run(given), after)
