"""A Llama that goes from one device to a mesh by one flag.

    python examples/llama/llama.py                                   # one device
    lucerne run --nproc-per-node 4 examples/llama/llama.py --mesh data=2,model=2
    lucerne plan --chip h100 examples/llama/llama.py --shape 8b --mesh data=256

The device is `xla` (pip install lucerne[xla]). Every process runs this file; all read the same
batch, of which each computes its part.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from lucerne.nn import functional as F

TEXT = Path(__file__).parents[1] / "char_gpt" / "sonnets.txt"


@dataclasses.dataclass
class Shape:
    """The sizes of a model; `words` of 256 are bytes of a text."""

    width: int
    layers: int
    heads: int
    pairs: int
    inner: int
    words: int
    dtype: Any


SHAPES = {
    "tiny": Shape(64, 2, 8, 4, 192, 256, torch.float32),
    "8b": Shape(4096, 32, 32, 8, 14336, 128256, torch.bfloat16),
    "70b": Shape(8192, 80, 64, 8, 28672, 128256, torch.bfloat16),
    "405b": Shape(16384, 126, 128, 8, 53248, 128256, torch.bfloat16),
}


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Positions as rotations of pairs of numbers."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    """Attention in which several heads share their keys and values, and a gated layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.size = shape.width, shape.width // shape.heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, shape.pairs * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, width, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        b, t, width = x.shape
        n = self.first(x)
        q, k, v = (f(n).view(b, t, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
        n = self.second(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.words, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, tokens: Any, cos: Any, sin: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def place(model: Llama, text: str) -> DeviceMesh:
    """The one flag: parameters over a mesh, `data=2,model=4`."""
    sizes = dict(pair.split("=") for pair in text.split(","))
    mesh = init_device_mesh("xla", [int(n) for n in sizes.values()], mesh_dim_names=list(sizes))
    if "model" in sizes:
        into = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
        for block in model.blocks:
            styles = {**into, "out": RowwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(block, mesh["model"], styles)
    if "data" in sizes:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
    return mesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mesh", default="", help="data=2,model=4; without it: one device")
    parser.add_argument("--shape", choices=list(SHAPES), default="tiny")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8, help="sequences in all")
    parser.add_argument("--length", type=int, default=32)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    torch.manual_seed(0)
    torch.set_default_dtype(shape.dtype)
    with torch.device("xla"):
        model = Llama(shape)
    mesh = place(model, options.mesh) if options.mesh else None
    turns = torch.arange(options.length)[:, None] * 1e4 ** -torch.linspace(
        0, 1, shape.width // shape.heads // 2
    )
    cos, sin = (f(turns).to(shape.dtype).to("xla") for f in (torch.cos, torch.sin))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    @torch.compile
    def step(tokens: Any) -> Any:
        scores = model(tokens[:, :-1], cos, sin)
        loss = F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    for k in range(options.steps):
        starts = torch.randint(0, len(text) - options.length - 1, (options.batch, 1))
        tokens = text[starts + torch.arange(options.length + 1)].to("xla")
        loss = step(tokens).item()
        if mesh is None or mesh.get_rank() == 0:
            print(f"step {k}: {loss:.5f}", flush=True)


if __name__ == "__main__":
    main()
