"""Programs that take unusual ways through the framework: profiled, they must give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne.utils.checkpoint import checkpoint
from lucerne.utils.data import DataLoader, TensorDataset

Corner = Callable[[], Any]
CORNERS: dict[str, Corner] = {}


def corner(function: Corner) -> Corner:
    CORNERS[function.__name__] = function
    return function


def network() -> Any:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))


def image() -> Any:
    torch.manual_seed(6)
    return torch.randn(4, 6)


def grads(net: Any) -> list[Any]:
    return [p.grad for p in net.parameters()]


@corner
def mixed_precision() -> Any:
    net, x = network(), image()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x).float().pow(2).sum()
    loss.backward()
    return loss, grads(net)


@corner
def checkpointed() -> Any:
    net, x = network(), image()
    checkpoint(net, x, use_reentrant=False).sum().backward()
    return grads(net)


@corner
def reentrant() -> Any:
    net, x = network(), image().requires_grad_()
    checkpoint(net, x, use_reentrant=True).sum().backward()
    return grads(net), x.grad


class Doubled(torch.autograd.Function):
    """Twice the input; its gradient is three times what arrives."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 + x


@corner
def own_function() -> Any:
    x = image().requires_grad_()
    Doubled.apply(x.exp()).sum().backward()
    return x.grad


@corner
def second_derivative() -> Any:
    x = image().requires_grad_()
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    first.pow(2).sum().backward()
    return first, x.grad


@corner
def jacobian() -> Any:
    x = image()[0]
    return torch.autograd.functional.jacobian(lambda v: v.tanh() * v.sum(), x)


@corner
def hooked() -> Any:
    x = image().requires_grad_()
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.exp().sum().backward()
    return x.grad, y.grad


@corner
def looked_at() -> Any:
    """A history that somebody reads is nodes, not records."""
    x = image().requires_grad_()
    y = (x.exp() + x.sin()).sum()
    assert y.grad_fn is not None
    y.backward()
    return x.grad


@corner
def several_uses() -> Any:
    """Sums of gradients are rounded in the order in which they arrive."""
    x = image().requires_grad_()
    y = x * 3
    (y.exp() * y + y.sin() / y.cosh() + y.sigmoid()).mean().backward()
    return x.grad


@corner
def in_place_history() -> Any:
    x = image().requires_grad_()
    y = x.clone()
    y[1:].mul_(2)
    z = y.relu_() * 2
    z.add_(x).sum().backward()
    return x.grad, z


@corner
def without_gradients() -> Any:
    net, x = network(), image()
    with torch.inference_mode():
        first = net(x)
    with torch.no_grad():
        return first, net(x)


@corner
def list_optimizers() -> Any:
    found = []
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad):
        for foreach in (False, True):
            net, x = network(), image()
            optimizer = kind(net.parameters(), lr=0.1, foreach=foreach)
            for _ in range(2):
                optimizer.zero_grad()
                net(x).pow(2).sum().backward()
                optimizer.step()
            found.append([p.detach() for p in net.parameters()])
    return found


@corner
def recurrent() -> Any:
    torch.manual_seed(7)
    cell = torch.nn.LSTM(6, 5, batch_first=True)
    out, _ = cell(image().unsqueeze(0))
    out.sum().backward()
    return out, grads(cell)


@corner
def random_numbers() -> Any:
    torch.manual_seed(8)
    net = torch.nn.Dropout(0.5)
    return (
        net(torch.ones(20)),
        torch.randn(5),
        torch.randperm(6),
        torch.bernoulli(torch.full((4,), 0.5)),
    )


@corner
def into_memory() -> Any:
    x, out = image(), torch.empty(4, 6)
    torch.exp(x, out=out)
    torch.add(x, 1, out=out[:])
    return out


@corner
def loaded() -> Any:
    return list(DataLoader(TensorDataset(image()), batch_size=2))


@corner
def compiled_with_a_break() -> Any:
    @torch.compile
    def step(x: Any) -> Any:
        y = x * 2
        if y.sum().item() > 1e9:
            return y
        return y.exp() + 1

    x = image()
    return [step(x) for _ in range(3)]


@corner
def compiled_for_many_sizes() -> Any:
    step = torch.compile(lambda x: (x * 2).softmax(-1).sum(0))
    return [step(torch.ones(n, 4)) for n in (2, 3, 5, 4)]
