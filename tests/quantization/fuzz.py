"""`python -m tests.quantization.fuzz --count 5000`: damaged files are read or refused.

GGUF files and GPTQ, AWQ checkpoints (as safetensors) with bytes flipped, cut, repeated or put in
between. Each must load, or raise `LoadError`, in a second and a few megabytes.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from collections.abc import Callable

import lucerne as torch
from lucerne._src.io.errors import LoadError
from lucerne.io import safetensors
from lucerne.quantization import load_gguf, load_packed_
from tests.quantization import craft

SECONDS = 2.0


def _gguf(data: bytes) -> None:
    load_gguf(io.BytesIO(data))


def _packed(method: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        model = torch.nn.Sequential()
        model.add_module("fc", torch.nn.Linear(32, 16))
        model.add_module("norm", torch.nn.LayerNorm(16))
        config = {"quant_method": method, "bits": 4, "group_size": 16}
        load_packed_(model, safetensors.load(data, checksums=False), config)
        model(torch.ones(1, 32))

    return read


def _file(method: str) -> bytes:
    rest = {"fc.bias": torch.ones(16), "norm.weight": torch.ones(16), "norm.bias": torch.ones(16)}
    return safetensors.save({**craft.packed_layer(method, 16, 32, 16)[0], **rest}, digest=False)


READERS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], None]]] = {
    "gguf": (craft.small_gguf, _gguf),
    "gptq": (lambda: _file("gptq"), _packed("gptq")),
    "awq": (lambda: _file("awq"), _packed("awq")),
}


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four accidents, most of them near the beginning, where a header is."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(1, min(len(made), rng.choice((32, 400, len(data))))))
        match rng.randrange(5):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                made[at : at + 8] = rng.choice((b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f"))
            case 2:
                del made[at : at + rng.randint(1, 40)]
            case 3:
                made[at:at] = made[at : at + rng.randint(1, 40)]
            case _:
                del made[len(made) - rng.randint(1, max(1, len(made) // 2)) :]
    return bytes(made)


def run(count: int, seed: int = 0) -> dict[str, dict[str, int]]:
    """How many files of each kind were read and refused; anything else is raised."""
    told = {}
    for name, (make, read) in READERS.items():
        rng, whole, seen = random.Random(f"{name}{seed}"), make(), {"read": 0, "refused": 0}
        read(whole)
        for number in range(count // len(READERS) + 1):
            data = mutated(whole, rng)
            began = time.process_time()
            try:
                read(data)
                seen["read"] += 1
            except LoadError:
                seen["refused"] += 1
            except Exception as error:
                raise AssertionError(f"{name}, seed {seed}, number {number}") from error
            if time.process_time() - began > SECONDS:
                raise AssertionError(f"{name}, seed {seed}, number {number}: too slow")
        told[name] = seen
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quantization.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, seen in run(options.count, options.seed).items():
        print(f"{name}: {seen['read']} read, {seen['refused']} refused, 0 crashes, 0 hangs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
