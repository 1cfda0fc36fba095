"""Damaged files of exported programs: each is refused with a `LoadError`, or runs.

python -m tests.export.fuzz --files 2000

Half of the files have bytes changed, cut or swapped (the checksum must notice); half have their
graph or signature changed and a right checksum, as somebody with bad intentions would do it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
from collections import Counter
from typing import Any

import lucerne
from lucerne import nn
from lucerne._src.io import safetensors
from lucerne._src.io.errors import LoadError
from lucerne.control_flow import scan
from lucerne.export import Dim, export, load, save

CLEAN = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    NotImplementedError,
    ArithmeticError,
    MemoryError,
)
"""What running a program may raise: its ops speak for themselves."""


class Net(nn.Module):
    """Convolution, batch norm in training, a loop, a decision, indexing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.out, self.names = nn.Linear(4, 3), nn.Embedding(7, 4)

    def forward(self, x: Any, ids: Any) -> Any:
        h = self.norm(self.conv(x)).relu().mean((2, 3)) + self.names(ids)
        h[:, 1:3] = h[:, :2] * 2
        h = lucerne.cond(h.sum() > 0, lambda h: h * 2, lambda h: -h, (h,))
        carry, ys = scan(lambda c, v: (c + v, c * v), lucerne.zeros_like(h), lucerne.stack([h, h]))
        return {"out": self.out(h), "loop": (carry, ys), "size": x.shape[0]}


def example() -> tuple[bytes, tuple[Any, Any], Any]:
    """The bytes of a good file, arguments, and what it gives."""
    lucerne.manual_seed(0)
    args = lucerne.randn(3, 2, 5, 5), lucerne.tensor([0, 3, 6])
    batch = Dim("batch", min=2, max=9)
    program = export(Net(), args, dynamic_shapes=({0: batch}, {0: batch}))
    file = io.BytesIO()
    save(program, file)
    return file.getvalue(), args, values(load(io.BytesIO(file.getvalue())).module()(*args))


def values(result: Any) -> Any:
    """A result in a form that can be compared."""
    if isinstance(result, lucerne.Tensor):
        return result.tolist()
    if isinstance(result, dict):
        return {k: values(v) for k, v in result.items()}
    return [values(x) for x in result] if isinstance(result, (tuple, list)) else result


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut off, doubled or put elsewhere."""
    raw = bytearray(content)
    kind = rng.randrange(5)
    at = rng.randrange(len(raw))
    if kind == 0:
        raw[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del raw[at:]
    elif kind == 2:
        length = rng.randrange(1, 64)
        raw[at : at + length] = rng.randbytes(length)
    elif kind == 3:
        raw[at:at] = raw[at : at + rng.randrange(1, 64)]
    else:
        other = rng.randrange(len(raw))
        raw[at], raw[other] = raw[other], raw[at]
    return bytes(raw)


_PIECES = (
    "float32", "int64", "bool", "0", "1", "2", "-1", "99999999999", "%0", "%1", "%7", "(", ")", "[",
    "]", "{", "}", ",", ";", "None", "True", "'default'", "as_strided", "put_region", "copy",
    "view",
        "add2", "cond_graphs", "scan_graphs", "return", "s0", "s0*s0", "1e308", "nan", "...",
    "@meta",
)  # fmt: skip


def forged(content: bytes, rng: random.Random) -> bytes:
    """A file with another graph or signature, whose checksum is right."""
    said, _, _ = safetensors._header(safetensors.np.frombuffer(content, safetensors.np.uint8))
    said = {k: v for k, v in said.items() if k != safetensors.DIGEST}
    key = rng.choice(["lucerne.graph", "lucerne.export"])
    if key == "lucerne.export" and rng.random() < 0.5:
        said[key] = json.dumps(_changed(json.loads(said[key]), rng))
    else:
        said[key] = _edited(said[key], rng)
    tensors = safetensors.load(content)
    if rng.random() < 0.1 and tensors:
        name = rng.choice(list(tensors))
        tensors[name] = tensors[name].reshape(-1)[: rng.randrange(4)].clone()
    return safetensors.save(tensors, said, digest=True)


def _edited(text: str, rng: random.Random) -> str:
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(text))
        if rng.random() < 0.3:  # another number
            digits = [k for k, c in enumerate(text) if c.isdigit()]
            at = rng.choice(digits)
            text = text[:at] + str(rng.choice([0, 1, 5, 9, 77, 10**9])) + text[at + 1 :]
        elif rng.random() < 0.5:
            text = text[:at] + rng.choice(_PIECES) + text[at + rng.randrange(8) :]
        else:
            end = at + rng.randrange(1, 40)
            text = text[:at] + text[end:]
    return text


def _changed(x: Any, rng: random.Random) -> Any:
    """JSON with something inside replaced."""
    if isinstance(x, dict) and x and rng.random() < 0.9:
        key = rng.choice(list(x))
        return {**x, key: _changed(x[key], rng)}
    if isinstance(x, list) and x and rng.random() < 0.9:
        k = rng.randrange(len(x))
        return [*x[:k], _changed(x[k], rng), *x[k + 1 :]]
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return x + rng.choice([-1, 1, 2**40])
    return rng.choice([None, 0, -1, "x", "s0//0", [], {}, "weight", x, [x]])


def outcome(content: bytes, args: tuple[Any, Any], want: Any) -> str:
    """What becomes of a file: refused, equal, different, raised."""
    try:
        program = load(io.BytesIO(content))
    except (LoadError, OSError):
        return "refused"
    try:
        got = values(program.module()(*args))
    except CLEAN:
        return "raised"
    return "equal" if got == want else "different"


def run(files: int, seed: int) -> Counter[str]:
    content, args, want = example()
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    for k in range(files):
        if k % 2:
            found["forged: " + outcome(forged(content, rng), args, want)] += 1
            continue
        damaged = mutated(content, rng)
        told = outcome(damaged, args, want)
        if told not in ("refused", "equal"):
            raise AssertionError(f"file {k}: damaged bytes were taken, and the result was {told}")
        found["damaged: " + told] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for told, count in sorted(run(chosen.files, chosen.seed).items()):
        print(f"{count:6d} {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
