"""Programs to trace, written once for both frameworks: each takes the package and makes one."""

import math
from collections import namedtuple
from typing import Any

Pair = namedtuple("Pair", "first second")


def asserting(x: Any) -> Any:
    """Here because pytest rewrites the assertions of test files."""
    assert x.sum() > 0, "negative"
    return x


PROGRAMS: dict[str, Any] = {}


def program(make: Any) -> Any:
    PROGRAMS[make.__name__] = make
    return make


@program
def operators(torch: Any) -> Any:
    return lambda x, y: -(x + 1) * y / 2 - 3 // y + x**2 % 5 @ y + (x > y) + (2 - x) + abs(x)


@program
def reflected(torch: Any) -> Any:
    return lambda x: (1 + x, 2 * x, 3 / x, 4**x, 5 % x, ~x, x & 1, 1 | x, x ^ x, x == 1, +x)


@program
def methods(torch: Any) -> Any:
    return lambda x: x.view(x.size(0), -1).transpose(0, 1).contiguous().sum(dim=0, keepdim=True)


@program
def attributes(torch: Any) -> Any:
    def f(x: Any) -> Any:
        n, c = x.shape
        return x.reshape(n * c).to(x.dtype), x.T, x.ndim

    return f


@program
def indexing(torch: Any) -> Any:
    return lambda x, i: (x[0], x[:, 1:], x[..., None], x[i], x[i : i + 2], x[:, i])


@program
def functions(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        a = torch.cat([x, y], dim=1)
        b = torch.stack((x, y), 0)
        c = torch.where(x > 0, x, y)
        d = torch.sum(a, 1) + torch.mean(b, dim=(0, 1), keepdim=False)
        e = torch.flatten(c, 1)
        return torch.matmul(e, y), torch.exp(d), torch.clamp(a, min=0, max=1), torch.max(x)

    return f


@program
def kept_spelling(torch: Any) -> Any:
    def f(x: Any) -> Any:
        a = torch.softmax(x, dim=1)
        b = torch.softmax(x, 1)
        c = torch.transpose(x, dim0=0, dim1=1)
        d = torch.argmax(x, dim=-1, keepdim=True)
        return torch.bmm(a, mat2=b), c, d, torch.unsqueeze(x, 0), torch.tanh(input=x)

    return f


@program
def functional(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x: Any, w: Any, b: Any) -> Any:
        x = F.relu(x)
        x = F.dropout(x, 0.1, training=True)
        x = F.linear(x, w, b)
        x = F.gelu(x)
        x = F.layer_norm(x, (8,), eps=1e-3)
        x = F.leaky_relu(x, 0.2)
        return F.log_softmax(x, dim=1), F.mse_loss(x, b), F.pad(x, (1, 1)), F.silu(x)

    return f


@program
def functional_images(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x: Any, w: Any) -> Any:
        x = F.conv2d(x, w, padding=1)
        x = F.max_pool2d(x, 2)
        x = F.avg_pool2d(x, 2, stride=1)
        x = F.adaptive_avg_pool2d(x, (1, 1))
        return F.interpolate(x, scale_factor=2), F.batch_norm(x, w, w), F.softplus(x)

    return f


@program
def linear(torch: Any) -> Any:
    return torch.nn.Linear(3, 4)


@program
def sequential(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))


@program
def residual(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(3)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.act(self.norm(self.conv(x)) + x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean((2, 3)))

    return Net()


@program
def parameters(torch: Any) -> Any:
    nn = torch.nn

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("shift", torch.ones(3))
            self.inner = nn.Module()
            self.inner.deep = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            y = x * self.weight + self.shift
            return self.shift + y * self.weight - self.inner.deep

    return Scale()


@program
def constants(torch: Any) -> Any:
    t = torch.ones(3)
    return lambda x: (x + t, t * x, torch.add(t, x), x + torch.zeros(2))


@program
def attention(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.out = nn.Linear(8, 8)
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            q, k, v = self.qkv(x).split(8, dim=2)
            q = q.view(b, t, 2, c // 2).transpose(1, 2)
            k = k.view(b, t, 2, c // 2).transpose(1, 2)
            v = v.view(b, t, 2, c // 2).transpose(1, 2)
            a = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            a = F.softmax(a, dim=-1, dtype=None)
            y = (self.drop(a) @ v).transpose(1, 2).contiguous().view(b, t, c)
            return self.out(y)

    return Attention()


@program
def defaults(torch: Any) -> Any:
    def f(x: Any, scale: float = 2.0, mode: str = "a", flag: Any = None) -> Any:
        return x * scale

    return f


@program
def annotated(torch: Any) -> Any:
    Tensor = torch.Tensor

    def f(x: Tensor, n: int, items: list[int]) -> Tensor:  # type: ignore[valid-type]
        return x + n

    return f


@program
def nested_results(torch: Any) -> Any:
    return lambda x: {"a": [x, x + 1], "b": (x * 2, {"c": None})}


@program
def named_tuple(torch: Any) -> Any:
    return lambda x: Pair(x, x + 1)


@program
def starred(torch: Any) -> Any:
    def f(x: Any, *rest: Any, key: Any = 3, **more: Any) -> Any:
        return x + rest[0] + more["k"]

    return f


@program
def shared_module(torch: Any) -> Any:
    nn = torch.nn

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x))

    return Twice()


@program
def lists_of_modules(torch: Any) -> Any:
    nn = torch.nn

    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(2, 2), "b-2": nn.Linear(2, 1)})

        def forward(self, x: Any) -> Any:
            return torch.cat([h(x) for h in self.heads.values()], dim=-1)

    return Several()


@program
def math_functions(torch: Any) -> Any:
    return lambda x: x * math.sqrt(x.size(0)) + math.floor(x.dim())


@program
def creation(torch: Any) -> Any:
    def f(x: Any) -> Any:
        n = x.size(0)
        a = torch.zeros((n, 3))
        b = torch.arange(0, n, device=x.device)
        c = torch.ones(2, n, dtype=torch.int64)
        return a, b, c, torch.zeros_like(x), x.new_zeros(2), torch.full((n, 2), 1.5)

    return f


@program
def unpacking(torch: Any) -> Any:
    def f(x: Any) -> Any:
        a, b = torch.chunk(x, 2, dim=0)
        (c, d), e = torch.max(x, dim=1), x.unbind(0)
        return a + b + c + d, e[0]

    return f


@program
def in_place(torch: Any) -> Any:
    def f(x: Any) -> Any:
        y = x.clone()
        y.add_(1)
        y += x
        y *= 2
        return y.relu_()

    return f


@program
def builtin_names(torch: Any) -> Any:
    return lambda input, max, lambda_: (input.sum() + max.max() + torch.sum(lambda_), input.type())


@program
def same_names(torch: Any) -> Any:
    def f(add: Any, add_1: Any) -> Any:
        return (add + add_1) + (add + 1) + torch.add(add, 2)

    return f


@program
def transformer_layer(torch: Any) -> Any:
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x: Any) -> Any:
            h = self.norm(x)
            a, _ = self.attn(h, h, h, need_weights=False)
            return x + self.mlp(x + a)

    return Layer()


@program
def recurrent(torch: Any) -> Any:
    nn = torch.nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.rnn = nn.LSTM(4, 5, batch_first=True)
            self.out = nn.Linear(5, 3)

        def forward(self, tokens: Any) -> Any:
            found, (h, c) = self.rnn(self.embed(tokens))
            return self.out(found), h, c

    return Tagger()


@program
def einsum(torch: Any) -> Any:
    return lambda x, y: torch.einsum("ij,jk->ik", x, y)


@program
def linear_algebra(torch: Any) -> Any:
    return lambda x: (torch.linalg.norm(x, dim=1), torch.linalg.inv(x), torch.fft.fft(x))


@program
def comparisons(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return torch.eq(x, y), x.ne(y), torch.isnan(x), torch.logical_and(x > 0, y <= 0)

    return f


@program
def dtypes(torch: Any) -> Any:
    return lambda x: x.to(torch.float16).to("cpu", torch.float32).type(torch.int64)


@program
def slices(torch: Any) -> Any:
    return lambda x: x[1:3, ::2, None, ..., -1]
