"""Linear layers with weights in few bits beside those in float32.

    python -m benchmarks quantized                  products of 128 rows, then of a token
    python -m benchmarks quantized --layers 2       a token of a smaller model
    python -m benchmarks quantized --only products  one of the two

One thread, processor time, all sides in turn in this process, the best of many. *Products*: 128
rows by the matrices of BERT-base; 8 x 8 bits must be at least twice as fast as float32. *Token*:
all products that one token of a GPT-2-size model needs (12 layers of 768, 50,257 words), each layer
with a weight of its own, so that weights come from memory; attention and norms are not among them.
"""

from __future__ import annotations

import argparse
import sys
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quantized", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", choices=("products", "token"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each comparison")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    good = True
    with torch.no_grad():
        if options.only != "token":
            good = products(options.seconds)
        if options.only != "products":
            token(options.layers, options.seconds)
    print("ok" if good else f"8 x 8 bits are below {LEAST} times float32")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
