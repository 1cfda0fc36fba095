"""Whole training steps: the models people write, with modules and an optimizer of either side."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Case, one
from benchmarks.timing import Call


def training_step(m: Any, model: Any, optimizer: Any, x: Any, target: Any) -> Call:
    loss_of = m.nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x).flatten(0, -2), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp(m: Any) -> Call:
    """784-256-256-10, batch 64, Adam."""
    nn = m.nn
    m.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    optimizer = m.optim.Adam(model.parameters(), lr=1e-3)
    return training_step(m, model, optimizer, m.rand(64, 784), m.arange(64) % 10)


def block(m: Any, width: int, heads: int) -> Any:
    """One layer of a GPT: attention and a two-layer perceptron, each behind a layer norm."""
    nn, F = m.nn, m.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                t.view(batch, length, heads, -1).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).split(width, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    return Block()


def gpt(m: Any) -> Call:
    """6 layers x 384, 8192 words, 4 x 256 tokens, AdamW."""
    nn, width, words = m.nn, 384, 8192
    m.manual_seed(0)

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(words, width), nn.Embedding(256, width)
            self.blocks = nn.Sequential(*(block(m, width, 6) for _ in range(6)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.token(ids) + self.place(m.arange(ids.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    model = Model()
    optimizer = m.optim.AdamW(model.parameters(), lr=3e-4)
    ids = m.randint(0, words, (4, 256))
    return training_step(m, model, optimizer, ids, m.randint(0, words, (1024,)))


def resnet18(m: Any) -> Call:
    """ResNet-18 with the stem for 32 x 32 images, batch 32, SGD with momentum."""
    nn = m.nn
    m.manual_seed(0)

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.short = nn.Sequential()
            if stride != 1 or inputs != outputs:
                fit = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.short = nn.Sequential(fit, nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = self.norm1(self.conv1(x)).relu()
            return (self.norm2(self.conv2(y)) + self.short(x)).relu()

    layers: list[Any] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
        inputs = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    optimizer = m.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    return training_step(m, model, optimizer, m.rand(32, 3, 32, 32), m.arange(32) % 10)


def training_steps() -> list[Case]:
    """Losses are compared by the examples' tests; here both sides only run."""
    return [
        Case("MLP 784-256-256-10, batch 64, Adam", one(mlp), 0.7, check=False),
        Case("GPT 6 x 384, 4 x 256 tokens, AdamW", one(gpt), 1.05, check=False, long=True),
        Case("ResNet-18, 32 x 3 x 32 x 32, SGD", one(resnet18), 1.05, check=False, long=True),
    ]
