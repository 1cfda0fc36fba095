"""Train a small GPT on a device and compare its losses with those of the host.

python examples/backend_opencl/train_gpt.py --steps 100
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import backends, nn

TEXT = "the quick brown fox jumps over the lazy dog. " * 40


class Block(nn.Module):
    """Attention, then a perceptron, each beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        parts = self.attend(self.norm1(x)).split(c, -1)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Characters to characters."""

    def __init__(self, words: int, length: int, layers: int, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Any, targets: Any) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def losses(
    device: str, steps: int, *, compiled: bool = False, layers: int = 4, width: int = 64
) -> list[float]:
    """The loss of each step, from the same seed everywhere."""
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    text = torch.tensor([letters.index(c) for c in TEXT])
    model = GPT(len(letters), 16, layers, width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(tokens: Any, targets: Any) -> Any:
        loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step) if compiled else step
    found = []
    for _ in range(steps):
        starts = torch.randint(0, len(text) - 17, (4,)).tolist()
        rows = torch.stack([text[k : k + 17] for k in starts]).to(device)
        found.append(run(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()).item())
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--simple", action="store_true", help="without the faster kernels")
    options = parser.parse_args()
    from lucerne_opencl import FastOpenCL, OpenCL

    backends.register("opencl", OpenCL() if options.simple else FastOpenCL())
    host, worst = losses("cpu", options.steps), 0.0
    print(f"cpu: loss {host[0]:.4f} -> {host[-1]:.4f}")
    for compiled in (False, True):
        start = time.perf_counter()
        found = losses("opencl", options.steps, compiled=compiled)
        took = time.perf_counter() - start
        apart = max(abs(a - b) for a, b in zip(host, found, strict=True))
        worst = max(worst, apart)
        name = "compiled" if compiled else "eager"
        print(f"opencl {name}: loss {found[-1]:.4f}, at most {apart:.1e} apart, {took:.0f} s")
    print(f"fallback bill: {backends.bill()}")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
