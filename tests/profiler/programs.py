"""Small programs that both frameworks run: `program(torch) -> what to profile`.

The first part of a program makes what it needs; the function that it gives back is profiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any], Callable[[], Any]]

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@program
def arithmetic(t: Any) -> Callable[[], Any]:
    a, b = t.ones(3, 4), t.ones(4)
    return lambda: ((a + b) * a - b / 2, -a, a**2, 1 - a, a // 2, a % 2)


@program
def elementary(t: Any) -> Callable[[], Any]:
    x = t.ones(8)
    return lambda: [
        f(x) for f in (t.exp, t.log, t.sqrt, t.sin, t.tanh, t.sigmoid, t.abs, t.erf, t.rsqrt)
    ]


@program
def comparisons(t: Any) -> Callable[[], Any]:
    a, b = t.ones(3), t.zeros(3)
    return lambda: (a > b, a == b, a <= b, t.where(a > b, a, b), t.maximum(a, b), t.isnan(a))


@program
def in_place(t: Any) -> Callable[[], Any]:
    a, b = t.ones(3), t.ones(3)

    def run() -> None:
        a.add_(b)
        a.mul_(2)
        a.clamp_(0, 1)
        a.zero_()
        a.fill_(3)
        a.copy_(b)
        a.__iadd__(b)
        a.exp_()
        a.sub_(b)
        a.div_(2)

    return run


@program
def reductions(t: Any) -> Callable[[], Any]:
    x = t.ones(3, 4)
    return lambda: (
        x.sum(), x.sum(1), x.mean(), x.mean(0), x.amax(1), x.argmax(1), x.max(), x.max(1),
        x.prod(), x.std(), x.var(0), x.any(), x.all(), x.cumsum(0), x.norm(), x.logsumexp(1),
    )  # fmt: skip


@program
def shapes(t: Any) -> Callable[[], Any]:
    x = t.ones(2, 3, 4)
    return lambda: (
        x.view(6, 4), x.reshape(4, 6), x.transpose(0, 1), x.permute(2, 0, 1), x.unsqueeze(0),
        x.squeeze(), x.flatten(1), x.expand(2, 3, 4), x.contiguous(), x.mT,
        x.chunk(2, 2), x.split(1), x.narrow(0, 0, 1), x.repeat(1, 1, 2), x.unbind(0),
    )  # fmt: skip


@program
def indexing(t: Any) -> Callable[[], Any]:
    x = t.ones(4, 5)
    index = t.tensor([0, 2])
    return lambda: (
        x[0], x[1:3], x[:, 1], x[index], x.gather(1, index.view(1, 2)), x.index_select(0, index),
        t.cat([x, x]), t.stack([x, x]), x.masked_fill(x > 0, 2.0), x.flip(0), x.roll(1, 0),
    )  # fmt: skip


@program
def creation(t: Any) -> Callable[[], Any]:
    x = t.ones(2)
    return lambda: (
        t.zeros(3), t.ones(2, 2), t.full((2,), 7.0), t.arange(5), t.eye(3), t.linspace(0, 1, 4),
        t.zeros_like(x), t.ones_like(x), t.empty(3), t.rand(3), t.randn(3), x.clone(), x.detach(),
    )  # fmt: skip


@program
def conversions(t: Any) -> Callable[[], Any]:
    x = t.ones(3)
    return lambda: (x.to(t.float64), x.double(), x.int(), x.half(), x.bool(), x.to(t.float32))


@program
def products(t: Any) -> Callable[[], Any]:
    a, b, v = t.ones(3, 4), t.ones(4, 5), t.ones(4)
    batch = t.ones(2, 3, 4)
    return lambda: (
        a @ b, t.mm(a, b), t.matmul(a, v), t.bmm(batch, batch.transpose(1, 2)), a @ v,
        t.addmm(t.ones(5), a, b), t.dot(v, v), t.outer(v, v), t.einsum("ij,jk->ik", a, b),
    )  # fmt: skip


@program
def activations(t: Any) -> Callable[[], Any]:
    x, F = t.ones(3, 4), t.nn.functional
    return lambda: (
        F.relu(x), F.gelu(x), F.silu(x), F.softmax(x, -1), F.log_softmax(x, -1), F.elu(x),
        F.leaky_relu(x), F.softplus(x), F.hardtanh(x), F.mish(x), F.sigmoid(x), F.tanh(x),
        x.relu(), x.softmax(1), F.dropout(x, 0.5, False), F.relu6(x), F.hardswish(x),
    )  # fmt: skip


@program
def layers(t: Any) -> Callable[[], Any]:
    nn = t.nn
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 3 * 3, 5), nn.LayerNorm(5), nn.Dropout(0.0), nn.Softmax(-1),
    ).eval()  # fmt: skip
    x = t.ones(2, 3, 8, 8)

    def run() -> Any:
        with t.no_grad():
            return net(x)

    return run


@program
def more_layers(t: Any) -> Callable[[], Any]:
    nn = t.nn
    embedding, group = nn.Embedding(5, 4), nn.GroupNorm(2, 4)
    pool, average, rms = nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(2), nn.RMSNorm(4)
    index, image = t.tensor([1, 2]), t.ones(2, 4, 4, 4)
    return lambda: (
        rms(embedding(index)), group(image), pool(image), average(image),
        nn.functional.pad(image, (1, 1)), nn.functional.normalize(image),
    )  # fmt: skip


@program
def losses(t: Any) -> Callable[[], Any]:
    F, x, target = t.nn.functional, t.ones(3, 4), t.tensor([0, 1, 2])
    return lambda: (
        F.cross_entropy(x, target), F.mse_loss(x, x), F.l1_loss(x, x), F.nll_loss(x, target),
        F.binary_cross_entropy_with_logits(x, x), F.smooth_l1_loss(x, x), F.huber_loss(x, x),
        F.kl_div(x, x, reduction="sum"),
    )  # fmt: skip


@program
def attention(t: Any) -> Callable[[], Any]:
    q = t.ones(1, 2, 4, 8)
    return lambda: t.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


@program
def backward_of_a_sum(t: Any) -> Callable[[], Any]:
    x = t.ones(3, 4, requires_grad=True)
    return lambda: (x * 2).exp().sum().backward()


@program
def backward_of_a_network(t: Any) -> Callable[[], Any]:
    net = t.nn.Sequential(t.nn.Linear(4, 5), t.nn.ReLU(), t.nn.Linear(5, 3))
    x, target = t.ones(2, 4), t.tensor([0, 1])
    return lambda: t.nn.functional.cross_entropy(net(x), target).backward()


@program
def training(t: Any) -> Callable[[], Any]:
    net = t.nn.Linear(4, 3)
    optimizer = t.optim.SGD(net.parameters(), lr=0.1)
    x = t.ones(2, 4)

    def run() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

    return run


@program
def annotated(t: Any) -> Callable[[], Any]:
    x = t.ones(3)

    def run() -> None:
        with t.profiler.record_function("outer"):
            x.exp()
            with t.profiler.record_function("inner"):
                x.sin()
        x.cos()

    return run


@program
def numbers_out(t: Any) -> Callable[[], Any]:
    x = t.ones(3)
    return lambda: (x.sum().item(), float(x[0]), bool(x[0] > 0), x.tolist())


@program
def linear_algebra(t: Any) -> Callable[[], Any]:
    a = t.eye(3) * 2
    return lambda: (
        t.linalg.inv(a), t.linalg.det(a), t.linalg.norm(a), t.linalg.cholesky(a), a.diagonal(),
        t.tril(a), t.triu(a), t.trace(a), t.linalg.solve(a, a),
    )  # fmt: skip


@program
def sorting(t: Any) -> Callable[[], Any]:
    x = t.tensor([3.0, 1.0, 2.0])
    return lambda: (
        x.sort(), x.argsort(), x.topk(2), x.unique(), t.searchsorted(x.sort()[0], x), x.median(),
        x.cummax(0), x.nonzero(), t.isin(x, x),
    )  # fmt: skip
