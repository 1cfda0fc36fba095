"""Forward and backward of small modules, and steps of optimizers: what a call costs, not its work.

Each case runs a module on a tiny batch, sums the result and goes back to the parameters (and, where
a layer would have another in front of it, to the input).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Make, one
from benchmarks.models import block, training_step
from benchmarks.timing import Call


def data(m: Any, *shape: int, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return m.from_numpy(drawn).clone()


def _trained(m: Any, forward: Callable[[], Any], leaves: list[Any]) -> Call:
    """One step without the optimizer: gradients away, forward, backward."""

    def call() -> Any:
        for t in leaves:
            t.grad = None
        loss = forward()
        loss.backward()
        return loss

    return call


def _module(build: Callable[[Any], Any], *shape: int, to_input: bool = True) -> Make:
    """A module with one input and one result."""

    def make(m: Any) -> Call:
        m.manual_seed(0)
        module, x = build(m.nn), data(m, *shape)
        leaves = list(module.parameters())
        if to_input:
            leaves.append(x.requires_grad_())
        weights = data(m, *module(x).shape, seed=1)  # a plain sum of normalised rows is zero
        return _trained(m, lambda: (module(x) * weights).sum(), leaves)

    return make


def _function(build: Callable[[Any, Any], Any], *shape: int) -> Make:
    """An expression of one leaf."""

    def make(m: Any) -> Call:
        x = data(m, *shape).requires_grad_()
        return _trained(m, lambda: build(m, x), [x])

    return make


def _embedding(m: Any) -> Call:
    m.manual_seed(0)
    module, words = m.nn.Embedding(32, 16), m.arange(24).view(4, 6)
    return _trained(m, lambda: module(words).sum(), [module.weight])


def _cross_entropy(m: Any) -> Call:
    x, target = data(m, 8, 10).requires_grad_(), m.arange(8)
    loss_of = m.nn.CrossEntropyLoss()
    return _trained(m, lambda: loss_of(x, target), [x])


def _mse(m: Any) -> Call:
    x, target = data(m, 8, 10).requires_grad_(), data(m, 8, 10, seed=1)
    loss_of = m.nn.MSELoss()
    return _trained(m, lambda: loss_of(x, target), [x])


def _attention(m: Any) -> Call:
    q, k, v = (data(m, 2, 2, 8, 16, seed=s).requires_grad_() for s in range(3))
    attend = m.nn.functional.scaled_dot_product_attention
    return _trained(m, lambda: attend(q, k, v, is_causal=True).sum(), [q, k, v])


def _heads(m: Any, x: Any) -> Any:
    """How a transformer takes queries, keys and values apart."""
    q, k, v = (t.view(2, 8, 2, 8).transpose(1, 2) for t in x.split(16, dim=2))
    return (q * k * v).transpose(1, 2).reshape(2, 8, 16).sum()


def _chunks(m: Any, x: Any) -> Any:
    a, b = x.chunk(2, -1)
    return (a * b).sum()


def _joined(m: Any, x: Any) -> Any:
    y = x * 2.0
    return (m.cat([x, y], 1).sum() + m.stack([x, y]).sum()) * 0.5


def _recurrent(name: str, batch: int, time: int, width: int) -> Make:
    def make(m: Any) -> Call:
        m.manual_seed(0)
        module, x = getattr(m.nn, name)(width, width), data(m, time, batch, width)
        return _trained(m, lambda: module(x)[0].sum(), list(module.parameters()))

    return make


def _optimizer(name: str, count: int, **options: Any) -> Make:
    def make(m: Any) -> Call:
        parameters = [m.nn.Parameter(data(m, 8, 8, seed=i)) for i in range(count)]
        for p in parameters:
            p.grad = m.ones_like(p)
        return getattr(m.optim, name)(parameters, lr=1e-6, **options).step

    return make


def module_cases() -> list[Case]:
    rows: list[tuple[str, Make, float]] = [
        ("Linear 8x16", _module(lambda nn: nn.Linear(16, 16), 8, 16), 1.0),
        ("Embedding 4x6 of 32x16", _embedding, 1.0),
        ("Dropout 8x16", _module(lambda nn: nn.Dropout(0.5), 8, 16), 1.0),
        ("BatchNorm1d 8x16", _module(lambda nn: nn.BatchNorm1d(16), 8, 16), 1.0),
        ("BatchNorm2d 4x8x6x6", _module(lambda nn: nn.BatchNorm2d(8), 4, 8, 6, 6), 1.0),
        ("LayerNorm 8x16", _module(lambda nn: nn.LayerNorm(16), 8, 16), 1.0),
        ("GroupNorm 4x8x6", _module(lambda nn: nn.GroupNorm(2, 8), 4, 8, 6), 1.0),
        ("Conv2d 2x4x8x8", _module(lambda nn: nn.Conv2d(4, 8, 3, padding=1), 2, 4, 8, 8), 1.0),
        ("MaxPool2d 2x4x8x8", _module(lambda nn: nn.MaxPool2d(2), 2, 4, 8, 8), 1.0),
        ("GELU 8x16", _module(lambda nn: nn.GELU(), 8, 16), 1.0),
        ("Softmax 8x16", _module(lambda nn: nn.Softmax(-1), 8, 16), 1.0),
        ("CrossEntropyLoss 8x10", _cross_entropy, 1.0),
        ("MSELoss 8x10", _mse, 1.0),
        ("attention 2x2x8x16", _attention, 1.0),
        ("split into heads", _function(_heads, 2, 8, 48), 1.0),
        ("chunk", _function(_chunks, 8, 16), 1.0),
        ("cat and stack", _function(_joined, 8, 16), 1.0),
        ("LSTM 4 x 5 x 16", _recurrent("LSTM", 4, 5, 16), 1.0),
        ("GRU 4 x 5 x 16", _recurrent("GRU", 4, 5, 16), 1.0),
    ]
    cases = [
        Case(name, one(make), limit, check="Dropout" not in name) for name, make, limit in rows
    ]
    for name, options in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {})):
        for count in (6, 150):
            case = f"{name}, {count} parameters"
            cases.append(Case(case, one(_optimizer(name, count, **options)), 1.0, check=False))
    for name in ("LSTM", "GRU"):
        make = _recurrent(name, 64, 32, 256)
        cases.append(Case(f"{name} 64 x 32 x 256", one(make), 1.0, long=True))
    return cases + _small_steps()


# ---- small models --------------------------------------------------------------------------------


def _perceptron(m: Any) -> Call:
    """Two hidden layers with layer norm and dropout."""
    nn = m.nn
    m.manual_seed(0)
    layers: list[Any] = []
    for inputs, outputs in ((32, 64), (64, 64)):
        layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.GELU(), nn.Dropout(0.1)]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = m.optim.AdamW(model.parameters(), lr=1e-3)
    return training_step(m, model, optimizer, data(m, 16, 32), m.arange(16) % 10)


def _transformer(m: Any) -> Call:
    """Two layers of width 64, 4 x 16 tokens."""
    nn = m.nn
    m.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(48, 64), block(m, 64, 4), block(m, 64, 4), nn.LayerNorm(64), nn.Linear(64, 48)
    )
    optimizer = m.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = m.arange(64).view(4, 16) % 48
    return training_step(m, model, optimizer, tokens, m.arange(64) % 48)


def _convnet(m: Any) -> Call:
    """Two convolutions with batch norm and pooling, 4 images of 12 x 12."""
    nn = m.nn
    m.manual_seed(0)
    layers: list[Any] = []
    for inputs, outputs in ((3, 8), (8, 16)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 9, 10))
    optimizer = m.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return training_step(m, model, optimizer, data(m, 4, 3, 12, 12), m.arange(4))


def _tagger(m: Any) -> Call:
    """An embedding, an LSTM of width 32, a classifier of every step."""
    nn = m.nn
    m.manual_seed(0)

    class Tagger(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(40, 32), nn.LSTM(32, 32, batch_first=True)
            self.tags = nn.Linear(32, 5)

        def forward(self, words: Any) -> Any:
            return self.tags(self.lstm(self.words(words))[0])

    model = Tagger()
    optimizer = m.optim.Adam(model.parameters(), lr=1e-3)
    words = m.arange(48).view(4, 12) % 40
    return training_step(m, model, optimizer, words, m.arange(48) % 5)


def _small_steps() -> list[Case]:
    return [
        Case("MLP with LayerNorm and Dropout", one(_perceptron), 1.0, check=False),
        Case("transformer 2 x 64", one(_transformer), 1.0, check=False),
        Case("CNN with BatchNorm", one(_convnet), 1.0, check=False),
        Case("LSTM tagger", one(_tagger), 1.0, check=False),
    ]
