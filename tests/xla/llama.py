"""A model of the shape of Llama 3 8B in bfloat16, its parameters cut over a mesh: to be planned.

lucerne plan --chip h100 tests/xla/llama.py --devices 256 --layers 2
"""

import argparse
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor import Shard, distribute_tensor
from lucerne.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=256)
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--batch", type=int, default=1, help="sequences on each device")
options = parser.parse_args()
WIDTH, HEADS, PAIRS, INNER, WORDS = 4096, 32, 8, 14336, 128256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, PAIRS * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        b, t, _ = x.shape
        n = self.first(x)
        q, k, v = (
            f(n).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        n = self.second(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def turned(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Any, cos: Any, sin: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


mesh = init_device_mesh("xla", (options.devices,), mesh_dim_names=("data",))
torch.set_default_dtype(torch.bfloat16)
with torch.device("xla"):
    model = Llama()
    tokens = torch.zeros(options.batch * options.devices, options.length, dtype=torch.int64)
    cos, sin = (torch.zeros(options.length, WIDTH // HEADS // 2) for _ in range(2))
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.3f} billion parameters")
tokens = distribute_tensor(tokens, mesh, [Shard(0)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


@torch.compile
def step(tokens: Any, cos: Any, sin: Any) -> Any:
    scores = model(tokens, cos, sin)
    loss = F.cross_entropy(scores.view(-1, WORDS).float(), tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in range(3):
    loss = step(tokens, cos, sin)
    print(f"{loss.item():.4f}")
