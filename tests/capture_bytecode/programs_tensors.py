"""Tensors and modules: what models are made of."""

import copy
import dataclasses
import math

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import nn
from tests.capture_bytecode.cases import case


def filled(module):
    """A module whose parameters don't depend on a seed."""
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(((torch.arange(p.numel()) % 7).float().reshape(p.shape) - 3) * 0.1 + k * 0.01)
    return module


class Mlp(nn.Module):
    def __init__(self, sizes=(3, 4, 2)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k + 1 < len(self.layers):
                x = F.relu(x)
        return x


class Residual(nn.Module):
    def __init__(self, inner, scale=None):
        super().__init__()
        self.inner, self.scale = inner, scale

    def forward(self, x, *, mask=None):
        y = self.inner(x)
        if self.scale is not None:
            y = y * self.scale
        if mask is not None:
            y = y * mask
        return x + y


class Attention(nn.Module):
    def __init__(self, dim=4, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.qkv(x).chunk(3, -1)
        )
        a = (q @ k.transpose(-1, -2)) / math.sqrt(c // self.heads)
        mask = torch.ones(t, t).tril() == 0
        a = a.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((a @ v).transpose(1, 2).reshape(b, t, c))


class WithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.history = []

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.history.append(len(self.history))
        return x - self.mean


def parameters_of(args):
    model = args[0]
    return [(n, p, p.grad) for n, p in model.named_parameters()], list(model.buffers())


X = lambda: (filled(Mlp()), torch.arange(6.0).reshape(2, 3))


@case(X, observe=lambda args: args[0].calls)
def mlp_forward(model, x):
    return model(x)


@case(X, observe=parameters_of)
def mlp_loss_and_gradients(model, x):
    loss = F.mse_loss(model(x), torch.ones(2, 2))
    loss.backward()
    return loss.detach()


@case(X, observe=parameters_of)
def training_steps(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@case(X, observe=parameters_of)
def training_with_scheduler(model, x):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    rates = []
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    return rates


@case(
    lambda: (filled(Residual(nn.Linear(3, 3), 0.5)), torch.ones(2, 3)),
    lambda: (filled(Residual(Residual(nn.Linear(3, 3)))), torch.ones(2, 3)),
)
def residual(model, x):
    return model(x), model(x, mask=torch.tensor([1.0, 0.0, 1.0]))


@case(lambda: (filled(Attention()), torch.arange(24.0).reshape(2, 3, 4) * 0.1))
def attention(model, x):
    return model(x)


@case(
    lambda: (
        filled(
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Residual(nn.Linear(4, 4)), nn.Linear(4, 1))
        ),
        torch.ones(2, 3),
    )
)
def sequential(model, x):
    return model(x), len(model), type(model[2]).__name__


@case(
    lambda: (WithBuffer(), torch.arange(4.0).reshape(2, 2)),
    observe=lambda args: (args[0].mean, args[0].history),
)
def module_with_state(model, x):
    a = model(x)
    b = model(x)
    model.eval()
    return a, b, model(x)


@case(X)
def forward_hooks(model, x):
    seen = []

    def hook(module, args, output):
        seen.append((type(module).__name__, tuple(output.shape)))
        return output * 2

    handle = model.layers[0].register_forward_hook(hook)
    first = model(x)
    handle.remove()
    return first, model(x), seen


@case(X)
def module_introspection(model, x):
    names = [n for n, _ in model.named_parameters()]
    shapes = {n: tuple(p.shape) for n, p in model.state_dict().items()}
    return (
        names,
        shapes,
        sum(p.numel() for p in model.parameters()),
        [type(m).__name__ for m in model.modules()],
        model.training,
    )


@case(X)
def module_made_inside(model, x):
    layer = nn.Linear(3, 2, bias=False)
    layer.load_state_dict({"weight": torch.ones(2, 3)})
    twin = copy.deepcopy(layer)
    return layer(x) + twin(x), layer.weight is not twin.weight


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * 10


@case(lambda: (torch.arange(3.0, requires_grad=True),))
def custom_function(x):
    y = Square.apply(x)
    y.sum().backward()
    return y.detach()


@case(lambda: (torch.arange(3.0, requires_grad=True),))
def gradient_functions(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g.detach(), h


@case(lambda: (torch.arange(3.0, requires_grad=True),))
def tensor_hook(x):
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    y.sum().backward()
    return seen


@case(lambda: (torch.arange(6.0).reshape(2, 3), torch.tensor([0, 2])))
def cross_entropy(logits, labels):
    return F.cross_entropy(logits, labels), logits.argmax(-1) == labels, F.one_hot(labels, 3)


@case(lambda: (torch.arange(10.0), 3))
def windows(x, n):
    parts = []
    start = 0
    while start + n <= len(x):
        parts.append(x[start : start + n].mean())
        start += n
    return torch.stack(parts), x.unfold(0, n, n).mean(1)


@case(lambda: (torch.ones(2, 3),), lambda: (torch.ones(5, 1),))
def shapes_as_numbers(x):
    n = x.shape[0] * x.size(1)
    pad = (4 - n % 4) % 4
    flat = torch.cat([x.reshape(-1), torch.zeros(pad)]) if pad else x.reshape(-1)
    return flat.reshape(-1, 4), n, x.dim(), x.numel() == n


@case(lambda: (torch.tensor([1.0, float("nan"), 3.0]),))
def data_dependent_shapes(x):
    kept = x[~torch.isnan(x)]
    return kept, torch.nonzero(kept > 2), kept.tolist(), int(kept.sum())


@case(lambda: (torch.arange(3.0),))
def conversions(x):
    return (
        x.numpy().sum().item(),
        x.tolist(),
        float(x[1]),
        int(x[2]),
        bool(x[0]),
        len(x),
        list(x),
        x.int(),
        x.to(torch.float64),
    )


@case(lambda: ())
def random_numbers():
    torch.manual_seed(5)
    a = torch.rand(3)
    torch.manual_seed(5)
    return bool((a == torch.rand(3)).all()), F.dropout(torch.ones(4), 0.0)


@dataclasses.dataclass
class Batch:
    inputs: torch.Tensor
    targets: torch.Tensor

    def to(self, dtype):
        return Batch(self.inputs.to(dtype), self.targets.to(dtype))


@case(
    lambda: (filled(Mlp()), [Batch(torch.ones(2, 3) * k, torch.zeros(2, 2)) for k in range(2)]),
    observe=parameters_of,
)
def epoch(model, batches):
    total = 0.0
    for k, batch in enumerate(batches):
        batch = batch.to(torch.float32)
        loss = F.mse_loss(model(batch.inputs), batch.targets)
        if not torch.isfinite(loss):
            raise ValueError(f"loss of batch {k} is {loss.item()}")
        loss.backward()
        total += loss.detach() * len(batch.inputs)
    return total / sum(len(b.inputs) for b in batches)


@case(lambda: (torch.ones(3),))
def beam_like_search(x):
    beams = [(0.0, [x])]
    for step in range(2):
        grown = []
        for score, path in beams:
            for k in (1, 2):
                grown.append((score + k * step, [*path, path[-1] * k]))
        grown.sort(key=lambda b: -b[0])
        beams = grown[:2]
    return [(s, torch.stack(p).sum(0)) for s, p in beams]


@case(lambda: (torch.eye(2) * 4,))
def newton_square_root(a):
    x = a
    for _ in range(6):
        x = 0.5 * (x + torch.linalg.inv(x) @ a)
    return x.round(decimals=3)


@case(lambda: (torch.ones(2),))
def cache_of_tensors(x):
    cache = {}

    def get(key):
        if key not in cache:
            cache[key] = x * len(key)
        return cache[key]

    return get("ab") + get("ab") + get("c"), list(cache)


@case(lambda: (torch.arange(4.0),))
def tensors_as_default_and_star(x):
    def layer(*xs, scale=x, **more):
        return sum(xs) * scale + sum(more.values())

    return layer(x, x), layer(x, scale=2.0, a=x, b=1)
