"""The whole programs of the compiler's benchmark, as users of torch write them.

Each takes the module it runs on: `import lucerne as torch` and `import torch` get the same lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import weights
from benchmarks.weights import Arrays, Images, Language, Vectors

Step = Any
"""A function of tensors that a user would hand to `compile`."""


def load(torch: Any, model: Any, arrays: Arrays) -> None:
    """Put the common starting weights into a model: every parameter, no other name."""
    own = dict(model.named_parameters())
    if own.keys() != arrays.keys():
        raise KeyError(f"parameters differ: {sorted(own.keys() ^ arrays.keys())}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.from_numpy(arrays[name]))


# ---- models ------------------------------------------------------------------------------------


def layer_of(torch: Any, s: Language, eps: float = 1e-5) -> Any:
    """The class of what all transformer layers have: two norms, attention's two products and those
    of a perceptron."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(s.width, eps), nn.LayerNorm(s.width, eps)
            self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
            self.up, self.down = nn.Linear(s.width, 4 * s.width), nn.Linear(4 * s.width, s.width)

        def attend(self, x: Any, causal: bool) -> Any:
            batch, length, width = x.shape
            q, k, v = self.qkv(x).split(width, dim=2)
            q = q.view(batch, length, s.heads, -1).transpose(1, 2)
            k = k.view(batch, length, s.heads, -1).transpose(1, 2)
            v = v.view(batch, length, s.heads, -1).transpose(1, 2)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

        def perceive(self, x: Any) -> Any:
            return self.down(nn.functional.gelu(self.up(x)))

    return Layer


def block_of(torch: Any, s: Language) -> Any:
    """The class of one layer of a GPT: attention and a perceptron, each behind a layer norm."""

    class Block(layer_of(torch, s)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x), True)
            return x + self.perceive(self.norm2(x))

    return Block


def words_of(torch: Any, s: Language, block: Any) -> Any:
    """The class of what is around the layers of a GPT: words to vectors, vectors to words."""
    nn = torch.nn

    class Words(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(s.words, s.width)
            self.place = nn.Embedding(s.length, s.width)
            self.blocks = nn.ModuleList(block() for _ in range(s.layers))
            self.norm, self.head = nn.LayerNorm(s.width), nn.Linear(s.width, s.words, bias=False)

    return Words


def gpt_model(torch: Any, s: Language) -> Any:
    class GPT(words_of(torch, s, block_of(torch, s))):  # type: ignore[misc]
        def forward(self, ids: Any) -> Any:
            x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def decoder_model(torch: Any, s: Language) -> Any:
    """The same GPT, one word at a time, with the keys and values of earlier words kept."""
    size = s.width // s.heads

    class Block(layer_of(torch, s)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, s.heads, s.length, size))
            self.register_buffer("values", torch.zeros(1, s.heads, s.length, size))

        def forward(self, x: Any, position: Any, mask: Any, length: int | None) -> Any:
            q, k, v = self.qkv(self.norm1(x)).split(s.width, dim=1)  # (1, width) each
            self.keys.index_copy_(2, position, k.view(1, s.heads, 1, size))
            self.values.index_copy_(2, position, v.view(1, s.heads, 1, size))
            keys, values = self.keys, self.values
            if length is not None:
                keys, values = keys[:, :, :length], values[:, :, :length]
            q = q.view(1, s.heads, 1, size)
            y = torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + self.out(y.view(1, s.width))
            return x + self.perceive(self.norm2(x))

    class Decoder(words_of(torch, s, Block)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.arange(s.length))

        def forward(self, token: Any, position: Any, length: int | None = None) -> Any:
            """Logits of the next word. Without a `length` later places are masked: one shape."""
            x = self.token(token) + self.place(position)
            mask = (self.places <= position).view(1, -1) if length is None else None
            for block in self.blocks:
                x = block(x, position, mask, length)
            return self.head(self.norm(x))

    return Decoder()


def bert_model(torch: Any, s: Language) -> Any:
    """A BERT encoder: layer norms behind attention and perceptron."""
    nn = torch.nn

    class Layer(layer_of(torch, s, 1e-12)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x = self.norm1(x + self.attend(x, False))
            return self.norm2(x + self.perceive(x))

    class Bert(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(s.words, s.width), nn.Embedding(512, s.width)
            self.kind = nn.Embedding(2, s.width)
            self.norm = nn.LayerNorm(s.width, eps=1e-12)
            self.layers = nn.ModuleList(Layer() for _ in range(s.layers))

        def forward(self, ids: Any) -> Any:
            kinds = torch.zeros_like(ids)
            x = self.token(ids) + self.place(torch.arange(ids.shape[1])) + self.kind(kinds)
            x = self.norm(x)
            for layer in self.layers:
                x = layer(x)
            return x

    return Bert()


def resnet_model(torch: Any, s: Images) -> Any:
    """A ResNet with the stem for small images."""
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.fits = stride == 1 and inputs == outputs
            if not self.fits:
                self.fit = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.fit_norm = nn.BatchNorm2d(outputs)

        def forward(self, x: Any) -> Any:
            y = self.norm1(self.conv1(x)).relu()
            short = x if self.fits else self.fit_norm(self.fit(x))
            return (self.norm2(self.conv2(y)) + short).relu()

    class ResNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, s.widths[0], 3, 1, 1, bias=False)
            self.norm = nn.BatchNorm2d(s.widths[0])
            self.blocks = nn.ModuleList(
                Residual(inputs, outputs, stride)
                for _, inputs, outputs, stride in weights.residuals(s)
            )
            self.head = nn.Linear(s.widths[-1], 10)

        def forward(self, x: Any) -> Any:
            x = self.norm(self.stem(x)).relu()
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean((2, 3)))

    return ResNet()


def mlp_model(torch: Any, s: Vectors) -> Any:
    nn = torch.nn

    class MLP(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            pairs = zip(s.widths, s.widths[1:], strict=False)
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairs)

        def forward(self, x: Any) -> Any:
            for layer in self.layers[:-1]:
                x = layer(x).relu()
            return self.layers[-1](x)

    return MLP()


class Training:
    """A model with its optimizer and batch; `step` is the whole training step of a user."""

    def __init__(self, torch: Any, model: Any, optimizer: Any, batch: Any, half: bool) -> None:
        self.torch, self.model, self.optimizer, self.batch = torch, model, optimizer, batch
        self.half = half

    def loss(self, x: Any, target: Any) -> Any:
        torch = self.torch
        if not self.half:
            return torch.nn.functional.cross_entropy(self.model(x).flatten(0, -2), target)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.cross_entropy(self.model(x).flatten(0, -2), target)

    def step(self, x: Any, target: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, target)
        loss.backward()
        self.optimizer.step()
        return loss


def gpt(torch: Any, s: Language, half: bool = False, **options: Any) -> Training:
    model = gpt_model(torch, s)
    load(torch, model, weights.filled(weights.gpt_shapes(s)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, **options)
    return Training(torch, model, optimizer, _tensors(torch, weights.words(s)), half)


def resnet(torch: Any, s: Images, last: bool = False, **options: Any) -> Training:
    """`last`: channels last in memory."""
    model = resnet_model(torch, s)
    load(torch, model, weights.filled(weights.resnet_shapes(s)))
    x, target = _tensors(torch, weights.pictures(s))
    if last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **options
    )
    return Training(torch, model, optimizer, (x, target), half=False)


def mlp(torch: Any, s: Vectors, **options: Any) -> Training:
    model = mlp_model(torch, s)
    load(torch, model, weights.filled(weights.mlp_shapes(s)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **options)
    return Training(torch, model, optimizer, _tensors(torch, weights.rows(s)), half=False)


def _tensors(torch: Any, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(a) for a in arrays)


# ---- programs that only look forward -----------------------------------------------------------


def bert(torch: Any, s: Language) -> tuple[Any, Any]:
    """The encoder and its ids."""
    model = bert_model(torch, s)
    load(torch, model, weights.filled(weights.bert_shapes(s)))
    return model.eval(), torch.from_numpy(weights.words(s)[0])


def stock_bert(torch: Any, s: Language) -> tuple[Any, Any]:
    """The encoder with the module's own layer, for which torch has a fused forward."""
    nn, arrays = torch.nn, weights.filled(weights.bert_shapes(s))
    model = bert_model(torch, s)
    load(torch, model, arrays)
    for i in range(s.layers):
        layer = nn.TransformerEncoderLayer(
            s.width, s.heads, 4 * s.width, 0.0, "gelu", 1e-12, batch_first=True
        )
        names = {"self_attn.in_proj_": "qkv.", "self_attn.out_proj.": "out.", "linear1.": "up."}
        names |= {"linear2.": "down.", "norm1.": "norm1.", "norm2.": "norm2."}
        own = {
            theirs + end: torch.from_numpy(arrays[f"layers.{i}.{ours}{end}"])
            for theirs, ours in names.items()
            for end in ("weight", "bias")
        }
        layer.load_state_dict(own)
        model.layers[i] = layer
    return model.eval(), torch.from_numpy(weights.words(s)[0])


def decoder(torch: Any, s: Language) -> Any:
    model = decoder_model(torch, s)
    load(torch, model, weights.filled(weights.gpt_shapes(s)))
    return model.eval()


def generate(torch: Any, step: Step, s: Language, sliced: bool, words: int) -> tuple[Any, Any]:
    """Choose `words` words greedily, one step each; the words and their logits.

    `sliced`: give the step the length so far (work grows with it; the shapes change every time).
    """
    token, chosen, logits = torch.zeros(1, dtype=torch.int64), [], []
    places = torch.arange(s.length)
    with torch.inference_mode():
        for i in range(words):
            position = places[i : i + 1]
            scores = step(token, position, i + 1) if sliced else step(token, position)
            token = scores.argmax(-1)
            chosen.append(token)
            logits.append(scores.amax(-1))
        return torch.cat(chosen), torch.cat(logits)


# ---- a function with many tensors and little work ----------------------------------------------


def many(torch: Any, arguments: int, parameters: int) -> tuple[Any, list[Any]]:
    """A module of tiny parameters and the tiny arguments of its call."""
    nn = torch.nn

    class Many(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(
                nn.Parameter(torch.full((4,), 0.01 * i)) for i in range(parameters)
            )

        def forward(self, *xs: Any) -> Any:
            total = xs[0]
            for i, weight in enumerate(self.weights):
                total = total + weight * xs[i % len(xs)]
            return total

    return Many(), [torch.full((4,), float(i)) for i in range(arguments)]
