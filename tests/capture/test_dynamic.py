"""Functions that are called with many sizes: traced a few times, then made for the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.base.config import config
from lucerne.nn import functional as F

RTOL, ATOL = 1.3e-6, 1e-5
TRACES = 3
"""The first size, size one (always a case of its own), and a second size, for all others."""


def close(want: Any, have: Any, rtol: float = RTOL, atol: float = ATOL) -> bool:
    """Whether nests of tensors and plain things are equal, with their shapes and strides."""
    if isinstance(want, torch.Tensor):
        same = want.shape == have.shape and want.stride() == have.stride()
        a, b = want.detach().numpy(), have.detach().numpy()
        return bool(same and np.allclose(a, b, rtol, atol, equal_nan=True))
    if isinstance(want, (list, tuple)):
        together = zip(want, have, strict=True)
        return type(want) is type(have) and all(close(a, b, rtol, atol) for a, b in together)
    return type(want) is type(have) and bool(want == have)


def test_the_comparison_fails() -> None:
    x = torch.ones(2, 3)
    assert close((x, 1), (x + 0, 1))
    assert not close(x, x + 1e-3)
    assert not close(x, torch.ones(3, 2).T)
    assert not close((x, 1), (x, 2))
    assert not close([x], (x,))


class Block(nn.Module):
    """Attention and a small network, as in a GPT."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        parts = self.qkv(self.norms[0](x)).split(c, 2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.LogSoftmax(-1))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (6,)),
    "block": (Block, (5, 16)),
    "convolutions": (convolutions, (3, 8, 8)),
}
SIZES = random.Random(0).sample(range(1, 65), 16)


def twins(make: Callable[[], Any]) -> tuple[Any, Any]:
    """Two modules with equal parameters."""
    torch.manual_seed(0)
    a, b = make(), make()
    b.load_state_dict(a.state_dict())
    return a, b


def counts(compiled: Any) -> tuple[int, int]:
    made = compiled.__dict__.get("forward", compiled)
    return made.traces, made.instances


@pytest.mark.parametrize("name", MODELS)
def test_batches_of_all_sizes(name: str) -> None:
    make, shape = MODELS[name]
    model, twin = twins(make)
    compiled = torch.compile(twin.eval(), fullgraph=True)
    model.eval()
    with torch.no_grad():
        for n in [*SIZES, 1]:
            x = torch.randn(n, *shape)
            assert close(model(x), compiled(x), atol=2e-5), n
    traces, instances = counts(compiled)
    assert traces <= TRACES
    assert instances >= len(set(SIZES) - {1}) - 2


@pytest.mark.parametrize("name", MODELS)
def test_backward_outside(name: str) -> None:
    make, shape = MODELS[name]
    model, twin = twins(make)
    compiled = torch.compile(twin, fullgraph=True)
    for n in SIZES[:6]:
        x = torch.randn(n, *shape)
        y = x.clone().requires_grad_()
        x.requires_grad_()
        a, b = model(x), compiled(y)
        a.square().mean().backward()
        b.square().mean().backward()
        assert close(a, b, atol=5e-5), n
        assert close(x.grad, y.grad, rtol=1e-4), n
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert close(p.grad, q.grad, rtol=1e-3, atol=1e-4), n
    assert counts(compiled)[0] <= TRACES
    assert counts(compiled)[1] >= 3


def step(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return run


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_training_steps(name: str, kind: Any) -> None:
    make, shape = MODELS[name]
    model, twin = twins(make)
    options: dict[str, Any] = {"lr": 1e-2}
    if kind is torch.optim.SGD:
        options["momentum"] = 0.9
    plain = step(model, kind(model.parameters(), **options))
    compiled = torch.compile(step(twin, kind(twin.parameters(), **options)), fullgraph=True)
    for n in [*SIZES[:8], 1]:
        if n == 1 and name == "convolutions":
            continue
        x, y = torch.randn(n, *shape), torch.randint(0, 3, (n,))
        assert close(plain(x, y).detach(), compiled(x, y).detach(), 1e-3, 1e-4), n
    for p, q in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert close(p, q, 2e-3, 2e-3)
    assert counts(compiled)[0] <= TRACES
    assert counts(compiled)[1] >= 5


ROWS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "sizes in the arithmetic": (
        lambda x: x.sum(0) / x.shape[0] + x.shape[1] ** -0.5, [(4, 6), (7, 6), (9, 6), (12, 6)],
    ),
    "sizes that are returned": (
        lambda x: (x * 2, x.shape[0], x.shape, x.numel() / 2), [(4, 6), (7, 6), (9, 6), (12, 6)],
    ),
    "two sizes at a time": (lambda x: x @ x.T, [(4, 6), (7, 9), (9, 11), (12, 5)]),
    "one size, then the other": (
        lambda x: x.softmax(1) + x.mean(), [(4, 6), (9, 6), (4, 11), (12, 5), (15, 20), (4, 8)],
    ),
    "views": (
        lambda x: (x[1:], x.T, x[:, :3], x.reshape(-1)), [(4, 6), (7, 6), (9, 6), (12, 6)],
    ),
    "in place": (lambda x: x.mul_(2)[0], [(4, 6), (7, 6), (9, 6), (12, 6)]),
    "a new tensor": (
        lambda x: x + torch.arange(x.shape[0])[:, None] + torch.tensor([1.0]),
        [(4, 6), (7, 6), (9, 6), (12, 6)],
    ),
    "joined": (
        lambda x: torch.cat([x, x[:2], torch.zeros(3, x.shape[1])]),
        [(4, 6), (7, 6), (9, 6), (12, 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_rows(name: str, dynamic: bool | None) -> None:
    fn, shapes = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True, dynamic=dynamic)
    for shape in shapes:
        x = torch.randn(*shape)
        assert close(fn(x.clone()), compiled(x.clone())), shape
    traced = counts(compiled)
    assert compiled.families.members[0].sized, compiled.families.members[0].refused
    assert traced[1] >= (len(shapes) - 1 if dynamic else 2)
    assert len(compiled.entries) == 1 if dynamic else len(compiled.entries) <= 3


def test_never() -> None:
    compiled = torch.compile(lambda x: x * 2, dynamic=False)
    for n in (2, 3, 4, 5):
        compiled(torch.ones(n))
    assert counts(compiled) == (4, 0)
    assert len(compiled.entries) == 4


def test_at_once() -> None:
    compiled = torch.compile(mlp(), dynamic=True, fullgraph=True)
    with torch.no_grad():
        for n in (4, 5, 6, 7, 40):
            compiled(torch.ones(n, 6))
    assert counts(compiled) == (1, 4)


def test_marked() -> None:
    compiled = torch.compile(lambda x: x.sum(0), fullgraph=True)
    x = torch.ones(4, 5)
    torch.compiler.mark_dynamic(x, 0)
    for t in (x, torch.ones(7, 5), torch.ones(9, 5)):
        assert close(t.sum(0), compiled(t))
    assert counts(compiled) == (1, 2)


def test_decisions_by_size() -> None:
    def fn(x: Any) -> Any:
        return x.sin() if x.shape[0] > 10 else x.cos()

    compiled = torch.compile(fn, fullgraph=True)
    for n in (3, 5, 7, 20, 9, 30, 4, 12, 11, 10):
        x = torch.randn(n)
        assert close(fn(x), compiled(x)), n
    assert counts(compiled)[1] >= 3


def test_a_loop_over_a_size_stays_as_it_is() -> None:
    def fn(x: Any) -> Any:
        return sum(x[i] * i for i in range(x.shape[0]))

    compiled = torch.compile(fn, fullgraph=True)
    for n in (2, 3, 4, 5):
        x = torch.randn(n, 3)
        assert close(fn(x), compiled(x))
    assert counts(compiled)[1] == 0
    assert compiled.families.members[0].fixed == {(0, 0)}


def test_constants_of_a_size() -> None:
    def fn(x: Any) -> Any:
        return x * torch.tensor([float(x.shape[0])])

    compiled = torch.compile(fn, fullgraph=True)
    for n in (2, 3, 4, 5):
        x = torch.randn(n)
        assert close(fn(x), compiled(x))


def test_only_so_many_are_kept(monkeypatch: Any) -> None:
    monkeypatch.setattr(config, "most_instances", 3)
    compiled = torch.compile(lambda x: x + 1, fullgraph=True)
    for n in range(2, 12):
        compiled(torch.ones(n))
    assert compiled.instances == 8
    assert len(compiled.versions._recent) == 3
    compiled(torch.ones(11))
    assert compiled.instances == 8
    compiled(torch.ones(5))
    assert compiled.instances == 9


def test_other_circumstances_are_other_families() -> None:
    model, twin = twins(mlp)
    compiled = torch.compile(twin, fullgraph=True)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 6)
        assert close(model(x), compiled(x))
        with torch.no_grad():
            y = compiled(x)
        assert not y.requires_grad
        assert close(model(x), y)
    assert counts(compiled)[1] == 4


# ---- random programs ----------------------------------------------------------------------------

STEPS: dict[str, Callable[[Any], Any]] = {
    "sin": lambda x: x.sin(),
    "scaled by sizes": lambda x: x * x.shape[0] / x.shape[1],
    "transposed": lambda x: x.T,
    "without the first": lambda x: x[1:],
    "every other": lambda x: x[::2],
    "the first half": lambda x: x[:, : x.shape[1] // 2 + 1],
    "twice": lambda x: torch.cat([x, x * 2]),
    "padded": lambda x: F.pad(x, (1, 2)),
    "flattened": lambda x: x.reshape(1, -1).expand(2, -1),
    "turned": lambda x: x.reshape(x.shape[1], x.shape[0]),
    "cumulated": lambda x: x.cumsum(0) / 7,
    "normalized": lambda x: F.layer_norm(x, x.shape[1:]),
    "centred": lambda x: x - x.mean(1, keepdim=True),
    "products": lambda x: (x @ x.T)[:, :5] / x.shape[1],
    "sorted": lambda x: x.sort(1).values,
    "rolled": lambda x: x.roll(2, 0).flip(1),
    "counted": lambda x: x + torch.arange(x.shape[1]),
    "masked": lambda x: x.masked_fill(torch.ones_like(x).tril() == 0, 0.5),
    "split": lambda x: torch.cat((*x.split(3, 0)[:1], x)),
    "convolved": lambda x: F.conv1d(x[:, None], torch.ones(1, 1, 3) / 3, padding=1)[:, 0],
    "pooled": lambda x: F.avg_pool1d(x[:, None], 2)[:, 0],
    "picked": lambda x: x[torch.tensor([0, -1, 1])],
    "chosen": lambda x: x * 2 if x.shape[0] > 12 else x + 1,
    "in place": lambda x: x.clone().mul_(0.5).add_(1),
    "written": lambda x: x.clone().index_fill_(0, torch.tensor([1]), 3.0),
    "softmax": lambda x: x.softmax(1),
    "stacked": lambda x: torch.stack([x, x + 1], 1).flatten(0, 1),
    "repeated": lambda x: x.repeat(2, 1),
    "narrow": lambda x: x.narrow(0, 1, x.shape[0] - 1),
    "variance": lambda x: x / (x.var(0) + 1),
}


def program(seed: int) -> tuple[list[str], Callable[[Any], Any]]:
    names = random.Random(seed).choices(list(STEPS), k=4)

    def fn(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x, x.sum(), x.shape[0] * 2

    return names, fn


def check_program(seed: int, grad: bool) -> tuple[int, int]:
    names, fn = program(seed)
    compiled = torch.compile(fn, fullgraph=True)
    dice = random.Random(seed)
    for _ in range(6):
        x = torch.randn(dice.randint(6, 20), dice.choice([8, 8, 8, 11]))
        y = x.clone()
        if grad:
            x.requires_grad_()
            y.requires_grad_()
        want, have = fn(x), compiled(y)
        assert close(want, have, 1e-4, 1e-4), (seed, names, tuple(x.shape))
        if grad and want[1].requires_grad:
            want[1].backward()
            have[1].backward()
            assert close(x.grad, y.grad, 1e-3, 1e-4), (seed, names, tuple(x.shape))
    return compiled.traces, compiled.instances


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("grad", [False, True])
def test_random_programs(seed: int, grad: bool) -> None:
    check_program(2 * seed + grad, grad)


@pytest.mark.nightly
def test_many_random_programs() -> None:
    """`pytest -m nightly tests/capture/test_dynamic.py`: most are not traced again."""
    made = [check_program(seed, seed % 2 == 1) for seed in range(100, 500)]
    assert sum(instances for _, instances in made) > len(made)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_all_sizes_in_random_order(name: str) -> None:
    make, shape = MODELS[name]
    model, twin = twins(make)
    compiled = torch.compile(twin.eval(), fullgraph=True)
    model.eval()
    with torch.no_grad():
        for n in random.Random(1).sample(range(1, 65), 64):
            x = torch.randn(n, *shape)
            assert close(model(x), compiled(x), atol=2e-5), n
    assert counts(compiled)[0] <= TRACES
