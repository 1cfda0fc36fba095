"""Linear layers with weights in few bits beside those in float32.

    python -m benchmarks quantized                  products of 128 rows, a token, an encoder
    python -m benchmarks quantized --layers 2       the same of a smaller model
    python -m benchmarks quantized --only products  one of the three

One thread, processor time, all sides in turn in this process, the best of many. *Products*: 128
rows by the matrices of BERT-base; 8 x 8 bits must be at least twice as fast as float32. *Token*:
all products that one token of a GPT-2-size model needs (12 layers of 768, 50,257 words), each layer
with a weight of its own, so that weights come from memory; attention and norms are not among them.
*Encoder*: BERT-base, 128 tokens, compiled, with all of its layers in float32 and in 8 x 8 bits;
torch with its own `quantize_dynamic` beside it where torch is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import lucerne as torch
from benchmarks.timing import best_in_turn
from lucerne import quantization as q

LEAST = 2.0
"""How many times as fast as float32 products of 8 x 8 bits must be."""
ROWS = 128
MATRICES = ((768, 768), (3072, 768), (768, 3072))
TOKEN = ((2304, 768), (768, 768), (3072, 768), (768, 3072))
WORDS, WIDTH = 50257, 768
CONFIGS: dict[str, Any] = {
    "8 bits x 8 bits": q.Int8DynamicActivationInt8WeightConfig(),
    "8 bits": q.Int8WeightOnlyConfig(),
    "4 bits, groups of 128": q.Int4WeightOnlyConfig(group_size=128),
    "4 bits x 8 bits, groups of 32": q.Int8DynamicActivationInt4WeightConfig(group_size=32),
    "float8": q.Float8WeightOnlyConfig(),
}


def _layer(rows: int, columns: int, config: Any) -> Any:
    """A linear layer of random numbers; in few bits, if a config is given."""
    weight = torch.randn(rows, columns) * 0.02
    if config is None:
        made = torch.nn.Linear(columns, rows, bias=False, device="meta")
        made.weight = torch.nn.Parameter(weight, requires_grad=False)
        return made
    codes = q.quantize_weight(weight, config.stored, config.groups_of)
    return q.QuantizedLinear.from_weight(codes, dynamic=config.dynamic)


def _times(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    for call in calls.values():
        call()
    return best_in_turn(calls, rounds=3, seconds=seconds)


def products(seconds: float) -> bool:
    """Print a line for each matrix; whether 8 x 8 bits are fast enough for all of them."""
    good = True
    for rows, columns in MATRICES:
        x = torch.randn(ROWS, columns)
        layers = {"float32": _layer(rows, columns, None)}
        layers |= {name: _layer(rows, columns, config) for name, config in CONFIGS.items()}
        calls = {name: (lambda m=m, x=x: m(x)) for name, m in layers.items()}
        found = _times(calls, seconds)
        rate = 2 * ROWS * rows * columns / found["float32"] / 1e9
        told = ", ".join(
            f"{name} {t * 1e3:.2f} ms ({found['float32'] / t:.2f} x)" for name, t in found.items()
        )
        print(f"{ROWS} x {rows} x {columns} (float32 {rate:.0f} GFLOP/s): {told}", flush=True)
        good = good and found["float32"] / found["8 bits x 8 bits"] >= LEAST
    return good


def token(layers: int, seconds: float) -> None:
    """Print milliseconds of the products of one token, for each kind of weight."""
    shapes = [*(TOKEN * layers), (WORDS, WIDTH)]
    inputs = {columns: torch.randn(1, columns) for _, columns in TOKEN}

    def all_of(config: Any) -> Callable[[], None]:
        made = [_layer(*shape, config) for shape in shapes]

        def run() -> None:
            for layer in made:
                layer(inputs[layer.in_features])

        return run

    for name, config in {"float32": None, **CONFIGS}.items():
        run = all_of(config)  # one kind at a time: all of them would need gigabytes
        (found,) = _times({name: run}, seconds).values()
        print(f"products of a token, {name}: {found * 1e3:.1f} ms", flush=True)


def _encoder(t: Any, layers: int) -> Any:
    """The layers of BERT-base in Lucerne or torch, without embeddings."""
    F = t.nn.functional

    class Layer(t.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = t.nn.Linear(WIDTH, 3 * WIDTH), t.nn.Linear(WIDTH, WIDTH)
            self.up, self.down = t.nn.Linear(WIDTH, 4 * WIDTH), t.nn.Linear(4 * WIDTH, WIDTH)
            self.first, self.second = t.nn.LayerNorm(WIDTH), t.nn.LayerNorm(WIDTH)

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            heads = self.qkv(x).view(b, n, 3, WIDTH // 64, 64).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
            x = self.first(x + self.out(seen.transpose(1, 2).reshape(b, n, WIDTH)))
            return self.second(x + self.down(F.gelu(self.up(x))))

    return t.nn.Sequential(*(Layer() for _ in range(layers))).eval()


def encoder(layers: int, seconds: float) -> None:
    """Print milliseconds of the encoder, ours and torch's, in float32 and in 8 bits."""
    model, x = _encoder(torch, layers), torch.randn(1, ROWS, WIDTH)
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    runs = {"float32": torch.compile(model), "8 bits x 8 bits": torch.compile(small)}
    calls: dict[str, Callable[[], Any]] = {k: (lambda f=f: f(x)) for k, f in runs.items()}
    if importlib.util.find_spec("torch") is not None:
        other = importlib.import_module("torch")
        other.set_num_threads(1)
        other.set_grad_enabled(False)
        theirs = _encoder(other, layers)
        y = other.randn(1, ROWS, WIDTH)
        calls["torch float32"] = lambda: theirs(y)
        with warnings.catch_warnings(action="ignore"):
            made = other.ao.quantization.quantize_dynamic(theirs, {other.nn.Linear})
        calls["torch 8 bits x 8 bits"] = lambda: made(y)
    told = ", ".join(f"{name} {t * 1e3:.1f} ms" for name, t in _times(calls, seconds).items())
    print(f"encoder of {layers} layers, {ROWS} tokens: {told}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quantized", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", choices=("products", "token", "encoder"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each comparison")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    good = True
    with torch.no_grad():
        if options.only in (None, "products"):
            good = products(options.seconds)
        if options.only in (None, "token"):
            token(options.layers, options.seconds)
        if options.only in (None, "encoder"):
            encoder(options.layers, options.seconds)
    print("ok" if good else f"8 x 8 bits are below {LEAST} times float32")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
