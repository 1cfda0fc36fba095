"""One decoder for GPT-2's and Llama's kind: what differs between them is its config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.generate.cache import KVCache
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.container import ModuleList
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.normalization import LayerNorm, RMSNorm
from lucerne.nn.modules.sparse import Embedding


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and kind of a `Decoder`.

    `kind` "gpt2": layer norm, learned places, GELU (tanh), biases. "llama": RMS norm, rotary
    places (`rotary_base`; neighbours are turned together, or the two halves with
    `rotary_halves`), a gated network with SiLU, no biases. `key_heads` fewer than `heads` share
    keys among queries.
    """

    words: int
    width: int
    layers: int
    heads: int
    kind: str = "llama"
    key_heads: int | None = None
    hidden: int | None = None
    context: int = 2048
    eps: float = 1e-5
    rotary_base: float = 10000.0
    rotary_halves: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("gpt2", "llama"):
            raise ValueError(f"DecoderConfig: kind is 'gpt2' or 'llama', got {self.kind!r}")
        if self.width % self.heads or self.heads % self.shared_heads:
            raise ValueError(
                f"DecoderConfig: {self.heads} heads do not divide a width of {self.width}, or "
                f"{self.shared_heads} heads of keys do not divide them"
            )
        if self.is_rotary and self.size % 2:
            raise ValueError(f"DecoderConfig: places turn pairs; a head has {self.size} columns")

    @property
    def is_rotary(self) -> bool:
        return self.kind == "llama"

    @property
    def size(self) -> int:
        """Columns of a head."""
        return self.width // self.heads

    @property
    def shared_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.key_heads is None else self.key_heads

    @property
    def inner(self) -> int:
        """Width of the network between."""
        return 4 * self.width if self.hidden is None else self.hidden


class Rotary(Module):
    """Turns queries and keys by their places."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.halves = config.rotary_halves
        powers = lu.arange(0, config.size, 2, dtype=dt.float64) / config.size
        steps = config.rotary_base**-powers
        angles = lu.arange(config.context, dtype=dt.float64).unsqueeze(1) * steps
        self.register_buffer("cos", angles.cos().to(dt.float32), persistent=False)
        self.register_buffer("sin", angles.sin().to(dt.float32), persistent=False)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """`x` (batch, heads, count, size) at places (batch, count)."""
        cos, sin = self.cos[places].unsqueeze(1), self.sin[places].unsqueeze(1)
        if self.halves:
            a, b = x.chunk(2, -1)
            return lu.cat([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return lu.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


class DecoderBlock(Module):
    """Attention, then a network, each added to what came in."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        bias, width, shared = not config.is_rotary, config.width, config.shared_heads * config.size
        self.attention_norm, self.network_norm = norm_of(config), norm_of(config)
        self.query = Linear(width, width, bias=bias)
        self.key, self.value = Linear(width, shared, bias=bias), Linear(width, shared, bias=bias)
        self.out = Linear(width, width, bias=bias)
        self.gate = Linear(width, config.inner, bias=False) if config.is_rotary else None
        self.up = Linear(width, config.inner, bias=bias)
        self.down = Linear(config.inner, width, bias=bias)

    def forward(self, x: Tensor, places: Tensor, turn: Any, cache: KVCache | None) -> Tensor:
        x = x + self.out(self._attend(self.attention_norm(x), places, turn, cache))
        y = self.network_norm(x)
        if self.gate is None:
            return x + self.down(F.gelu(self.up(y), approximate="tanh"))
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def _attend(self, x: Tensor, places: Tensor, turn: Any, cache: KVCache | None) -> Tensor:
        c, (batch, count, _) = self.config, x.shape
        q, k, v = (
            layer(x).view(batch, count, heads, c.size).transpose(1, 2)
            for layer, heads in (
                (self.query, c.heads), (self.key, c.shared_heads), (self.value, c.shared_heads)
            )
        )  # fmt: skip
        if turn is not None:
            q, k = turn(q, places), turn(k, places)
        if cache is None:
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=c.heads != c.shared_heads
            )
        else:
            y = cache.attend(self.layer, q, k, v)
        return y.transpose(1, 2).reshape(batch, count, c.width)


def norm_of(config: DecoderConfig) -> Module:
    """The kind of norm that a decoder's layers have."""
    kind = RMSNorm if config.is_rotary else LayerNorm
    return kind(config.width, eps=config.eps)


class Decoder(Module):
    """A language model: tokens (batch, count) in, logits (batch, count, words) out.

    With a cache, the tokens follow those that it holds, and logits are those of each row's last
    token. `load_decoder` makes one from a GGUF file.

    >>> import lucerne as torch
    >>> from lucerne.generate import Decoder, DecoderConfig
    >>> model = Decoder(DecoderConfig(words=50, width=32, layers=2, heads=4, key_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 50])
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.word = Embedding(config.words, config.width)
        self.place = None if config.is_rotary else Embedding(config.context, config.width)
        self.turn = Rotary(config) if config.is_rotary else None
        self.blocks = ModuleList([DecoderBlock(config, i) for i in range(config.layers)])
        self.norm = norm_of(config)
        self.head = Linear(config.width, config.words, bias=False)

    def new_cache(self, batch: int, capacity: int, spare: int = 0) -> KVCache:
        """An empty cache for so many rows and tokens; `spare` places are there to be written to
        by what fills up the last piece of a prompt."""
        c = self.config
        if capacity > c.context:
            raise ValueError(f"Decoder: a cache of {capacity} tokens; the model knows {c.context}")
        return KVCache(
            c.layers, batch, c.shared_heads, c.size, capacity, spare=spare, dtype=self.norm_dtype()
        )

    def norm_dtype(self) -> dt.dtype:
        """The type that the model computes in."""
        found: dt.dtype = self.norm.weight.dtype
        return found

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits."""
        count = tokens.shape[1]
        places = lu.arange(count).unsqueeze(0) if cache is None else cache.places(count)
        # What fills up a piece may stand beyond the last place.
        places = places.clamp(max=self.config.context - 1)
        x = self.word(tokens)
        if self.place is not None:
            x = x + self.place(places)
        for block in self.blocks:
            x = block(x, places, self.turn, cache)
        if cache is not None:
            x = cache.last(x)
        logits: Tensor = self.head(self.norm(x))
        return logits
